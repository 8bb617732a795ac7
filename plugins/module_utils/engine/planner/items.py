# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Items: what the planner places as one. An item is a guest, guests that must stay together, or new VMs that must."""

from __future__ import annotations

import difflib
import functools
import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...model import Disk, Guest, HAIntent, HARule, Request, StorageClass
from ...plans import LocalDisk, Mobility
from ..allocatable import Policy
from ..cache import NodeInfo
from ..ha_rules import companions_of
from ..node_selection import NODE_KEY
from ..selectors import selects, selects_request
from ..volumes import room

IMMOVABLE = Mobility(stuck=("nothing is known of how it can be moved", "let it be moved by hand"))
"""The mobility of guests for which the caller gives none."""


ANY = StorageClass("")


class Position(t.NamedTuple):
    """The resources of an item on one node. An item whose guests are on several nodes has several positions."""

    node: int
    cores: float = 0.0
    memory: int = 0
    guests: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One guest or one new VM.

    Attributes:
        vmid: its VMID; the one that a new VM will get.
        request: what the filters check.
        guest: its present state; None for a new VM.
        cores, memory: what it allocates on its node.
    """

    vmid: int
    request: Request
    guest: Guest | None = None
    mobility: Mobility = IMMOVABLE
    cores: float = 0.0
    memory: int = 0

    @property
    def copied(self) -> list[LocalDisk]:
        """The volumes that a move copies, one per source storage: Proxmox VE maps whole storages, not single disks."""
        of: dict[str, list[LocalDisk]] = {}
        for disk in self.mobility.disks:
            of.setdefault(disk.storage, []).append(disk)
        return [
            replace(max(disks, key=lambda disk: disk.size), size=sum(disk.size for disk in disks))
            for disks in of.values()
        ]

    def request_on(self, info: NodeInfo) -> Request:
        """Return the request that the filters check on one node.

        Disks that are copied keep their storage if the node has one of that name with room; otherwise another one is
        chosen, if the choice is possible at all.
        """
        copied = self.copied if self.guest is not None else ()
        if not copied:
            return self.request
        if info.name in self.mobility.replicated_to:
            # The node has the disks already, on storages of the same names.
            return with_disks(self.request, (Disk(d.slot, 0, d.storage, content=d.content) for d in copied))
        chosen = _storages_on(info, copied) if self.mobility.map_storages else {}
        disks = (Disk(d.slot, d.size, chosen.get(d.storage, d.storage), content=d.content) for d in copied)
        return with_disks(self.request, disks)

    def bytes_to(self, node: str) -> int:
        """Return the bytes of disks that a move to the node sends, as far as that is known before."""
        return 0 if node in self.mobility.replicated_to else sum(disk.size for disk in self.mobility.disks)


def _storages_on(info: NodeInfo, copied: Sequence[LocalDisk]) -> dict[str, str | None]:
    """Return the storage on a node for the disks of each present one: the one that the largest of them has left there,
    or that of the same name if it has room, else the one with the most similar name that has room and takes no other
    disks; None if any storage may be tried.

    Pairs of names are compared, whichever way a disk goes: so the disks of two storages stay apart, and come back to
    the storages that they left.
    """
    found: dict[str, str | None] = {}
    taken: Counter[str] = Counter()

    pairs = [(disk, name) for disk in copied for name in info.storages]
    pairs.sort(key=lambda pair: (pair[0].home != (info.name, pair[1]), _unlikeness(pair[0].storage, pair[1])))
    for alone in (True, False):
        for disk, name in pairs:
            storage = info.storages[name]
            if disk.storage in found or (alone and name in taken) or disk.content not in storage.content:
                continue
            if storage.active and room(storage, ANY, taken[name]) >= disk.size:
                found[disk.storage] = name
                taken[name] += disk.size
    missing = (disk.storage for disk in copied if disk.storage not in found)
    return found | {storage: storage if storage in info.storages else None for storage in missing}


@functools.cache
def _unlikeness(one: str, other: str) -> tuple[float, str, str]:
    """Return what orders pairs of names, the most similar ones first; the same for both orders of a pair."""
    first, second = sorted((one, other))
    return -difflib.SequenceMatcher(None, first, second).ratio(), first, second


@dataclass(slots=True, eq=False)
class Item:
    """A unit that goes to one node.

    Attributes:
        index: its number; items are compared by it.
        weight: the number of guests that move with it; 0 for new VMs.
        cost: the bytes that its move sends.
        movable: whether it can move at all.
        homes: the indexes of the nodes where its guests are at the start.
        free: whether its move adds no cost: it is new, or it must leave a closed node anyway.
        share: its dominant share of an average node.
        priority: the highest priority of its new VMs; 0 for guests.
        not_to: the names of nodes that it must not use, each with the reason.
        prefers: the names of nodes that it goes to first.
    """

    index: int
    parts: tuple[Part, ...]
    cores: float
    memory: int
    weight: int = 0
    cost: int = 0
    movable: bool = True
    homes: frozenset[int] = frozenset()
    free: bool = True
    share: float = 0.0
    priority: int = 0
    not_to: Mapping[str, str] = field(default_factory=dict)
    prefers: frozenset[str] = frozenset()

    @property
    def new(self) -> bool:
        return not self.homes

    @property
    def extra(self) -> int:
        """The number of moved guests that it adds to those that must move anyway."""
        return 0 if self.free else self.weight

    @property
    def plain(self) -> bool:
        """Whether no rule of its own distinguishes it from another item of its size."""
        request = self.parts[0].request
        return len(self.parts) == 1 and not (
            request.affinity
            or request.topology_spread
            or request.ha
            or request.node_required
            or request.devices
            or self.not_to
        )

    @property
    def label(self) -> str:
        """The names of its guests, for messages."""
        return ", ".join((part.guest or part.request).name or str(part.vmid) for part in self.parts)


def guest_part(guest: Guest, mobility: Mobility, policy: Policy, rules: Iterable[HARule]) -> Part:
    """Return a guest as a part: the request that the filters check, and what it allocates.

    A stopped guest allocates nothing unless the policy includes stopped guests. Rules do not apply to templates: the
    filters see neither the name, tags and pool of a template nor its own rules.
    """
    there = not guest.template
    cores = guest.cores if there and (guest.running or policy.cpu.include_stopped) else 0.0
    memory = guest.memory if there and (guest.running or policy.memory.include_stopped) else 0
    given = guest.constraints
    ruled = any(guest.vmid in rule.vmids for rule in rules)
    request = Request(
        (guest.name or "") if there else "",
        cores=cores,
        cores_max=guest.cores,
        memory=memory,
        vmid=guest.vmid,
        tags=guest.tags if there else frozenset(),
        pool=guest.pool if there else None,
        running=guest.running,
        affinity=given.affinity if there else (),
        topology_spread=given.topology_spread if there else (),
        node_required=given.node_required,
        node_preferred=given.node_preferred,
        tolerations=given.tolerations,
        ha=(given.ha or (HAIntent() if ruled else None)) if there else None,
        gang=given.gang,
        bridges=guest.demands.bridges,
        cpu_type=guest.demands.cpu_type,
        cpu_flags=guest.demands.cpu_flags,
        devices=guest.demands.devices,
        named=guest.demands.named,
        demand=guest.demand,
        existing=True,
    )
    return Part(guest.vmid, request, guest, mobility, cores, memory)


def with_disks(request: Request, disks: Iterable[Disk]) -> Request:
    """Return the request with these disks. This is faster than dataclasses.replace, which checks every field."""
    copy = object.__new__(Request)
    for name in Request.__slots__:
        object.__setattr__(copy, name, getattr(request, name))
    object.__setattr__(copy, "disks", tuple(disks))
    return copy


def as_guest(part: Part) -> Guest:
    """Return the part as a guest that selectors can match."""
    if part.guest is not None:
        return part.guest
    request = part.request
    return Guest(part.vmid, request.name, "", tags=request.tags, pool=request.pool, constraints=request.constraints)


# --- what must stay together ------------------------------------------------------------------------------------------


def guests_together(
    guests: Mapping[int, Guest], mobility: Mapping[int, Mobility], rules: Sequence[HARule]
) -> list[tuple[int, ...]]:
    """Return groups of VMIDs that move as one: guests that the HA manager moves along, and guests on one node that a
    rule keeps together. A guest that moves alone is in no group.
    """
    links: list[set[int]] = [{vmid, *each.together} & guests.keys() for vmid, each in mobility.items() if each.together]
    for rule in rules:
        for vmid in rule.vmids:
            links.append(set(companions_of(rules, vmid)) & guests.keys())
    for guest in guests.values():
        for term in guest.constraints.affinity:
            if term.required and term.together and term.topology_key == NODE_KEY:
                near = {o.vmid for o in guests.values() if o.node == guest.node and selects(term.selector, o)}
                links.append({guest.vmid, *near})
    return _join_sets(links)


def requests_together(requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """Return groups of positions of new VMs that must share a node."""
    links: list[set[int]] = []
    for position, request in enumerate(requests):
        for term in request.affinity:
            if term.required and term.together and term.topology_key == NODE_KEY:
                near = {other for other, each in enumerate(requests) if selects_request(term.selector, each)}
                links.append({position, *near})
    return _join_sets(links)


def _join_sets(links: Iterable[set[int]]) -> list[tuple[int, ...]]:
    """Merge sets that share a member, and drop sets with a single member."""
    group_of: dict[int, set[int]] = {}
    for link in links:
        whole = set(link).union(*(group_of.get(member, ()) for member in link))
        for member in whole:
            group_of[member] = whole
    found = {id(group): group for group in group_of.values() if len(group) > 1}
    return sorted(tuple(sorted(group)) for group in found.values())
