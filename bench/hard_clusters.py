# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters and batches that are hard to plan for, made from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Guest,
    Node,
    Request,
    Selector,
    Snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Mobility

SHAPES: Sequence[tuple[int, int]] = (
    (1, 2), (1, 4), (2, 4), (2, 8), (4, 8), (4, 16), (8, 16), (8, 32), (16, 64),
)  # fmt: skip
"""vCPUs and GiB of the guests; nine shapes."""
WEIGHTS = (4, 6, 8, 8, 6, 5, 3, 2, 1)

NODE_CORES = 64


def full_cluster(nodes: int, guests: int, used: float, seed: int) -> Snapshot:
    """A cluster of equal nodes with so many guests, which take that part of all memory. CPU is not tight."""
    chance = random.Random(seed)
    names = [f"pve{number:03d}" for number in range(1, nodes + 1)]
    sizes = [chance.choices(SHAPES, WEIGHTS)[0] for _number in range(guests)]
    node_gib = round(sum(gib for _cores, gib in sizes) / used / nodes)
    free = dict.fromkeys(names, node_gib)
    placed = []
    for number, (cores, gib) in enumerate(sizes):
        node = max(names, key=lambda name: (free[name], chance.random()))
        while gib > free[node]:
            cores, gib = max(shape for shape in SHAPES if shape[1] < gib)
        free[node] -= gib
        placed.append(Guest(100 + number, f"vm-{number}", node, status="running", cores=cores, memory=gib * GIB))
    return Snapshot(
        nodes=tuple(Node(name, cores=NODE_CORES, memory=node_gib * GIB) for name in names), guests=tuple(placed)
    )


def all_movable(snapshot: Snapshot) -> dict[int, Mobility]:
    """Every guest can be moved live, at the cost of its memory."""
    return {guest.vmid: Mobility(cost=guest.memory) for guest in snapshot.guests}


def fullest(snapshot: Snapshot) -> str:
    """The node with the most memory allocated."""
    used = {node.name: 0 for node in snapshot.nodes}
    for guest in snapshot.guests:
        used[guest.node] += guest.memory
    return max(used, key=lambda name: (used[name], name))


def tight_batch(used: float, seed: int, rules: bool, nodes: int = 8, vms: int = 40) -> tuple[Snapshot, list[Request]]:
    """Nodes without guests and VMs that take that part of the scarcer resource; with rules, groups that are to be apart
    and pairs that are to be together.
    """
    chance = random.Random(seed)
    names = [f"pve{number}" for number in range(1, nodes + 1)]
    shapes = [(chance.choice((1, 2, 2, 4, 4, 8)), chance.choice((2, 4, 4, 8, 8, 16, 24, 32))) for _number in range(vms)]
    cores, gib = sum(shape[0] for shape in shapes), sum(shape[1] for shape in shapes)
    most = max(shape[1] for shape in shapes)
    memory = max(gib / used / nodes, most)
    vcpus = max(cores / used / nodes, 8)
    requests = [
        Request(f"vm-{number:02d}", cores=shape[0], memory=shape[1] * GIB, running=True)
        for number, shape in enumerate(shapes)
    ]
    if rules:
        for group in range(2):
            apart = AffinityTerm(False, Selector(tags=frozenset({f"apart{group}"})))
            for number in range(group * 6, group * 6 + 6):
                requests[number] = replace(requests[number], tags=frozenset({f"apart{group}"}), affinity=(apart,))
        for group in range(3):
            with_each_other = AffinityTerm(True, Selector(tags=frozenset({f"pair{group}"})))
            for number in range(12 + 2 * group, 14 + 2 * group):
                requests[number] = replace(
                    requests[number], tags=frozenset({f"pair{group}"}), affinity=(with_each_other,)
                )
    # Four vCPUs may be allocated per CPU: a cluster of whole CPUs, with the ratio of each node set to the limit.
    hosts = tuple(Node(name, cores=64, memory=round(memory * GIB), cpu_ratio=vcpus / 64) for name in names)
    return Snapshot(nodes=hosts), requests


def apart(tag: str) -> bool:
    """Whether the VMs of a tight batch that have the tag are to be apart; else they are to be together."""
    return tag.startswith("apart")


def without_room(nodes: int) -> Snapshot:
    """Nodes of 201 GiB with 1 GiB free each, so that a VM of 2 GiB fits nowhere, whatever is moved."""
    names = [f"pve{number:03d}" for number in range(1, nodes + 1)]
    guests = tuple(
        Guest(100 + 50 * host + number, f"vm-{host}-{number}", name, status="running", memory=4 * GIB)
        for host, name in enumerate(names)
        for number in range(50)
    )
    return Snapshot(nodes=tuple(Node(name, cores=64, memory=201 * GIB) for name in names), guests=guests)
