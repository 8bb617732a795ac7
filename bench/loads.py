# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine under hard workloads, each beside the speed that is wanted of it; and what results cost to tell."""

from __future__ import annotations

import gc
import json
import math
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.capacity import how_many
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    Disk,
    Request,
    Snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.result import decision_result

from .engine import GUESTS_PER_NODE, snapshot
from .plots import Plot
from .report import Cell, Section, Table, yes_or_no
from .workloads import GROWTHS, TASKS, WORKLOADS, Task, Workload

LONGEST_SECONDS = 4.0
"""For which a row is measured; what takes longer is measured by what was done until then."""

OUTCOMES_MEASURED = 300
KEPT_GOAL = 100
CAPACITY_LIMIT = (
    "Each of the VMs goes through a scheduling cycle of its own, of about 0.14 ms. Half of this evaluates the node "
    "that changed; the rest, from PreFilter to VMID and assume, is spread over many functions."
)
N_PLUS_ONE_LIMIT = (
    "Each VM changes what every loss of a node leaves: for each VM, on each node, a way out is searched again for the "
    "losses that the VM would affect (three quarters of the time)."
)
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Speed:
    """How many VMs were tried in how many seconds of CPU, and the seconds of the first of them."""

    tried: int
    seconds: float
    first: float

    @property
    def per_second(self) -> float:
        return self.tried / self.seconds


def measure(quick: bool) -> Section:
    """Run every workload; quick: for half a second each, on at most 1,000 nodes."""
    longest = 0.5 if quick else LONGEST_SECONDS
    rates = Table(
        "Workloads beside their goals: VMs per second of CPU time, milliseconds of the first VM, memory",
        ["workload", "nodes", "VMs/s", "goal", "reached", "first [ms]", "scheduler [MiB]", "outcomes [kB per VM]"],
    )
    for workload in WORKLOADS.values():
        for nodes, goal in workload.goals.items():
            if nodes <= 1000 or not quick:
                _rate(workload, nodes, goal, longest, rates)
    rates.notes.insert(
        0,
        f"Each row ends after {longest:g} s of CPU. Memory: what the scheduler keeps, and what the outcomes of the run "
        f"keep while nobody asks them, after {OUTCOMES_MEASURED} VMs or as many as {longest:g} s allow. The goals: at "
        f"most {KEPT_GOAL} MiB for 300 shapes on 5,000 nodes, and 2 kB per VM for VMs that share verdicts.",
    )
    runs = Table("Whole runs: seconds of CPU", ["run", "nodes", "VMs", "seconds", "goal", "reached", "slope"])
    for task in TASKS.values():
        _run(task, longest, runs)
    _capacity(runs)
    growing, plot = _growing(longest)
    return Section("workloads", [rates, runs, growing, _results(quick)], [plot])


def place(workload: Workload, nodes: int, longest: float, most: int | None = None) -> Speed:
    """Place VMs until one has none left, or time is over. Raises the error of a VM that should have fitted."""
    scheduler = workload.scheduler(nodes)
    requests = [workload.request(number) for number in range(most or workload.most(nodes))]
    gc.collect()
    return _placed(scheduler, requests, longest, fits=workload.fits)


def _placed(scheduler: Scheduler, requests: list[Request], longest: float, *, fits: bool = True) -> Speed:
    began = time.process_time()
    first = 0.0
    for tried, request in enumerate(requests, 1):  # noqa: B007 the last one counts
        outcome = scheduler.schedule(request)
        if outcome.error is not None and fits:
            raise outcome.error
        now = time.process_time() - began
        first = first or now
        if now > longest:
            break
    return Speed(tried, now, first)


def _rate(workload: Workload, nodes: int, goal: float | None, longest: float, table: Table) -> None:
    speed = place(workload, nodes, longest)
    kept, told = _memory(workload, nodes, workload.vms_kept or min(OUTCOMES_MEASURED, speed.tried))
    reached = None if goal is None else speed.per_second >= goal
    cells: list[Cell] = [
        workload.title,
        nodes,
        float(speed.per_second),
        goal,
        yes_or_no(reached),
    ]
    table.rows.append([*cells, 1000 * speed.first, kept / MIB, told / 1024])
    if reached is False:
        table.explain(f"{workload.title}, {nodes:,} nodes", workload.limit)


def _memory(workload: Workload, nodes: int, vms: int) -> tuple[float, float]:
    """Bytes that a scheduler has taken after so many VMs, and that each of their outcomes holds beside."""
    scheduler = workload.scheduler(nodes)
    requests = [workload.request(number) for number in range(vms)]
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        outcomes = [scheduler.schedule(request) for request in requests]
        gc.collect()
        with_outcomes = tracemalloc.get_traced_memory()[0]
        outcomes.clear()
        gc.collect()
        without = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return without - before, (with_outcomes - without) / vms


def _run(task: Task, longest: float, table: Table) -> None:
    """Decide runs of growing sizes, as long as the next one can be expected to end in time."""
    done: list[tuple[int, float]] = []
    for vms in task.sizes:
        if done and done[-1][1] > longest:
            table.rows.append([task.title, task.nodes(vms), vms, None, task.goal, yes_or_no(reached=False), None])
            table.explain(f"{task.title}, {vms} VMs", task.limit)
            continue
        scheduler = Scheduler(ClusterState(snapshot(task.nodes(vms))), build_profiles(builtin_registry()))
        requests = task.run(vms)
        seconds = _seconds(lambda s=scheduler, r=requests: s.schedule_all(r))
        power = slope(done[-1], (vms, seconds)) if done else None
        done.append((vms, seconds))
        reached = seconds <= task.goal
        table.rows.append([task.title, task.nodes(vms), vms, seconds, task.goal, yes_or_no(reached), power])
        if not reached:
            table.explain(f"{task.title}, {vms} VMs", task.limit)


def _growing(longest: float) -> tuple[Table, Plot]:
    """How the cost of one VM grows with what is there."""
    table = Table(
        "Milliseconds of CPU per VM, the first VM left out, as one number grows",
        ["number", "smallest", "ms", "middle", "ms", "largest", "ms", "slope", "first VM: ms", "slope"],
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for growth in GROWTHS:
        points, firsts = [], []
        for size in growth.sizes:
            workload, nodes = growth.workload(size), size if growth.nodes is None else growth.nodes
            speed = place(workload, nodes, longest / 4)
            points.append((size, 1000 * (speed.seconds - speed.first) / max(speed.tried - 1, 1)))
            firsts.append((size, 1000 * speed.first))
        cells: list[Cell] = [cell for point in points for cell in point]
        of_first = [firsts[-1][1], slope(firsts[0], firsts[-1])]
        power = slope(points[0], points[-1])
        table.rows.append([growth.what, *cells, power, *of_first])
        lines[f"{growth.what}: slope {abs(power) if round(power, 2) == 0 else power:.2f}"] = [*points]
    slopes = "; ".join(lines)
    table.notes += [
        "Slope: the power of the number with which the cost grows; 0 does not grow, 1 is in proportion.",
        f"How the cost of one VM grows with the number of {slopes}.",
    ]
    title = "Time per VM as one number grows"
    return table, Plot("benchmark-growth", title, "the number", "milliseconds per VM", lines)


def slope(first: tuple[float, float], last: tuple[float, float]) -> float:
    """The power with which y grows from one point (x, y) to another."""
    return math.log(last[1] / first[1]) / math.log(last[0] / first[0])


def _capacity(table: Table) -> None:
    shape = [Request("shape", cores=1, memory=8 * GIB, disks=(Disk("scsi0", 8 * GIB),))]
    n_plus_one = {"filters": {"FailoverHeadroom": {"enable": True}}}
    for title, nodes, config, goal, limit in (
        ("capacity_info", 100, {}, 0.6, CAPACITY_LIMIT),
        ("capacity_info with n_plus_one", 16, n_plus_one, 0.4, N_PLUS_ONE_LIMIT),
    ):
        profiles = build_profiles(builtin_registry(), config)
        state = ClusterState(_half_full(nodes))
        gc.collect()
        began = time.process_time()
        total = how_many(state, profiles, shape).total
        seconds = time.process_time() - began
        table.rows.append([title, nodes, total, seconds, goal, yes_or_no(seconds <= goal), None])
        if seconds > goal:
            table.explain(title, limit)


def _half_full(nodes: int) -> Snapshot:
    """The cluster of the other workloads with five guests of 8 GiB on each node."""
    data = snapshot(nodes)
    guests = data.guests[: GUESTS_PER_NODE // 2 * nodes]
    return replace(data, guests=tuple(replace(guest, memory=8 * GIB) for guest in guests))


def _results(quick: bool) -> Table:
    """What it costs to tell a decision in the result of a task."""
    table = Table("The decision in a task's result, per VM", ["nodes", "ms", "kB", "goal: ms", "goal: kB"])
    for nodes in (3, 16, 50, 1000) if quick else (3, 16, 50, 1000, 5000):
        scheduler = WORKLOADS["drives"].scheduler(nodes)
        outcomes = [scheduler.schedule(Request(f"web-{at}", cores=1, memory=GIB)) for at in range(10)]
        told: list[int] = []
        seconds = _seconds(lambda o=outcomes, k=told: k.extend(len(json.dumps(decision_result(one))) for one in o))
        goals = (2, 8) if nodes >= 1000 else (None, None)
        table.rows.append([nodes, 1000 * seconds / len(outcomes), sum(told) / len(told) / 1000, *goals])
    return table


def _seconds(run: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    run()
    return time.process_time() - began
