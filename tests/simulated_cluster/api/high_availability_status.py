# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the HA manager shows of itself, its nodes and the resources; and switching it off."""

from __future__ import annotations

import time
from typing import Any

from ..routing import Call, route


@route("POST", "/cluster/ha/status/disarm-ha")
def disarm(call: Call) -> None:
    call.cluster.ha.manager.disarmed = str(call["resource-mode"])
    call.cluster.ha.manager.nudge()


@route("POST", "/cluster/ha/status/arm-ha")
def arm(call: Call) -> None:
    call.cluster.ha.manager.disarmed = None
    call.cluster.ha.manager.nudge()


def _stamp(seconds: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(seconds))


@route("GET", "/cluster/ha/status/current")
def status(call: Call) -> list[dict[str, Any]]:
    cluster, ha, local = call.cluster, call.cluster.ha, call.cluster.local_node.name
    quorum = "OK" if cluster.quorate else f"No quorum on node '{local}'!"
    rows: list[dict[str, Any]] = [
        {"id": "quorum", "type": "quorum", "node": local, "quorate": int(cluster.quorate), "status": quorum}
    ]
    now = int(cluster.clock.now())
    maintained = any(node.maintenance for node in cluster.nodes.values())
    off = ha.manager.disarmed
    if ha.ever_active or maintained:
        dead = "" if cluster.quorate else "old timestamp - dead?"
        tail = f" - disarmed, resource mode: {off}" if off else ""
        rows.append({
            "id": "master", "type": "master", "node": local, "timestamp": now,
            "status": f"{local} ({dead or 'active'}, {_stamp(now)}){tail}",
        })
    if cluster.modern:
        rows.append({"id": "fencing", "type": "fencing", "node": local, **_fencing(call, maintained)})
    if ha.ever_active or maintained:
        rows += [_lrm_row(call, name, now) for name in cluster.nodes]
        rows += [_service_row(call, sid) for sid in ha.resources]
    return rows


def _fencing(call: Call, maintained: bool) -> dict[str, Any]:
    ha, off = call.cluster.ha, call.cluster.ha.manager.disarmed
    if off:
        text = f"disarmed, resource mode: {off} (CRM watchdog released)"
        return {"armed-state": "disarmed", "resource_mode": off, "status": text}
    if (ha.ever_active or maintained) and call.cluster.quorate:
        return {"armed-state": "armed", "status": "armed (CRM watchdog active)"}
    return {"armed-state": "standby", "status": "standby (CRM watchdog standby)"}


def _lrm_row(call: Call, name: str, now: int) -> dict[str, Any]:
    cluster = call.cluster
    node, since = cluster.nodes[name], cluster.nodes[name].maintenance_since
    state = "active" if name in cluster.ha.located().values() else "idle"
    # The node's own manager knows of its maintenance before the cluster's does.
    early = since is not None and cluster.clock.now() - since < cluster.timing.lrm_seconds
    if cluster.ha.in_maintenance(node) or (node.maintenance and not early):
        state = "maintenance mode"
    if cluster.ha.manager.disarmed:
        state = "disarm mode"
    if cluster.statistics.offline_known(node) or not cluster.quorate:
        state, now = "old timestamp - dead?", int(node.offline_since or now)
    if cluster.modern:
        watchdog = "active" if state in ("active", "maintenance mode") else "standby"
        watchdog = "released" if cluster.ha.manager.disarmed else watchdog
        state = f"{state}, watchdog {watchdog}"
    return {
        "id": f"lrm:{name}", "type": "lrm", "node": name, "timestamp": now,
        "status": f"{name} ({state}, {_stamp(now)})",
    }


def _service_row(call: Call, sid: str) -> dict[str, Any]:
    cluster, ha = call.cluster, call.cluster.ha
    entry, state = ha.resources[sid], ha.service_state(sid)
    guest = ha.guest_of(sid)
    node = guest.node if guest is not None else cluster.local_node.name
    row: dict[str, Any] = {
        "id": f"service:{sid}", "type": "service", "sid": sid, "node": node, "state": state,
        "request_state": entry.get("state", "started"), "max_restart": int(entry.get("max_restart", 1)),
        "max_relocate": int(entry.get("max_relocate", 1)), "status": f"{sid} ({node}, {state})",
    }
    if state not in ("queued", "ignored"):
        row["crm_state"] = "started" if state == "starting" else state
    if cluster.modern:
        row["failback"] = int(entry.get("failback", 1))
    return row | {key: entry[key] for key in ("group", "comment") if key in entry}


@route("GET", "/cluster/ha/status/manager_status")
def manager_status(call: Call) -> dict[str, Any]:
    cluster, ha = call.cluster, call.cluster.ha
    local = cluster.local_node.name
    answer: dict[str, Any] = {
        "quorum": {"node": local, "quorate": str(int(cluster.quorate))},
        "manager_status": {"node_status": {}},
    }
    maintained = [node.name for node in cluster.nodes.values() if node.maintenance]
    if not ha.ever_active and not maintained:
        return answer
    manager = answer["manager_status"]
    manager["node_status"] = {
        name: "unknown" if cluster.statistics.offline_known(node)
        else "maintenance" if ha.in_maintenance(node) else "online"
        for name, node in cluster.nodes.items()
    }
    manager |= {
        "master_node": local, "timestamp": int(cluster.clock.now()),
        "service_status": {
            sid: _service(call, sid, node) for sid, node in ha.located().items() if not ha.is_new(sid)
        },
    }
    if maintained:
        manager["node_request"] = {name: {"maintenance": 1} for name in maintained}
    answer["lrm_status"] = {
        name: {"state": mode, "mode": mode, "results": {}, "timestamp": int(cluster.clock.now())}
        for name, mode in (
            (node.name, "maintenance" if node.maintenance or ha.in_maintenance(node) else "active")
            for node in cluster.nodes.values()
        )
    }
    return answer



def _service(call: Call, sid: str, node: str) -> dict[str, Any]:
    """What the manager knows of a resource: its state is ``started`` before the guest runs."""
    ha = call.cluster.ha
    service, state, guest = ha.manager.service(sid), ha.service_state(sid), ha.guest_of(sid)
    entry: dict[str, Any] = {
        "node": node, "state": "started" if state == "starting" else state, "uid": ha.digest(sid)[:22]}
    if service.target is not None:
        entry["target"] = service.target
    elif guest is not None and guest.running:
        entry["running"] = 1
    if service.maintenance_node is not None:
        entry["maintenance_node"] = service.maintenance_node
    return entry
