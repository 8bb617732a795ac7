# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cloning: linked and full, here or to another node, and the legality rules between them."""

from __future__ import annotations

import re
from typing import Any

from .. import identity
from ..cluster import RACE_SHARE
from ..errors import ApiError, TaskError, die, forbidden, parameter_error
from ..model import Guest, Storage, Volume
from ..property_strings import format_size, is_cdrom, parse, parse_net, render, render_net
from ..routing import Call, route
from ..tasks import Killed, OrderedFailure, Task
from . import drives

_NOT_COPIED = {"lock", "template", "parent", "snaptime", "digest", "protection"}


@route("POST", "/nodes/{node}/qemu/{vmid}/clone")
def clone(call: Call) -> str:
    cluster, newid, target = call.cluster, int(call["newid"]), call.get("target")
    pool = call.get("pool")
    if pool is not None:
        call.require_pool(pool)
    _check_rights(call, newid, pool)
    if target is not None and target not in cluster.nodes:
        raise die(f"no such cluster node '{target}'")
    storage = call.get("storage")
    if storage is not None:
        drives.find_storage(cluster, storage)
        call.require(f"/storage/{storage}", "Datastore.AllocateSpace")
        if "images" not in cluster.storages[storage].content:
            raise parameter_error(storage=f"storage '{storage}' does not support vm images")
        _check_target_storage(call, cluster.storages[storage], target)
    cluster.need_quorum()
    source = cluster.guests.get(int(call["vmid"]))
    if source is None or source.node != call.node or source.kind != "qemu":
        raise die(f"unable to find configuration file for VM {call['vmid']} on node '{call.node}'")
    return _clone(call, source, newid, target)


def _check_target_storage(call: Call, storage: Storage, target: str | None) -> None:
    """Check the storage on both nodes: the clone is made on this one and then moved."""
    for node in dict.fromkeys((call.node, target or call.node)):
        try:
            call.cluster.volumes.check_usable(storage, node)
        except TaskError as error:
            raise die(str(error)) from None
    if target not in (None, call.node) and not storage.shared:
        raise die(f"can't clone to non-shared storage '{storage.name}'")


def _check_rights(call: Call, newid: int, pool: str | None) -> None:
    call.require(f"/vms/{call['vmid']}", "VM.Clone")
    if not call.allowed(f"/vms/{newid}", "VM.Allocate") and not (
        pool is not None and call.allowed(f"/pool/{pool}", "VM.Allocate")
    ):
        raise forbidden()


def _clone(call: Call, source: Guest, newid: int, target: str | None) -> str:
    cluster = call.cluster
    if call.get("snapname") and call["snapname"] not in source.snapshots:
        raise die(f"snapshot '{call['snapname']}' does not exist")
    if source.config_lock and source.config_lock != "create":
        raise die(f"VM is locked ({source.config_lock})")
    full = bool(call.get("full", 0 if source.template else 1))
    if not full and call.get("storage"):
        raise parameter_error(storage="parameter 'storage' not allowed for linked clones")
    if not full and call.get("format"):
        raise parameter_error(format="parameter 'format' not allowed for linked clones")
    existing = cluster.guests.get(newid)
    if existing is not None and cluster.just_made(existing) and cluster.rng.random() < RACE_SHARE:
        return call.task("qmclone", source.vmid, _outrun(call, newid))
    if existing is not None and existing.kind == "qemu" and existing.node == call.node:
        raise die(f"unable to create VM {newid}: config file already exists")
    plan = _plan(call, source, full, target)
    if existing is not None:
        return call.task("qmclone", source.vmid, _taken(call, newid))
    guest = Guest(newid, call.node, config={"description": " qmclone temporary file", "lock": "clone"})

    async def work(task: Task) -> None:
        if cluster.modern:
            task.say(f"creating a clone of VM {source.vmid} with ID {newid}")
        async with guest.lock:
            await _copy(call, source, guest, plan, full, target, task)

    upid = call.task("qmclone", source.vmid, work)
    # Its worker is the first to write the config.
    cluster.add_guest(guest)
    return upid


def _taken(call: Call, newid: int) -> Any:
    """A worker that fails as another guest has the VMID: a container, or a guest of another node, is noticed late."""

    async def work(task: Task) -> None:
        if call.cluster.modern:
            task.say(f"creating a clone of VM {call['vmid']} with ID {newid}")
        raise TaskError(
            f"close (rename) atomic file '/etc/pve/nodes/{call.node}/qemu-server/{newid}.conf' failed: File exists"
        )

    return work


def _outrun(call: Call, newid: int) -> Any:
    """A worker that fails as it waits for the lock of another clone to the same VMID."""

    async def work(task: Task) -> None:
        await call.cluster.clock.sleep(call.cluster.timing.lock_seconds)
        raise TaskError(f"can't lock file '/var/lock/qemu-server/lock-{newid}.conf' - got timeout")

    return work


def _plan(call: Call, source: Guest, full: bool, target: str | None) -> dict[str, Volume]:
    """The disks to copy or link; refuses what cannot be."""
    cluster, plan = call.cluster, {}
    for key, drive in source.drives().items():
        file = drive.get("file", "")
        if is_cdrom(drive) and not file.endswith(("cloudinit", "cloudinit.qcow2")):
            if ":" in file and target not in (None, source.node) and not cluster.volumes.storage(file).shared:
                raise die(f"can't clone VM to node '{target}' (VM uses local storage)")
            continue
        volume = cluster.volumes.find(file, source.node)
        if volume is None:
            raise die(f"volume '{file}' does not exist")
        storage = cluster.storages[volume.storage]
        if target not in (None, source.node) and not storage.shared:
            raise die(f"can't clone VM to node '{target}' (VM uses local storage)")
        if not full and not is_cdrom(drive) and "base-" not in volume.volid.rpartition("/")[2]:
            raise die(f"Linked clone feature is not supported for '{file}' ({key})")
        plan[key] = volume
    return plan


async def _copy(
    call: Call, source: Guest, guest: Guest, plan: dict[str, Volume], full: bool, target: str | None, task: Task
) -> None:
    cluster = call.cluster
    try:
        await task.work(cluster.clock, cluster.timing.clone_seconds)
        config = _config(call, source, plan)
        for key, volume in plan.items():
            config[key] = await _copy_disk(call, source, guest, key, volume, full, task)
            # From the first disk on the config is that of the new VM.
            cluster.touch(guest)
            guest.config = {**config, "lock": "clone"}
    except Killed:
        raise
    except BaseException as error:
        for made in cluster.volumes.of_guest(guest.vmid):
            cluster.volumes.remove(made)
        cluster.remove_guest(guest)
        if isinstance(error, OrderedFailure) or not isinstance(error, (TaskError, ApiError)):
            raise
        raise TaskError(f"clone failed: {error}") from None
    cluster.touch(guest)
    guest.config = config
    if target not in (None, guest.node):
        guest.node = str(target)
        cluster.touch(guest)
    pool = call.get("pool")
    if pool is not None and pool in cluster.access.pools:
        cluster.access.pools[pool]["vms"].add(guest.vmid)
        cluster.access.changed()


async def _copy_disk(
    call: Call, source: Guest, guest: Guest, key: str, volume: Volume, full: bool, task: Task
) -> str:
    cluster, drive = call.cluster, parse(str(source.config[key]))
    if drive["file"].endswith(("cloudinit", "cloudinit.qcow2")):
        storage = cluster.storages[call.get("storage") or volume.storage]
        made = cluster.volumes.allocate_cloudinit(storage, guest.node, guest.vmid)
        return render({**drive, "file": made.volid})
    if not full:
        task.say(f"create linked clone of drive {key} ({volume.volid})")
        made = cluster.volumes.link(volume, guest.node, guest.vmid)
        task.say(f"clone {volume.volid.partition(':')[2]}: images, {made.volid.rpartition('/')[2]}, {guest.vmid}")
        return render({**drive, "file": made.volid, "size": format_size(made.size)})
    task.say(f"create full clone of drive {key} ({volume.volid})")
    storage = cluster.storages[call.get("storage") or volume.storage]
    wanted = call.get("format") or (None if storage.block else volume.format)
    made = cluster.volumes.allocate(storage, guest.node, guest.vmid, volume.size, wanted)
    line = cluster.volumes.formatting_line(made, storage)
    if line is not None:
        task.say(line)
    await drives.copy(cluster, volume.size, task, cluster.timing.clone_seconds_per_gib)
    return render({**drive, "file": made.volid, "size": format_size(made.size)})


def _config(call: Call, source: Guest, plan: dict[str, Volume]) -> dict[str, Any]:
    """The source's config without the disks of the plan, and with new MAC addresses and identities."""
    cluster = call.cluster
    config: dict[str, Any] = {}
    for key, value in source.config.items():
        if key in _NOT_COPIED or key in plan or key.startswith("unused"):
            continue
        if re.fullmatch(r"net\d+", key):
            config[key] = render_net({**parse_net(str(value)), "macaddr": cluster.random_mac()})
        else:
            config[key] = value
    config["name"] = call.get("name") or f"Copy-of-VM-{source.name}"
    if call.get("description"):
        config["description"] = call["description"]
    return identity.cloned(cluster, config)

