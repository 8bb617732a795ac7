# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes and guests used: the curves of the interface."""

from __future__ import annotations

from typing import Any

from ..errors import die
from ..load import guest_rows, node_rows
from ..routing import Call, route


@route("GET", "/nodes/{node}/rrddata")
def of_node(call: Call) -> list[dict[str, Any]]:
    return node_rows(call.cluster, call.cluster.nodes[call.node], str(call["timeframe"]))


@route("GET", "/nodes/{node}/qemu/{vmid}/rrddata", "/nodes/{node}/lxc/{vmid}/rrddata")
def of_guest(call: Call) -> list[dict[str, Any]]:
    """The statistics of a VMID, which every node has, and which do not depend on a config."""
    guest = call.cluster.guests.get(call["vmid"])
    if guest is None:
        path = f"/var/lib/rrdcached/db/{'pve-vm-9.0' if call.cluster.modern else 'pve2-vm'}/{call['vmid']}"
        where = "rrdcached@unix:/var/run/rrdcached.sock: rrd_fetch_r failed"
        raise die(f"RRD error: {where}: opening '{path}': No such file or directory")
    return guest_rows(call.cluster, guest, str(call["timeframe"]))
