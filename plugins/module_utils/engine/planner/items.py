# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is placed as a whole: a guest, guests that must stay together, or new VMs that must be together."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...model import Disk, Guest, HAIntent, HARule, Request
from ...plans import LocalDisk, Mobility
from ..allocatable import Policy
from ..cache import NodeInfo
from ..ha_rules import kept_together
from ..node_selection import NODE_KEY
from ..selectors import selects, selects_request

IMMOVABLE = Mobility(stuck=("nothing is known of how it can be moved", "let it be moved by hand"))
"""Stands for the mobility of guests for which none is given."""


class Position(t.NamedTuple):
    """What an item takes on one node; an item whose guests are on several nodes has several."""

    node: int
    cores: float = 0.0
    memory: int = 0
    guests: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One guest or one new VM.

    Attributes:
        vmid: its VMID; the one that a new VM will get.
        request: what the filters are asked about.
        guest: as it is now; None for a new VM.
        cores, memory: what counts on its node.
    """

    vmid: int
    request: Request
    guest: Guest | None = None
    mobility: Mobility = IMMOVABLE
    cores: float = 0.0
    memory: int = 0

    @property
    def copied(self) -> list[LocalDisk]:
        """What a move copies, the disks of each storage as one: they all go to one storage, as Proxmox VE maps whole
        storages.
        """
        of: dict[str, list[LocalDisk]] = {}
        for disk in self.mobility.disks:
            of.setdefault(disk.storage, []).append(disk)
        return [replace(disks[0], size=sum(disk.size for disk in disks)) for disks in of.values()]

    def request_on(self, info: NodeInfo) -> Request:
        """What the filters are asked about on one node: disks that are copied keep their storage where there is one of
        that name, if it can be chosen at all.
        """
        copied = self.copied if self.guest is not None else ()
        if not copied:
            return self.request
        free = self.mobility.map_storages and any(disk.storage not in info.storages for disk in copied)
        disks = (Disk(d.slot, d.size, None if free else d.storage, content=d.content) for d in copied)
        return with_disks(self.request, disks)


@dataclass(slots=True, eq=False)
class Item:
    """What goes to one node as a whole.

    Attributes:
        index: its number; items are compared by it.
        weight: how many guests move when it does; 0 for new VMs.
        cost: bytes that its move sends.
        movable: whether it can be moved at all.
        homes: the nodes, by index, where its guests are at the start.
        free: whether its move costs nothing and can be put off: it is new, or nothing else may come to its homes.
        share: its part of a mean node: the larger of those of CPU and memory.
        not_to: nodes that it must not go to, by name: why.
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
    not_to: Mapping[str, str] = field(default_factory=dict)

    @property
    def new(self) -> bool:
        return not self.homes

    @property
    def extra(self) -> int:
        """How many guests its move costs beyond those that have to move anyway."""
        return 0 if self.free else self.weight

    @property
    def priority(self) -> int:
        """The highest of its new VMs; 0 for guests."""
        return max(part.request.priority for part in self.parts)

    @property
    def plain(self) -> bool:
        """Whether no rule of its own makes a difference between it and another item of its size."""
        request = self.parts[0].request
        return len(self.parts) == 1 and not (
            request.affinity or request.topology_spread or request.ha or request.node_required or self.not_to
        )

    @property
    def label(self) -> str:
        """What users call it."""
        return ", ".join((part.guest or part.request).name or str(part.vmid) for part in self.parts)


def guest_part(guest: Guest, mobility: Mobility, policy: Policy, rules: Iterable[HARule]) -> Part:
    """What of a guest the filters look at and what of it counts: nothing of one that is off, unless such count too.

    Rules between guests are not about templates: the filters see neither the name, the tags and the pool of one, nor
    its rules about others.
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
    )
    return Part(guest.vmid, request, guest, mobility, cores, memory)


def with_disks(request: Request, disks: Iterable[Disk]) -> Request:
    """The request with these disks; faster than dataclasses.replace, which checks every field."""
    copy = object.__new__(Request)
    for name in Request.__slots__:
        object.__setattr__(copy, name, getattr(request, name))
    object.__setattr__(copy, "disks", tuple(disks))
    return copy


def as_guest(part: Part) -> Guest:
    """The part as a selector sees it."""
    if part.guest is not None:
        return part.guest
    request = part.request
    return Guest(part.vmid, request.name, "", tags=request.tags, pool=request.pool, constraints=request.constraints)


# --- what must stay together ------------------------------------------------------------------------------------------


def guests_together(
    guests: Mapping[int, Guest], mobility: Mapping[int, Mobility], rules: Sequence[HARule]
) -> list[tuple[int, ...]]:
    """The VMIDs of the guests that move as one: those that the HA manager takes along, and those on one node that must
    be together there. A guest that moves alone is in none.
    """
    links: list[set[int]] = [{vmid, *each.together} & guests.keys() for vmid, each in mobility.items() if each.together]
    for rule in rules:
        for vmid in rule.vmids:
            links.append(set(kept_together(rules, vmid)) & guests.keys())
    for guest in guests.values():
        for term in guest.constraints.affinity:
            if term.required and term.together and term.topology_key == NODE_KEY:
                near = {o.vmid for o in guests.values() if o.node == guest.node and selects(term.selector, o)}
                links.append({guest.vmid, *near})
    return _joined(links)


def requests_together(requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """The positions of the new VMs that must be on one node."""
    links: list[set[int]] = []
    for position, request in enumerate(requests):
        for term in request.affinity:
            if term.required and term.together and term.topology_key == NODE_KEY:
                near = {other for other, each in enumerate(requests) if selects_request(term.selector, each)}
                links.append({position, *near})
    return _joined(links)


def _joined(links: Iterable[set[int]]) -> list[tuple[int, ...]]:
    """Sets that have a member in common become one; those of a single member are left out."""
    group_of: dict[int, set[int]] = {}
    for link in links:
        whole = set(link).union(*(group_of.get(member, ()) for member in link))
        for member in whole:
            group_of[member] = whole
    found = {id(group): group for group in group_of.values() if len(group) > 1}
    return sorted(tuple(sorted(group)) for group in found.values())
