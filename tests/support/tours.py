# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters to tour, made from a seed, and the walk of a tour through the cluster, checked against the law."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from law.law import InForce
from law.steps import broken_step

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Constraints,
    Guest,
    HARule,
    Node,
    Selector,
    Snapshot,
    Storage,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import LocalDisk, Mobility, Move, Plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.tours import (
    SHUT_DOWN,
    STAY,
    Tour,
    TourGoals,
)

from .plan_walk import done, walk

SIZES = (1, 1, 2, 2, 4, 8)
PINNED = ("it uses devices of its node: hostpci0", "use mapped devices")


@dataclass(frozen=True)
class Case:
    """A cluster, how its guests can be moved, and the tour that is wanted."""

    snapshot: Snapshot
    mobility: Mapping[int, Mobility]
    goals: TourGoals


def case_of(seed: int) -> Case:
    """Three to seven nodes with rules between guests, HA rules, pinned guests, local disks and tight memory."""
    chance = random.Random(seed)
    names = [f"pve{number}" for number in range(1, chance.randint(3, 7) + 1)]
    used = chance.choice((0.3, 0.5, 0.6, 0.7, 0.8, 0.88))
    nodes = tuple(
        Node(name, cores=32, memory=chance.choice((24, 32, 32, 48)) * GIB, online=chance.random() > 0.03)
        for name in names
    )
    room = {node.name: int(node.memory / GIB * used) for node in nodes}
    guests: list[Guest] = []
    mobility: dict[int, Mobility] = {}
    if_stuck: dict[int, str] = {}
    stays: dict[int, str] = {}
    apart = Constraints((AffinityTerm(False, Selector(tags=frozenset({"apart"}))),))
    for name in names:
        while room[name] > 0:
            vmid, size = 100 + len(guests), min(chance.choice(SIZES), room[name])
            room[name] -= size
            ruled = chance.random() < 0.04
            local = chance.random() < 0.08
            guests.append(
                Guest(vmid, f"vm-{vmid}", name, status=chance.choice(("running",) * 9 + ("stopped",)), cores=1,
                      memory=size * GIB, tags=frozenset({"apart"} if ruled else ()),
                      constraints=apart if ruled else Constraints())
            )  # fmt: skip
            disks = (LocalDisk("scsi0", "local", chance.randint(1, 8) * GIB),) if local else ()
            mobility[vmid] = Mobility(cost=size * GIB, disks=disks)
            if chance.random() < 0.03:
                mobility[vmid] = Mobility(stuck=PINNED)
                if chance.random() < 0.7:
                    if_stuck[vmid] = chance.choice((SHUT_DOWN, STAY))
            elif chance.random() < 0.03:
                stays[vmid] = chance.choice((SHUT_DOWN, STAY))
    vmids = [guest.vmid for guest in guests]
    rules: list[HARule] = []
    if len(vmids) > 5 and chance.random() < 0.5:
        rules.append(HARule("apart", "resource-affinity", frozenset(chance.sample(vmids, 3)), positive=False))
    if len(vmids) > 5 and chance.random() < 0.4:
        some = dict.fromkeys(chance.sample(names, 2), 0)
        rules.append(HARule("some", "node-affinity", frozenset(chance.sample(vmids, 2)), nodes=some, strict=True))
    storages = tuple(Storage("local", name, total=60 * GIB, used=20 * GIB) for name in names)
    snapshot = Snapshot(nodes=nodes, guests=tuple(guests), storages=storages, ha_rules=tuple(rules))
    due = tuple(node.name for node in nodes if node.online and chance.random() < 0.9)
    homes = chance.random() < 0.3
    return Case(snapshot, mobility, TourGoals(due, homes=homes, stays=stays, if_stuck=if_stuck))


def has_lawful_tour(case: Case, in_force: InForce, chance: random.Random, tries: int) -> bool:
    """Whether a user who empties the nodes in some order, each guest to some node that the law allows, gets to the end
    in one of so many tries. Largest guests go first.
    """
    return any(_empties_all(case, in_force, chance) for _try in range(tries))


def _empties_all(case: Case, in_force: InForce, chance: random.Random) -> bool:
    state, nodes = case.snapshot, list(case.goals.nodes)
    if not case.goals.keep_order:
        chance.shuffle(nodes)
    exempt = case.goals.stays.keys() | case.goals.if_stuck.keys()
    for name in nodes:
        leaving = [guest for guest in state.guests if guest.node == name and guest.vmid not in exempt]
        chance.shuffle(leaving)
        for guest in sorted(leaving, key=lambda each: -each.memory):
            targets = [node.name for node in state.nodes if node.online and node.name != name]
            chance.shuffle(targets)
            moves = (Move(1, guest.vmid, "", name, target, "") for target in targets)
            step = next((move for move in moves if not broken_step(state, (), move, in_force)), None)
            if step is None:
                return False
            state = done(state, step)
    return True


@dataclass
class Sailed:
    """What a tour came to.

    Attributes:
        snapshot: the cluster at the end.
        broken: what was not as it must be, as sentences.
    """

    snapshot: Snapshot
    broken: list[str] = field(default_factory=list)


def sail(case: Case, tour: Tour, chance: random.Random, in_force: InForce | None = None) -> Sailed:
    """Carry out a tour in memory. Every move must be lawful, and every node hold only what may stay."""
    result = Sailed(case.snapshot)
    for step in tour.steps:
        _mark(result, step.nodes, drained=True)
        _walk(result, step.out, chance, in_force)
        left = {guest.vmid for guest in result.snapshot.guests if guest.node in step.nodes}
        if left - {*step.shut_down, *step.stay}:
            result.broken.append(f"{', '.join(step.nodes)} still have {sorted(left)} during their maintenance")
        _mark(result, step.nodes, drained=False)
        if step.back is not None:
            _walk(result, step.back, chance, in_force)
    return result


def _walk(result: Sailed, plan: Plan, chance: random.Random, in_force: InForce | None) -> None:
    found = walk(result.snapshot, plan, chance, in_force)
    result.snapshot = found.snapshot
    result.broken += found.broken


def _mark(result: Sailed, names: Collection[str], *, drained: bool) -> None:
    nodes = (replace(node, drained=drained) if node.name in names else node for node in result.snapshot.nodes)
    result.snapshot = replace(result.snapshot, nodes=tuple(nodes))
