# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what nodes and guests used, as far as a plan needs it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...demand import CPU, MEMORY, Curves, Demand, Grid, Usage, as_placed
from ...engine.cache import ClusterState
from ...engine.planner.calm import nodes_to_relieve
from ...model import Guest, Snapshot
from ...plans import Balance
from ...proxmox.inventory.usage import Statistics, Timeframe, grid_for, timeframe_for, with_demand_of
from ...proxmox.moves.recent import departures


@dataclass(eq=False)
class Metering:
    """What the cluster of one run uses. The statistics of a node or a guest are read once in a run."""

    statistics: Statistics
    _timeframe: Timeframe | None = None
    _now: float = 0.0
    _nodes: dict[str, Curves] = field(default_factory=dict)
    _guests: dict[int, Mapping[str, Demand]] = field(default_factory=dict)
    _usual: Snapshot | None = None

    def with_use(self, state: ClusterState, leaving: Collection[str] | None) -> ClusterState:
        """Return the cluster with what nodes, and the guests that may leave theirs, usually use. Read once in a run:
        one request for each node that is online, and one for each of these guests. leaving is as in Planning.with_use.
        """
        due = (guest for guest in state.guests.values() if guest.running and guest.vmid > 0)
        vmids = frozenset(guest.vmid for guest in due if leaving is None or guest.node in leaving)
        if self._usual is None:
            snapshot = replace(state.snapshot, guests=tuple(state.guests.values()))
            self._usual = with_demand_of(self.statistics, snapshot, vmids)
        nodes = {node.name: node.demand for node in self._usual.nodes}
        guests = {guest.vmid: guest.demand for guest in self._usual.guests}
        return ClusterState(
            replace(
                state.snapshot,
                nodes=tuple(replace(node, demand=nodes.get(node.name, {})) for node in state.snapshot.nodes),
                guests=tuple(replace(guest, demand=guests.get(guest.vmid, {})) for guest in state.guests.values()),
            )
        )

    def usage(self, state: ClusterState, wanted: Balance) -> Usage:
        """Return what nodes used, and what the guests use that may have to leave their node.

        Takes a request for each node that is online, one for each of them and kind of guests (the list of migrations),
        and one for each running guest that was moved within the window or is on a node that is to be relieved. What the
        user states is not read.
        """
        snapshot = state.snapshot
        if self._timeframe is None:
            self._timeframe = timeframe_for(wanted.window, self.statistics.reader)
            self._now = self.statistics.reader.server_time() or time.time()
        grid = grid_for(wanted.window, self._timeframe, self._now)
        online = [node for node in snapshot.nodes if node.online]
        due = (node for node in online if node.name not in self._nodes)
        self._nodes |= self.statistics.node_curves(due, self._timeframe, grid)
        moved = departures(self.statistics.reader, snapshot, grid.start)
        running = {guest.vmid: guest for guest in state.guests.values() if guest.running and guest.vmid > 0}
        came = (running[vmid] for vmid in sorted({each.vmid for each in moved} & running.keys()))
        self._learn(came, state, self._timeframe, grid)
        places = {vmid: guest.node for vmid, guest in running.items()}
        capacity = {node.name: {CPU: node.cores, MEMORY: node.memory} for node in online}
        touched = {each.node for each in moved} | {places[each.vmid] for each in moved if each.vmid in places}
        unsettled = self.statistics.stated.with_one_number() & touched
        settled = {name: curves for name, curves in self._nodes.items() if name not in unsettled}
        nodes = as_placed(settled, self._guests, places, moved, grid)
        full = set(nodes_to_relieve(Usage(grid, nodes, capacity), wanted))
        self._learn((guest for guest in running.values() if guest.node in full), state, self._timeframe, grid)
        return Usage(grid, nodes, capacity, dict(self._guests), moved, unsettled)

    def _learn(self, guests: Iterable[Guest], state: ClusterState, timeframe: Timeframe, grid: Grid) -> None:
        """Add the demand of guests of which it is not known yet."""
        due = [guest for guest in guests if guest.vmid not in self._guests]
        self._guests |= self.statistics.demands(due, state.guests.values(), timeframe, grid)
