# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A VM whose config holds the unexpected is planned for, or refused with an error of ours."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from support.small_cluster import guest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import CollectionError
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.comparison import Comparison
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.growth import growth_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import build_entries

CONFIG: dict[str, Any] = {
    "name": "web",
    "cores": 2,
    "memory": "512",
    "cpu": "host,flags=+aes",
    "agent": "enabled=1",
    "onboot": 1,
    "scsi0": "local:vm-100-disk-0,size=8G,ssd=1",
    "ide2": "local:iso/a.iso,media=cdrom,size=5M",
    "tags": "a;b",
    "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
    "ipconfig0": "ip=10.0.0.1/24",
    "boot": "order=scsi0",
    "sshkeys": "ssh-ed25519%20AAAA",
    "description": "x",
    "startup": "order=1",
    "template": 0,
    "protection": 0,
    "meta": "creation-qemu=9,ctime=1",
    "smbios1": "uuid=x",
    "vmgenid": "y",
    "lock": "backup",
}
ASKED: dict[str, Any] = {
    "name": "web",
    "update": True,
    "cores": 4,
    "memory": 1024,
    "cpu": "host",
    "agent": "enabled=0",
    "onboot": False,
    "scsi": {"scsi0": {"size": 16}},
    "ide": {"ide2": "local:iso/b.iso,media=cdrom"},
    "tags": ["c"],
    "net": {"net0": "virtio,bridge=vmbr1"},
    "ipconfig": {"ipconfig0": "ip=10.0.0.2/24"},
    "boot": "order=scsi0",
    "sshkeys": "ssh-ed25519 AAAA x",
    "description": "y",
    "startup": "order=2",
}
ODD: list[Any] = [
    *(None, True, -1, 2**62, 10**400, 1.5, float("nan"), [], {}, [["a"]], {"a": None}),
    *("", "x", "9" * 5000, "1e999", "\ud800", "\0", "²", "a=b,,c", "=", ",", "x" * 9999, "order=" + "9" * 5000),
    *("local:x,size=" + "9" * 5000 + "G", "local:x,size=xG", "virtio=,bridge=", "ip=/", "enabled=x"),
]


@pytest.mark.parametrize("key", CONFIG)
def test_an_odd_value__in_a_config_is_an_error_of_ours_or_none(key: str) -> None:
    entry = build_entries(ASKED, ONE_VM_OPTIONS, 0.0)[0]
    for value in ODD:
        with suppress(CollectionError):
            answers = {"/cluster/resources": [], "/nodes/pve1/qemu/100/config": {**CONFIG, key: value}}
            reader = RecordedReader(answers)
            plan = Comparison(reader).plan(entry, guest(100, "pve1", name="web", status="running"))
            assert growth_of(plan) is not None
