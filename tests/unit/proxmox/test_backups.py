# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The config in a backup, as Proxmox VE 9.2 answered it."""

from __future__ import annotations

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.backups import (
    read_archived_config,
)

VOLUME = "shared:backup/vzdump-qemu-170-2026_11_22-01_00_00.vma.zst"
TEXT = """#the shop
#of 100%25
boot: order=scsi0
cores: 2
ide2: local:iso/gone.iso,media=cdrom,size=1M
ide3: local:170/vm-170-cloudinit.qcow2,media=cdrom,size=4M
lock: backup
memory: 48
name: web
net0: virtio=BC:24:11:AA:BB:01,bridge=vmbr0
scsi0: shared:170/vm-170-disk-0.qcow2,size=32M,ssd=1
scsi2: local:170/vm-170-disk-0.raw,backup=0,size=16M
smbios1: uuid=11111111-2222-3333-4444-555555555555
unused0: local:170/vm-170-disk-7.raw
#qmdump#map:scsi0:drive-scsi0:shared:qcow2:
"""


def test_archived_config__is_that_of_the_restored_vm() -> None:
    reader = RecordedReader({"/cluster/resources": [], f"/nodes/pve1/vzdump/extractconfig?volume={VOLUME}": TEXT})
    assert read_archived_config(reader, "pve1", VOLUME) == {
        "boot": "order=scsi0",
        "cores": 2,
        "description": "the shop\nof 100%",
        "ide2": "local:iso/gone.iso,media=cdrom,size=1M",
        "ide3": "local:170/vm-170-cloudinit.qcow2,media=cdrom,size=4M",
        "memory": 48,
        "name": "web",
        "net0": "virtio=BC:24:11:AA:BB:01,bridge=vmbr0",
        "scsi0": "shared:170/vm-170-disk-0.qcow2,size=32M,ssd=1",
        "smbios1": "uuid=11111111-2222-3333-4444-555555555555",
    }
