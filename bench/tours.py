# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The maintenance of whole clusters: how many guests move, and whether every tour that is planned gets to its end."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter

from law.in_force import rules_in_force
from support.tours import case_of, has_lawful_tour, sail

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.tour import plan_tour
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.tours import Tour, TourGoals

from .hard_clusters import all_movable, full_cluster
from .report import Section, Table

PROFILES = build_profiles(builtin_registry())
IN_FORCE = rules_in_force(PROFILES["balanced"])

SIZES = ((3, 60, (0.4, 0.6)), (6, 200, (0.5, 0.65, 0.8)), (12, 500, (0.5, 0.8, 0.88)))
"""Nodes and guests, and which parts of all memory they take."""


TRIES = 12
"""Random tries to refute a refusal."""


def measure(quick: bool) -> Section:
    """Moves of tours beside those of nodes that are emptied and filled one by one, and seeded clusters."""
    return Section(
        "tours", [_moves(SIZES[:2] if quick else SIZES, 2 if quick else 10), _seeded(100 if quick else 1000)]
    )


def _moves(sizes: tuple[tuple[int, int, tuple[float, ...]], ...], many: int) -> Table:
    table = Table(
        "Maintenance of all nodes: moves of a tour, beside emptying each node and bringing its guests back",
        ["nodes x guests", "memory", "clusters", "planned", "moves", "one by one", "ratio", "goal", "s, worst", "goal"],
    )
    for nodes, guests, parts in sizes:
        for used in parts:
            tours, single, seconds = [], 0, []
            for seed in range(many):
                snapshot = full_cluster(nodes, guests, used, seed)
                gc.collect()
                began = time.process_time()
                tour = _planned(snapshot, TourGoals(tuple(node.name for node in snapshot.nodes)))
                seconds.append(time.process_time() - began)
                if tour.feasible:
                    tours.append(tour)
                    single += _one_by_one(snapshot)
            moves = sum(tour.moves for tour in tours)
            table.rows.append(
                [f"{nodes} x {guests}", f"{used:.0%}", many, len(tours), moves, single, f"{moves / max(single, 1):.2f}",
                 "0.75", max(seconds), "2" if nodes == 6 else None]
            )  # fmt: skip
    table.notes.append("Seconds are CPU time for the plan of a whole tour, after the cluster's state was read.")
    return table


def _planned(snapshot: Snapshot, goals: TourGoals) -> Tour:
    return plan_tour(ClusterState(snapshot), PROFILES, goals, all_movable(snapshot))


def _one_by_one(snapshot: Snapshot) -> int:
    """The moves of a user who empties each node and brings its guests back."""
    return sum(_planned(snapshot, TourGoals((node.name,), homes=True)).moves for node in snapshot.nodes)


def _seeded(many: int) -> Table:
    """Clusters with rules, pinned guests, local disks and tight memory."""
    table = Table(
        "Seeded clusters: each tour ends with every node done, or is refused before its first move",
        [
            "clusters", "every node done", "refused: guests cannot move", "refused: no room", "of these refuted",
            "broken laws", "s, worst",
        ],
    )
    found: Counter[str] = Counter()
    worst = 0.0
    for seed in range(many):
        case = case_of(seed)
        began = time.process_time()
        tour = plan_tour(ClusterState(case.snapshot), PROFILES, case.goals, case.mobility)
        worst = max(worst, time.process_time() - began)
        if tour.feasible:
            end = sail(case, tour, random.Random(seed), IN_FORCE)
            found["done"] += not end.broken and {step.node for step in tour.steps} == set(case.goals.nodes)
            found["broken"] += len(end.broken)
        else:
            held = any(case.mobility[stuck.vmid].stuck[0] for stuck in tour.stuck)
            found["held" if held else "room"] += 1
            found["refuted"] += not held and has_lawful_tour(case, IN_FORCE, random.Random(seed), TRIES)
    table.rows.append([many, found["done"], found["held"], found["room"], found["refuted"], found["broken"], worst])
    table.notes.append(
        "Every move of a planned tour is carried out in memory, in a random order, and judged by the law."
        f" A refusal for lack of room is refuted if one of {TRIES} random tries, in which only the law judges, empties"
        " all nodes."
    )
    return table
