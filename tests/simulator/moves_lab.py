# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster that migrations, restores and HA moves were recorded on, and its states between them."""

from __future__ import annotations

import re
from typing import Any

from simulated_cluster.property_strings import GIB
from simulator.lab import PASSWORD, Lab
from simulator.preparations import Step, guest, on

SMALL = f"{32212992 / GIB!r}"
TINY = f"{21475328 / GIB!r}"
ARCHIVE = "vzdump-qemu-170-2026_11_21-01_00_03.vma.zst"
ARCHIVED = {
    "boot": "order=scsi0", "cores": 2, "cpu": "qemu64", "ide2": "local:iso/local.iso,media=cdrom,size=1M", "kvm": 0,
    "memory": "48", "name": "web1", "net0": "virtio=BC:24:11:AA:BB:01,bridge=vmbr0", "onboot": 1,
    "scsi0": "shared:170/vm-170-disk-0.qcow2,size=32M", "scsi1": "only12:170/vm-170-disk-0.raw,size=16M",
    "scsihw": "virtio-scsi-single", "smbios1": "uuid=11111111-2222-3333-4444-555555555555", "tags": "web",
    "vmgenid": "11111111-2222-3333-4444-666666666666",
}
PLAIN = {"cpu": "qemu64", "kvm": 0, "scsihw": "virtio-scsi-single", "serial0": "socket", "vga": "none"}
ISO = {"ide2": "local:iso/local.iso,media=cdrom,size=1M"}


def description() -> dict[str, Any]:
    """Three nodes of release 9.2 with a shared and some local storages, and guests of many kinds."""
    return {
        "version": "9.2", "cluster": "moves",
        "nodes": [
            {"name": name, "cores": 2, "memory": 24105, "bridges": ["vmbr0", *more]}
            for name, more in (("pve1", ["vmbr1"]), ("pve2", ["vmbr1"]), ("pve3", []))
        ],
        "storages": [
            {"name": "local", "type": "dir", "content": ["iso", "vztmpl", "backup", "import"], "size": 8},
            {"name": "fast", "type": "dir", "content": ["images", "rootdir"], "size": 100,
             "options": {"path": "/mnt/fast"}},
            {"name": "tiny", "type": "dir", "content": ["images"], "size": 0.3, "options": {"path": "/mnt/tiny"}},
            {"name": "only12", "type": "dir", "content": ["images"], "size": 8, "nodes": ["pve1", "pve2"],
             "options": {"path": "/mnt/only12"}},
            {"name": "shared", "type": "dir", "shared": True, "size": 252,
             "content": ["images", "iso", "snippets", "backup", "rootdir"], "options": {"path": "/mnt/pve/shared"}},
        ],
        "isos": {"local": {"local.iso": {"pve1": 1 / 1024}}},
        "backups": [{"storage": "shared", "file": ARCHIVE, "vmid": 170, "size": 0.047, "notes": "web1",
                     "config": ARCHIVED}],
        "pools": ["prod"],
        "guests": [*_vms(), *_containers()],
        "users": [{"name": f"{name}@pve", "password": PASSWORD} for name in ("op", "viewer", "nobody", "mig", "mig2")],
        "roles": {"Mover": ["VM.Audit", "VM.Migrate"], "DiskMover": ["VM.Audit", "VM.Migrate", "VM.Config.Disk"],
                  "Operator": ["VM.Audit", "VM.PowerMgmt", "VM.Config.Options"]},
        "acl": [
            {"path": "/", "user": "viewer@pve", "role": "PVEAuditor"},
            {"path": "/vms", "user": "op@pve", "role": "Operator"},
            {"path": "/vms", "user": "mig@pve", "role": "Mover"},
            {"path": "/vms", "user": "mig2@pve", "role": "DiskMover"},
        ],
        "options": {"migration": {"type": "insecure"}, "description": "", "allowed-tags": ["web"],
                    "mac_prefix": "BC:24:11"},
        "mappings": {
            "pci": [_mapping("gpu"), {**_mapping("nic"), "live-migration-capable": 1}],
            "usb": [{"id": "key", "map": ["node=pve1,id=1d6b:0002", "node=pve3,id=1d6b:0002"]}],
        },
    }


def _mapping(name: str) -> dict[str, Any]:
    return {"id": name, "map": [f"node={node},path=0000:00:01.0,id=1af4:1045" for node in ("pve1", "pve2")]}


def _vm(vmid: int, disk: str | None = None, **more: Any) -> dict[str, Any]:
    config = {**PLAIN, **more.pop("config", {})}
    return {"vmid": vmid, "node": "pve1", "name": f"mv{vmid}", "memory": 32, "cores": 1, "config": config, **more} | (
        {"disks": {"scsi0": disk}} if disk else {}
    )


def _vms() -> list[dict[str, Any]]:
    shared, fast, disk64 = f"shared:{TINY}", f"fast:{SMALL}", "fast:0.0625"
    on_bridge = {"net0": "virtio,bridge=vmbr1"}
    return [
        _vm(9000, shared, template=True), _vm(9001, f"fast:{TINY},format=qcow2", template=True),
        _vm(101, shared, status="running"), _vm(102, shared), _vm(103, fast), _vm(104, fast, status="running"),
        _vm(105, f"only12:{SMALL}"), _vm(106, shared, config=ISO),
        _vm(107, shared, config={"ide2": "fast:cloudinit"}), _vm(108, shared, config={"hostpci0": "mapping=gpu"}),
        _vm(109, shared, config={"hostpci0": "mapping=nic"}), _vm(110, shared, config={"usb0": "mapping=key"}),
        _vm(111, f"fast:{SMALL},format=qcow2",
            snapshots={"s1": {"scsi0": "fast:111/vm-111-disk-0.qcow2,size=31458K"}}),
        _vm(114, shared, config=on_bridge), _vm(115, shared), _vm(116, shared, config={"lock": "backup"}),
        _vm(117, shared, status="running", config={"ide2": "fast:cloudinit"}),
        _vm(118, shared, status="running", config=ISO),
        _vm(119, config={"usb0": "host=1d6b:0002", "hostpci0": "0000:00:01.0"}),
        _vm(121, disk64, status="running"), _vm(122, fast), _vm(130, shared, status="running", config=on_bridge),
        _vm(140, shared, status="running"), _vm(141, shared, status="running"), _vm(142, shared, status="running"),
        _vm(143, shared), _vm(145, shared, status="running", config=ISO),
        _vm(150, disk64, status="running"), _vm(151, disk64), _vm(152, disk64, status="running"), _vm(153, shared),
        _vm(160, "shared:0.0625", status="running"), _vm(170, config={"name": "web1"}),
    ]


def _containers() -> list[dict[str, Any]]:
    return [
        {"vmid": vmid, "node": "pve1", "type": "lxc", "name": f"ct{vmid}", "memory": 64, "cores": 1,
         "config": {"rootfs": f"{storage}:{vmid}/vm-{vmid}-disk-0.raw,size=16M"}}
        for vmid, storage in ((200, "shared"), (201, "fast"), (202, "shared"))
    ]


async def finished(lab: Lab) -> None:
    """What a description cannot say: linked clones, a disk that is not attached."""
    cluster = lab.cluster
    for vmid, base in ((112, 9000), (113, 9001)):
        await guest(vmid, name=f"lc{vmid}", memory=32)(lab)
        volume = cluster.volumes.of_guest(base)[0]
        made = cluster.volumes.link(volume, "pve1", vmid)
        cluster.set_config(cluster.guests[vmid], scsi0=f"{made.volid},size=20972K")
    unused = cluster.volumes.allocate(cluster.storages["fast"], "pve1", 115, 21475328)
    cluster.set_config(cluster.guests[115], unused0=unused.volid)


def placed(record: dict[str, Any]) -> tuple[Step, ...]:
    """The guest of the request is on the node of the request, unless the answer says that it is not."""
    match = re.match(r"/nodes/(\w+)/(?:qemu|lxc)/(\d+)", record["request"]["path"])
    if match is None or "Configuration file" in record["reason"] or "unable to find" in record["reason"]:
        return ()
    if int(match[2]) >= 170 and int(match[2]) < 200:
        return (guest(int(match[2]), match[1], name="web1", memory=48),)
    return (on(int(match[2]), match[1]),)
