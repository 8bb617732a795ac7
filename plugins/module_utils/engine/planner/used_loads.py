# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes use while a plan is made: their curves, and what a move changes in them."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...demand import (
    CPU,
    MEMORY,
    PRESSURE,
    PRESSURE_OF,
    Curve,
    Curves,
    Demand,
    Departure,
    Usage,
    mean,
    percentile,
    plus,
)
from ...plans import LIVE, Balance
from .board import Board
from .items import Item
from .writing import BYTES_PER_SECOND, SECONDS_PER_MOVE

LONG = 600.0
"""A live move that takes so many seconds has to gain twice the margin."""

DOWNTIME = 3.0
"""A move with downtime has to gain so many times what a live move has to gain."""

BACK = 3.0
"""A move to a node that the guest left within the window has to gain so many times what another one has to gain. What
is read is never exactly the same, and small differences must not undo a move.
"""


def resources_of(wanted: Balance) -> tuple[str, ...]:
    """Return the resources of which the load of a node is the highest."""
    return tuple(PRESSURE_OF) if wanted.by == PRESSURE else (CPU, MEMORY)


class Peak(t.NamedTuple):
    """The highest load of a node, and of which resource it is."""

    load: float
    resource: str


def fraction_of(curve: Curve, resource: str, capacity: Mapping[str, float], percent: float) -> float | None:
    """Return a percentile of a curve, as a fraction of the node; None if nothing is known."""
    value, size = percentile(curve, percent), size_of(resource, capacity)
    return value / size if value is not None and size else None


def size_of(resource: str, capacity: Mapping[str, float]) -> float:
    """Return how much of a resource a node has; 0 if that is not known."""
    return 1.0 if resource in PRESSURE_OF else capacity.get(resource, 0.0)


def peak_of(curves: Curves, capacity: Mapping[str, float], wanted: Balance) -> Peak | None:
    """Return the load of a node with these curves; None if nothing is known."""
    loads = {
        resource: fraction_of(curves[resource], resource, capacity, wanted.percentile)
        for resource in resources_of(wanted)
        if resource in curves
    }
    return max((Peak(load, resource) for resource, load in loads.items() if load is not None), default=None)


@dataclass(frozen=True, slots=True)
class Relief:
    """A move, and the loads of the two nodes before and after it."""

    item: Item
    source: int
    target: int
    before: Peak
    left: float
    other: float
    after: float

    @property
    def gain(self) -> float:
        """By how much it lowers the load of the fuller of the two nodes."""
        return self.before.load - max(self.left, self.after)


class UsedLoads:
    """What the nodes use, with the moves so far.

    Attributes:
        size: the cores and the memory of each node.
        curves: what each node of which that is known uses, by index and resource.
        at_first, highest: the same before the first move, and at the peak.
    """

    def __init__(self, board: Board, wanted: Balance, usage: Usage) -> None:
        self._board = board
        self._wanted = wanted
        self._usage = usage
        self._resources = resources_of(wanted)
        self._moved: dict[int, list[Departure]] = {}
        for departure in usage.moved:
            self._moved.setdefault(departure.vmid, []).append(departure)
        self.size = {node: usage.capacity.get(info.name, {}) for node, info in enumerate(board.nodes)}
        self.curves: dict[int, dict[str, Curve]] = {}
        for node, info in enumerate(board.nodes):
            known = {
                resource: curve
                for resource, curve in usage.nodes.get(info.name, {}).items()
                if resource in self._resources and size_of(resource, self.size[node])
            }
            if known and info.node.online:
                self.curves[node] = known
        self.at_first = {node: dict(curves) for node, curves in self.curves.items()}
        self.highest = {node: dict(curves) for node, curves in self.curves.items()}
        self._parts: dict[tuple[int, int], dict[str, Curve]] = {}
        self._totals: dict[tuple[int, str], list[float]] = {}
        self._loads: dict[int, Peak] = {}

    @property
    def hosts(self) -> Iterable[int]:
        return self.curves

    def of(self, node: int) -> Peak:
        """Return the load of a node."""
        if node not in self._loads:
            self._loads[node] = self._peak(node, self.curves[node])
        return self._loads[node]

    def fraction(self, node: int, resource: str, curve: Curve) -> float | None:
        """Return the percentile of a curve, as a fraction of the node."""
        return fraction_of(curve, resource, self.size[node], self._wanted.percentile)

    def recent_load(self, node: int, resource: str) -> float | None:
        """Return the mean load of a node during the time for which an imbalance must have lasted; None if it is not
        known.
        """
        curve, size = self.curves[node].get(resource, ()), size_of(resource, self.size[node])
        value = mean(curve[self._usage.grid.latest(self._wanted.hold)])
        return None if value is None or not size else value / size

    def price(self, item: Item, target: int) -> float:
        """Return how many times the margin a move of the item has to gain.

        A guest that changes its memory quickly takes long, which is known only if it was moved before.
        """
        moved = [each for part in item.parts for each in self._moved.get(part.vmid, ())]
        before = max((each.seconds for each in moved), default=0.0)
        seconds = max(SECONDS_PER_MOVE + item.cost / BYTES_PER_SECOND, before)
        live = all(part.mobility.how == LIVE for part in item.parts)
        back = any(each.node == self._board.nodes[target].name for each in moved)
        return (1.0 + seconds / LONG) * (1.0 if live else DOWNTIME) * (BACK if back else 1.0)

    def without(self, item: Item, source: int) -> float | None:
        """Return the load of a node after an item has left it; None if the use of the item is not known."""
        here = self._share(item, source)
        return self._peak(source, self._change_curves(self.curves[source], here, -1)).load if here else None

    def relief(self, item: Item, source: int, target: int, left: float) -> Relief:
        """Return the loads of both nodes before and after a move. left is the load of the source after it."""
        there = self._share(item, target, of=source)
        after = self._peak(target, self._change_curves(self.curves[target], there, 1))
        return Relief(item, source, target, self.of(source), left, self.of(target).load, after.load)

    def move(self, relief: Relief) -> None:
        """Count a move."""
        source, target, item = relief.source, relief.target, relief.item
        here, there = self._share(item, source), self._share(item, target, of=source)
        self.curves[source] = self._change_curves(self.curves[source], here, -1)
        self.curves[target] = self._change_curves(self.curves[target], there, 1)
        # At the peak of the plan, a guest counts on both nodes.
        self.highest[target] = self._change_curves(self.highest[target], there, 1)
        for node in (source, target):
            self._loads.pop(node, None)

    def resource_loads(self, relief: Relief, resource: str) -> tuple[float, float, float, float]:
        """Return the load of one resource: of the source before and after the move, and of the target."""
        source, target, item = relief.source, relief.target, relief.item
        here, there = self._share(item, source), self._share(item, target, of=source)
        pairs = (
            (source, self.curves[source]),
            (source, self._change_curves(self.curves[source], here, -1)),
            (target, self.curves[target]),
            (target, self._change_curves(self.curves[target], there, 1)),
        )
        one, two, three, four = (self.fraction(n, resource, curves.get(resource, ())) or 0.0 for n, curves in pairs)
        return one, two, three, four

    def _peak(self, node: int, curves: Curves) -> Peak:
        return peak_of(curves, self.size[node], self._wanted) or Peak(0.0, self._resources[0])

    @staticmethod
    def _change_curves(curves: Curves, part: Curves, sign: int) -> dict[str, Curve]:
        return {
            resource: plus(curve, part[resource], sign) if resource in part else curve
            for resource, curve in curves.items()
        }

    def _share(self, item: Item, node: int, *, of: int | None = None) -> dict[str, Curve]:
        """Return what an item adds to a node, by resource. of is the node that the item is on, if that is another."""
        key = (item.index, node if of is None else -1 - node)
        if key not in self._parts:
            parts = [self._usage.guests.get(part.vmid, {}) for part in item.parts]
            found: dict[str, Curve] = {}
            for resource in self._resources:
                for demands in parts:
                    curve = self._pressure(demands, resource, node, of) if resource in PRESSURE_OF else None
                    if resource in demands and resource not in PRESSURE_OF:
                        curve = demands[resource].curve if of is None else demands[resource].lasting
                    if curve is not None:
                        found[resource] = plus(curve, found[resource]) if resource in found else curve
            self._parts[key] = found
        return self._parts[key]

    def _pressure(self, demands: Mapping[str, Demand], resource: str, node: int, of: int | None) -> Curve | None:
        """Return the part of a node's pressure that goes with a guest: its part of what the guests there use."""
        used = PRESSURE_OF[resource]
        home = node if of is None else of
        pressure, demand = self.at_first.get(home, {}).get(resource), demands.get(used)
        if pressure is None or demand is None:
            return None
        total = self._usage_on(home, used)
        return tuple(
            None if p is None or d is None or not total[slot] else p * min(d / total[slot], 1.0)
            for slot, (p, d) in enumerate(zip(pressure, demand.curve, strict=True))
        )

    def _usage_on(self, node: int, resource: str) -> list[float]:
        if (node, resource) in self._totals:
            return self._totals[node, resource]
        total = self._totals[node, resource] = [0.0] * self._usage.grid.count
        for item in self._board.items:
            if node in item.homes:
                for part in item.parts:
                    demand = self._usage.guests.get(part.vmid, {}).get(resource)
                    for slot, value in enumerate(demand.curve if demand is not None else ()):
                        total[slot] += value or 0.0
        return total
