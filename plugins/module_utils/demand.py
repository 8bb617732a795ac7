# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plain data of what nodes and guests use: curves over a window, and the demand of guests. Pure.

CPU is in cores, memory in bytes, data rates in bytes per second, pressure in fractions of time (0..1).
"""

from __future__ import annotations

import itertools
import math
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

ALLOCATED, USED, PRESSURE = "allocated", "used", "pressure"
"""What nodes are balanced by."""

CONFIGURED, MEASURED, LIKE, STATED = "configured", "measured", "like", "stated"
"""Where a demand is known from: the size of the guest, the statistics of Proxmox VE, those of guests like it, or what
the user states.
"""

CPU, MEMORY, IO = "cpu", "memory", "io"
CPU_PRESSURE, IO_PRESSURE, MEMORY_PRESSURE = "cpu pressure", "io pressure", "memory pressure"

PRESSURE_OF = {CPU_PRESSURE: CPU, IO_PRESSURE: IO, MEMORY_PRESSURE: MEMORY}
"""The resource whose users cause a pressure."""

USUAL = 95.0
"""The percentile that counts where one number stands for a curve."""

LONGEST_GAP = 2
"""So many slots without a value may be a gap in the statistics of a guest that was there."""

Curve: t.TypeAlias = "tuple[float | None, ...]"
"""A value for each slot of a window, the oldest first. None: nothing is known. That is not zero."""

Curves = Mapping[str, Curve]
"""Curves by resource."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The slots of a window: count slots of so many seconds, the first of which begins at start."""

    start: float
    slot: float
    count: int

    @property
    def window(self) -> float:
        """The seconds of all slots together."""
        return self.slot * self.count

    @property
    def end(self) -> float:
        """When the last slot ends."""
        return self.start + self.window

    def bin_samples(self, samples: Sequence[tuple[float, float | None]], step: float) -> Curve:
        """Return the mean of each slot. samples are (time, value) in the order of time; each is about the time since
        the one before, the first about step seconds.
        """
        sums, weights = [0.0] * self.count, [0.0] * self.count
        for number, (until, value) in enumerate(samples):
            time = samples[number - 1][0] if number else until - step
            if value is None:
                continue
            first = max(int((time - self.start) // self.slot), 0)
            last = min(math.ceil((until - self.start) / self.slot), self.count)
            for index in range(first, last):
                begin = self.start + index * self.slot
                weight = min(until, begin + self.slot) - max(time, begin)
                sums[index] += value * weight
                weights[index] += weight
        return tuple(total / weight if weight > 0 else None for total, weight in zip(sums, weights, strict=True))

    def stretch(self, values: Sequence[float | None]) -> Curve:
        """Return values that are spread evenly over the window, as a curve. Several values of a slot are averaged."""
        first = [index * len(values) // self.count for index in range(self.count + 1)]
        return tuple(mean(values[one : max(two, one + 1)]) for one, two in itertools.pairwise(first))

    def latest(self, seconds: float) -> slice:
        """Return the slots of the last so many seconds; at least one."""
        return slice(max(self.count - max(math.ceil(seconds / self.slot), 1), 0), self.count)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a guest uses of one resource, or will use, and how that is known (source)."""

    source: str
    curve: Curve

    @property
    def usual(self) -> float:
        """What it is not above during 95 % of the time; 0 if nothing is known."""
        return percentile(self.curve, USUAL) or 0.0

    @property
    def lasting(self) -> Curve:
        """The demand with what is unknown filled by its highest known value."""
        highest = max((value for value in self.curve if value is not None), default=None)
        return tuple(highest if value is None else value for value in self.curve)


class Departure(t.NamedTuple):
    """A guest left a node, which took so many seconds."""

    time: float
    vmid: int
    node: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What the nodes and some guests of a cluster used during a window.

    Attributes:
        nodes: the curves of each node, as if its present guests had been there all the time. Nodes of which nothing is
            known are missing.
        capacity: the cores and the memory of each node.
        guests: the demand of guests by VMID and resource; guests of which nothing is known are missing.
        moved: the moves of guests within the window, the oldest first.
        unsettled: the nodes of which only one number is known for the window, while guests left them or came to them:
            nobody can tell whether these are in it. They have no curves.
    """

    grid: Grid
    nodes: Mapping[str, Curves] = field(default_factory=dict)
    capacity: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    guests: Mapping[int, Mapping[str, Demand]] = field(default_factory=dict)
    moved: Sequence[Departure] = ()
    unsettled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Stated:
    """What the user states of nodes (by name) and of guests (by VMID or name): values by resource, which are spread
    evenly over the window. CPU is a fraction of the cores of the node or guest.
    """

    nodes: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)
    guests: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)

    def with_one_number(self) -> frozenset[str]:
        """Return the nodes of which one number stands for the whole window."""
        return frozenset(n for n, curves in self.nodes.items() if any(len(curve) == 1 for curve in curves.values()))

    def of_guest(self, vmid: int, name: str | None) -> Mapping[str, Curve] | None:
        """Return what is stated of a guest. name is None if others have it, too. A number is always a VMID: the owner
        of another guest may choose it as a name.
        """
        by_name = None if name is None or name.isdigit() else self.guests.get(name)
        return self.guests.get(str(vmid)) or by_name


NOTHING_STATED = Stated()


def percentile(curve: Iterable[float | None], percent: float) -> float | None:
    """Return the smallest known value that at least percent of the known values do not exceed; None if none is."""
    known = sorted(value for value in curve if value is not None)
    return known[max(math.ceil(percent / 100 * len(known)), 1) - 1] if known else None


def mean(curve: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if none is."""
    known = [value for value in curve if value is not None]
    return sum(known) / len(known) if known else None


def is_known(curve: Sequence[float | None]) -> bool:
    """Whether at least half of a curve is known."""
    return 2 * sum(value is not None for value in curve) >= max(len(curve), 1)


def bridge_gaps(curve: Sequence[float | None]) -> Curve:
    """Return a curve in which short gaps have the value before them: statistics sometimes lack a sample. A guest
    with a longer gap was off.
    """
    found = list(curve)
    known = [index for index, value in enumerate(curve) if value is not None]
    for one, two in itertools.pairwise(known):
        if two - one <= LONGEST_GAP + 1:
            found[one + 1 : two] = [curve[one]] * (two - one - 1)
    return tuple(found)


def plus(curve: Sequence[float | None], other: Sequence[float | None], sign: int = 1) -> Curve:
    """Return the sum of two curves, or their difference (sign -1), which is never below zero. Where the first is
    unknown, so is the result; where only the other is unknown, it changes nothing.
    """
    return tuple(
        one if one is None or two is None else max(one + sign * two, 0.0) for one, two in zip(curve, other, strict=True)
    )


def as_placed(
    nodes: Mapping[str, Curves],
    guests: Mapping[int, Mapping[str, Demand]],
    places: Mapping[int, str],
    departures: Iterable[Departure],
    grid: Grid,
) -> dict[str, dict[str, Curve]]:
    """Return the curves of nodes as if each guest had been where it is now (places) all the time.

    What a node used in the past includes guests that have left it since. Without this, a node whose guests were moved
    an hour ago would still seem as full as before, and they would be moved again.
    """
    found = {name: dict(curves) for name, curves in nodes.items()}
    paths: dict[int, list[Departure]] = {}
    for departure in sorted(departures):
        paths.setdefault(departure.vmid, []).append(departure)
    for vmid, path in paths.items():
        here = places.get(vmid)
        for resource, demand in guests.get(vmid, {}).items():
            elsewhere = _use_elsewhere(demand.curve, path, here, grid)
            for node, curve in elsewhere.items():
                _add(found, node, resource, curve, -1)
                if here is not None:
                    _add(found, here, resource, curve, 1)
    return found


def _use_elsewhere(curve: Curve, path: Sequence[Departure], here: str | None, grid: Grid) -> dict[str, Curve]:
    """Return by node what a guest used on nodes other than its present one."""
    by_node: dict[str, list[float | None]] = {}
    for index, value in enumerate(curve):
        middle = grid.start + (index + 0.5) * grid.slot
        node = next((departure.node for departure in path if middle < departure.time), here)
        if node is not None and node != here:
            by_node.setdefault(node, [None] * len(curve))[index] = value
    return {node: tuple(values) for node, values in by_node.items()}


def _add(nodes: dict[str, dict[str, Curve]], node: str, resource: str, curve: Curve, sign: int) -> None:
    if node in nodes and resource in nodes[node]:
        nodes[node][resource] = plus(nodes[node][resource], curve, sign)
