# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests use over days: generated to be hard for whoever balances, or read from published measurements.

A trace has a value for every five minutes: the fraction of a guest's CPUs.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

STEP = 300
DAY = 86_400 // STEP

Trace = list[float]
Values = Callable[[random.Random, int, int], Trace]
"""Makes the trace of a guest from chance, its number, and how many values."""


def square(period_hours: float) -> Values:
    """Busy for half of each period, idle for the other half, each guest at a time of its own."""

    def values(chance: random.Random, _number: int, count: int) -> Trace:
        period = period_hours * 3600 / STEP
        phase, high = chance.random() * period, chance.uniform(0.6, 1.0)
        return [high if (at + phase) % period < period / 2 else 0.05 for at in range(count)]

    return values


def noisy(chance: random.Random, number: int, count: int) -> Trace:
    """One guest of eight has bursts at random times; the others are steady."""
    if number % 8:
        return _jittered(chance, [chance.uniform(0.1, 0.5)] * count)
    level, trace = 0.05, []
    for _at in range(count):
        if chance.random() < 0.04:
            level = chance.choice((0.05, 0.05, 0.5, 1.0))
        trace.append(level)
    return trace


def backups(chance: random.Random, number: int, count: int) -> Trace:
    """Steady by day; at night, the backup of each guest keeps it busy for two hours, on each node at another time."""
    level, begin = chance.uniform(0.1, 0.45), (1 + number % 4) * 3600 / STEP
    night = range(int(begin), int(begin + 2 * 3600 / STEP))
    return _jittered(chance, [0.9 if at % DAY in night else level for at in range(count)])


def office(chance: random.Random, number: int, count: int) -> Trace:
    """Busy in office hours, in three time zones."""
    high, shift = chance.uniform(0.3, 0.9), (number % 3) * 8

    def level(at: int) -> float:
        hour = (at * STEP / 3600 + shift) % 24
        return 0.05 + high * max(math.sin(math.pi * (hour - 7) / 12), 0.0)

    return _jittered(chance, [level(at) for at in range(count)])


def steady(chance: random.Random, number: int, count: int) -> Trace:
    """Always the same, and much more on the first third of the guests."""
    level = chance.uniform(0.5, 0.9) if number % 3 == 0 else chance.uniform(0.05, 0.3)
    return _jittered(chance, [level] * count)


def growing(chance: random.Random, number: int, count: int) -> Trace:
    """One guest of four uses more each day."""
    level = chance.uniform(0.1, 0.4)
    most = 0.9 if number % 4 == 0 else level
    return _jittered(chance, [level + (most - level) * at / count for at in range(count)])


def _jittered(chance: random.Random, values: Trace) -> Trace:
    return [min(max(value + chance.gauss(0, 0.03), 0.0), 1.0) for value in values]


GENERATED: dict[str, Values] = {
    "steady": steady,
    "growing": growing,
    "office hours": office,
    "backup nights": backups,
    "noisy guests": noisy,
    "square waves, 1 h": square(1),
    "square waves, 6 h": square(6),
    "square waves, 24 h": square(24),
}


def generated(name: str, guests: int, days: int, seed: int) -> list[Trace]:
    """The traces of so many guests."""
    return [GENERATED[name](random.Random(f"{seed} {name} {number}"), number, days * DAY) for number in range(guests)]


def planetlab(folder: Path) -> Iterator[tuple[str, list[Trace]]]:
    """The CPU of virtual machines of PlanetLab on ten days, as published with CloudSim: a folder for each day, a file
    for each machine, with a percentage for every five minutes. Yields two days that follow on each other, with the
    machines that are in both.
    """
    days = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.isdigit())
    for first, second in itertools.pairwise(days):
        names = sorted({path.name for path in first.iterdir()} & {path.name for path in second.iterdir()})
        traces = [_read(first / name) + _read(second / name) for name in names]
        yield f"{first.name}, {second.name}", [trace for trace in traces if len(trace) == 2 * DAY]


def recorded(folder: Path) -> list[Trace]:
    """The CPU of guests as Proxmox VE recorded it: a file for each guest with what C(pvesh get
    /nodes/NODE/qemu/VMID/rrddata --timeframe week --output-format json) prints. Times without a value repeat the one
    before; the days that all guests have are used.
    """
    rows = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    samples = {
        path: sorted((float(row["time"]), float(row["cpu"])) for row in found if row.get("cpu") is not None)
        for path, found in rows.items()
    }
    known = [found for found in samples.values() if found]
    if not known:
        return []
    first, last = max(found[0][0] for found in known), min(found[-1][0] for found in known)
    count = int((last - first) // (DAY * STEP)) * DAY
    return [_at_steps(found, first, count) for found in known] if count else []


def _at_steps(samples: Sequence[tuple[float, float]], first: float, count: int) -> Trace:
    trace, at = [], 0
    for step in range(count):
        while at + 1 < len(samples) and samples[at + 1][0] <= first + step * STEP:
            at += 1
        trace.append(min(samples[at][1], 1.0))
    return trace


def _read(path: Path) -> Trace:
    return [int(text) / 100 for text in path.read_text(encoding="ascii").split()]
