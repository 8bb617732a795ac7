# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Migration of VMs: the precondition check, and what is refused before a worker starts."""

from __future__ import annotations

from typing import Any

from .. import ha_rules
from ..cluster import Cluster
from ..errors import ApiError, TaskError, die, parameter_error
from ..ha_messages import blocked_lines, comigrated_lines
from ..migration.needs import devices, local_disks, mapping_of, missing_mappings, storages_of
from ..migration.terms import Options
from ..migration.worker import Migration
from ..model import Guest
from ..property_strings import split_list
from ..routing import Call, route
from ..tasks import Task
from .drives import find_storage
from .qemu_read import of


@route("GET", "/nodes/{node}/qemu/{vmid}/migrate")
def precheck(call: Call) -> dict[str, Any]:
    """What prevents the move. As in Proxmox, that a node is down, in maintenance or forbidden by a rule does not."""
    cluster, guest = call.cluster, of(call)
    need_unlocked(guest)
    found = devices(cluster, guest)
    answer: dict[str, Any] = {
        "running": int(guest.running),
        "local_disks": [disk.row(cluster.modern) for disk in local_disks(cluster, guest)],
        "local_resources": found.local, "mapped-resources": list(found.mapped),
        "mapped-resource-info": {key: _mapping_info(cluster, key, name) for key, name in found.mapped.items()},
    }
    reasons = {name: _reasons(cluster, guest, name) for name in cluster.nodes if name != guest.node}
    if cluster.modern:
        answer["has-dbus-vmstate"] = int(cluster.nodes[guest.node].dbus_vmstate)
        if cluster.ha.managed(guest):
            answer["dependent-ha-resources"] = ha_rules.bound_together(cluster.ha.rules, cluster.ha.sid(guest))
    answer["not_allowed_nodes"] = reasons
    answer["allowed_nodes"] = cluster.shuffled([name for name, why in reasons.items() if not why])
    return answer


def need_unlocked(guest: Guest) -> None:
    if guest.config_lock:
        raise die(f"VM is locked ({guest.config_lock})")


def _mapping_info(cluster: Cluster, key: str, name: str) -> dict[str, Any]:
    live = mapping_of(cluster, key, name).get("live-migration-capable")
    return {"name": name, **({"live-migration": 1} if live else {})}


def _reasons(cluster: Cluster, guest: Guest, node: str) -> dict[str, Any]:
    why: dict[str, Any] = {}
    lacking = [storage.name for storage in storages_of(cluster, guest) if not storage.usable(node)]
    if lacking:
        why["unavailable_storages"] = lacking
    missing = missing_mappings(cluster, guest, node)
    if missing:
        why["unavailable-resources"] = missing
    ha = cluster.ha
    if cluster.modern and ha.managed(guest):
        enemies = ha.blocking(ha.sid(guest), node)
        if enemies:
            why["blocking-ha-resources"] = [{"sid": enemy, "cause": "resource-affinity"} for enemy in enemies]
    return why


def check_target(call: Call) -> None:
    """Check the target, before the guest."""
    target = str(call["target"])
    if target == call.node:
        raise parameter_error(target="target is local node.")
    call.cluster.need_quorum()
    if target not in call.cluster.nodes:
        raise die(f"no such cluster node '{target}'")


@route("POST", "/nodes/{node}/qemu/{vmid}/migrate")
def migrate(call: Call) -> str:
    """Check a migration, and start its worker or pass the request to the HA manager."""
    cluster, target = call.cluster, str(call["target"])
    check_target(call)
    for option in ("force", "migration_type", "migration_network"):
        if call.get(option) is not None and not call.who.is_root:
            raise ApiError(400, "Parameter verification failed.", {option: "Only root may use this option."})
    guest = of(call)
    need_unlocked(guest)
    if guest.running and not call.get("online"):
        raise die("can't migrate running VM without --online")
    storages = storage_map(call, guest, target, call.get("targetstorage"))
    if cluster.ha.managed(guest):
        return by_manager(call, guest, target)
    kind = call.get("migration_type") or (cluster.options.get("migration") or {}).get("type", "secure")
    options = Options(
        online=guest.running, local_disks=bool(call.get("with-local-disks")), storages=storages,
        bwlimit=int(call["bwlimit"]) if call.get("bwlimit") else None, secure=kind == "secure",
        conntrack=bool(call.get("with-conntrack-state")),
    )
    return call.task("qmigrate", guest.vmid, Migration(cluster, guest, target, call.who, options).run)


def storage_map(call: Call, guest: Guest, target: str, text: str | None) -> dict[str, str]:
    """Target storages as Proxmox reads them, their rights checked; without any, every storage must be there too."""
    cluster = call.cluster
    if text is None:
        for storage in storages_of(cluster, guest):
            _check_there(cluster, storage.name, target)
        return {}
    pairs = [entry.partition(":") for entry in split_list(text)]
    chosen = {name if colon else "": other if colon else name for name, colon, other in pairs}
    if chosen.get("") == "1":
        del chosen[""]
    call.require(f"/vms/{guest.vmid}", "VM.Config.Disk")
    for name in chosen.values():
        call.require(f"/storage/{name}", "Datastore.AllocateSpace")
        _check_there(cluster, name, target)
    return chosen


def _check_there(cluster: Cluster, name: str, target: str) -> None:
    try:
        cluster.volumes.check_usable(find_storage(cluster, name), target)
    except TaskError as error:
        raise die(str(error)) from None


def by_manager(call: Call, guest: Guest, target: str) -> str:
    """Start a task that only passes the request to the HA manager: the guest moves later, or never."""
    cluster, ha = call.cluster, call.cluster.ha
    sid, word = ha.sid(guest), "VM" if guest.kind == "qemu" else "CT"

    async def work(task: Task) -> None:
        task.say(f"Requesting HA migration for {word} {guest.vmid} to node {target}")
        enemies = ha.blocking(sid, target)
        if enemies:
            for line in blocked_lines(sid, target, enemies):
                task.say(line)
            raise TaskError(f"command 'ha-manager migrate {sid} {target}' failed: exit code 2")
        for line in comigrated_lines(sid, target, ha.partners(sid)):
            task.say(line)
        await task.work(cluster.clock, 0.5)
        ha.manager.request(sid, "migrate", target)

    return call.task("hamigrate", guest.vmid, work)
