# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recipes run as written, one after the other, on the demo cluster. A file of its own, as it takes the longest."""

from __future__ import annotations

from pathlib import Path

from support.page_runs import run_page
from support.pages import CHECKOUT


def test_recipes__run_as_written(tmp_path: Path) -> None:
    run = run_page(CHECKOUT / "docs" / "how-to.md", tmp_path)
    assert run.code == 0, run.output
    kafka = run.of("Four replicas over two racks, evenly")["vms"]
    assert sorted(vm["node"] in ("pve1", "pve3") for vm in kafka) == [False, False, True, True]
    assert run.of("More memory for an existing VM")["vms"][0]["actions"] == ["update"]
    fleet = run.of("Compare the list, and find VMs that are not in it")
    assert {vm["name"]: vm["state"] for vm in fleet["vms"]}["forum-web-3"] == "missing"
    assert [vm["actions"] for vm in run.of("One web server less")["vms"]] == [[], [], [], ["delete"]]
