# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a plan: what has to wait for what, and how full each node gets on the way.

A step that needs room which another one frees waits for that one. Room is handed out byte by byte: what is free at the
start first, then what the steps free in their order, each byte once. So the steps may be carried out in any order, and
any number of them at a time, as long as each waits for those that it got its room from: what is under way counts on
both nodes, and no node is ever too full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...model import HARule, Request
from ..selectors import selects
from .items import Part, Position, as_guest


@dataclass(slots=True)
class Leg:
    """One step of a plan: parts that go to a node at one time; new VMs come from nowhere.

    Attributes:
        number: its position in the plan.
        cores, memory, guests: what comes to the target.
        sources: what leaves which nodes.
        room: what may be allocated on the target when it is there, of CPU and of memory.
        after: the numbers of the legs that have to end before it starts.
    """

    number: int
    parts: tuple[Part, ...]
    cores: float
    memory: int
    guests: int
    sources: tuple[Position, ...]
    target: int
    room: tuple[float, float]
    why: str = ""
    score: float = 0.0
    after: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Freed:
    """What a leg leaves behind on a node and nobody has taken yet: CPU and memory."""

    number: int
    amounts: list[float]


def put_in_order(legs: Sequence[Leg], start: Sequence[tuple[float, float]], relations: Relations) -> None:
    """Fill in what each leg waits for. The legs are in an order in which they can be carried out one by one.

    start is what is allocated on each node before: CPU and memory. Steps that a rule relates keep their order.
    """
    taken = [list(used) for used in start]
    freed: dict[int, list[_Freed]] = defaultdict(list)
    last_of: dict[int, int] = {}
    ruled: list[Leg] = []
    for leg in legs:
        for resource, size in enumerate((leg.cores, leg.memory)):
            if size > 0:
                taken[leg.target][resource] += size
                _take_freed(leg, resource, taken[leg.target], freed[leg.target])
        for source in leg.sources:
            freed[source.node].append(_Freed(leg.number, [source.cores, source.memory]))
        for part in leg.parts:
            if part.vmid in last_of:
                leg.after.add(last_of[part.vmid])
            last_of[part.vmid] = leg.number
        concerned = any(map(relations.concern, leg.parts))
        for other in legs[: leg.number] if concerned else ruled:
            if any(relations.related(one, two) for one in leg.parts for two in other.parts):
                leg.after.add(other.number)
        if concerned:
            ruled.append(leg)


def _take_freed(leg: Leg, resource: int, taken: list[float], freed: Sequence[_Freed]) -> None:
    """Cover what the leg takes beyond the room that was there by what others leave; it waits for those."""
    missing = taken[resource] - leg.room[resource]
    for each in freed:
        if missing <= 0:
            break
        given = min(missing, each.amounts[resource])
        if given > 0:
            each.amounts[resource] -= given
            taken[resource] -= given
            missing -= given
            leg.after.add(each.number)


def shorten(legs: Sequence[Leg]) -> None:
    """Leave out of after what follows from the rest of it."""
    before: list[set[int]] = []
    for leg in legs:
        implied: set[int] = set().union(*(before[number] for number in leg.after))
        before.append(implied | leg.after)
        leg.after -= implied


def ancestors(legs: Sequence[Leg]) -> list[set[int]]:
    """For each leg the numbers of all that have ended when it starts."""
    behind: list[set[int]] = []
    for leg in legs:
        behind.append(leg.after.union(*(behind[number] for number in leg.after)))
    return behind


def peaks(legs: Sequence[Leg], node: int) -> Position:
    """The most CPU, memory and guests, above those at the start, that count on a node at any time and in any order.

    The worst is reached when all has come that may come before the first, the second, ... of those that leave is gone.
    """
    behind = ancestors(legs)
    leaving = [(leg, source) for leg in legs for source in leg.sources if source.node == node]
    coming = [leg for leg in legs if leg.target == node]
    worst = Position(node, 0.0, 0)
    for gone in range(len(leaving) + 1):
        still = {leg.number for leg, _source in leaving[gone:]}
        there = [leg for leg in coming if not behind[leg.number] & still]
        needed: set[int] = set().union(*(behind[leg.number] for leg in there))
        away = [source for leg, source in leaving[:gone] if leg.number in needed]
        cores = sum(leg.cores for leg in there) - sum(source.cores for source in away)
        memory = sum(leg.memory for leg in there) - sum(source.memory for source in away)
        guests = sum(leg.guests for leg in there) - sum(source.guests for source in away)
        worst = Position(node, max(worst.cores, cores), max(worst.memory, memory), max(worst.guests, guests))
    return worst


class Relations:
    """Which guests a rule is about, taken from the rules themselves: those that select both are carried out one after
    the other, in the order of the plan.
    """

    def __init__(self, rules: Iterable[HARule]) -> None:
        self._rules = [rule.vmids for rule in rules if not rule.disabled]

    def concern(self, part: Part) -> bool:
        """Whether the part has rules, or an HA rule is about it."""
        request = part.request
        own = request.affinity or request.topology_spread or request.ha is not None
        return bool(own) or any(part.vmid in vmids for vmids in self._rules)

    def related(self, one: Part, other: Part) -> bool:
        if any(one.vmid in vmids and other.vmid in vmids for vmids in self._rules):
            return True
        if _joins(one.request) and _joins(one.request) == _joins(other.request):
            return True
        return any(_about(*pair) for pair in ((one, other), (other, one)))


def _joins(request: Request) -> str | None:
    return request.ha.joins if request.ha is not None else None


def _about(one: Part, other: Part) -> bool:
    """Whether a required rule of the one is about the other."""
    request = one.request
    if not request.affinity and not request.topology_spread:
        return False
    guest = as_guest(other)
    terms = [term.selector for term in request.affinity if term.required]
    terms += [constraint.selector for constraint in request.topology_spread if constraint.hard]
    return any(selects(selector, guest) for selector in terms)
