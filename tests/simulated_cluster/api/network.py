# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks: bridges of nodes, zones and VNets of the cluster."""

from __future__ import annotations

from typing import Any

from ..routing import Call, route
from .config_rights import VNET_ZONE


@route("GET", "/nodes/{node}/network")
def interfaces(call: Call) -> list[dict[str, Any]]:
    node, wanted = call.cluster.nodes[call.node], call.get("type")
    rows: list[dict[str, Any]] = []
    for number, bridge in enumerate(node.bridges):
        row: dict[str, Any] = {
            "iface": bridge, "type": "bridge", "active": 1, "autostart": 1, "families": ["inet"], "method": "manual",
            "method6": "manual", "bridge_ports": f"eth{number}", "bridge_stp": "off", "bridge_fd": "0",
            "priority": 10 + number,
        }
        if number == 0:
            row |= {
                "method": "static", "address": node.address, "netmask": "24", "cidr": f"{node.address}/24",
                "gateway": "10.99.0.254",
            }
        rows.append(row)
        rows.append({
            "iface": f"eth{number}", "type": "eth", "active": 1, "exists": 1, "families": ["inet"],
            "method": "manual", "method6": "manual", "priority": 3 + number,
        })
    if wanted in ("any_bridge", "include_sdn", "any_local_bridge"):
        rows = [row for row in rows if row["type"] == "bridge"]
        if wanted != "any_local_bridge":
            rows += [{"iface": name, "type": "vnet", "active": 1} for name in node.vnets]
    elif wanted is not None:
        rows = [row for row in rows if row["type"] == wanted]
    zones = {"bridge": "localnetwork", "vnet": VNET_ZONE}
    return [row for row in rows if row["type"] not in zones or _shown(call, zones[str(row["type"])], str(row["iface"]))]


def _shown(call: Call, zone: str, bridge: str) -> bool:
    """Who may audit the node is not shown its bridges for that."""
    return call.allowed(f"/sdn/zones/{zone}/{bridge}", "SDN.Audit", "SDN.Use", any_of=True)


@route("GET", "/cluster/sdn/vnets")
def vnets(call: Call) -> list[dict[str, Any]]:
    names = sorted({name for node in call.cluster.nodes.values() for name in node.vnets})
    return [
        {"vnet": name, "zone": VNET_ZONE, "type": "vnet", "digest": call.cluster.ha.digest(names)} for name in names
        if call.allowed(f"/sdn/zones/{VNET_ZONE}/{name}", "SDN.Audit", "SDN.Allocate", any_of=True)
    ]


@route("GET", "/cluster/sdn/zones")
def zones(call: Call) -> list[dict[str, Any]]:
    if not any(node.vnets for node in call.cluster.nodes.values()):
        return []
    return [{"zone": VNET_ZONE, "type": "simple", "digest": call.cluster.ha.digest(VNET_ZONE)}]
