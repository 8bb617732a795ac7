# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving many guests with one call."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import ApiError, die
from ..model import Guest
from ..property_strings import split_list
from ..routing import Call, route
from ..tasks import Task
from . import lxc_migrate, qemu_migrate


@route("POST", "/nodes/{node}/migrateall")
def migrate_all(call: Call) -> str:
    """Move all guests of a node, or the named ones. A precondition that fails shows only in the log."""
    cluster, wanted = call.cluster, [int(text) for text in split_list(call.get("vms"))]
    if not wanted:
        call.require("/", "VM.Migrate")
    for vmid in wanted:
        call.require(f"/vms/{vmid}", "VM.Migrate")
    qemu_migrate.check_target(call)
    workers = call.get("maxworkers") or cluster.options.get("max_workers")
    if not workers:
        raise die("either 'max-workers' parameter or max_workers in datacenter.cfg must be set!")
    here = [guest for guest in cluster.guests.values() if guest.node == call.node]
    guests = [guest for guest in here if not wanted or guest.vmid in wanted]

    async def work(task: Task) -> None:
        slots = asyncio.Semaphore(int(workers))

        async def one(guest: Guest) -> None:
            task.say(f"Check VM {guest.vmid}: precondition check passed")
            task.say(f"Migrating VM {guest.vmid}")
            async with slots:
                await _move(call, guest, {"with-local-disks": call.get("with-local-disks")}, task)

        await asyncio.gather(*(one(guest) for guest in sorted(guests, key=lambda guest: guest.vmid)))
        task.say(f"All jobs finished, used {len(guests)} workers in total.")

    return call.task("migrateall", "", work)


@route("POST", "/cluster/bulk-action/guest/migrate")
def bulk_migrate(call: Call) -> str:
    cluster = call.cluster
    wanted = [int(vmid) for vmid in (call.get("vms") or cluster.guests)]
    for vmid in wanted:
        call.require(f"/vms/{vmid}", "VM.Migrate")

    async def work(task: Task) -> None:
        task.say(f"Migrating guests to {call['target']}: {', '.join(map(str, wanted))}")
        failed = []
        for vmid in wanted:
            guest = cluster.guests.get(vmid)
            if guest is None or guest.node == call["target"]:
                continue
            task.say(f"Migrating VM {vmid}")
            if not await _move(call, guest, {"with-local-disks": call.get("with-local-disks")}, task):
                failed.append(str(vmid))
        if failed:
            raise ApiError(500, f"Some guests failed to migrate {', '.join(failed)}")

    return call.task("bulk-migrate", "", work, node=cluster.local_node.name)


async def _move(call: Call, guest: Guest, options: dict[str, Any], task: Task) -> bool:
    """One guest's own migration; True when it arrived."""
    values = {"node": guest.node, "vmid": guest.vmid, "target": call["target"], **options}
    values |= {"online": 1} if guest.kind == "qemu" else {"restart": 1}
    own = Call(call.cluster, call.who, call.method, call.path, values, call.worker, call.effects)
    try:
        upid = (qemu_migrate if guest.kind == "qemu" else lxc_migrate).migrate(own)
    except ApiError as error:
        task.say(f"WARN: {error.status} {error}")
        return False
    started = call.cluster.tasks.find(upid)
    assert started is not None
    assert started.runner is not None
    await asyncio.wait({started.runner})
    return started.exitstatus == "OK"
