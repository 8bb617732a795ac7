# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of the collection a reader meets who follows one task."""

from __future__ import annotations

from pathlib import Path

from support.controller import Controller
from support.module_server import WALK


def test_walk__of_two_new_vms_goes_through_at_most_70_files(controller: Controller, tmp_path: Path) -> None:
    disk = {"scsi0": {"storage": "local-lvm", "size": 8}}
    walk = tmp_path / "walk"
    vms = [{"name": "web-1"}, {"name": "web-2"}]
    controller.schedule(vms=vms, cores=1, memory=1024, scsi=disk, env={WALK: str(walk)})
    files = walk.read_text(encoding="utf-8").splitlines()
    assert {"workflow/run.py", "engine/scheduling_cycle.py", "proxmox/binder.py"} <= {*files}
    assert len(files) <= 70, files
