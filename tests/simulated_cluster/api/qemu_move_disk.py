# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving disks of VMs between storages."""

from __future__ import annotations

from ..errors import MODIFIED, TaskError, die, parameter_error
from ..model import Guest, Storage, Volume
from ..property_strings import format_size, is_cdrom, parse, render
from ..routing import Call, route
from ..tasks import Task
from . import drives
from .qemu_migrate import need_unlocked
from .qemu_read import of


@route("POST", "/nodes/{node}/qemu/{vmid}/move_disk")
def move_disk(call: Call) -> str:
    cluster, held, disk = call.cluster, of(call), str(call["disk"])
    storage = drives.find_storage(cluster, str(call["storage"]))
    call.require(f"/storage/{storage.name}", "Datastore.AllocateSpace")
    _movable(call, held, disk, storage)

    async def work(task: Task) -> None:
        await cluster.hold(held, task=task)
        try:
            guest = of(call)
            old = _movable(call, guest, disk, storage)
            task.say(f"copying volume '{old.volid}' from current storage '{old.storage}' to target storage "
                     f"'{storage.name}'")
            try:
                new = await _copied(call, guest, disk, old, storage, task)
            except TaskError as error:
                raise TaskError(f"storage migration failed: {error}") from None
            cluster.touch(guest)
            # The config that is in effect: what is pending keeps the old volume.
            drive = parse(str(guest.config[disk]))
            guest.config[disk] = render({**drive, "file": new.volid, "size": format_size(new.size)})
            if call.get("delete"):
                task.say(f"removing source volume '{old.volid}' after successful copy")
                cluster.volumes.remove(old)
            else:
                number = next(i for i in range(256) if f"unused{i}" not in guest.config)
                guest.config[f"unused{number}"] = old.volid
        finally:
            held.lock.release()

    return call.task("qmmove", held.vmid, work)


def _movable(call: Call, guest: Guest, disk: str, storage: Storage) -> Volume:
    """The disk's volume, after what is checked before the task and again in it."""
    need_unlocked(guest)
    if call.get("digest") and call["digest"] != guest.digest():
        raise die(MODIFIED)
    if disk not in guest.config:
        raise die(f"disk '{disk}' does not exist")
    drive = parse(str(guest.config[disk]))
    if is_cdrom(drive) and "cloudinit" not in drive["file"]:
        raise die("you can't move a cdrom")
    old = call.cluster.volumes.find(drive["file"], guest.node)
    if old is None:
        raise die(f"volume '{drive['file']}' does not exist")
    if old.storage == storage.name and call.get("format") in (None, old.format):
        raise die("you can't move to the same storage with same format")
    try:
        call.cluster.volumes.check_usable(storage, guest.node)
    except TaskError as error:
        raise die(str(error)) from None
    if "images" not in storage.content:
        raise parameter_error(storage=f"storage '{storage.name}' does not support vm images")
    kept = {parse(str(config.get(disk, "none"))).get("file") for config in guest.snapshots.values()}
    if drive["file"] in kept and call.get("delete"):
        raise die("you can't move a disk with snapshots and delete the source")
    return old


async def _copied(call: Call, guest: Guest, disk: str, old: Volume, storage: Storage, task: Task) -> Volume:
    cluster = call.cluster
    if guest.running and disk == "tpmstate0":
        raise TaskError("cannot move TPM state while VM is running")
    task.say(f"create full clone of drive {disk} ({old.volid})")
    if "cloudinit" in old.volid:
        return cluster.volumes.allocate_cloudinit(storage, guest.node, guest.vmid)
    wanted = call.get("format") or (None if storage.block else old.format)
    new = cluster.volumes.allocate(storage, guest.node, guest.vmid, old.size, wanted)
    task.say(f"allocated target volume '{new.volid}'")
    try:
        await task.work(cluster.clock, cluster.timing.clone_seconds_per_gib * old.size / 1024**3)
    except TaskError:
        cluster.volumes.remove(new)
        raise
    return new
