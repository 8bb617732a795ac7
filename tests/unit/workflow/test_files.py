# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results in files that the user names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.files import write_json


def test_file__is_written_whole_for_its_owner(tmp_path: Path) -> None:
    write_json("dest", str(tmp_path / "plan.json"), {"a": 1})
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == {"a": 1}
    assert (tmp_path / "plan.json").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("name", ["a" * 300, ".", "missing/plan.json"])
def test_file_that_cannot_be_written__leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="dest: cannot write"):
        write_json("dest", str(tmp_path / name), {"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_name_that_is_taken_meanwhile__leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(_old: str, _new: str) -> None:
        raise IsADirectoryError(21, "Is a directory")

    monkeypatch.setattr("os.replace", taken)
    with pytest.raises(InvalidRequest, match="Is a directory"):
        write_json("dest", str(tmp_path / "plan.json"), {"a": 1})
    assert list(tmp_path.iterdir()) == []
