# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mark of an unfinished VM is read as it was written, whatever Proxmox makes of a description."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Decision, DeviceAllocation, Template
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.request import vm_request
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.unfinished import (
    MARK,
    Unfinished,
    read_mark,
)


@pytest.mark.parametrize("description", ["", "mine", "two\n\nparagraphs", "ends with a line\n"])
@pytest.mark.parametrize(
    "decided", [{}, {"storages": {"scsi1": "fast"}, "devices": {"hostpci0": "mapping=gpu,pcie=1"}}]
)
def test_what_a_mark_keeps__is_read_again(description: str, decided: dict[str, dict[str, str]]) -> None:
    written = Unfinished(description, **decided).marked_description
    # Proxmox ends each line of a description with a newline.
    assert read_mark({"description": f"{written}\n"}) == Unfinished(description.rstrip("\n"), **decided)
    assert written.splitlines()[0].startswith(MARK)


@pytest.mark.parametrize("config", [{}, {"description": "mine"}, {"description": f"see below\n{MARK}"}])
def test_vm_without_the_mark_at_the_top__is_whole(config: dict[str, str]) -> None:
    assert read_mark(config) is None


@pytest.mark.parametrize("edited", [f"{MARK}!", f"{MARK} [1]", f'{MARK} {{"storages": 5}}'])
def test_mark_that_was_edited__is_one_that_keeps_nothing(edited: str) -> None:
    assert read_mark({"description": f"{edited}\nmine\n"}) == Unfinished("mine")


def test_description_that_fits_only_without_the_mark__is_left_out_of_it() -> None:
    assert Unfinished("x" * 8192).marked_description == MARK


def test_mark__keeps_what_was_decided_and_only_that() -> None:
    given = {"scsi0": {"size": 20}, "scsi1": {"size": 8}, "scsi2": {"size": 8, "storage": "slow"}}
    request = vm_request({"name": "web-1", "clone": "tpl", "scsi": given})
    gpu = DeviceAllocation("gpu", "pci", "0000:01:00.0", "pve1", "gpu", "hostpci0", "mapping=gpu")
    template = Template(9000, "pve1", "tpl", volumes=(("scsi0", "shared", 1), ("ide2", "shared", 1)))
    storages = {"scsi0": "shared", "ide2": "shared", "scsi1": "fast", "scsi2": "slow"}
    decision = Decision(request, "pve1", 123, storages=storages, devices=(gpu,), template=template)
    assert Unfinished.copy_of(decision, "mine") == Unfinished("mine", {"scsi1": "fast"}, {"hostpci0": "mapping=gpu"})
