# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine alone: placements per second in one process, without network, ledger or Ansible."""

from __future__ import annotations

import cProfile
import gc
import pstats
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    MIB,
    AffinityTerm,
    Disk,
    Expression,
    Guest,
    Node,
    Request,
    Selector,
    Snapshot,
    SpreadConstraint,
    Storage,
)

from .plots import Plot
from .report import Cell, Section, Table

SIZES = (16, 100, 1000, 5000)
GUESTS_PER_NODE = 10
ZONES = 3
LONGEST_SECONDS = 10.0
PROFILED_NODES = 5000

WEB = Selector(name="web-.*")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of work.

    Attributes:
        request: makes the VM of a number.
        most: how many VMs can be placed on so many nodes.
        published: the threshold of kube-scheduler's own benchmark at 5,000 nodes, in pods per second.
    """

    title: str
    request: Callable[[int], Request]
    most: Callable[[int], int] = lambda nodes: 10 * nodes
    published: int | None = None


def _equal(number: int) -> Request:
    return Request(f"web-{number}", cores=1, memory=GIB)


def _shapes(number: int) -> Request:
    shape = number % 200
    return Request(f"web-{number}", cores=1 + shape % 8, memory=(512 + 16 * shape) * MIB)


def _spread(number: int) -> Request:
    return Request(f"web-{number}", cores=1, memory=GIB, topology_spread=(SpreadConstraint("zone", WEB),))


def _apart(number: int) -> Request:
    return Request(f"web-{number}", cores=1, memory=GIB, affinity=(AffinityTerm(False, WEB),))


def _labelled(number: int) -> Request:
    return Request(f"web-{number}", cores=1, memory=GIB, node_required=(Expression("zone", "In", ("a", "b")),))


def _disks(storage: str | None) -> Callable[[int], Request]:
    disks = (Disk("scsi0", 32 * GIB, storage), Disk("scsi1", 8 * GIB, storage))
    return lambda number: Request(f"web-{number}", cores=1, memory=GIB, disks=disks)


SCENARIOS = {
    "equal": Scenario("equal VMs", _equal, published=680),
    "shapes": Scenario("200 different shapes", _shapes),
    "spread": Scenario("hard spread over 3 zones", _spread, published=460),
    "apart": Scenario("required anti-affinity by node", _apart, most=lambda nodes: nodes, published=60),
    "labels": Scenario("required node affinity", _labelled, published=220),
    "local": Scenario("two disks on local storage", _disks("local"), published=100),
    "shared": Scenario("two disks on shared storage", _disks("ceph"), published=100),
    "any": Scenario("two disks, storage to be chosen", _disks(None), published=100),
}


def measure(quick: bool) -> Section:
    """Place up to ten VMs per node, beside ten that are there; quick: for half a second each, without 5,000 nodes."""
    sizes = SIZES[:-1] if quick else SIZES
    longest = 0.5 if quick else LONGEST_SECONDS
    rates = Table(
        f"Placements per second of CPU time, one process, {GUESTS_PER_NODE} guests on each node before",
        ["", *(f"{nodes:,} nodes" for nodes in sizes), "kube-scheduler, 5,000 nodes", "ratio"],
    )
    costs = Table(
        "Milliseconds per VM: mean of all (and the first, which looks at every node)",
        ["", *(f"{nodes:,} nodes" for nodes in sizes)],
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for scenario in SCENARIOS.values():
        speeds = [_place(scenario, nodes, longest) for nodes in sizes]
        per_second = [float(speed.placed / speed.seconds) for speed in speeds]
        rates.rows.append([scenario.title, *per_second, *_published(scenario, None if quick else per_second[-1])])
        means = [1000 * speed.seconds / speed.placed for speed in speeds]
        costs.rows.append(
            [scenario.title, *(f"{m:.3f} ({1000 * s.first:.1f})" for m, s in zip(means, speeds, strict=True))]
        )
        lines[scenario.title] = [(float(nodes), mean) for nodes, mean in zip(sizes, means, strict=True)]
    rates.notes.append(
        "kube-scheduler: the pods per second that its own benchmark (scheduler_perf) wants, with an API server: "
        "SchedulingBasic, TopologySpreading, SchedulingPodAntiAffinity, SchedulingNodeAffinity, SchedulingCSIPVs."
    )
    plot = Plot("benchmark-engine", "Time per VM against nodes", "nodes", "milliseconds per VM", lines)
    return Section("engine", [rates, costs, _reading(sizes)], [plot])


def profile(name: str) -> None:
    """Print where the time of one scenario goes."""
    profiler = cProfile.Profile()
    profiler.enable()
    _place(SCENARIOS[name], PROFILED_NODES, LONGEST_SECONDS)
    profiler.disable()
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(20)


@dataclass(frozen=True, slots=True)
class Speed:
    """How many VMs were placed in how many seconds, and the seconds of the first of them."""

    placed: int
    seconds: float
    first: float


def scheduler(snapshot: Snapshot) -> Scheduler:
    """A scheduler with the default plugins."""
    return Scheduler(ClusterState(snapshot), {"balanced": Profile("balanced", builtin_registry())})


def snapshot(nodes: int, guests: int = GUESTS_PER_NODE) -> Snapshot:
    """A cluster of like nodes in three zones, with so many guests each, a local and a shared storage."""
    names = [f"n{number:05d}" for number in range(nodes)]
    return Snapshot(
        nodes=tuple(
            Node(name, cores=64, memory=512 * GIB, labels={"zone": "abc"[number % ZONES]})
            for number, name in enumerate(names)
        ),
        guests=tuple(_guests(names, guests)),
        storages=tuple(
            storage
            for name in names
            for storage in (
                Storage("local", name, "lvmthin", total=4000 * GIB),
                Storage("ceph", name, "rbd", shared=True, total=1000 * GIB * nodes),
            )
        ),
    )


def _guests(nodes: list[str], each: int) -> Iterator[Guest]:
    for number in range(each * len(nodes)):
        node = nodes[number % len(nodes)]
        yield Guest(100 + number, f"db-{number}", node, status="running", cores=2, memory=4 * GIB)


def _place(scenario: Scenario, nodes: int, longest: float) -> Speed:
    cluster = scheduler(snapshot(nodes))
    requests = [scenario.request(number) for number in range(scenario.most(nodes))]
    gc.collect()
    began = time.process_time()
    first = 0.0
    placed = 0
    for request in requests:
        outcome = cluster.schedule(request)
        if outcome.error is not None:
            raise outcome.error
        placed += 1
        now = time.process_time() - began
        first = first or now
        if now > longest:
            break
    return Speed(placed, now, first)


def _reading(sizes: tuple[int, ...]) -> Table:
    """The cost of preparing a snapshot, once per run, before the first decision."""
    table = Table("Milliseconds to count a snapshot's guests and storages, once per run", ["nodes", "guests", "ms"])
    for nodes in sizes:
        data = snapshot(nodes)
        gc.collect()
        began = time.process_time()
        ClusterState(data)
        table.rows.append([nodes, len(data.guests), 1000 * (time.process_time() - began)])
    return table


def _published(scenario: Scenario, per_second: float | None) -> tuple[Cell, Cell]:
    if scenario.published is None:
        return None, None
    return scenario.published, None if per_second is None else f"{per_second / scenario.published:.1f}x"
