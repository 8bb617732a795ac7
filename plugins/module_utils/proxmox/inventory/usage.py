# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what nodes and guests used in the past from the statistics of Proxmox VE: one request for each.

What the releases tell of a node and a guest:

- 9: memory that is available (free, or cache of files that Linux gives up), the size of ZFS's cache, pressure, and the
  memory that a VM takes on its host. A sample is a minute or half an hour long.
- 8: memory that is used, in which ZFS's cache counts as used. A sample is a minute, half an hour or three hours long.

The time of a sample is when it ends. A time in which a node or a guest was off, or its statistics were not written, has
a sample without values.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ...demand import (
    CPU,
    CPU_PRESSURE,
    IO,
    IO_PRESSURE,
    MEASURED,
    MEMORY,
    MEMORY_PRESSURE,
    NOTHING_STATED,
    STATED,
    USUAL,
    Curve,
    Curves,
    Demand,
    Grid,
    Stated,
    bridge_gaps,
    is_known,
    mean,
    percentile,
)
from ...engine.texts import whole_number
from ...engine.usual import guests_like, with_demand
from ...model import Guest, Node, Snapshot, demand_of
from ..api.failures import UNREADABLE
from ..api.reader import Reader, in_parallel
from ..moves.recent import departures
from .kept_demands import NOTHING_KEPT, KeptDemands
from .rows import Row, read_rows

HOUR, DAY, WEEK = 3600, 86_400, 604_800

LATE = 60
"""For so many seconds after its end, the newest sample may still be missing."""

YOUNG = 5400 + LATE
"""A guest that has been on its node for less than so many seconds is not in all samples of the last hour, each of which
is half an hour long.
"""

MOST_CPU = 2.0
"""The largest fraction of its CPUs that a node or guest may use: rounding and the work of QEMU make it more than 1."""

Value = Callable[[Row], "float | None"]


@dataclass(frozen=True, slots=True)
class Timeframe:
    """What to ask for: the name of the period, and the seconds of a sample."""

    name: str
    step: int


def timeframe_for(window: float, reader: Reader) -> Timeframe:
    """Return the shortest period that covers a window, in samples of half an hour if it is longer than an hour.

    Proxmox VE 9 keeps a day in minutes: 1,440 rows for each guest. Its week has half hours, as the day of 8 has.
    """
    if window <= HOUR:
        return Timeframe("hour", 60)
    if _ask_if_release_9(reader):
        return Timeframe("week", 1800)
    return Timeframe("day", 1800) if window <= DAY else Timeframe("week", 10_800)


def grid_for(window: float, timeframe: Timeframe, now: float) -> Grid:
    """Return the slots of the window that ends now. A slot that is not over for a minute does not count."""
    end = (now - LATE) // timeframe.step * timeframe.step
    count = max(round(window / timeframe.step), 1)
    return Grid(end - count * timeframe.step, timeframe.step, count)


def read_node_curves(
    reader: Reader, nodes: Iterable[str], timeframe: Timeframe, grid: Grid, least: int | None = None
) -> dict[str, dict[str, Curve]]:
    """Return the curves of the nodes. A curve is missing if less than half of it is known, or less than so many slots,
    or if this user may not read it.
    """

    def read(name: str) -> list[Row]:
        return read_rows(reader, f"/nodes/{name}/rrddata", timeframe=timeframe.name, cf="AVERAGE") or []

    return {name: _curves(rows, _OF_NODE, timeframe, grid, least) for name, rows in in_parallel(read, nodes).items()}


def read_demands(
    reader: Reader, guests: Iterable[Guest], timeframe: Timeframe, grid: Grid, kept: KeptDemands = NOTHING_KEPT
) -> dict[int, Mapping[str, Demand]]:
    """Return what guests used, by VMID and resource, as far as this user may read it. What is kept is not read."""
    wanted = list(guests)
    known = kept.recall(wanted, grid)
    by_vmid = {guest.vmid: guest for guest in wanted if guest.vmid not in known}

    def read(vmid: int) -> list[Row]:
        guest = by_vmid[vmid]
        path = f"/nodes/{guest.node}/{guest.kind}/{vmid}/rrddata"
        return read_rows(reader, path, timeframe=timeframe.name, cf="AVERAGE") or []

    found = {
        vmid: {
            resource: Demand(MEASURED, bridge_gaps(curve))
            for resource, curve in _curves(rows, _OF_GUEST, timeframe, grid, 1).items()
        }
        for vmid, rows in in_parallel(read, by_vmid).items()
    }
    kept.keep({vmid: demands for vmid, demands in found.items() if demands}, by_vmid.values(), grid)
    return {**known, **found}


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the nodes and guests of a cluster used: what the user states of them, else what Proxmox VE knows.

    Attributes:
        kept: returns what earlier runs have read of guests.
    """

    reader: Reader
    kept: Callable[[], KeptDemands] = lambda: NOTHING_KEPT
    stated: Stated = NOTHING_STATED

    def node_curves(
        self, nodes: Iterable[Node], timeframe: Timeframe, grid: Grid, least: int | None = None
    ) -> dict[str, Curves]:
        """Return the curves of these nodes, as read_node_curves does. What is stated is not read."""
        found: dict[str, Curves] = {}
        unread = []
        for node in nodes:
            given = self.stated.nodes.get(node.name)
            if given:
                found[node.name] = _stretch(given, node.cores, grid)
            else:
                unread.append(node.name)
        return {**found, **read_node_curves(self.reader, unread, timeframe, grid, least)}

    def demands(
        self, guests: Iterable[Guest], among: Iterable[Guest], timeframe: Timeframe, grid: Grid
    ) -> dict[int, Mapping[str, Demand]]:
        """Return the demand of these guests, by VMID and resource. What is stated is not read. among are all guests: a
        name that several have names none.
        """
        wanted, found = list(guests), dict[int, Mapping[str, Demand]]()
        names = Counter(guest.name for guest in among) if self.stated.guests else Counter()
        for guest in wanted:
            given = self.stated.of_guest(guest.vmid, guest.name if names[guest.name] == 1 else None)
            if given:
                curves = _stretch(given, guest.cores, grid)
                found[guest.vmid] = {resource: Demand(STATED, curve) for resource, curve in curves.items()}
        unread = [guest for guest in wanted if guest.vmid not in found]
        return {**found, **read_demands(self.reader, unread, timeframe, grid, self.kept())} if unread else found


def _stretch(given: Curves, cores: float, grid: Grid) -> dict[str, Curve]:
    """Return the stated curves on a grid. CPU is stated as a fraction of the cores and returned in cores."""
    return {
        resource: tuple(
            None if value is None else value * (cores if resource == CPU else 1) for value in grid.stretch(values)
        )
        for resource, values in given.items()
    }


def with_demand_of(statistics: Statistics, snapshot: Snapshot, vmids: Collection[int]) -> Snapshot:
    """Return a snapshot with what these guests usually use, as far as they run, and with what the nodes use besides: by
    the last day, or what is known of it. One request for each node that is online, each of the guests, and each guest
    that has just been started; and one for each node and kind of guests if one of these may have come from elsewhere.
    """
    reader = statistics.reader
    timeframe = timeframe_for(DAY, reader)
    now = reader.server_time() or time.time()
    grid = grid_for(DAY, timeframe, now)
    by_vmid = {guest.vmid: guest for guest in snapshot.guests}
    young = {vmid for vmid, guest in by_vmid.items() if vmid > 0 and _is_young(guest)}
    running = [guest for guest in snapshot.guests if guest.running and (guest.vmid in vmids or guest.vmid in young)]
    curves = statistics.node_curves((node for node in snapshot.nodes if node.online), timeframe, grid, least=1)
    demands = statistics.demands(running, snapshot.guests, timeframe, grid)
    new = {vmid for vmid in young if CPU not in demands[vmid] or not is_known(demands[vmid][CPU].curve)}
    measured = [guest for guest in snapshot.guests if guest.vmid not in new]
    alike = {each.vmid: each for vmid in new for each in guests_like(by_vmid[vmid], measured) if each.vmid > 0}
    unread = [guest for vmid, guest in alike.items() if vmid not in demands]
    demands |= statistics.demands(unread, snapshot.guests, timeframe, grid)
    # What a node used does not show these guests.
    came = new | {each.vmid for each in (departures(reader, snapshot, now - YOUNG) if young - new else ())} & young
    known = [_with_usual(guest, {} if guest.vmid in new else demands.get(guest.vmid, {})) for guest in snapshot.guests]
    included: dict[str, list[Guest]] = {}
    for guest in known:
        if guest.demand and guest.vmid not in came:
            included.setdefault(guest.node, []).append(guest)
    nodes = tuple(
        replace(node, demand=_rest(curves.get(node.name, {}), included.get(node.name, ()), grid))
        for node in snapshot.nodes
    )
    measured = [guest for guest in known if guest.vmid not in new]
    guests = (_with_size(with_demand(guest, measured)) if guest.vmid in came else guest for guest in known)
    return replace(snapshot, nodes=nodes, guests=tuple(guests))


def _is_young(guest: Guest) -> bool:
    """Whether a guest was started, or came to its node, so recently that samples of the last hour hardly show it."""
    return guest.running and guest.uptime is not None and guest.uptime < YOUNG


def _with_usual(guest: Guest, demands: Mapping[str, Demand]) -> Guest:
    found = {key: Demand(demands[key].source, (demands[key].usual,)) for key in (CPU, MEMORY) if key in demands}
    return replace(guest, demand=found) if found else guest


def _with_size(guest: Guest) -> Guest:
    """Return the guest with its size as its demand, where nothing is known of its use."""
    return replace(guest, demand={resource: demand_of(guest, resource) for resource in (CPU, MEMORY)})


def _rest(curves: Mapping[str, Curve], guests: Iterable[Guest], grid: Grid) -> dict[str, Demand]:
    """Return what a node uses besides these guests. The last hour counts if it is more than usual: the day does not
    show guests that have come since.
    """
    found = dict[str, Demand]()
    for resource in (CPU, MEMORY):
        curve = curves.get(resource, ())
        usual, now = percentile(curve, USUAL), mean(curve[grid.latest(HOUR)])
        if usual is not None:
            known = sum(demand_of(guest, resource).usual for guest in guests)
            found[resource] = Demand(MEASURED, (max(usual, now or 0.0) - known,))
    return found


def _ask_if_release_9(reader: Reader) -> bool:
    try:
        release = str(reader.get("/version").get("release", ""))
    except UNREADABLE:
        return False
    return (whole_number(release.partition(".")[0]) or 0) >= 9


def _curves(
    rows: Iterable[Row], values: Mapping[str, Value], timeframe: Timeframe, grid: Grid, least: int | None = None
) -> dict[str, Curve]:
    """Return the curves of which at least half is known, or at least so many slots."""
    within = (row for row in rows if grid.start - 6 * HOUR < row["time"] <= grid.end)
    known = sorted(within, key=lambda row: row["time"])
    found: dict[str, Curve] = {}
    for resource, value in values.items():
        samples = ((row["time"], value(row)) for row in known)
        # A counter that was set back shows as a number that cannot be. Nothing is known of that time.
        curve = grid.bin_samples(
            [(time, None if found is None or found < 0 else found) for time, found in samples], timeframe.step
        )
        if is_known(curve) if least is None else sum(v is not None for v in curve) >= least:
            found[resource] = curve
    return found


# --- what a row tells -------------------------------------------------------------------------------------------------


def _cores(row: Row) -> float | None:
    cpu, cores = row.get("cpu"), row.get("maxcpu")
    found: float | None = None if cpu is None or cores is None or cpu > MOST_CPU else cpu * cores
    return found


def _node_memory(row: Row) -> float | None:
    """Return the memory that cannot be given up at once: without the cache of files, and without that of ZFS where
    Proxmox reports it.
    """
    total, available = row.get("memtotal"), row.get("memavailable")
    used = row.get("memused")
    if total is not None and available is not None:
        used = total - available
    if used is None or used < 0 or (total is not None and used > total):
        return None
    left: float = max(used - (row.get("arcsize") or 0), 0.0)
    return left


def _guest_memory(row: Row) -> float | None:
    """Return the memory that a guest takes on the host; where that is not reported, what is used within it. Zero while
    it runs means that nobody could tell.
    """
    return row.get("memhost") or row.get("mem") or None


def _rates(row: Row) -> float | None:
    read, written = row.get("diskread"), row.get("diskwrite")
    return None if read is None and written is None else (read or 0) + (written or 0)


def _fraction(key: str) -> Value:
    def value(row: Row) -> float | None:
        percent: float | None = row.get(key)
        return None if percent is None or percent > 100 else percent / 100

    return value


_PRESSURES: dict[str, Value] = {
    CPU_PRESSURE: _fraction("pressurecpusome"),
    IO_PRESSURE: _fraction("pressureiosome"),
    MEMORY_PRESSURE: _fraction("pressurememorysome"),
}
_OF_NODE: dict[str, Value] = {CPU: _cores, MEMORY: _node_memory, **_PRESSURES}
_OF_GUEST: dict[str, Value] = {CPU: _cores, MEMORY: _guest_memory, IO: _rates, **_PRESSURES}
