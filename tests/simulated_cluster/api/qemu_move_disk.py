# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving disks of VMs between storages."""

from __future__ import annotations

from ..errors import TaskError
from ..property_strings import format_size, parse, render
from ..routing import Call, route
from ..tasks import Task
from . import drives
from .qemu_migrate import need_unlocked
from .qemu_read import of


@route("POST", "/nodes/{node}/qemu/{vmid}/move_disk")
def move_disk(call: Call) -> str:
    cluster, guest, disk = call.cluster, of(call), str(call["disk"])
    storage = drives.find_storage(cluster, str(call["storage"]))
    call.require(f"/storage/{storage.name}", "Datastore.AllocateSpace")
    need_unlocked(guest)

    async def work(task: Task) -> None:
        await cluster.hold(guest, task=task)
        try:
            if disk not in guest.config:
                raise TaskError(f"disk '{disk}' does not exist")
            drive = parse(str(guest.config[disk]))
            old = cluster.volumes.find(drive["file"], guest.node)
            if old is None:
                raise TaskError(f"volume '{drive['file']}' does not exist")
            task.say(f"create full clone of drive {disk} ({old.volid})")
            wanted = call.get("format") or (None if storage.block else old.format)
            new = cluster.volumes.allocate(storage, guest.node, guest.vmid, old.size, wanted)
            try:
                await task.work(cluster.clock, cluster.timing.clone_seconds_per_gib * old.size / 1024**3)
            except TaskError:
                cluster.volumes.remove(new)
                raise
            cluster.touch(guest)
            guest.config[disk] = render({**drive, "file": new.volid, "size": format_size(new.size)})
            if call.get("delete"):
                cluster.volumes.remove(old)
            else:
                number = next(i for i in range(256) if f"unused{i}" not in guest.config)
                guest.config[f"unused{number}"] = old.volid
        finally:
            guest.lock.release()

    return call.task("qmmove", guest.vmid, work)
