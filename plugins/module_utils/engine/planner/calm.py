# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Balance by what is used: relieve nodes whose load stays high, by few moves that are worth their cost.

The load of a node is a percentile of what it used during a window. It is calculated from whole curves, so that two
guests whose peaks are at different times fit on one node, and a guest that is busy at night adds to the load of the
night.
"""

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
    Usage,
    mean,
    percentile,
    plus,
)
from ...plans import LIVE, Balance, UsedLoad
from .attempts import Attempts
from .board import NOWHERE, Board
from .items import Item
from .reach import ROUNDING
from .writing import BYTES_PER_SECOND, SECONDS_PER_MOVE

COMPARED = 6
"""For each guest, the search compares at most this many nodes that have room for it, emptiest first."""

LONG = 600.0
"""A live move that takes so many seconds has to gain twice the margin."""

DOWNTIME = 3.0
"""A move with downtime has to gain so many times what a live move has to gain."""

FULL = 0.8
"""Nodes with a higher load are in need. Only these are worth a word when no move helps them."""

EASED = 1 / 3
"""For a node in need, this part of the threshold and of the margin is enough: small guests may leave it, too."""

NAMES = {CPU: "CPU", MEMORY: "memory"}


def resources_of(wanted: Balance) -> tuple[str, ...]:
    """The resources of which the load of a node is the highest."""
    return tuple(PRESSURE_OF) if wanted.by == PRESSURE else (CPU, MEMORY)


class Peak(t.NamedTuple):
    """The highest load of a node, and of which resource it is."""

    load: float
    resource: str


def fraction_of(curve: Curve, resource: str, capacity: Mapping[str, float], percent: float) -> float | None:
    """A percentile of a curve, as a fraction of the node; None if nothing is known."""
    value, size = percentile(curve, percent), size_of(resource, capacity)
    return value / size if value is not None and size else None


def size_of(resource: str, capacity: Mapping[str, float]) -> float:
    """How much of a resource a node has; 0 if that is not known."""
    return 1.0 if resource in PRESSURE_OF else capacity.get(resource, 0.0)


def peak_of(curves: Curves, capacity: Mapping[str, float], wanted: Balance) -> Peak | None:
    """The load of a node with these curves; None if nothing is known."""
    loads = {
        resource: fraction_of(curves[resource], resource, capacity, wanted.percentile)
        for resource in resources_of(wanted)
        if resource in curves
    }
    return max((Peak(load, resource) for resource, load in loads.items() if load is not None), default=None)


def nodes_to_relieve(usage: Usage, wanted: Balance) -> list[str]:
    """The names of the nodes whose load is too high above that of another one."""
    peaks = {name: peak_of(curves, usage.capacity.get(name, {}), wanted) for name, curves in usage.nodes.items()}
    loads = {name: peak.load for name, peak in peaks.items() if peak is not None}
    goal = too_much(min(loads.values(), default=0.0), wanted)
    return sorted(name for name, load in loads.items() if load > goal)


def too_much(other: float, wanted: Balance) -> float:
    """Return the load above which a node is relieved if another one has this load."""
    usual = max(wanted.above, other + wanted.threshold)
    return min(usual, max(FULL, other + EASED * wanted.threshold))


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
        """The load of a node."""
        if node not in self._loads:
            self._loads[node] = self._peak(node, self.curves[node])
        return self._loads[node]

    def fraction(self, node: int, resource: str, curve: Curve) -> float | None:
        """The percentile of a curve, as a fraction of the node."""
        return fraction_of(curve, resource, self.size[node], self._wanted.percentile)

    def recently(self, node: int, resource: str) -> float | None:
        """The mean load of a node during the time for which an imbalance must have lasted; None if it is not known."""
        curve, size = self.curves[node].get(resource, ()), size_of(resource, self.size[node])
        value = mean(curve[self._usage.grid.latest(self._wanted.hold)])
        return None if value is None or not size else value / size

    def without(self, item: Item, source: int) -> float | None:
        """The load of a node after an item has left it; None if the use of the item is not known."""
        here = self._share(item, source)
        return self._peak(source, self._change_curves(self.curves[source], here, -1)).load if here else None

    def relief(self, item: Item, source: int, target: int, left: float) -> Relief:
        """What a move changes, after which the source has the load left."""
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

    def named(self, relief: Relief, resource: str) -> tuple[float, float, float, float]:
        """The load of one resource: of the source before and after the move, and of the target."""
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
        """What an item adds to a node, by resource; if it is elsewhere, what it adds there counts (of)."""
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
        """The part of a node's pressure that goes with a guest: its part of what the guests there use."""
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


class Relieved(t.NamedTuple):
    """What came of it.

    Attributes:
        loads: the loads of the nodes by name and resource.
        notes: what the user should change, as nodes in need stay far above others or are not known.
        waits: why nothing more moves, as nodes that are not in need stay above others or the imbalance is new or over.
    """

    loads: dict[str, dict[str, UsedLoad]]
    notes: list[str]
    waits: list[str]


def relieve(board: Board, placer: Attempts, wanted: Balance, usage: Usage) -> Relieved:
    """Move guests off nodes whose load stays high."""
    loads = UsedLoads(board, wanted, usage)
    refused: set[tuple[int, int]] = set()
    moved: set[int] = set()
    while found := _best(board, loads, wanted, refused, moved):
        why = _reason(board, loads, wanted, usage, found)
        if placer.bring(found.item, found.target, None, why):
            loads.move(found)
            moved.add(found.item.index)
        else:
            refused.add((found.item.index, found.target))
    notes, waits = _causes_of_imbalance(board, loads, wanted)
    return Relieved(_used_loads(board, loads), [*_unknown(board, usage), *notes], waits)


def _best(
    board: Board, loads: UsedLoads, wanted: Balance, refused: set[tuple[int, int]], moved: set[int]
) -> Relief | None:
    """Return the next move: from the fullest node from which one is worth it. If a single move is enough, the cheapest
    that is; else the one that gains most for its cost.
    """
    emptiest = sorted(loads.hosts, key=lambda node: (loads.of(node).load, node))
    for source in reversed(emptiest):
        goal = too_much(loads.of(emptiest[0]).load, wanted)
        if loads.of(source).load <= goal + ROUNDING:
            return None
        found = [
            relief
            for item in board.on[source].values()
            if item.movable and not item.new and source in item.homes and item.index not in moved
            for relief in _reliefs(board, loads, item, source, emptiest, refused)
            if relief.gain > ROUNDING
            and relief.gain >= wanted.margin * _price(item) * (EASED if relief.before.load > FULL else 1.0)
            and _lasts(loads, wanted, relief.source, relief.target, relief.before.resource)
        ]
        enough = [relief for relief in found if max(relief.left, relief.after) <= goal + ROUNDING]
        if enough:
            return min(enough, key=lambda each: (_price(each.item), -each.gain, each.item.index))
        if found:
            return max(found, key=lambda each: (each.gain / _price(each.item), -each.item.index))
    return None


def _reliefs(
    board: Board,
    loads: UsedLoads,
    item: Item,
    source: int,
    emptiest: Iterable[int],
    refused: set[tuple[int, int]],
) -> Iterable[Relief]:
    able, compared = set(board.rows(item).nodes), 0
    left = loads.without(item, source)
    if left is None:
        return
    for target in emptiest:
        if target == source or compared == COMPARED or loads.of(target).load >= loads.of(source).load:
            return
        if target not in able or (item.index, target) in refused or not board.fits(item, target):
            continue
        compared += 1
        yield loads.relief(item, source, target, left)


def _price(item: Item) -> float:
    """How many times the margin a move of the item has to gain."""
    seconds = SECONDS_PER_MOVE + item.cost / BYTES_PER_SECOND
    live = all(part.mobility.how == LIVE for part in item.parts)
    return (1.0 + seconds / LONG) * (1.0 if live else DOWNTIME)


def _lasts(loads: UsedLoads, wanted: Balance, node: int, other: int, resource: str) -> bool:
    """Whether two nodes have differed recently, too, and not only some time ago."""
    now, there = loads.recently(node, resource), loads.recently(other, resource)
    return now is not None and there is not None and now > too_much(there, wanted)


# --- in words ---------------------------------------------------------------------------------------------------------


def _reason(board: Board, loads: UsedLoads, wanted: Balance, usage: Usage, relief: Relief) -> str:
    resource = relief.before.resource
    before, left, other, after = loads.named(relief, resource)
    source, target = board.nodes[relief.source].name, board.nodes[relief.target].name
    names = ", ".join(part.guest.name or str(part.vmid) for part in relief.item.parts if part.guest is not None)
    verb = "had" if resource in PRESSURE_OF else "used"
    window = f"p{wanted.percentile:g} of {in_hours(usage.grid.window)}"
    return (
        f"{source} {verb} {before:.0%} {NAMES.get(resource, resource)} ({window}); without {names} {left:.0%}; "
        f"{target} goes from {other:.0%} to {after:.0%}"
    )


def in_hours(seconds: float) -> str:
    """A period in words."""
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


def _unknown(board: Board, usage: Usage) -> list[str]:
    names = [info.name for info in board.nodes if info.node.online and not usage.nodes.get(info.name)]
    told = ", ".join(names)
    cure = "cure: give the user Sys.Audit on the nodes, wait until they have statistics, or choose a shorter window"
    return [f"what was used is not known of {told}, which takes no part ({cure})"] if names else []


def _causes_of_imbalance(board: Board, loads: UsedLoads, wanted: Balance) -> tuple[list[str], list[str]]:
    """Return why nodes stay above the others: those in need whose load has lasted, and all others."""
    notes: list[str] = []
    waits: list[str] = []
    emptiest = min(loads.hosts, key=lambda node: (loads.of(node).load, node), default=NOWHERE)
    for node in sorted(loads.hosts, key=lambda node: (-loads.of(node).load, node)):
        peak = loads.of(node)
        if node == emptiest or peak.load <= too_much(loads.of(emptiest).load, wanted) + ROUNDING:
            continue
        name, other = board.nodes[node].name, board.nodes[emptiest].name
        what = NAMES.get(peak.resource, peak.resource)
        told = f"{name} stays at {peak.load:.0%} {what} and {other} at {loads.of(emptiest).load:.0%}"
        if not _lasts(loads, wanted, node, emptiest, peak.resource):
            recent = (loads.recently(each, peak.resource) for each in (node, emptiest))
            now, there = ("unknown" if load is None else f"{load:.0%}" for load in recent)
            waits.append(f"{told}, but not in the last {in_hours(wanted.hold)} (hold): {now} and {there}")
            continue
        cause = f"{told}, as no move that is worth its cost and allowed helps"
        cure = "cure: lower the margin, or let more of its guests move"
        (notes if peak.load > FULL else waits).append(f"{cause} ({cure})")
    return notes, waits


def _used_loads(board: Board, loads: UsedLoads) -> dict[str, dict[str, UsedLoad]]:
    found: dict[str, dict[str, UsedLoad]] = {}
    for node in sorted(loads.hosts):
        found[board.nodes[node].name] = {
            resource: UsedLoad(
                before=loads.fraction(node, resource, before) or 0.0,
                peak=loads.fraction(node, resource, loads.highest[node][resource]) or 0.0,
                after=loads.fraction(node, resource, loads.curves[node][resource]) or 0.0,
                curve=tuple(v if v is None else v / size_of(resource, loads.size[node]) for v in before),
            )
            for resource, before in loads.at_first[node].items()
        }
    return found
