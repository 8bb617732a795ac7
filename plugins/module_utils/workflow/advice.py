# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice from the statistics of a week: sizes that would suit VMs better, and nodes that will be full."""

from __future__ import annotations

import time
import typing as t

from ..demand import CPU, MEMORY, Usage
from ..engine.advice import Size, filling, right_sizes
from ..model import Snapshot
from ..proxmox.api.reader import Reader
from ..proxmox.inventory.usage import WEEK, grid_for, read_demands, read_node_curves, timeframe_for

_OPTIONS = {CPU: "cores", MEMORY: "memory"}


def advice(reader: Reader, snapshot: Snapshot) -> dict[str, t.Any]:
    """Return the advice as data. One request for each node that is online, and one for each running VM there."""
    timeframe = timeframe_for(WEEK, reader)
    grid = grid_for(WEEK, timeframe, reader.server_time() or time.time())
    online = {node.name: node for node in snapshot.nodes if node.online}
    vms = [guest for guest in snapshot.guests if guest.kind == "qemu" and guest.running and guest.node in online]
    vms = [guest for guest in vms if guest.vmid > 0]
    usage = Usage(
        grid,
        read_node_curves(reader, online, timeframe, grid),
        {name: {CPU: node.cores, MEMORY: node.memory} for name, node in online.items()},
        read_demands(reader, vms, timeframe, grid),
    )
    return {
        "right_sizes": [{**size._asdict(), "options": _options(size)} for size in right_sizes(vms, usage)],
        "full_in_days": [growth._asdict() for growth in filling(usage)],
    }


def _options(size: Size) -> dict[str, int]:
    """The options of a VM with which qemu_schedule would give it that size."""
    sockets = {"sockets": 1} if size.resource == CPU else {}
    return {"vmid": size.vmid, _OPTIONS[size.resource]: size.suggested, **sockets}
