# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The config of a VM as options: of every recorded config, of both releases."""

from __future__ import annotations

from typing import Any

import pytest
from support.recorded_configs import recorded_configs

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.describing import describe
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.drift import compare
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.request import vm_request

IDENTITY = {"name": "any", "vmid": 100}
NOT_OPTIONS = {
    "digest", "lock", "meta", "name", "parent", "runningcpu", "runningmachine", "smbios1", "template", "vmgenid",
    "vmstate",
}


def nothing_refused(_parameter: str, _text: str) -> None:
    """For root@pam with its password."""


KEYS = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJhc2U2NCBvZiBhIGtleSB0aGF0IGlzIG5vbmUu ann@example.com"


@pytest.mark.parametrize("config", recorded_configs())
def test_recorded_config__is_described_by_options_that_change_nothing(config: dict[str, Any]) -> None:
    found = describe(IDENTITY, config, nothing_refused)
    request = vm_request({**IDENTITY, **found.options})
    assert not compare(request.options, config)
    parameters = {key for key in config if not key.startswith("unused") and str(config[key]).strip()} - NOT_OPTIONS
    assert parameters - request.options.keys() == found.left_out.keys()
    assert set(found.left_out) <= {"cipassword"}, found.left_out


def test_described_vm__can_be_made_again_from_its_options() -> None:
    config = {
        "scsi0": "local-lvm:vm-100-disk-0,discard=on,iothread=1,size=32G",
        "scsi10": "shared:vm-100-disk-1,size=512M",
        "efidisk0": "shared:vm-100-disk-2,efitype=4m,pre-enrolled-keys=1,size=4M",
        "ide2": "shared:vm-100-cloudinit,media=cdrom",
        "ide0": "local:iso/debian-13.iso,media=cdrom,size=700M",
        "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
        "tags": "a;b",
        "onboot": "1",
        "memory": "2048",
        "bios": "ovmf",
        "sshkeys": KEYS.replace(" ", "%20"),
        "cipassword": "**********",
        "args": "-device x",
        "smbios1": "uuid=0d9c6a51-7f1e-4f0e-a3a5-2b9b6d3c8e10",
    }
    found = describe(IDENTITY, config, lambda parameter, _text: "root only" if parameter == "args" else None)
    assert found.options == {
        "bios": "ovmf",
        "efidisk0": {"storage": "shared", "efitype": "4m", "pre_enrolled_keys": True},
        "ide": {"ide0": "local:iso/debian-13.iso,media=cdrom", "ide2": "shared:cloudinit"},
        "memory": 2048,
        "net": {"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"},
        "onboot": True,
        "scsi": {"scsi0": "local-lvm:32,discard=on,iothread=1", "scsi10": "shared:0.5"},
        "sshkeys": [KEYS],
        "tags": ["a", "b"],
    }
    assert found.left_out == {"args": "root only", "cipassword": "it is secret"}


def test_value_that_no_option_means__is_left_out_with_the_reason() -> None:
    found = describe(IDENTITY, {"memory": "2048", "ostype": "l28"}, nothing_refused)
    assert found.options == {"memory": 2048}
    assert list(found.left_out) == ["ostype"]
