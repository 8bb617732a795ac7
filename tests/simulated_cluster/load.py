# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes and guests used in the past, as the round-robin databases of Proxmox have it.

The past of a guest follows it from node to node. That of a node stays: what it used is what its guests of that time
used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import Cluster
    from .model import Guest, Node

DAY = 86_400
KEYS = ("cpu", "memory", "pressure_cpu", "pressure_io", "pressure_memory")

TIMEFRAMES = {"hour": (60, 60), "day": (60, 1440), "week": (1800, 336), "month": (1800, 1440), "year": (21600, 1440),
              "decade": (604800, 570)}  # fmt: skip
TIMEFRAMES_8 = {"hour": (60, 60), "day": (1800, 70), "week": (10800, 70), "month": (43200, 70), "year": (604800, 70)}
"""Timeframe to seconds between samples, and how many there are: of 9 and of 8."""


@dataclass
class Load:
    """A described past: for each key the values that ``over`` seconds had, evenly, up to ``until``.

    None is a time of which nothing is known, and so is what was before. The last value goes on for ever.
    """

    values: dict[str, list[float | None]] = field(default_factory=dict)
    over: float = DAY
    until: float = 0.0

    def curve(self, key: str, times: Iterable[float], otherwise: float) -> list[float | None]:
        """The values at these times; ``otherwise`` if the description has none."""
        values = self.values.get(key)
        if not values:
            return [otherwise for _time in times]
        first, step, last = self.until - self.over, self.over / len(values), len(values) - 1
        numbers = (int((time - first) // step) for time in times)
        return [values[min(number, last)] if number >= 0 else None for number in numbers]


def described(entry: dict[str, Any], now: float) -> Load:
    """The past that a description words: ``{cpu: [0.1, 0.9], memory: [...], pressure_cpu: [...], over: 86400}``."""
    unknown = sorted(set(entry) - {*KEYS, "over"})
    if unknown:
        raise ValueError(f"load: unknown key(s) {', '.join(unknown)}; known: {', '.join([*KEYS, 'over'])}")
    values = {key: list(entry[key]) for key in KEYS if key in entry}
    return Load(values, float(entry.get("over", DAY)), now)


def samples(cluster: Cluster, node: Node, timeframe: str) -> tuple[range, list[float]]:
    """When each sample ends, by the clock of the node, and the middles of the samples in time."""
    step, count = (TIMEFRAMES if cluster.modern else TIMEFRAMES_8)[timeframe]
    last = int(cluster.clock.now() + node.clock_offset) // step * step
    times = range(last - step * (count - 1), last + 1, step)
    return times, [time - node.clock_offset - step / 2 for time in times]


def _shown(cluster: Cluster, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is told of the rows: 9 leaves out the newest one while it is empty."""
    return rows[:-1] if cluster.modern and len(rows[-1]) == 1 else rows


def is_down(node: Node, time: float) -> bool:
    """Whether nobody wrote the statistics of the node at a time, as it was off."""
    since = node.offline_since
    return any(begin <= time < end for begin, end in node.down) or (since is not None and time >= since)


def guest_rows(cluster: Cluster, guest: Guest, timeframe: str) -> list[dict[str, Any]]:
    """The answer of a guest. While it was off, only its size is known; while its node was, and before it was made,
    nothing.
    """
    times, middles = samples(cluster, cluster.nodes[guest.node], timeframe)
    size = {"maxcpu": guest.maxcpu(cluster.nodes[guest.node].cores), "maxmem": guest.maxmem, "maxdisk": guest.maxdisk}
    cpu = guest.load.curve("cpu", middles, guest.cpu_use)
    memory = guest.load.curve("memory", middles, guest.memory_use)
    pressures = _pressures(guest.load, middles, {}) if cluster.modern else [{} for _time in times]
    rows: list[dict[str, Any]] = []
    for time, middle, cores, used, pressure in zip(times, middles, cpu, memory, pressures, strict=True):
        host = cluster.nodes.get(node_at(guest, middle))
        unborn = middle < guest.measured_since
        if unborn or cores is None or used is None or (host is not None and is_down(host, middle)):
            rows.append({"time": time})
        elif not guest.running:
            rows.append({"time": time, **size})
        else:
            used *= guest.maxmem
            row = {"time": time, **size, "cpu": cores, "mem": used, "disk": 0, "netin": 0, "netout": 0, "diskread": 0,
                   "diskwrite": 0, **pressure}  # fmt: skip
            if pressure:
                row |= {"memhost": used, "pressurecpufull": pressure["pressurecpusome"] / 2}
            rows.append(row)
    return _shown(cluster, rows)


def node_rows(cluster: Cluster, node: Node, timeframe: str) -> list[dict[str, Any]]:
    """The answer of a node: its own load, and that of the guests that were there at each time."""
    times, middles = samples(cluster, node, timeframe)
    cpu = [None if v is None else v * node.cores for v in node.load.curve("cpu", middles, node.cpu_use)]
    memory = [None if v is None else v * node.memory for v in node.load.curve("memory", middles, node.memory_use)]
    for guest in cluster.guests.values():
        if guest.running and (guest.node == node.name or any(left == node.name for _when, left in guest.left)):
            _add(guest, node, middles, cpu, memory)
    pressures = _pressures(node.load, middles, node.pressure) if cluster.modern else [{} for _time in times]
    rows: list[dict[str, Any]] = []
    for time, middle, cores, used, pressure in zip(times, middles, cpu, memory, pressures, strict=True):
        if cores is None or used is None or is_down(node, middle):
            rows.append({"time": time})
            continue
        used = min(used, node.memory)
        row = {
            "time": time, "cpu": min(cores / node.cores, 1.0), "maxcpu": node.cores, "iowait": 0, "loadavg": cores,
            "netin": 0, "netout": 0, "memtotal": node.memory, "memused": used, "swaptotal": 0, "swapused": 0,
            "roottotal": node.disk, "rootused": node.disk // 8, **pressure,
        }  # fmt: skip
        if cluster.modern:
            row |= {"memavailable": node.memory - used, "arcsize": 0}
        rows.append(row)
    return _shown(cluster, rows)


def _add(guest: Guest, node: Node, times: Sequence[float], cpu: list[float | None], memory: list[float | None]) -> None:
    """Add what a guest used while it was on the node."""
    cores, size = guest.maxcpu(node.cores), guest.maxmem
    used_cpu = guest.load.curve("cpu", times, guest.cpu_use)
    used_memory = guest.load.curve("memory", times, guest.memory_use)
    for number, time in enumerate(times):
        here = time >= guest.measured_since and (not guest.left or node_at(guest, time) == node.name)
        host_cpu, host_memory = cpu[number], memory[number]
        if here and host_cpu is not None and host_memory is not None:
            cpu[number] = host_cpu + (used_cpu[number] or 0) * cores
            memory[number] = host_memory + (used_memory[number] or 0) * size


def _pressures(load: Load, times: Sequence[float], otherwise: dict[str, float]) -> list[dict[str, float]]:
    curves = {what: load.curve(f"pressure_{what}", times, otherwise.get(what, 0)) for what in ("cpu", "io", "memory")}
    rows: list[dict[str, float]] = []
    for number in range(len(times)):
        some = {what: curve[number] or 0 for what, curve in curves.items()}
        row = {f"pressure{what}some": value for what, value in some.items()}
        rows.append(row | {f"pressure{what}full": some[what] / 2 for what in ("io", "memory")})
    return rows


def node_at(guest: Guest, time: float) -> str:
    """Where a guest was."""
    return next((node for when, node in guest.left if time < when), guest.node)
