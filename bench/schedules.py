# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long plans take to carry out: the agenda beside simpler orders, in a model of live migration.

Each node has a network link that carries the same amount in both directions. Migrations on a link share it evenly. A
guest writes to its memory meanwhile, and what it has changed is sent again.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import make_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, MIB, Guest, Node, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Goals, Mobility, Move, Plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.agenda import Agenda, chains
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.move_options import Caps

from .report import Section, Table

PROFILES = build_profiles(builtin_registry())
NODES = 4
NODE_GIB = 24
LINK = 117 * MIB
"""Bytes that a link of 1 Gbit/s carries per second."""
FIXED = 3.0
"""Seconds of a migration in which it sends nothing."""
DIRTY = (2 * MIB, 10 * MIB, 30 * MIB, 60 * MIB)
"""Bytes that a guest changes per second."""
SLOWED = 0.2
"""The part of a migration's bandwidth that gets ahead at least: QEMU slows a guest that changes its memory faster."""
TRIES = 200


class Order(Protocol):
    """What decides which moves start now."""

    def start(self) -> list[Move]: ...

    def end(self, move: Move) -> None: ...


class Listed:
    """Starts moves in a fixed order, within caps: an agenda that knows neither links nor chains."""

    def __init__(self, moves: Iterable[Move], caps: Caps, key: Callable[[Move], float]) -> None:
        self._waiting = sorted(moves, key=lambda move: (key(move), move.id))
        self._caps = caps
        self._under_way: list[Move] = []
        self._ended: set[int] = set()

    def start(self) -> list[Move]:
        started = []
        for move in list(self._waiting):
            if set(move.after) <= self._ended and self._has_room(move):
                self._waiting.remove(move)
                self._under_way.append(move)
                started.append(move)
        return started

    def end(self, move: Move) -> None:
        self._under_way.remove(move)
        self._ended.add(move.id)

    def _has_room(self, move: Move) -> bool:
        caps, busy = self._caps, self._under_way
        return (
            len(busy) < caps.cluster
            and sum(other.source == move.source for other in busy) < caps.per_node_out
            and sum(other.target == move.target for other in busy) < caps.per_node_in
            and sum({other.source, other.target} == {move.source, move.target} for other in busy) < caps.per_link
        )


@dataclass(frozen=True)
class Scenario:
    """A plan of moves, and how fast each guest changes its memory, by VMID."""

    plan: Plan
    dirty: Mapping[int, float]


ORDERS: Mapping[str, Callable[[Sequence[Move]], Order]] = {
    "one move at a time": lambda moves: Listed(moves, Caps(cluster=1), lambda move: -move.estimate),
    "longest first, default caps": lambda moves: Listed(moves, Caps(), lambda move: -move.estimate),
    "in the order of the plan, default caps": lambda moves: Listed(moves, Caps(), lambda move: move.id),
    "longest chain first, default caps": lambda moves: Listed(moves, Caps(), _by_chain(moves)),
    "longest chain first, one move per link": lambda moves: Listed(
        moves, Caps(cluster=NODES, per_node_in=1, per_node_out=1), _by_chain(moves)
    ),
    "the agenda": lambda moves: Agenda(moves, Caps()),
}


def measure(quick: bool) -> Section:
    """Carry out plans in each order; quick: a few plans."""
    scenarios = [scenario(seed) for seed in range(5 if quick else 50)]
    moves = statistics.mean(len(each.plan.moves) for each in scenarios)
    table = Table(
        f"Duration of {len(scenarios)} plans with {moves:.0f} moves on average between {NODES} nodes, in a model of"
        " live migration",
        ["order", "mean s", "shortest", "longest", "of the bound"],
        notes=[
            f"Nodes of {NODE_GIB} GiB with links of 1 Gbit/s, 75 to 85 % full; the guests of 1 to 6 GiB change 2 to 60 "
            "MiB of it per second. Each goes to a node that was drawn, and the plan says what waits for what.",
            "Bound: no order is faster than the busiest link at full speed, and than the longest chain.",
        ],
    )
    bounds = [bound(each) for each in scenarios]
    for title, order in ORDERS.items():
        seconds = [duration(each, order(each.plan.moves)) for each in scenarios]
        ratio = statistics.mean(took / least for took, least in zip(seconds, bounds, strict=True))
        table.rows.append([title, statistics.mean(seconds), min(seconds), max(seconds), f"{ratio:.2f}x"])
    table.rows.append(["bound", statistics.mean(bounds), min(bounds), max(bounds), "1.00x"])
    return Section("schedules", [table])


def scenario(seed: int) -> Scenario:
    """Guests on four nodes, each of which shall go to a node that was drawn."""
    chance = random.Random(seed)
    names = [f"pve{number}" for number in range(1, NODES + 1)]
    used = chance.uniform(0.75, 0.85) * NODE_GIB
    guests: list[Guest] = []
    for name in names:
        left = used
        while left >= 1:
            gib = min(chance.choice((1, 2, 2, 4, 4, 6)), int(left))
            left -= gib
            vmid = 100 + len(guests)
            guests.append(Guest(vmid, f"vm-{vmid}", name, status="running", cores=1, memory=gib * GIB))
    chosen = chance.sample(guests, len(guests) * 2 // 3)
    home = _drawn(chance, names, guests, {guest.vmid for guest in chosen})
    nodes = tuple(Node(name, cores=64, memory=NODE_GIB * GIB) for name in names)
    snapshot = Snapshot(nodes=nodes, guests=tuple(guests))
    goals = Goals(undo={guest.vmid: home[guest.vmid] for guest in chosen})
    mobility = {guest.vmid: Mobility(cost=guest.memory) for guest in guests}
    plan = make_plan(ClusterState(snapshot), PROFILES, goals, mobility)
    return Scenario(plan, {guest.vmid: chance.choice(DIRTY) for guest in guests})


def _drawn(chance: random.Random, names: Sequence[str], guests: Sequence[Guest], chosen: set[int]) -> dict[int, str]:
    """A node for each chosen guest, such that all of them fit."""
    for _try in range(TRIES):
        free = dict.fromkeys(names, NODE_GIB * GIB)
        home = {}
        for guest in sorted(guests, key=lambda guest: guest.vmid in chosen):
            fitting = [name for name in names if free[name] >= guest.memory and name != guest.node]
            node = chance.choice(fitting or [guest.node]) if guest.vmid in chosen else guest.node
            free[node] -= guest.memory
            home[guest.vmid] = node
        if min(free.values()) >= 0:
            return home
    raise RuntimeError("no arrangement was found")


def duration(scenario: Scenario, order: Order) -> float:
    """The seconds until all moves have ended. Raises RuntimeError if some never start."""
    now, done = 0.0, 0
    under_way: dict[int, _Transfer] = {}
    while True:
        for move in order.start():
            under_way[move.id] = _Transfer(move, float(move.memory), now + FIXED, scenario.dirty[move.vmid])
        if not under_way:
            break
        sending = [each for each in under_way.values() if each.begins <= now]
        rates = _fair(sending)
        ends = [now + each.left / each.progress(rates[each.move.id]) for each in sending]
        now, before = min([*ends, *(each.begins for each in under_way.values() if each.begins > now)]), now
        for each in sending:
            each.left -= each.progress(rates[each.move.id]) * (now - before)
            if each.left <= 1:
                order.end(under_way.pop(each.move.id).move)
                done += 1
    if done < len(scenario.plan.moves):
        raise RuntimeError("some moves never start")
    return now


def bound(scenario: Scenario) -> float:
    """The seconds that no order can beat."""
    moves = [replace(move, estimate=_alone(move, scenario)) for move in scenario.plan.moves]
    links: dict[tuple[str, str], float] = {}
    for move in moves:
        for link in (("out", move.source), ("in", move.target)):
            links[link] = links.get(link, 0.0) + move.estimate - FIXED
    return max(max(links.values()) + FIXED, max(chains(moves).values()))


@dataclass
class _Transfer:
    move: Move
    left: float
    begins: float
    dirty: float

    def progress(self, rate: float) -> float:
        """How much less is left to send after a second."""
        return max(rate - self.dirty, rate * SLOWED)


def _alone(move: Move, scenario: Scenario) -> float:
    return FIXED + move.memory / _Transfer(move, 0, 0, scenario.dirty[move.vmid]).progress(LINK)


def _fair(sending: Sequence[_Transfer]) -> dict[int, float]:
    """The bytes per second of each migration: links are shared evenly, and what one cannot use, others get."""
    rates: dict[int, float] = {}
    left = {each.move.id: (("out", each.move.source), ("in", each.move.target)) for each in sending}
    free = {link: float(LINK) for links in left.values() for link in links}
    while left:
        users = {link: [number for number, links in left.items() if link in links] for link in free}
        tightest = min((link for link in free if users[link]), key=lambda link: (free[link] / len(users[link]), link))
        share = free[tightest] / len(users[tightest])
        for number in users[tightest]:
            rates[number] = share
            for link in left.pop(number):
                free[link] -= share
    return rates


def _by_chain(moves: Sequence[Move]) -> Callable[[Move], float]:
    length = chains(moves)
    return lambda move: -length[move.id]
