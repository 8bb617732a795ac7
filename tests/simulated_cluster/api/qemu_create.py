# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creating VMs: what is refused at once, and what the worker does and undoes."""

from __future__ import annotations

import re
from typing import Any

from .. import identity
from ..errors import ApiError, TaskError, die, forbidden
from ..model import Guest
from ..property_strings import is_drive, parse_net, render_net, split_list
from ..routing import Call, route
from ..tasks import Killed, OrderedFailure, Task
from . import drives
from .config_rights import check_devices, check_options, check_root_only, check_tags
from .qemu_power import start_guest

NOT_CONFIG = {
    "vmid", "node", "pool", "start", "storage", "archive", "force", "unique", "bwlimit", "live-restore", "ha-managed",
    "import-working-storage", "lock",
}


@route("POST", "/nodes/{node}/qemu")
def create(call: Call) -> str:
    cluster, vmid, pool = call.cluster, int(call["vmid"]), call.get("pool")
    if call.get("archive"):
        from .qemu_restore import restore

        return restore(call)
    if pool is not None:
        call.require_pool(pool)
    if not call.allowed(f"/vms/{vmid}", "VM.Allocate") and not (
        pool is not None and call.allowed(f"/pool/{pool}", "VM.Allocate")
    ):
        raise forbidden()
    options = {key: value for key, value in call.values.items() if key not in NOT_CONFIG}
    if call.get("ha-managed"):
        call.require("/", "Sys.Console")
    check_root_only(call, "skiplock")
    drives.check_access(call, options)
    check_options(call, vmid, list(options), pool)
    check_devices(call, options, vmid, pool)
    cluster.need_quorum()
    taken = cluster.in_use(vmid, call.node)
    if taken is not None:
        raise die(f"unable to create VM {vmid} - {taken}")
    guest = Guest(vmid, call.node, config={"lock": "create"})
    cluster.add_guest(guest)

    async def work(task: Task) -> None:
        async with guest.lock:
            await _write(call, guest, options, task)
        if call.get("ha-managed"):
            task.say("Add as HA resource")
            cluster.ha.add(f"vm:{vmid}", {"state": "started" if call.get("start") else "stopped"})
        if call.get("start"):
            task.say("Execute autostart")
            if not call.get("ha-managed"):
                start_guest(cluster, guest, call.who)

    return call.task("qmcreate", vmid, work)


async def _write(call: Call, guest: Guest, options: dict[str, Any], task: Task) -> None:
    """Allocate, write the config and join the pool; on failure nothing is left."""
    cluster, vmid = call.cluster, guest.vmid
    made: dict[str, str] = {}
    try:
        disks = {key: value for key, value in options.items() if is_drive(key)}
        # Proxmox makes it before the disks.
        meta = identity.meta(cluster)
        await task.work(cluster.clock, cluster.timing.create_seconds + cluster.timing.disk_seconds * len(disks))
        made = await drives.create_drives(cluster, guest, disks, task, str(call.get("storage", "local")))
        if options.get("tags") and cluster.modern:
            check_tags(call, vmid, [], split_list(options["tags"]), created=True)
        config = {**new_config(cluster, {**options, **made}), "meta": meta}
    except (TaskError, ApiError) as error:
        for volume in cluster.volumes.of_guest(vmid):
            cluster.volumes.remove(volume)
        cluster.remove_guest(guest)
        if isinstance(error, OrderedFailure):
            raise
        status = f"{error.status} " if isinstance(error, ApiError) and error.status != 500 else ""
        raise TaskError(f"unable to create VM {vmid} - {status}{error}") from None
    except Killed:
        raise
    except BaseException:
        for volume in cluster.volumes.of_guest(vmid):
            cluster.volumes.remove(volume)
        cluster.remove_guest(guest)
        raise
    cluster.touch(guest)
    guest.config = config
    pool = call.get("pool")
    if pool is not None and pool in cluster.access.pools:
        cluster.access.pools[pool]["vms"].add(vmid)
        cluster.access.changed()


def new_config(cluster: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options as they stand in the config of a new VM, with what Proxmox makes up."""
    config = {key: normalised(cluster, key, value) for key, value in options.items()}
    config.setdefault("boot", drives.default_boot_order(config))
    return identity.created(cluster, config)


def normalised(cluster: Any, key: str, value: Any) -> Any:
    """One option as Proxmox stores it: a network card without a MAC address gets one, say."""
    if key == "description":
        return str(value).rstrip()
    if re.search(r"[\r\n]", str(value)):
        raise die(f"unable to parse value of '{key}' - property contains a line feed")
    if key == "cpuunits":
        return min(int(value), 10_000)
    if re.fullmatch(r"net\d+", key):
        parts = parse_net(str(value))
        parts.setdefault("macaddr", cluster.random_mac())
        return render_net(parts)
    return value.strip() if isinstance(value, str) else value
