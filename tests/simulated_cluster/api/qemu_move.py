# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Migration of VMs between nodes and of disks between storages."""

from __future__ import annotations

import time
from typing import Any

from .. import ha_rules
from ..cluster import Cluster
from ..errors import TaskError, die, parameter_error
from ..model import Guest
from ..property_strings import format_size, is_cdrom, parse, render
from ..routing import Call, route
from ..tasks import Task
from . import drives
from .qemu_read import of


@route("GET", "/nodes/{node}/qemu/{vmid}/migrate")
def precheck(call: Call) -> dict[str, Any]:
    cluster, guest = call.cluster, of(call)
    others = [node for node in cluster.nodes.values() if node.name != guest.node and node.online]
    local_disks: list[dict[str, Any]] = []
    local_resources: list[str] = []
    mapped: list[str] = []
    not_allowed: dict[str, Any] = {node.name: {} for node in others}
    for key, drive in guest.drives().items():
        volume = cluster.volumes.find(drive.get("file", ""), guest.node)
        if volume is None:
            continue
        storage = cluster.storages[volume.storage]
        for node in others:
            if not storage.usable(node.name):
                not_allowed[node.name].setdefault("unavailable_storages", []).append(storage.name)
        if not storage.shared:
            row = {
                "volid": volume.volid, "size": volume.size, "drivename": key, "cdrom": int(is_cdrom(drive)),
                "shared": 0, "replicate": 1, "is_attached": 1, "is_unused": 0, "is_vmstate": 0,
                "is_tpmstate": int(key == "tpmstate0"),
            }
            local_disks.append(row | ({"is_cloudinit": 0} if cluster.modern else {}))
    for key, value in guest.config.items():
        if key.startswith(("hostpci", "usb")):
            mapping = parse(str(value), "host").get("mapping")
            (mapped if mapping else local_resources).append(key)
    answer: dict[str, Any] = {
        "running": int(guest.running), "local_disks": local_disks, "local_resources": local_resources,
        "mapped-resources": mapped, "mapped-resource-info": {}, "not_allowed_nodes": not_allowed,
    }
    blocked: set[str] = set()
    if cluster.modern:
        answer["has-dbus-vmstate"] = 1
        blocked = _ha_answer(cluster, guest, answer)
    answer["allowed_nodes"] = [
        node.name for node in others
        if "unavailable_storages" not in not_allowed[node.name] and node.name not in blocked
    ]
    return answer


def _ha_answer(cluster: Cluster, guest: Guest, answer: dict[str, Any]) -> set[str]:
    ha = cluster.ha
    if not ha.managed(guest):
        return set()
    sid, blocked = ha.sid(guest), set()
    answer["dependent-ha-resources"] = ha_rules.bound_together(ha.rules, sid)
    for name in answer["not_allowed_nodes"]:
        enemies = ha_rules.blocking(ha.rules, sid, ha.located(), name)
        if enemies:
            blocked.add(name)
            answer["not_allowed_nodes"][name]["blocking-ha-resources"] = [
                {"sid": enemy, "cause": "resource-affinity"} for enemy in enemies
            ]
    return blocked


@route("POST", "/nodes/{node}/qemu/{vmid}/migrate")
def migrate(call: Call) -> str:
    cluster, guest, target = call.cluster, of(call), str(call["target"])
    if target == call.node:
        raise parameter_error(target="target is local node.")
    if target not in cluster.nodes:
        raise die(f"no such cluster node '{target}'")
    if guest.running and not call.get("online") and not cluster.ha.managed(guest):
        raise die("can't migrate running VM without --online")
    if cluster.ha.managed(guest):
        return _by_manager(call, guest, target)
    node = cluster.nodes[target]
    if not node.online:
        raise die(f"node '{target}' is not online")

    async def work(task: Task) -> None:
        await cluster.hold(guest)
        try:
            await move(cluster, guest, target, task, call.get("targetstorage"))
        finally:
            guest.lock.release()

    return call.task("qmigrate", guest.vmid, work)


def _by_manager(call: Call, guest: Guest, target: str) -> str:
    cluster, ha = call.cluster, call.cluster.ha
    sid = ha.sid(guest)

    async def work(task: Task) -> None:
        task.say(f"Requesting HA migration for VM {guest.vmid} to node {target}")
        enemies = ha_rules.blocking(ha.rules, sid, ha.located(), target)
        if enemies:
            task.say(f"cannot migrate resource '{sid}' to node '{target}':")
            task.say("")
            for enemy in enemies:
                task.say(
                    f"- resource '{enemy}' on target node '{target}' in negative affinity with resource '{sid}'"
                )
            raise TaskError(f"command 'ha-manager migrate {sid} {target}' failed: exit code 2")
        await task.work(cluster.clock, 0.5)
        cluster.tasks.start(guest.node, "qmigrate", guest.vmid, call.who, later)

    async def later(task: Task) -> None:
        await cluster.clock.sleep(cluster.timing.ha_seconds)
        await cluster.hold(guest)
        try:
            await move(cluster, guest, target, task, None)
        finally:
            guest.lock.release()

    return call.task("hamigrate", guest.vmid, work)


async def move(cluster: Cluster, guest: Guest, target: str, task: Task, target_storage: str | None) -> None:
    """Bring a VM and its local disks to another node."""

    def say(text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(cluster.clock.now()))
        task.say(f"{stamp} {text}")

    if guest.config_lock:
        raise TaskError(f"VM is locked ({guest.config_lock})")
    node = cluster.nodes[target]
    say(f"starting migration of VM {guest.vmid} to node '{target}' ({node.address})")
    local = [volume for volume in cluster.volumes.of_guest(guest.vmid) if volume.place is not None]
    for volume in local:
        wanted = cluster.storages[target_storage or volume.storage]
        cluster.volumes.check_usable(wanted, target)
        if volume.base is not None or cluster.volumes.dependants(volume):
            say(f"ERROR: Failed to sync data - can't migrate '{volume.volid}' as it's a clone of '{volume.base}'"
                if volume.base else f"ERROR: base volume '{volume.volid}' is still in use by linked cloned")
            raise TaskError("migration aborted")
        say(f"found local disk '{volume.volid}' (attached)")
    cluster.set_config(guest, lock="migrate")
    try:
        size = sum(volume.size for volume in local)
        seconds = cluster.timing.migrate_seconds + cluster.timing.clone_seconds_per_gib * size / 1024**3
        await task.work(cluster.clock, seconds)
    finally:
        cluster.set_config(guest, lock=None)
    cluster.touch(guest)
    for volume in local:
        cluster.volumes.remove(volume)
        old = volume.volid
        volume.storage, volume.place = target_storage or volume.storage, target
        volume.volid = f"{volume.storage}:{old.partition(':')[2]}"
        cluster.volumes.add(volume)
        for key, drive in guest.drives().items():
            if drive.get("file") == old:
                guest.config[key] = render({**drive, "file": volume.volid})
    guest.node = target
    cluster.touch(guest)
    say("migration finished successfully (duration 00:00:02)")


@route("POST", "/nodes/{node}/qemu/{vmid}/move_disk")
def move_disk(call: Call) -> str:
    cluster, guest, disk = call.cluster, of(call), str(call["disk"])
    storage = drives.find_storage(cluster, str(call["storage"]))
    call.require(f"/storage/{storage.name}", "Datastore.AllocateSpace")

    async def work(task: Task) -> None:
        await cluster.hold(guest)
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
