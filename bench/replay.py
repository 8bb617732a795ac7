# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replays days of load on a cluster that somebody balances every hour: how many moves, for how much relief.

PROXLB is the path of a checkout of ProxLB (with the Python package pydantic), PLANETLAB that of the published traces,
and RRDDATA that of statistics of Proxmox VE. What is not given is left out.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Guest, Node, Snapshot

from .balancers import Balancer, Cluster, ProxLB, collection, nobody, oracle
from .report import Section, Table
from .traces import DAY, GENERATED, STEP, Trace, generated, planetlab, recorded

HOUR = 3600 // STEP
OVERLOADED = 0.9
FILLED = 0.6
"""The part of all CPUs that all guests together use on average."""


@dataclass
class Score:
    """What came of a replay. undone: moves of guests back to a node that they left less than a day before. missed: the
    core-hours that guests wanted and their node did not have.
    """

    moves: int = 0
    overloaded: int = 0
    missed: float = 0.0
    undone: int = 0
    most: int = 0
    seconds: float = 0.0

    def add(self, other: Score) -> None:
        """Add another one."""
        self.moves += other.moves
        self.overloaded += other.overloaded
        self.missed += other.missed
        self.undone += other.undone
        self.most = max(self.most, other.most)
        self.seconds = max(self.seconds, other.seconds)


def measure(quick: bool) -> Section:
    """Each kind of load, beside each balancer."""
    balancers: dict[str, Balancer] = {"nobody": nobody}
    checkout = os.environ.get("PROXLB")
    if checkout:
        balancers["ProxLB"] = ProxLB(Path(checkout))
        balancers["ProxLB, guests counted in cores"] = ProxLB(Path(checkout), in_cores=True)
    balancers |= {"balance: {by: used}": collection, "with knowledge of the next day": oracle}
    tables = []
    for name in GENERATED:
        seeds = range(1 if quick else 3)
        clusters = [generated(name, 96, 3 if quick else 6, seed) for seed in seeds]
        tables.append(_table(f"{name}: 8 nodes, 96 guests, {len(clusters[0][0]) // DAY} days", clusters, 8, balancers))
    folder = os.environ.get("PLANETLAB")
    if folder:
        pairs = [traces for _name, traces in planetlab(Path(folder))][: 1 if quick else None]
        title = f"PlanetLab: 16 nodes, {len(pairs)} pairs of days, {min(map(len, pairs))} to {max(map(len, pairs))} VMs"
        tables.append(_table(title, pairs, 16, balancers))
    folder = os.environ.get("RRDDATA")
    if folder:
        traces = recorded(Path(folder))
        title = f"recorded statistics: 8 nodes, {len(traces)} guests, {len(traces[0]) // DAY if traces else 0} days"
        tables.append(_table(title, [traces] if traces else [], 8, balancers))
    return Section("replay", tables)


def _table(title: str, clusters: Sequence[list[Trace]], nodes: int, balancers: dict[str, Balancer]) -> Table:
    table = Table(
        title,
        ["balanced every hour by", "moves", f"node-minutes over {OVERLOADED:.0%}", "core-hours missed",
         "undone within a day",
         "most moves of a guest", "s, longest run"],
    )  # fmt: skip
    for name, balancer in balancers.items():
        total = Score()
        for seed, traces in enumerate(clusters):
            total.add(replayed(described(traces, nodes, seed), balancer))
        table.rows.append([name, total.moves, total.overloaded, total.missed, total.undone, total.most, total.seconds])
    bound = Score()
    for seed, traces in enumerate(clusters):
        bound.add(least(described(traces, nodes, seed)))
    table.rows.append(["at least, with any placement", None, bound.overloaded, bound.missed, None, None, None])
    return table


def least(cluster: Cluster) -> Score:
    """What no placement can go below: as if guests could be divided and moved every five minutes. Of all ways to miss
    as little as possible, it counts the one with the fewest nodes over 90 %.
    """
    cores = [node.cores for node in cluster.snapshot.nodes]
    score, size = Score(), float(sum(cores))
    for at in range(DAY, len(next(iter(cluster.traces.values())))):
        used = sum(cluster.cores(guest, at) for guest in cluster.snapshot.guests)
        # A node takes up to 90 %, or all of its CPUs and counts as overloaded.
        over = math.ceil((used - OVERLOADED * size) / ((1 - OVERLOADED) * max(cores)) - 1e-9)
        score.overloaded += min(max(over, 0), len(cores)) * STEP // 60
        score.missed += max(used - size, 0.0) * STEP / 3600
    return score


def described(traces: Sequence[Trace], nodes: int, seed: int) -> Cluster:
    """A cluster with a guest for each trace, which are spread evenly, at random."""
    chance = random.Random(seed)
    sizes = [chance.choice((2, 2, 4)) for _trace in traces]
    used = sum(sum(trace) / len(trace) * cores for trace, cores in zip(traces, sizes, strict=True))
    cores = max(round(used / nodes / FILLED), 8)
    order = list(range(len(traces)))
    chance.shuffle(order)
    memory = 4 * GIB
    guests = [
        Guest(
            100 + number, f"vm-{number}", f"pve{at % nodes + 1}", status="running", cores=sizes[number], memory=memory
        )
        for at, number in enumerate(order)
    ]
    most = memory * (2 * len(traces) // nodes + 4)
    # Many VMs of PlanetLab use little: a limit of vCPUs would forbid every move.
    hosts = tuple(Node(f"pve{number}", cores=cores, memory=most, cpu_ratio=100.0) for number in range(1, nodes + 1))
    return Cluster(
        Snapshot(nodes=hosts, guests=tuple(guests)), {100 + number: trace for number, trace in enumerate(traces)},
        {node.name: [] for node in hosts},
    )  # fmt: skip


def replayed(cluster: Cluster, balancer: Balancer) -> Score:
    """Let the days pass. The first one is only watched."""
    score, homes, moved = Score(), dict[tuple[int, str], int](), dict[int, int]()
    for at in range(len(next(iter(cluster.traces.values())))):
        if at >= DAY and at % HOUR == 0:
            began = time.process_time()
            wanted = balancer(cluster, at)
            score.seconds = max(score.seconds, time.process_time() - began)
            for vmid, node in wanted:
                source = next(guest.node for guest in cluster.snapshot.guests if guest.vmid == vmid)
                score.undone += at - homes.get((vmid, node), -DAY) < DAY
                homes[vmid, source] = at
                moved[vmid] = moved.get(vmid, 0) + 1
                cluster.move(vmid, node, at)
            score.moves += len(wanted)
        used = {node.name: 0.0 for node in cluster.snapshot.nodes}
        for guest in cluster.snapshot.guests:
            used[guest.node] += cluster.cores(guest, at)
        for node in cluster.snapshot.nodes:
            # A node cannot use more than it has; the guests then get less than they want.
            cluster.past[node.name].append(min(used[node.name], float(node.cores)))
            if at >= DAY:
                score.overloaded += (used[node.name] > OVERLOADED * node.cores) * STEP // 60
                score.missed += max(used[node.name] - node.cores, 0.0) * STEP / 3600
    score.most = max(moved.values(), default=0)
    return score
