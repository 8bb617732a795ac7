# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine under hard workloads; and what results cost to tell."""

from __future__ import annotations

import gc
import json
import math
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.how_many import how_many
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    MIB,
    Disk,
    Request,
    Snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.result import decision_result

from .engine import GUESTS_PER_NODE, snapshot
from .plots import Plot
from .report import Cell, Section, Table
from .workloads import GROWTHS, TASKS, WORKLOADS, Task, Workload

LONGEST_SECONDS = 4.0
"""For which a row is measured; what takes longer is measured by what was done until then."""

OUTCOMES_MEASURED = 300

DIFFERENT = "n_plus_one, 200 different guests on each node"

CAPACITIES = (
    ("plain", False, 16, None),
    ("plain", False, 50, 0.4),
    ("plain", False, 100, 1.5),
    ("n_plus_one", True, 16, 0.3),
    ("n_plus_one", True, 50, 1.5),
    ("n_plus_one", True, 100, 5.0),
    (DIFFERENT, True, 50, 1.5),
)
"""What is counted: its name, whether the loss of a node counts, on how many nodes, and the goal in seconds."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How many VMs were tried in how many seconds of CPU."""

    tried: int
    seconds: float

    @property
    def milliseconds(self) -> float:
        """Per VM."""
        return 1000 * self.seconds / self.tried


def measure(quick: bool) -> Section:
    """Run every workload; quick: for half a second each."""
    longest = 0.5 if quick else LONGEST_SECONDS
    costs = Table(
        "Workloads: milliseconds of CPU per VM, and the memory of its outcome",
        ["workload", "nodes", "ms", "goal: at most", "outcome [kB]"],
    )
    for workload in WORKLOADS.values():
        for nodes in workload.nodes:
            speed = place(workload, nodes, longest)
            memory = _memory(workload, nodes) / 1024
            costs.rows.append([workload.title, nodes, speed.milliseconds, workload.goals.get(nodes), memory])
    costs.notes.append(f"Each row ends after {longest:g} s of CPU.")
    runs = Table("Whole runs: seconds of CPU", ["run", "nodes", "VMs", "seconds", "slope"])
    for task in TASKS.values():
        _run(task, runs)
    growing, plot = _growing(longest)
    return Section("workloads", [costs, runs, _capacity(), growing, _results()], [plot])


def place(workload: Workload, nodes: int, longest: float, most: int | None = None) -> Speed:
    """Place VMs until one has none left, or time is over. Raises the error of a VM that should have fitted."""
    scheduler = workload.scheduler(nodes)
    requests = [workload.request(number) for number in range(most or workload.most(nodes))]
    gc.collect()
    return _placed(scheduler, requests, longest, fits=workload.fits)


def _placed(scheduler: Scheduler, requests: list[Request], longest: float, *, fits: bool = True) -> Speed:
    began = time.process_time()
    for tried, request in enumerate(requests, 1):  # noqa: B007 the last one counts
        outcome = scheduler.schedule(request)
        if outcome.error is not None and fits:
            raise outcome.error
        now = time.process_time() - began
        if now > longest:
            break
    return Speed(tried, now)


def _memory(workload: Workload, nodes: int) -> float:
    """Bytes that the outcome of a VM holds."""
    scheduler = workload.scheduler(nodes)
    requests = [workload.request(number) for number in range(min(workload.most(nodes), OUTCOMES_MEASURED))]
    gc.collect()
    tracemalloc.start()
    try:
        outcomes = [scheduler.schedule(request) for request in requests]
        gc.collect()
        with_outcomes = tracemalloc.get_traced_memory()[0]
        outcomes.clear()
        gc.collect()
        return (with_outcomes - tracemalloc.get_traced_memory()[0]) / len(requests)
    finally:
        tracemalloc.stop()


def _run(task: Task, table: Table) -> None:
    """Decide runs of growing sizes."""
    before: tuple[int, float] | None = None
    for vms in task.sizes:
        scheduler = Scheduler(ClusterState(snapshot(task.nodes(vms))), build_profiles(builtin_registry()))
        requests = task.run(vms)
        seconds = _seconds(lambda s=scheduler, r=requests: schedule_all(s, r))
        power = None if before is None else slope(before, (vms, seconds))
        table.rows.append([task.title, task.nodes(vms), vms, seconds, power])
        before = vms, seconds


def _growing(longest: float) -> tuple[Table, Plot]:
    """How the cost of one VM grows with what is there."""
    table = Table(
        "Milliseconds of CPU per VM, as one number grows",
        ["number", "smallest", "ms", "middle", "ms", "largest", "ms", "slope"],
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for growth in GROWTHS:
        points = []
        for size in growth.sizes:
            workload, nodes = growth.workload(size), size if growth.nodes is None else growth.nodes
            points.append((size, place(workload, nodes, longest / 4).milliseconds))
        cells: list[Cell] = [cell for point in points for cell in point]
        power = slope(points[0], points[-1])
        table.rows.append([growth.what, *cells, power])
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


def _capacity() -> Table:
    """How long a count of VMs takes, plain and with N+1."""
    shape = [Request("shape", cores=1, memory=8 * GIB, disks=(Disk("scsi0", 8 * GIB),))]
    table = Table("capacity_info: seconds of CPU", ["", "nodes", "VMs", "seconds", "goal: at most"])
    for title, n_plus_one, nodes, goal in CAPACITIES:
        profiles = build_profiles(builtin_registry(), {"filters": {"FailoverHeadroom": {"enable": n_plus_one}}})
        state = ClusterState(_many_sizes(nodes) if title == DIFFERENT else _half_full(nodes))
        gc.collect()
        began = time.process_time()
        total = how_many(state, profiles, shape).total
        table.rows.append([title, nodes, total, time.process_time() - began, goal])
    return table


def _half_full(nodes: int) -> Snapshot:
    """The cluster of the other workloads with five guests of 8 GiB on each node."""
    data = snapshot(nodes)
    guests = data.guests[: GUESTS_PER_NODE // 2 * nodes]
    return replace(data, guests=tuple(replace(guest, memory=8 * GIB) for guest in guests))


def _many_sizes(nodes: int) -> Snapshot:
    """The same cluster with guests of 200 sizes on each node, which take a half of its memory."""
    data = snapshot(nodes, 200)
    guests = (replace(g, cores=1, memory=(256 + 10 * (at // nodes)) * MIB) for at, g in enumerate(data.guests))
    return replace(data, guests=tuple(guests))


def _results() -> Table:
    """What it costs to tell a decision in the result of a task."""
    table = Table("The decision in a task's result, per VM", ["nodes", "ms", "kB"])
    for nodes in (3, 16, 50, 1000):
        scheduler = WORKLOADS["drives"].scheduler(nodes)
        outcomes = [scheduler.schedule(Request(f"web-{at}", cores=1, memory=GIB)) for at in range(10)]
        told: list[int] = []
        seconds = _seconds(lambda o=outcomes, k=told: k.extend(len(json.dumps(decision_result(one))) for one in o))
        table.rows.append([nodes, 1000 * seconds / len(outcomes), sum(told) / len(told) / 1000])
    return table


def _seconds(run: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    run()
    return time.process_time() - began
