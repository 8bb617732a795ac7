# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recording a cluster into a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.controller import Controller


def test_a_recording__is_written_and_reports_no_change(planner: Controller, tmp_path: Path) -> None:
    dest = tmp_path / "cluster.json"
    result = planner.run("cluster_snapshot_info", dest=str(dest))
    assert (result["changed"], result["dest"]) == (False, str(dest))
    assert json.loads(dest.read_text(encoding="utf-8")) == result["snapshot"]
    assert dest.stat().st_mode & 0o077 == 0


def test_a_recording__is_not_written_in_check_mode(planner: Controller, tmp_path: Path) -> None:
    dest = tmp_path / "cluster.json"
    assert planner.run("cluster_snapshot_info", dest=str(dest), check=True)["changed"] is False
    assert not dest.exists()


@pytest.mark.parametrize("dest", ["/no/such/folder/cluster.json", "/dev/null", "a\0b"])
def test_a_recording__that_cannot_be_written_is_told(planner: Controller, dest: str) -> None:
    failed = planner.fail("InvalidRequest", "cluster_snapshot_info", dest=dest)
    assert f"dest: cannot write {dest!r}" in failed["msg"]
