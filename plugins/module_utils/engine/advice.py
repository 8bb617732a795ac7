# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice from what was used: sizes that would suit guests better, and nodes that will be full. Pure."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Iterator, Mapping

from ..demand import CPU, CPU_PRESSURE, MEMORY, MEMORY_PRESSURE, Curve, Demand, Grid, Usage, is_known, mean, percentile
from ..model import MIB, Guest

PERCENTILE = 95.0
"""A guest needs what it exceeds in 5 % of the time only."""

FILLED = 0.7
"""A suggested size is used to this part."""

IDLE = 0.35
"""A guest that uses less than this part of a resource has much more of it than it needs."""

STARVING = 0.9
"""A guest that uses more than this part of its CPUs has too few of them."""

WAITING = 0.2
"""A guest whose tasks wait for memory during more than this part of the time has too little of it."""

LEAST_MIB = 256
"""The sizes of memory that are suggested are multiples of this."""

FULL = 0.95
"""A node is full when this part of it is used."""

TELLING = 0.25
"""What guests use of a node tells little of more guests unless this part of it is allocated."""

RATIOS = {CPU: (1.0, 16.0), MEMORY: (1.0, 1.5)}
"""The lowest and the highest ratio that is suggested. A node that lacks memory kills guests."""

HORIZON = 180
"""Nodes that are full only later than in so many days are not reported."""

CERTAIN = 3.0
"""A node grows if what a day adds is so many times its standard error."""

DAY = 86_400


class Size(t.NamedTuple):
    """A size that would suit a guest better. configured, used and suggested are vCPUs, or MiB of memory."""

    vmid: int
    name: str
    node: str
    resource: str
    configured: int
    used: float
    suggested: int
    why: str


class FillingNode(t.NamedTuple):
    """A node that will be full in so many days. used and daily are fractions of the node: its use now, and what a day
    adds.
    """

    node: str
    resource: str
    used: float
    daily: float
    days: int


class SuggestedRatio(t.NamedTuple):
    """A node that would be well filled at another ratio. allocated and used are fractions of the node; suggested is the
    ratio at which FILLED of it would be used if further guests use as much of their size.
    """

    node: str
    resource: str
    allocated: float
    used: float
    suggested: float


def right_sizes(guests: Iterable[Guest], usage: Usage) -> Iterator[Size]:
    """Yield a size for each running VM and resource that is much larger than its use, or too small for it."""
    for guest in sorted(guests, key=lambda each: each.vmid):
        demands = usage.guests.get(guest.vmid, {})
        if guest.kind == "qemu" and guest.running:
            yield from _cpu(guest, demands)
            yield from _memory(guest, demands)


def _cpu(guest: Guest, demands: Mapping[str, Demand]) -> Iterator[Size]:
    """Yield the number of vCPUs that suits a guest better than the configured one, if there is one."""
    used, configured = _usage(demands, CPU), int(guest.cores)
    if used is None or not configured:
        return
    waits = _usage(demands, CPU_PRESSURE)
    suggested = max(math.ceil(used / FILLED - 1e-9), 1)
    told = f"used {used:.1f} of {configured} vCPU(s) (p{PERCENTILE:g})"
    if used > STARVING * configured:
        more = f", and waited for CPU in {waits:.0%} of the time" if waits else ""
        yield _size(guest, CPU, configured, round(used, 2), max(suggested, configured + 1), told + more)
    elif used < IDLE * configured and suggested < configured:
        yield _size(guest, CPU, configured, round(used, 2), suggested, told)


def _memory(guest: Guest, demands: Mapping[str, Demand]) -> Iterator[Size]:
    """Yield the memory that suits a guest better than the configured one, if there is one."""
    used, waits, configured = _usage(demands, MEMORY), _usage(demands, MEMORY_PRESSURE), guest.memory // MIB
    if used is None or not configured:
        return
    used_mib = round(used / MIB)
    told = f"used {used_mib} of {configured} MiB (p{PERCENTILE:g})"
    if waits is not None and waits > WAITING:
        more = f"{told}, and waited for memory in {waits:.0%} of the time"
        yield _size(guest, MEMORY, configured, used_mib, _round(configured / FILLED), more)
    elif used_mib < IDLE * configured and _round(used_mib / FILLED) < configured:
        yield _size(guest, MEMORY, configured, used_mib, _round(used_mib / FILLED), told)


def _size(guest: Guest, resource: str, configured: int, used: float, suggested: int, why: str) -> Size:
    return Size(guest.vmid, guest.name or "", guest.node, resource, configured, used, suggested, why)


def _usage(demands: Mapping[str, Demand], resource: str) -> float | None:
    demand = demands.get(resource)
    return percentile(demand.curve, PERCENTILE) if demand is not None and is_known(demand.curve) else None


def _round(mib: float) -> int:
    return max(math.ceil(mib / LEAST_MIB), 1) * LEAST_MIB


def overcommits(usage: Usage, allocated: Mapping[str, Mapping[str, float]]) -> Iterator[SuggestedRatio]:
    """Yield for each node and resource of which enough is allocated the ratio that would fill it well. allocated is by
    node and resource.
    """
    for name in sorted(usage.nodes):
        for resource, (least, most) in RATIOS.items():
            size, curve = usage.capacity.get(name, {}).get(resource, 0.0), usage.nodes[name].get(resource)
            used = percentile(curve, PERCENTILE) if curve is not None and is_known(curve) else None
            given = allocated.get(name, {}).get(resource, 0.0) / size if size else 0.0
            if used is None or given < TELLING:
                continue
            part = used / size
            ratio = given * FILLED / part if part > 0 else most
            suggested = math.floor(10 * min(max(ratio, least), most)) / 10
            yield SuggestedRatio(name, resource, round(given, 4), round(part, 4), suggested)


def filling_nodes(usage: Usage) -> Iterator[FillingNode]:
    """Yield the nodes that will be full if they go on growing as during the window, the soonest first."""
    found = []
    for name, curves in usage.nodes.items():
        for resource in (CPU, MEMORY):
            size, curve = usage.capacity.get(name, {}).get(resource, 0.0), curves.get(resource)
            # The mean of each day: a line through the ups and downs of a day would depend on the time of day.
            trend = _trend(_daily(curve, usage.grid)) if curve is not None and size and is_known(curve) else None
            if trend is None or trend.slope <= max(CERTAIN * trend.error, size * 1e-6):
                continue
            days = max(math.ceil((FULL * size - trend.end) / trend.slope), 0)
            if days <= HORIZON:
                used, daily = round(trend.end / size, 4), round(trend.slope / size, 5)
                found.append(FillingNode(name, resource, used, daily, days))
    yield from sorted(found, key=lambda each: (each.days, each.node, each.resource))


def _daily(curve: Curve, grid: Grid) -> Curve:
    """Return the means of the days, the last of which ends with the curve."""
    count = max(round(DAY / grid.slot), 1)
    return tuple(
        mean(curve[max(end - count, 0) : end]) for end in range(len(curve) % count or count, len(curve) + 1, count)
    )


class _Trend(t.NamedTuple):
    """A straight line through a curve: its slope for each value, the standard error of that, and its end."""

    slope: float
    error: float
    end: float


def _trend(curve: Curve) -> _Trend | None:
    """Fit a straight line to the curve by least squares. Returns None for fewer than three values."""
    points = [(float(at), value) for at, value in enumerate(curve) if value is not None]
    count = len(points)
    if count < 3:
        return None
    middle, level = sum(at for at, _value in points) / count, sum(value for _at, value in points) / count
    spread = sum((at - middle) ** 2 for at, _value in points)
    slope = sum((at - middle) * (value - level) for at, value in points) / spread
    rest = sum((value - level - slope * (at - middle)) ** 2 for at, value in points)
    return _Trend(slope, math.sqrt(rest / (count - 2) / spread), level + slope * (len(curve) - 1 - middle))
