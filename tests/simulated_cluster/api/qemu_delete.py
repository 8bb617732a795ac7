# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Destroying VMs, and the rules that protect them."""

from __future__ import annotations

from ..errors import TaskError, die
from ..model import Guest
from ..routing import Call, route
from ..tasks import Task
from .config_rights import check_root_only
from .qemu_read import of


@route("DELETE", "/nodes/{node}/qemu/{vmid}")
def delete(call: Call) -> str:
    cluster, guest = call.cluster, of(call)
    vmid, ha = guest.vmid, cluster.ha
    check_root_only(call, "skiplock")
    if guest.config.get("protection"):
        raise die(f"can't remove VM {vmid} - protection mode enabled")
    if ha.managed(guest) and not call.get("purge"):
        raise die(f"unable to remove VM {vmid} - used in HA resources and purge parameter not set.")
    if guest.running:
        raise die(f"VM {vmid} is running - destroy failed")
    node = guest.node

    async def work(task: Task) -> None:
        await cluster.hold(guest)
        try:
            if cluster.guests.get(vmid) is not guest:
                raise TaskError(f"Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist")
            if not cluster.quorate:
                # The disks go first, and then the config cannot be written.
                for volume in cluster.volumes.of_guest(vmid):
                    cluster.volumes.remove(volume)
                cluster.need_writable(guest, TaskError)
            if guest.config_lock and not call.get("skiplock"):
                raise TaskError(f"VM is locked ({guest.config_lock})")
            for volume in cluster.volumes.of_guest(vmid):
                if cluster.volumes.dependants(volume):
                    raise TaskError(f"base volume '{volume.volid}' is still in use by linked cloned")
            await _destroy(call, guest, task)
        finally:
            guest.lock.release()

    return call.task("qmdestroy", vmid, work)


async def _destroy(call: Call, guest: Guest, task: Task) -> None:
    cluster, ha = call.cluster, call.cluster.ha
    cluster.set_config(guest, lock="destroyed")
    try:
        await task.work(cluster.clock, cluster.timing.delete_seconds)
    except TaskError:
        cluster.set_config(guest, lock=None)
        raise
    for volume in cluster.volumes.of_guest(guest.vmid):
        cluster.volumes.remove(volume)
    if call.get("purge"):
        task.say(f"purging VM {guest.vmid} from related configurations..")
        if ha.managed(guest):
            ha.remove(ha.sid(guest))
            task.say(f"NOTE: removed VM {guest.vmid} from HA resource configuration.")
    cluster.remove_guest(guest)
    cluster.access.acl = [entry for entry in cluster.access.acl if entry.path != f"/vms/{guest.vmid}"]
    cluster.access.changed()
