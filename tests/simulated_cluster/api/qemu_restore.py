# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restoring VMs: without a lock, onto the storages of old or one other, and with a stub left behind on failure."""

from __future__ import annotations

import re
import time
from typing import Any

from .. import identity
from ..errors import ApiError, TaskError, die, forbidden, parameter_error
from ..model import Guest, Storage, Volume
from ..property_strings import GIB, format_size, is_drive, parse, parse_net, render, render_net
from ..routing import Call
from ..tasks import Task
from .backups import archived_disks, find_backup
from .config_rights import check_options
from .qemu_create import NOT_CONFIG, normalised
from .qemu_power import start_guest

_STUB_MEMORY = "128"


def restore(call: Call) -> str:
    """What is refused at once; the rest is the worker's."""
    cluster, vmid, volid = call.cluster, int(call["vmid"]), str(call["archive"])
    storage, pool = call.get("storage"), call.get("pool")
    if storage is not None:
        call.require(f"/storage/{storage}", "Datastore.AllocateSpace")
    if pool is not None:
        call.require_pool(pool)
    if not call.allowed(f"/vms/{vmid}", "VM.Allocate") and not (
        pool is not None and call.allowed(f"/pool/{pool}", "VM.Allocate")
    ):
        raise forbidden()
    for option in call.values:
        if is_drive(option):
            raise parameter_error(**{option: "option conflicts with option 'archive'"})
    archive = find_backup(call, volid)
    options = {key: value for key, value in call.values.items() if key not in NOT_CONFIG}
    check_options(call, vmid, list(options), pool)
    cluster.need_quorum()
    guest = _place(call, vmid)

    async def work(task: Task) -> None:
        async with guest.lock:
            try:
                await _extract(call, guest, archive, options, task)
            except (TaskError, ApiError):
                task.say("error before or during data restore, some or all disks were not completely restored. "
                         f"VM {vmid} state is NOT cleaned up.")
                raise
        if call.get("start"):
            start_guest(cluster, guest, call.who)

    return call.task("qmrestore", vmid, work)


def _place(call: Call, vmid: int) -> Guest:
    """The VM that is overwritten, or an empty config for a new one."""
    cluster, taken = call.cluster, call.cluster.in_use(vmid, call.node)
    if taken is None:
        guest = Guest(vmid, call.node)
        cluster.add_guest(guest)
        return guest
    found = cluster.guests[vmid]
    if not call.get("force") or found.kind != "qemu":
        raise die(f"unable to restore VM {vmid} - {taken}")
    if found.node != call.node:
        file = f"/etc/pve/nodes/{call.node}/qemu-server/{vmid}.conf"
        raise die(f"unable to restore VM {vmid} - close (rename) atomic file '{file}' failed: File exists")
    return found


async def _extract(call: Call, guest: Guest, archive: Volume, options: dict[str, Any], task: Task) -> None:
    cluster, config = call.cluster, dict(archive.backup or {})
    if guest.running:
        raise TaskError(f"unable to restore VM {guest.vmid} - vm is running")
    command = _announce(call, archive, config, task)
    new: dict[str, Volume] = {}
    try:
        for key, (name, form, size) in archived_disks(config).items():
            storage = _storage(call, str(call.get("storage") or name))
            if not new:
                _make_room(call, guest)
            new[key] = cluster.volumes.allocate(storage, guest.node, guest.vmid, size, None if storage.block else form)
            line = cluster.volumes.formatting_line(new[key], storage)
            if line is not None:
                task.say(line)
            task.say(f"new volume ID is '{new[key].volid}'")
        for key, value in config.items():
            if is_drive(key) and "cloudinit" in parse(str(value)).get("file", ""):
                storage = _storage(call, str(call.get("storage") or str(value).partition(":")[0]))
                new[key] = cluster.volumes.allocate_cloudinit(storage, guest.node, guest.vmid)
        await _read(call, archive, list(new.values()), task)
    except TaskError as error:
        for volume in new.values():
            cluster.volumes.remove(volume)
            task.say(f"temporary volume '{volume.volid}' successfully removed")
        if new:
            task.say("no lock found trying to remove 'create'  lock")
        raise TaskError(f"{command} failed: {error}") from None
    cluster.touch(guest)
    guest.config = _restored(call, config, new, options)
    cluster.touch(guest)
    pool = call.get("pool")
    if pool is not None and pool in cluster.access.pools:
        cluster.access.pools[pool]["vms"].add(guest.vmid)
        cluster.access.changed()
    task.say("rescan volumes...")


def _announce(call: Call, archive: Volume, config: dict[str, Any], task: Task) -> str:
    file = archive.volid.partition(":")[2].removeprefix("backup/")
    path = f"{call.cluster.storages[archive.storage].path}/dump/{file}"
    target = f"/var/tmp/vzdumptmp{task.pid}"
    source = f"zstd -q -d -c {path}"
    if call.get("bwlimit"):
        task.say(f"applying read rate limit: {call['bwlimit']}")
        source = f"cstream -t {int(call['bwlimit']) * 1024} -- {path} | zstd -q -d -c -"
    pipe = f"{source} | vma extract -v -r {target}.fifo - {target}"
    task.say(f"restore vma archive: {pipe}")
    task.say("CFG: size: 480 name: qemu-server.conf")
    for number, (key, (_storage, _form, size)) in enumerate(archived_disks(config).items(), start=1):
        task.say(f"DEV: dev_id={number} size: {size} devname: drive-{key}")
    task.say(f"CTIME: {time.strftime('%a %b %d %H:%M:%S %Y', time.gmtime(archive.ctime))}")
    if call.get("bwlimit"):
        names = {call["storage"]} if call.get("storage") else {row[0] for row in archived_disks(config).values()}
        for name in sorted(names):
            task.say(f"rate limit for storage {name}: {call['bwlimit']} KiB/s")
    return f"command 'set -o pipefail && {pipe}'"


def _storage(call: Call, name: str) -> Storage:
    storage = call.cluster.storages.get(name)
    if storage is None:
        raise TaskError(f"storage '{name}' does not exist")
    call.cluster.volumes.check_usable(storage, call.node)
    return storage


def _make_room(call: Call, guest: Guest) -> None:
    """A VM that is overwritten loses its disks; a new one shows as a stub until it is done."""
    for volume in call.cluster.volumes.of_guest(guest.vmid):
        call.cluster.volumes.remove(volume)
    call.cluster.touch(guest)
    call.cluster.bear(guest)
    guest.config = {"memory": _STUB_MEMORY}


async def _read(call: Call, archive: Volume, volumes: list[Volume], task: Task) -> None:
    """Fill the images; a sparse one finds out only now that its storage is full."""
    cluster, total = call.cluster, sum(volume.size for volume in volumes)
    for volume in volumes:
        key = volume.volid.partition(":")[2]
        path = f"{cluster.storages[volume.storage].path}/images/{key}"
        task.say(f"map 'drive' to '{path}' (write zeros = 0)")
    seconds = cluster.timing.restore_seconds + cluster.timing.restore_seconds_per_gib * total / GIB
    if call.get("bwlimit"):
        seconds = max(seconds, archive.size / (int(call["bwlimit"]) * 1024))
    await task.work(cluster.clock, seconds)
    for volume in volumes:
        storage = cluster.storages[volume.storage]
        used = storage.base_used.get(volume.place, 0) + storage.allocated[volume.place]
        if used > storage.total(call.node):
            raise TaskError("exit code 28")
    task.say(f"total bytes read {total}, sparse bytes 0 (0%)")
    task.say("space reduction due to 4K zero blocks 0%")


def _restored(
    call: Call, config: dict[str, Any], new: dict[str, Volume], options: dict[str, Any]
) -> dict[str, Any]:
    """The archived config on its new disks; ``unique`` makes it another machine, parameters override it."""
    cluster = call.cluster
    excluded = [key for key in config if is_drive(key) and parse(str(config[key])).get("backup") == "0"]
    for key in excluded:
        config["description"] = f"{config.get('description', '')}\n{key}: {config.pop(key)}".lstrip()
    for key, volume in new.items():
        drive = parse(str(config[key]))
        config[key] = render({**drive, "file": volume.volid, "size": format_size(volume.size)})
    config = identity.restored(cluster, config, unique=bool(call.get("unique")))
    if call.get("unique"):
        for key in [key for key in config if re.fullmatch(r"net\d+", key)]:
            config[key] = render_net({**parse_net(str(config[key])), "macaddr": cluster.random_mac()})
    return config | {key: normalised(cluster, key, value) for key, value in options.items()}
