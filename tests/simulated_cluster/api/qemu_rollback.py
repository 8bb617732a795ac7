# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling a VM back to a snapshot: the same VM, whose config is that of the snapshot, and of a new generation."""

from __future__ import annotations

from .. import identity
from ..errors import TaskError
from ..property_strings import is_drive
from ..routing import Call, route
from ..tasks import Task
from .qemu_power import start_guest
from .qemu_read import of


@route("POST", "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback")
def rollback(call: Call) -> str:
    cluster, guest, name = call.cluster, of(call), str(call["snapname"])
    if call.get("start"):
        call.require(f"/vms/{guest.vmid}", "VM.PowerMgmt")

    async def work(task: Task) -> None:
        await cluster.hold(guest)
        try:
            if guest.template:
                raise TaskError("you can't rollback if vm is a template")
            if name not in guest.snapshots:
                raise TaskError(f"snapshot '{name}' does not exist")
            if guest.config_lock:
                raise TaskError(f"VM is locked ({guest.config_lock})")
            cluster.touch(guest)
            guest.status = guest.qmpstatus = "stopped"
            kept = {key: value for key, value in guest.config.items() if key.startswith("unused")}
            kept |= {key: guest.config[key] for key in ("description",) if key in guest.config}
            # The disks keep their volumes, of which the simulation has no snapshots.
            disks = {key: value for key, value in guest.config.items() if is_drive(key)}
            config = {**kept, **guest.snapshots[name], **disks, "parent": name}
            guest.config, guest.pending = identity.rolled_back(cluster, config), {}
        finally:
            guest.lock.release()
        if call.get("start"):
            start_guest(cluster, guest, call.who)

    return call.task("qmrollback", guest.vmid, work)
