# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law about amounts: no more of a node, a storage or a device may be taken than there is."""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from ...model import Request, StorageClass
from .state import Overcommit, State, drives


class Claim(t.NamedTuple):
    """The amount that a decision takes of something, and the amount that it found free for itself and those
    before it.
    """

    of: str
    room: float
    size: float


def overfull(state: State) -> Iterator[str]:
    """Everything of which more is taken than there is."""
    claims: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for claim in (*_compute(state), *_guests(state), *_space(state), *_devices(state)):
        claims[claim.of].append((claim.room, claim.size))
    yield from (f"{of}: more is taken than there is room for" for of, taken in claims.items() if _exceeded(taken))


def _exceeded(claims: Iterable[tuple[float, float]]) -> bool:
    """Whether, in every order of the claims, some claim exceeds its room: those with the least room cannot have come
    earlier.
    """
    total = 0.0
    for room, size in sorted(claims):
        total += size
        if total > room:
            return True
    return False


def _room(limit: float, taken: float) -> float:
    """What is left of a limit, with a tolerance for rounding."""
    return limit + 1e-9 * abs(limit) - taken


def _compute(state: State) -> Iterator[Claim]:
    nodes = {node.name: node for node in state.snapshot.nodes}
    sums: Counter[tuple[str, bool, str]] = Counter()
    for guest in state.snapshot.guests:
        if not guest.template:
            for stopped_too in (True, False) if guest.running else (True,):
                sums[guest.node, stopped_too, "vCPUs"] += t.cast("int", guest.cores)
                sums[guest.node, stopped_too, "memory"] += guest.memory
    for decision, in_force in state.decided:
        request, node = decision.request, nodes.get(decision.node)
        if node is None:
            continue
        for rule, what, size, wanted, limit, own_reserve, own_ratio in (
            ("CPUOvercommit", "vCPUs", node.cores, request.cores, in_force.cpu, node.reserved_cores, node.cpu_ratio),
            ("MemoryOvercommit", "memory", node.memory, request.memory, in_force.memory, node.reserved_memory,
             node.memory_ratio),
        ):  # fmt: skip
            if rule in in_force.rules:
                left = size - (limit.reserved if own_reserve is None else own_reserve)
                ratio = _ratio(limit, request) if own_ratio is None else own_ratio
                taken = sums[node.name, limit.include_stopped, what]
                yield Claim(f"{what} of {node.name}", _room(ratio * max(left, 0.0), taken), wanted)


def _ratio(limit: Overcommit, request: Request) -> float:
    if request.pool in limit.pools:
        return limit.pools[t.cast("str", request.pool)]
    return min((limit.tags[tag] for tag in request.tags if tag in limit.tags), default=limit.ratio)


def _guests(state: State) -> Iterator[Claim]:
    there = [guest for guest in state.snapshot.guests if not guest.template]
    held = Counter(guest.node for guest in there)
    tagged = Counter((guest.node, tag) for guest in there for tag in guest.tags)
    for decision, in_force in state.under("GuestLimit"):
        node = decision.node
        if in_force.max_guests is not None:
            yield Claim(f"guests of {node}", in_force.max_guests - held[node], 1)
        for tag in decision.request.tags & in_force.max_tagged.keys():
            yield Claim(f"guests of {node} with tag {tag}", in_force.max_tagged[tag] - tagged[node, tag], 1)


def _space(state: State) -> Iterator[Claim]:
    place = {(row.name, row.node): (row.name, "" if row.shared else row.node) for row in state.snapshot.storages}
    total: Counter[tuple[str, str]] = Counter()
    used: Counter[tuple[str, str]] = Counter()
    for row in state.snapshot.storages:
        key = place[row.name, row.node]
        total[key], used[key] = max(total[key], row.total), max(used[key], row.used)
    for guest in state.snapshot.guests:
        for at, size in guest.storage_pending.items():
            if at in place:
                used[place[at]] += size
    for decision, in_force in state.under("VolumeBinding"):
        for drive in drives(decision, state.snapshot.volumes):
            found = place.get((decision.storages.get(drive.slot, ""), decision.node))
            if found is not None and drive.size:
                wanted = in_force.storage_classes.get(drive.storage_class or "", StorageClass(""))
                reserved = wanted.reserved * total[found] if wanted.reserved < 1 else wanted.reserved
                limit = total[found] * wanted.overcommit - reserved
                where = f" on {found[1]}" if found[1] else ""
                yield Claim(f"storage {found[0]}{where}", _room(limit, used[found]), drive.size)


def _devices(state: State) -> Iterator[Claim]:
    rows = {(each.node, each.driver, each.mapping, each.id): each for each in state.snapshot.devices}
    booked = Counter((guest.node, *device) for guest in state.snapshot.guests for device in guest.devices)
    for decision, _in_force in state.under("DeviceClaims"):
        for got in decision.devices:
            row = rows.get((decision.node, got.driver, got.mapping, got.device))
            if row is not None:
                left = row.capacity - row.in_use - booked[decision.node, got.driver, got.device]
                yield Claim(f"device {got.driver}/{got.device} of {decision.node}", left, 1)
