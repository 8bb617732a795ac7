# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares plans with the results of a solver, and measures how long they take."""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch import place_batch
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.exact_model import Program
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import (
    make_plan,
    problem,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Request, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Goals
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.proof import solve

from . import drains as drains_of_nodes
from .hard_clusters import all_movable, apart, full_cluster, fullest, tight_batch, without_room
from .report import Section, Table

PROFILES = build_profiles(builtin_registry())
SOLVER = importlib.util.find_spec("highspy") is not None
SECONDS = 10.0

FULL = ((16, 400, 0.85), (16, 400, 0.90), (16, 400, 0.92), (16, 400, 0.935), (50, 1250, 0.95), (200, 5000, 0.95))
LIMITS = {16: 0.1, 50: 1.0, 200: 10.0}
"""The goal for the seconds of a plan, by the number of nodes."""


@dataclass
class Count:
    """The results of many cases."""

    cases: int = 0
    possible: int = 0
    found: int = 0
    fewest: int = 0
    seconds: list[float] = field(default_factory=list)
    solver: list[float] = field(default_factory=list)


def measure(quick: bool) -> Section:
    """Drains, room for a large VM, tight batches, proofs and requests; quick: a few of each, of 16 nodes only."""
    many = 3 if quick else 24
    sizes = FULL[:4] if quick else FULL
    drains = _table("Drain of the fullest node", sizes, many, lambda s: Goals(drain=frozenset({fullest(s)})))
    rooms = _table("Room for a VM of 64 GiB", sizes, many, lambda s: Goals(place=(Request("big", 8, 0, 64 * GIB),)))
    tables = [drains, rooms, _batches(5 if quick else 100), _impossible(), *drains_of_nodes.measure(quick)]
    return Section("plans", tables)


def _table(title: str, sizes: Sequence[tuple[int, int, float]], many: int, goals: Callable[[Snapshot], Goals]) -> Table:
    table = Table(
        f"{title}: plans found and their moves, beside the solver's",
        ["nodes x guests", "memory", "clusters", "with a plan", "found", "goal", "fewest moves", "goal",
         "s, median", "s, worst", "goal", "solver s, worst"],
    )  # fmt: skip
    for nodes, guests, used in sizes:
        count = _counted(nodes, guests, used, many if nodes == 16 else max(2, many // nodes * 2), goals)
        limit = LIMITS[nodes]
        possible = count.possible if SOLVER else None
        table.rows.append(
            [f"{nodes} x {guests:,}", f"{used:.1%}", count.cases, possible, count.found, "all",
             count.fewest if SOLVER else None, "95 %", _median(count.seconds), max(count.seconds), f"{limit:g}",
             max(count.solver, default=None)]
        )  # fmt: skip
    table.notes.append(
        "Seconds are CPU time, after the cluster's state was read. Clusters on which the solver decided nothing within "
        f"{SECONDS:g} s count as having no plan, unless one was found. A plan with as many moves as the solver's lower "
        "bound has the fewest; that bound is too low where the solver runs out of time, as it does at 200 x 5,000."
    )
    return table


def _counted(nodes: int, guests: int, used: float, many: int, goals: Callable[[Snapshot], Goals]) -> Count:
    count = Count()
    for seed in range(many):
        snapshot = full_cluster(nodes, guests, used, seed)
        state, mobility, wanted = ClusterState(snapshot), all_movable(snapshot), goals(snapshot)
        # What former cases left behind is not collected at the cost of this one.
        gc.collect()
        began = time.process_time()
        plan = make_plan(state, PROFILES, wanted, mobility)
        count.seconds.append(time.process_time() - began)
        count.cases += 1
        count.found += plan.feasible
        status, bound = _solved(problem(state, PROFILES, wanted, mobility), count)
        count.possible += status == "optimal" or plan.feasible
        count.fewest += plan.feasible and len(plan.moves) == bound
    return count


def _batches(many: int) -> Table:
    table = Table(
        "Batches of 40 VMs for 8 nodes, 80 to 97 % of CPU and memory: how many are placed whole",
        ["", "batches", "solver", "as given", "largest first", "place_batch", "goal", "s, median", "s, worst"],
    )
    for title, rules in (("without rules", False), ("groups apart and together", True)):
        given = largest = joint = possible = 0
        seconds = []
        for seed in range(many):
            snapshot, batch = tight_batch(0.80 + 0.17 * (seed % 20) / 19, seed, rules)
            given += _whole(schedule_all(_scheduler(snapshot), batch))
            largest += _whole(schedule_all(_scheduler(snapshot), sorted(batch, key=lambda r: -r.memory)))
            scheduler = _scheduler(snapshot)
            began = time.process_time()
            joint += _whole(place_batch(scheduler, batch))
            seconds.append(time.process_time() - began)
            possible += _solved(_assignment(snapshot, batch), Count())[0] == "optimal"
        table.rows.append(
            [title, many, possible if SOLVER else None, given, largest, joint, "99 % of the solver's",
             _median(seconds), max(seconds)]
        )  # fmt: skip
    return table


def _impossible() -> Table:
    """Clusters in which a small VM fits nowhere and no move helps."""
    table = Table("No plan exists: seconds until that is proved", ["nodes x guests", "proved", "s", "goal"])
    for nodes in (4, 16, 50):
        snapshot = without_room(nodes)
        count = Count()
        goals = Goals(place=(Request("new", 1, 0, 2 * GIB),))
        status, _bound = _solved(problem(ClusterState(snapshot), PROFILES, goals, all_movable(snapshot)), count)
        told = "yes" if status == "infeasible" else "no"
        table.rows.append([f"{nodes} x {len(snapshot.guests)}", told if SOLVER else None, sum(count.solver), "1"])
    table.notes.append("The time includes the start of the solver's process.")
    return table


def _assignment(snapshot: Snapshot, batch: Sequence[Request]) -> Program:
    """The exact problem of a batch with its rules: which VM is on which node."""
    program = Program()
    columns = [[program.column(1) for _node in snapshot.nodes] for _request in batch]
    for row in columns:
        program.rows.append((1, 1, dict.fromkeys(row, 1.0)))
    for number, node in enumerate(snapshot.nodes):
        mine = [row[number] for row in columns]
        memory = {column: request.memory / GIB for column, request in zip(mine, batch, strict=True)}
        cores = {column: float(request.cores) for column, request in zip(mine, batch, strict=True)}
        program.rows.append((float("-inf"), node.memory / GIB, memory))
        program.rows.append((float("-inf"), node.cores * (node.cpu_ratio or 1), cores))
        for tag in sorted({tag for request in batch for tag in request.tags}):
            members = [column for column, request in zip(mine, batch, strict=True) if tag in request.tags]
            if apart(tag):
                program.rows.append((0, 1, dict.fromkeys(members, 1.0)))
            else:
                program.rows += [(0, 0, {members[0]: 1.0, other: -1.0}) for other in members[1:]]
    return program


def _solved(program: Program, count: Count) -> tuple[str, int | None]:
    if not SOLVER:
        return "unknown", None
    began = time.monotonic()
    found = solve(program, SECONDS)
    count.solver.append(time.monotonic() - began)
    return found


def _scheduler(snapshot: Snapshot) -> Scheduler:
    return Scheduler(ClusterState(snapshot), PROFILES)


def _whole(outcomes: Sequence[object]) -> bool:
    return all(getattr(outcome, "decision", None) is not None for outcome in outcomes)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
