# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes and guests used: the curves of the interface."""

from __future__ import annotations

from typing import Any

from ..load import guest_rows, node_rows
from ..routing import Call, route


@route("GET", "/nodes/{node}/rrddata")
def of_node(call: Call) -> list[dict[str, Any]]:
    return node_rows(call.cluster, call.cluster.nodes[call.node], str(call["timeframe"]))


@route("GET", "/nodes/{node}/qemu/{vmid}/rrddata")
def of_vm(call: Call) -> list[dict[str, Any]]:
    return guest_rows(call.cluster, call.cluster.guest("qemu", call.node, call["vmid"]), str(call["timeframe"]))


@route("GET", "/nodes/{node}/lxc/{vmid}/rrddata")
def of_container(call: Call) -> list[dict[str, Any]]:
    return guest_rows(call.cluster, call.cluster.guest("lxc", call.node, call["vmid"]), str(call["timeframe"]))
