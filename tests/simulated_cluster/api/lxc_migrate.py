# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Migration of containers."""

from __future__ import annotations

from typing import Any

from ..errors import die, not_simulated
from ..migration.containers import ContainerMigration
from ..migration.terms import Options
from ..model import Guest
from ..routing import Call, route
from .qemu_migrate import by_manager, check_target, storage_map


def _of(call: Call) -> Guest:
    return call.cluster.guest("lxc", call.node, call["vmid"])


def _need_unlocked(guest: Guest) -> None:
    if guest.config_lock:
        raise die(f"CT is locked ({guest.config_lock})")


@route("GET", "/nodes/{node}/lxc/{vmid}/migrate")
def precheck(call: Call) -> dict[str, Any]:
    """Only from release 9 on, with dashes in its keys, and without a word about volumes."""
    cluster, guest = call.cluster, _of(call)
    if not cluster.modern:
        raise not_simulated("GET", call.path)
    _need_unlocked(guest)
    blocked: dict[str, Any] = {}
    if cluster.ha.managed(guest):
        for name in cluster.nodes:
            enemies = cluster.ha.blocking(cluster.ha.sid(guest), name)
            if enemies:
                blocked[name] = {
                    "blocking-ha-resources": [{"sid": enemy, "cause": "resource-affinity"} for enemy in enemies]}
    answer: dict[str, Any] = {
        "running": int(guest.running), "not-allowed-nodes": blocked,
        "allowed-nodes": cluster.shuffled(
            [name for name in cluster.nodes if name != guest.node and name not in blocked]),
    }
    if cluster.ha.managed(guest):
        answer["dependent-ha-resources"] = cluster.ha.partners(cluster.ha.sid(guest))
    return answer


@route("POST", "/nodes/{node}/lxc/{vmid}/migrate")
def migrate(call: Call) -> str:
    cluster, target = call.cluster, str(call["target"])
    check_target(call)
    guest = _of(call)
    _need_unlocked(guest)
    if guest.running and not call.get("online") and not call.get("restart"):
        raise die("can't migrate running container without --online or --restart")
    storages = storage_map(call, guest, target, call.get("target-storage"))
    if cluster.ha.managed(guest):
        return by_manager(call, guest, target)
    options = Options(
        storages=storages, bwlimit=int(call["bwlimit"]) if call.get("bwlimit") else None)
    return call.task("vzmigrate", guest.vmid, ContainerMigration(cluster, guest, target, call.who, options).run)
