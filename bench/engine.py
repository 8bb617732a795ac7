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
from .report import Section, Table

SIZES = (16, 50, 200, 1000)
GUESTS_PER_NODE = 10
ZONES = 3
GOALS = {50: 20_000, 1000: 3_000}
LONGEST_SECONDS = 10.0
ASK_EVERY = 10
PROFILED_NODES = 1000

WEB = Selector(name="web-.*")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of work.

    Attributes:
        request: makes the VM of a number.
        most: how many VMs can be placed on so many nodes.
    """

    title: str
    request: Callable[[int], Request]
    most: Callable[[int], int] = lambda nodes: 10 * nodes


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
    "equal": Scenario("equal VMs", _equal),
    "shapes": Scenario("200 different shapes", _shapes),
    "spread": Scenario("hard spread over 3 zones", _spread),
    "apart": Scenario("required anti-affinity by node", _apart, most=lambda nodes: nodes),
    "labels": Scenario("required node affinity", _labelled),
    "local": Scenario("two disks on local storage", _disks("local")),
    "shared": Scenario("two disks on shared storage", _disks("ceph")),
    "any": Scenario("two disks, storage to be chosen", _disks(None)),
}


def measure(quick: bool) -> Section:
    """Place up to ten VMs per node, beside ten that are there; quick: for half a second each, without 1,000 nodes."""
    sizes = SIZES[:-1] if quick else SIZES
    longest = 0.5 if quick else LONGEST_SECONDS
    costs = Table(
        f"Milliseconds of CPU per VM, {GUESTS_PER_NODE} guests on each node before",
        ["", *(f"{nodes:,} nodes" for nodes in sizes)],
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for scenario in SCENARIOS.values():
        speeds = [_place(scenario, nodes, longest) for nodes in sizes]
        means = [1000 * speed.seconds / speed.placed for speed in speeds]
        costs.rows.append([scenario.title, *means])
        lines[scenario.title] = [(float(nodes), mean) for nodes, mean in zip(sizes, means, strict=True)]
    rates = Table("Equal VMs per second of CPU", ["nodes", "VMs", "goal: at least"])
    rates.rows += [[int(nodes), 1000 / mean, GOALS.get(int(nodes))] for nodes, mean in lines[SCENARIOS["equal"].title]]
    plot = Plot("benchmark-engine", "Time per VM against nodes", "nodes", "milliseconds per VM", lines)
    return Section("engine", [costs, rates, _reading(sizes)], [plot])


def profile(name: str) -> None:
    """Print where the time of one scenario goes."""
    profiler = cProfile.Profile()
    profiler.enable()
    _place(SCENARIOS[name], PROFILED_NODES, LONGEST_SECONDS)
    profiler.disable()
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(20)


@dataclass(frozen=True, slots=True)
class Speed:
    """How many VMs were placed in how many seconds."""

    placed: int
    seconds: float


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
    for placed, request in enumerate(requests, 1):
        outcome = cluster.schedule(request)
        if outcome.error is not None:
            raise outcome.error
        # To ask for the time takes as long as a part of a decision.
        if placed % ASK_EVERY == 0 and time.process_time() - began > longest:
            break
    return Speed(placed, time.process_time() - began)


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
