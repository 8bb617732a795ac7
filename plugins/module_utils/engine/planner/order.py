# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a plan: which step waits for which, and how full each node gets meanwhile.

A step that needs room which another step frees waits for that step. Every byte is assigned once: first what is free at
the start, then what the steps free, in their order. So the steps may run in any order and any number at a time, as long
as each waits for the steps that gave it room. A guest that is being moved counts on both nodes, and no node is ever
overfull.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...model import Request
from ..selectors import selects
from .items import Part, Position, as_guest


@dataclass(slots=True)
class Leg:
    """One step of a plan: parts that go to one node at the same time. New VMs have no source.

    Attributes:
        number: its position in the plan.
        cores, memory, guests: what the target gains.
        sources: what each source node loses.
        room: the CPU and memory that the target may allocate with this leg on it.
        after: the numbers of the legs that must end before it starts.
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
    """CPU and memory that a leg frees on a node and no later leg has taken yet."""

    number: int
    amounts: list[float]


def put_in_order(legs: Sequence[Leg], start: Sequence[tuple[float, float]], relations: Relations) -> None:
    """Set the after of each leg. The legs must be in an order in which they can run one by one.

    start is the CPU and memory allocated on each node at the start. Steps that a rule relates keep their order.
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
            if any(relations.are_related(one, two) for one in leg.parts for two in other.parts):
                leg.after.add(other.number)
        if concerned:
            ruled.append(leg)


def _take_freed(leg: Leg, resource: int, taken: list[float], freed: Sequence[_Freed]) -> None:
    """Cover what the leg needs beyond the free room with what earlier legs free; the leg waits for those."""
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
    """Remove from each after what the rest of it implies."""
    before: list[set[int]] = []
    for leg in legs:
        implied: set[int] = set().union(*(before[number] for number in leg.after))
        before.append(implied | leg.after)
        leg.after -= implied


def ancestors(legs: Sequence[Leg]) -> list[set[int]]:
    """Return for each leg the numbers of all legs that have ended when it starts."""
    behind: list[set[int]] = []
    for leg in legs:
        behind.append(leg.after.union(*(behind[number] for number in leg.after)))
    return behind


def peaks(legs: Sequence[Leg], node: int) -> Position:
    """Return the highest CPU, memory and number of guests on a node, relative to the start, over all allowed orders.

    A maximum is reached when everything has arrived that may arrive before the first, the second, ... departure ends.
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


@dataclass(frozen=True, slots=True)
class Relations:
    """Tells which parts a rule relates. Steps of related parts run one after the other, in the order of the plan.

    rules are the members of the HA rules that are in force, by VMID.
    """

    rules: Sequence[frozenset[int]]

    def concern(self, part: Part) -> bool:
        """Whether the part has rules of its own or an HA rule names it."""
        request = part.request
        own = request.affinity or request.topology_spread or request.ha is not None
        return bool(own) or any(part.vmid in vmids for vmids in self.rules)

    def are_related(self, one: Part, other: Part) -> bool:
        if any(one.vmid in vmids and other.vmid in vmids for vmids in self.rules):
            return True
        if _joins(one.request) and _joins(one.request) == _joins(other.request):
            return True
        return any(_selects(*pair) for pair in ((one, other), (other, one)))


def _joins(request: Request) -> str | None:
    return request.ha.joins if request.ha is not None else None


def _selects(one: Part, other: Part) -> bool:
    """Whether a required rule of one part selects the other."""
    request = one.request
    if not request.affinity and not request.topology_spread:
        return False
    guest = as_guest(other)
    terms = [term.selector for term in request.affinity if term.required]
    terms += [constraint.selector for constraint in request.topology_spread if constraint.hard]
    return any(selects(selector, guest) for selector in terms)
