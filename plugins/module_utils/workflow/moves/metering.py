# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what nodes and guests used, as far as a plan needs it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...demand import CPU, MEMORY, STATED, Curve, Curves, Demand, Grid, Stated, Usage, as_placed
from ...engine.cache import ClusterState
from ...engine.planner.calm import nodes_to_relieve
from ...model import Guest, Node, Snapshot
from ...plans import Balance
from ...proxmox.api.reader import Reader
from ...proxmox.inventory.kept_demands import KeptDemands
from ...proxmox.inventory.usage import (
    Timeframe,
    grid_for,
    read_demands,
    read_node_curves,
    timeframe_for,
    with_demand_of,
)
from ...proxmox.moves.recent import departures


@dataclass(eq=False)
class Metering:
    """What the cluster of one run uses. The statistics of a node or a guest are read once in a run.

    kept returns what earlier runs have read of guests.
    """

    reader: Reader
    kept: Callable[[], KeptDemands]
    _timeframe: Timeframe | None = None
    _now: float = 0.0
    _names: Counter[str | None] = field(default_factory=Counter)
    _nodes: dict[str, Curves] = field(default_factory=dict)
    _guests: dict[int, Mapping[str, Demand]] = field(default_factory=dict)
    _usual: Snapshot | None = None

    def with_use(self, state: ClusterState, leaving: Collection[str] | None) -> ClusterState:
        """Return the cluster with what nodes, and the guests that may leave theirs, usually use. Read once in a run:
        one request for each node that is online, and one for each of these guests. leaving is as in Planning.with_use.
        """
        due = (guest for guest in state if guest.running and guest.vmid > 0)
        vmids = frozenset(guest.vmid for guest in due if leaving is None or guest.node in leaving)
        if self._usual is None:
            snapshot = replace(state.snapshot, guests=tuple(state))
            self._usual = with_demand_of(self.reader, snapshot, vmids, self.kept())
        nodes = {node.name: node.demand for node in self._usual.nodes}
        guests = {guest.vmid: guest.demand for guest in self._usual.guests}
        return ClusterState(
            replace(
                state.snapshot,
                nodes=tuple(replace(node, demand=nodes.get(node.name, {})) for node in state.snapshot.nodes),
                guests=tuple(replace(guest, demand=guests.get(guest.vmid, {})) for guest in state),
            )
        )

    def usage(self, state: ClusterState, wanted: Balance) -> Usage:
        """Return what nodes used, and what the guests use that may have to leave their node.

        Takes a request for each node that is online, one for each of them and kind of guests (the list of migrations),
        and one for each running guest that was moved within the window or is on a node that is to be relieved. What the
        user states is not read.
        """
        snapshot, stated = state.snapshot, wanted.stated or Stated()
        if self._timeframe is None:
            self._timeframe = timeframe_for(wanted.window, self.reader)
            self._now = self.reader.server_time() or time.time()
        grid = grid_for(wanted.window, self._timeframe, self._now)
        online = [node for node in snapshot.nodes if node.online]
        self._nodes |= {node.name: _curves_of(node, stated, grid) for node in online if node.name in stated.nodes}
        due = [node.name for node in online if node.name not in self._nodes]
        self._nodes |= read_node_curves(self.reader, due, self._timeframe, grid)
        moved = departures(self.reader, snapshot, grid.start)
        running = {guest.vmid: guest for guest in state if guest.running and guest.vmid > 0}
        self._names = Counter(guest.name for guest in state)
        self._learn((running[vmid] for vmid in sorted({each.vmid for each in moved} & running.keys())), stated, grid)
        places = {vmid: guest.node for vmid, guest in running.items()}
        capacity = {node.name: {CPU: node.cores, MEMORY: node.memory} for node in online}
        nodes = as_placed(self._nodes, self._guests, places, moved, grid)
        full = set(nodes_to_relieve(Usage(grid, nodes, capacity), wanted))
        self._learn((guest for guest in running.values() if guest.node in full), stated, grid)
        return Usage(grid, nodes, capacity, dict(self._guests))

    def _learn(self, guests: Iterable[Guest], stated: Stated, grid: Grid) -> None:
        """Add the demand of guests: as stated, else as measured."""
        due = {guest.vmid: guest for guest in guests if guest.vmid not in self._guests}
        for vmid, guest in due.items():
            given = stated.of_guest(vmid, guest.name if self._names[guest.name] == 1 else None)
            if given:
                self._guests[vmid] = _stated_demands(guest, given, grid)
        unread = [guest for vmid, guest in due.items() if vmid not in self._guests]
        if self._timeframe is not None:
            self._guests |= read_demands(self.reader, unread, self._timeframe, grid, self.kept())


def _curves_of(node: Node, stated: Stated, grid: Grid) -> Curves:
    return {
        resource: _scale(grid.stretch(values), node.cores if resource == CPU else 1)
        for resource, values in stated.nodes[node.name].items()
    }


def _stated_demands(guest: Guest, given: Mapping[str, Curve], grid: Grid) -> dict[str, Demand]:
    return {
        resource: Demand(STATED, _scale(grid.stretch(values), guest.cores if resource == CPU else 1))
        for resource, values in given.items()
    }


def _scale(curve: Curve, factor: float) -> Curve:
    return tuple(None if value is None else value * factor for value in curve)
