# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster shows of itself: version, status, resources, the next free VMID."""

from __future__ import annotations

from typing import Any

from ..cluster import RELEASES
from ..errors import die, parameter_error
from ..model import Guest
from ..pvestatd import View
from ..routing import Call, route
from .nodes import guest_memory, node_figures


@route("GET", "/version")
def version(call: Call) -> dict[str, Any]:
    full, repoid = RELEASES[call.cluster.version]
    return {"version": full, "release": call.cluster.version, "repoid": repoid}


@route("GET", "/nodes/{node}/version")
def node_version(call: Call) -> dict[str, Any]:
    return dict(version(call))


@route("GET", "/cluster/status")
def status(call: Call) -> list[dict[str, Any]]:
    cluster, local = call.cluster, call.cluster.local_node
    rows: list[dict[str, Any]] = [{
        "type": "cluster", "id": "cluster", "name": cluster.name, "version": 3, "nodes": len(cluster.nodes),
        "quorate": int(cluster.quorate),
    }]
    for node in cluster.nodes.values():
        rows.append({
            "type": "node", "id": f"node/{node.name}", "name": node.name, "nodeid": node.number, "ip": node.address,
            "local": int(node is local), "level": "", "online": int(not cluster.statistics.offline_known(node)),
        })
    return rows


@route("GET", "/cluster/nextid")
def nextid(call: Call) -> str:
    cluster, wanted = call.cluster, call.get("vmid")
    if wanted is not None:
        if int(wanted) in cluster.guests:
            raise parameter_error(vmid=f"VM {wanted} already exists")
        return str(wanted)
    bounds = cluster.options.get("next-id") or {}
    lower, upper = int(bounds.get("lower", 100)), int(bounds.get("upper", 1000000))
    for vmid in range(lower, upper):
        if vmid not in cluster.guests:
            return str(vmid)
    raise die(f"unable to get any free VMID in range [{lower}, {upper}]")


@route("GET", "/cluster/resources")
def resources(call: Call) -> list[dict[str, Any]]:
    wanted = call.get("type")
    view = call.cluster.statistics.view(call.worker)
    guest_rows = _guests(call, view) if wanted in (None, "vm") else []
    rows: list[dict[str, Any]] = []
    if wanted is None:
        rows += _pools(call, guest_rows)
    rows += guest_rows
    if wanted in (None, "node"):
        rows += _nodes(call)
    if wanted in (None, "storage"):
        rows += _storages(call, view)
    if wanted is None or (wanted == "sdn" and not call.cluster.modern):
        rows += _zones(call)
    return rows


def _guests(call: Call, view: View) -> list[dict[str, Any]]:
    cluster = call.cluster
    visible: list[Guest] = list(cluster.guests.values())
    if not call.who.is_root:
        visible = [guest for guest in visible if call.allowed(f"/vms/{guest.vmid}", "VM.Audit")]
    rows = [cluster.statistics.guest_row(guest, view) for guest in visible]
    for row in rows:
        if "pool" in row and not call.allowed(f"/pool/{row['pool']}", "Pool.Audit"):
            del row["pool"]
    return cluster.shuffled(rows)


def _pools(call: Call, guests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sums: dict[str, dict[str, Any]] = {}
    for row in guests:
        if row.get("pool") and row.get("status") == "running":
            total = sums.setdefault(row["pool"], {"maxmem": 0, "mem": 0, "maxcpu": 0, "cpu": 0.0, "uptime": 0})
            for key in ("maxmem", "mem", "maxcpu"):
                total[key] += row[key]
            total["cpu"] += row["cpu"] * row["maxcpu"]
            total["uptime"] = max(total["uptime"], row["uptime"])
    for total in sums.values():
        total["cpu"] /= total["maxcpu"] or 1
    return [
        {"id": f"/pool/{name}", "pool": name, "type": "pool", **sums.get(name, {})}
        for name in sorted(call.cluster.access.pools)
        if call.allowed(f"/pool/{name}", "Pool.Audit")
    ]


def _nodes(call: Call) -> list[dict[str, Any]]:
    cluster, rows, memory = call.cluster, [], guest_memory(call.cluster)
    for node in cluster.nodes.values():
        row = node_figures(call, node, memory[node.name]) | {"cgroup-mode": 2 if cluster.modern else 1}
        if cluster.ha.ever_active or node.maintenance:
            row["hastate"] = _ha_state(call, node)
        rows.append(row)
    return cluster.shuffled(rows)


def _ha_state(call: Call, node: Any) -> str:
    cluster = call.cluster
    if cluster.statistics.offline_known(node):
        return "unknown"
    return "maintenance" if cluster.ha.in_maintenance(node) else "online"


def _storages(call: Call, view: View) -> list[dict[str, Any]]:
    cluster, rows = call.cluster, []
    for storage in cluster.storages.values():
        # Unlike the lists of storages, this one is not shown for Datastore.AllocateSpace alone.
        if not storage.enabled or not call.allowed(f"/storage/{storage.name}", "Datastore.Audit"):
            continue
        for node in cluster.nodes.values():
            if not storage.on_node(node.name):
                continue
            row: dict[str, Any] = {
                "id": f"storage/{node.name}/{storage.name}", "type": "storage", "storage": storage.name,
                "node": node.name, "shared": int(storage.shared), "plugintype": storage.type,
                "content": ",".join(storage.content), "status": "unknown",
            }
            figures = view.storages.get((storage.name, node.name))
            if figures is not None and not cluster.statistics.expired(node):
                row |= {"status": "available", "disk": figures[0], "maxdisk": figures[1]}
            rows.append(row)
    return cluster.shuffled(rows)


def _zones(call: Call) -> list[dict[str, Any]]:
    if not call.allowed("/sdn/zones/localnetwork", "SDN.Audit", "SDN.Use", "SDN.Allocate", any_of=True):
        return []
    rows = []
    for name in call.cluster.nodes:
        if call.cluster.modern:
            rows.append({
                "id": f"network/{name}/zone/localnetwork", "type": "network", "network": "localnetwork",
                "network-type": "zone", "node": name, "status": "ok",
            })
        else:
            rows.append({
                "id": f"sdn/{name}/localnetwork", "type": "sdn", "sdn": "localnetwork", "node": name, "status": "ok",
            })
    return rows
