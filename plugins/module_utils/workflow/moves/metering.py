# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what nodes and guests used, as far as a plan needs it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ...demand import Curves, Demand, Usage, as_placed
from ...engine.cache import ClusterState
from ...engine.planner.calm import nodes_to_relieve
from ...model import Guest
from ...plans import Balance
from ...proxmox.api.reader import Reader
from ...proxmox.inventory.usage import (
    Timeframe,
    grid_for,
    read_demands,
    read_node_curves,
    timeframe_for,
)
from ...proxmox.moves.recent import departures


class Metering:
    """What the cluster of one run uses. The statistics of a node or a guest are read once in a run."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._now: float | None = None
        self._timeframe: Timeframe | None = None
        self._nodes: dict[str, Curves] = {}
        self._capacity: dict[str, dict[str, float]] = {}
        self._guests: dict[int, dict[str, Demand]] = {}

    def usage(self, state: ClusterState, wanted: Balance) -> Usage:
        """Return what nodes used, and what the guests use that may have to leave their node.

        Takes a request for each node that is online, one for each of them and kind of guests (the list of migrations),
        and one for each running guest that was moved within the window or is on a node that is to be relieved.
        """
        reader, snapshot = self._reader, state.snapshot
        if self._timeframe is None or self._now is None:
            self._timeframe = timeframe_for(wanted.window, reader)
            self._now = reader.server_time() or time.time()
        grid = grid_for(wanted.window, self._timeframe, self._now)
        due = [node.name for node in snapshot.nodes if node.online and node.name not in self._nodes]
        curves, capacity = read_node_curves(reader, due, self._timeframe, grid)
        self._nodes |= curves
        self._capacity |= capacity
        moved = departures(reader, snapshot, grid.start)
        running = {guest.vmid: guest for guest in state if guest.running and guest.vmid > 0}

        def read(guests: Iterable[Guest]) -> None:
            unread = [guest for guest in guests if guest.vmid not in self._guests]
            self._guests.update(read_demands(reader, unread, self._timeframe or Timeframe("hour", 60), grid))

        read(running[vmid] for vmid in sorted({each.vmid for each in moved} & running.keys()))
        places = {vmid: guest.node for vmid, guest in running.items()}
        nodes = as_placed(self._nodes, self._guests, places, moved, grid)
        usage = Usage(grid, nodes, self._capacity, self._guests)
        full = set(nodes_to_relieve(usage, wanted))
        read(guest for guest in running.values() if guest.node in full)
        return Usage(grid, nodes, self._capacity, dict(self._guests))
