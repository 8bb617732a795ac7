# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""N+1: checks whether the guests of any single lost node would fit on the other nodes.

The lost node's running guests are placed on the remaining nodes one by one, largest first, each on the node on which it
leaves the least memory. A plan that this finds is valid; that it finds none does not quite prove that there is none.
CPU, memory, taints and those rules count that bind guests to nodes or keep them apart on nodes: HA rules, the rules of
tags and those that a task lists. Other rules, local disks and devices do not.
"""

from __future__ import annotations

import bisect
import math
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ..model import Guest, HARule, Selector
from .allocatable import Limit
from .cache import ClusterState, NodeInfo
from .guest_index import repelling_terms
from .ha_rules import NODES, RESOURCES
from .node_selection import HARD, NODE_KEY, matches_all, untolerated_taints


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node may allocate after a loss; None: any amount."""

    cpu: Limit | None
    memory: Limit | None

    def room(self, info: NodeInfo) -> Room:
        """Return what a node has left to allocate; negative if too much is allocated."""
        host = info.node
        return Room(
            math.inf if self.memory is None else self.memory.allocatable(host) - info.memory,
            math.inf if self.cpu is None else self.cpu.allocatable(host) - info.cores,
        )


class Room(t.NamedTuple):
    """Memory (bytes) and vCPUs: what a node has left, or what a guest takes."""

    memory: float
    cores: float

    def holds(self, load: Room) -> bool:
        return self.memory >= load.memory and self.cores >= load.cores

    def less(self, load: Room) -> Room:
        return Room(self.memory - load.memory, self.cores - load.cores)


class GuestSize(t.NamedTuple):
    """One guest that has to be placed; label is its name in messages."""

    size: Room
    label: str


class Stranding(t.NamedTuple):
    """The loss of node lost would leave the guest without a place."""

    lost: str
    guest: GuestSize


class Loads(t.NamedTuple):
    """Guests of one size, which are placed one after the other, on any node or within some, by index: those of the
    snapshot, or what messages call them.
    """

    size: Room
    guests: Sequence[Guest | str]
    within: frozenset[int] | None = None


class Evacuation(t.NamedTuple):
    """A placement of the guests of a lost node on the other nodes.

    Attributes:
        rest: what the nodes that take some of them have left afterwards, by index.
        reach: the node with the most memory left that takes one, as in the order of nodes. Changes of nodes beyond it
            do not affect the plan.
    """

    rest: Mapping[int, Room]
    reach: tuple[float, int]


class Headroom:
    """The plans for a cluster. After a change, only the plans that it may affect are made again.

    A new VM on a node needs no new plan as long as every plan leaves that node enough for it. Only the losses whose
    plans do not are planned again with the VM.
    """

    def __init__(self, cluster: ClusterState, limits: Limits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._seen = -1
        self._room: dict[int, Room] = {}
        self._order: list[tuple[float, int]] = []
        self._loads: dict[int, list[Loads]] = {}
        self._plans: dict[int, Evacuation | Stranding] = {}
        self._users: dict[int, set[int]] = {}
        self._least: dict[int, Room] = {}
        self._stranded: set[int] = set()
        self._suspect = -1
        self._answers: dict[tuple[int, Room], Stranding | None] = {}
        self._bonds = _Bonds(cluster)

    def find_stranding(self, node: NodeInfo, new: GuestSize) -> Stranding | None:
        """Return a loss that could not be absorbed if the new VM ran on node; None if all could."""
        self._catch_up()
        if self._stranded or node.index not in self._room:
            first = self._plans[min(self._stranded)] if self._stranded else None
            return first if isinstance(first, Stranding) else None
        key = node.index, new.size
        if key not in self._answers:
            self._answers[key] = self._compute_stranding(node, new)
        return self._answers[key]

    def _compute_stranding(self, node: NodeInfo, new: GuestSize) -> Stranding | None:
        """Return the loss that could not be absorbed if the new VM ran on the node; None if all could."""
        found: Evacuation | Stranding | None = None
        if not self._has_room_elsewhere(node.index, new):
            found = self._absorb(node.index, _with(self._loads[node.index], new))
        if isinstance(found, Stranding) or self._least[node.index].holds(new.size):
            return found if isinstance(found, Stranding) else None
        # A loss that a VM on one node makes impossible is probably also impossible with the VM on another node.
        for lost in sorted(self._plans, key=lambda lost: lost != self._suspect):
            if lost != node.index and not self._remaining_room(lost, node.index).holds(new.size):
                found = self._absorb(lost, self._loads[lost], node.index, new.size)
                if isinstance(found, Stranding):
                    self._suspect = lost
                    return found
        return None

    def _remaining_room(self, lost: int, index: int) -> Room:
        """Return what a node has left after the guests of the lost node were placed."""
        plan = self._plans[lost]
        return plan.rest.get(index, self._room[index]) if isinstance(plan, Evacuation) else self._room[index]

    def _has_room_elsewhere(self, lost: int, new: GuestSize) -> bool:
        """Whether, after the guests of the lost node were placed, another node still has room for the new VM."""
        return any(
            self._remaining_room(lost, index).holds(new.size)
            for _memory, index in reversed(self._order)
            if index != lost
        )

    # --- keeping up ---

    def _catch_up(self) -> None:
        """Plan those losses again that the changes of the cluster concern."""
        changes = self._cluster.changed
        if self._seen == len(changes):
            return
        nodes = self._cluster.nodes if self._seen < 0 else changes[self._seen :]
        changed = {info.index: info for info in (*nodes, *self._bonds.hosts_of_concerned()) if info.node.online}
        self._seen = len(changes)
        self._suspect = -1
        self._answers = {}
        moved = [self._count(info) for info in changed.values()]
        due = {
            lost
            for lost, plan in self._plans.items()
            if isinstance(plan, Stranding) or any(index in plan.rest or key < plan.reach for index, key in moved)
        }
        touched = set(changed)
        for lost in sorted(due | changed.keys()):
            touched |= self._plan(lost)
        for index in touched & self._room.keys():
            rests = [self._remaining_room(lost, index) for lost in self._users[index]]
            self._least[index] = Room(
                min((rest.memory for rest in rests), default=self._room[index].memory),
                min((rest.cores for rest in rests), default=self._room[index].cores),
            )

    def _count(self, info: NodeInfo) -> tuple[int, tuple[float, int]]:
        """Count what a node has left and which guests run there; return its index and its place in the order."""
        index, room = info.index, self._limits.room(info)
        self._loads[index] = _loads(info, self._bonds)
        if not info.node.is_open:
            return index, (math.inf, len(self._cluster.nodes))
        if index in self._room:
            del self._order[bisect.bisect_left(self._order, (self._room[index].memory, index))]
        self._room[index] = room
        self._users.setdefault(index, set())
        bisect.insort(self._order, (room.memory, index))
        return index, (room.memory, index)

    def _plan(self, lost: int) -> set[int]:
        """Plan again for the loss of a node; return the nodes that took its guests before or take them now."""
        before = self._plans.get(lost)
        after = self._plans[lost] = self._absorb(lost, self._loads[lost])
        old = set(before.rest) if isinstance(before, Evacuation) else set[int]()
        new = set(after.rest) if isinstance(after, Evacuation) else set[int]()
        for index in old - new:
            self._users[index].discard(lost)
        for index in new - old:
            self._users[index].add(lost)
        (self._stranded.add if isinstance(after, Stranding) else self._stranded.discard)(lost)
        return old | new

    # --- finding a way out ---

    def _absorb(
        self, lost: int, loads: Iterable[Loads], taken_on: int | None = None, taken: Room | None = None
    ) -> Evacuation | Stranding:
        """Place loads, in their order, on all nodes but the lost one; on node taken_on as much as taken is gone."""
        rest: dict[int, Room] = {}
        filled: list[tuple[float, int]] = []
        reach = (-math.inf, -1)
        if taken_on is not None and taken is not None:
            rest[taken_on] = self._room[taken_on].less(taken)
            filled.append((rest[taken_on].memory, taken_on))
        for (needed_memory, needed_cores), guests, within in loads:
            left = len(guests)
            while left:
                place = self._tightest_node(lost, needed_memory, needed_cores, rest, filled, within)
                if place is None:
                    first = sorted(map(_label_of, guests))[-left]
                    size = GuestSize(Room(needed_memory, needed_cores), first)
                    return Stranding(self._cluster.nodes[lost].name, size)
                reach = max(reach, place)
                index = place[1]
                if index in rest:
                    filled.remove(place)
                memory, cores = rest.get(index) or self._room[index]
                # Having taken one, it is the tightest for the next of the same size as well, as long as that fits.
                while left and memory >= needed_memory and cores >= needed_cores:
                    memory, cores, left = memory - needed_memory, cores - needed_cores, left - 1
                rest[index] = Room(memory, cores)
                bisect.insort(filled, (memory, index))
        return Evacuation(rest, reach)

    def _tightest_node(
        self,
        lost: int,
        memory: float,
        cores: float,
        rest: Mapping[int, Room],
        filled: Sequence[tuple[float, int]],
        within: frozenset[int] | None,
    ) -> tuple[float, int] | None:
        """Return the node with the least memory left of those that have room for a load, of equal ones the first by
        name.
        """
        room, found = self._room, None
        for place in islice(self._order, bisect.bisect_left(self._order, (memory, -1)), None):
            if within is not None and place[1] not in within:
                continue
            if place[1] != lost and place[1] not in rest and room[place[1]].cores >= cores:
                found = place
                break
        for place in filled:
            if place[0] >= memory and rest[place[1]].cores >= cores and (within is None or place[1] in within):
                return place if found is None else min(place, found)
        return found


def has_plenty(cluster: ClusterState, limits: Limits) -> bool:
    """Whether there is so much room that plans are found without searching: for every loss, now and with any of the
    decided VMs missing.

    A guest finds no place only where every node has less left than its size. The nodes with enough CPU for all guests
    would then have given the rest to the guests before it. If these are too small for that, it does find a place.
    """
    bonds = _Bonds(cluster)
    online = [info for info in cluster.nodes if info.node.online]
    room = {info.index: limits.room(info) for info in online if info.node.is_open}
    for info in online:
        loads = _loads(info, bonds)
        cores = sum(load.size.cores * len(load.guests) for load in loads)
        free = {index: left.memory for index, left in room.items() if index != info.index and left.cores >= cores}
        placed = 0.0
        for (memory, _cores), guests, within in loads:
            placed += memory * len(guests)
            left = sum(max(free[index] - memory, 0.0) for index in (free if within is None else free.keys() & within))
            if left <= placed - memory:
                return False
    return True


def label(name: str | None, vmid: int | None) -> str:
    """Return what messages call a guest."""
    return f"VM {name} ({vmid})" if name else f"VM {vmid}"


def _label_of(guest: Guest | str) -> str:
    return guest if isinstance(guest, str) else label(guest.name, guest.vmid)


class _Bonds:
    """What rules and taints leave of the nodes for guests of a lost node. The rules are those of the guests that the
    cluster showed, not of new ones.
    """

    def __init__(self, cluster: ClusterState) -> None:
        rules = [rule for rule in cluster.snapshot.ha_rules if not rule.disabled]
        self._cluster = cluster
        self._everywhere = frozenset(info.index for info in cluster.nodes)
        self._within = self._bound(rules)
        self._apart = self._vmids_apart(rules)
        self._where = {vmid: self._host(vmid) for vmid in self._apart}

    def _bound(self, rules: Iterable[HARule]) -> dict[int, frozenset[int]]:
        """Return the nodes, by index, within which guests stay, by VMID."""
        nodes, found = self._cluster.nodes, dict[int, frozenset[int]]()
        known: dict[tuple[t.Any, ...], frozenset[int]] = {}
        for guest in self._cluster.snapshot.guests:
            given = guest.constraints
            key = given.node_required, given.tolerations
            if key not in known:
                known[key] = frozenset(
                    info.index
                    for info in nodes
                    if matches_all(given.node_required, info.node)
                    and not any(untolerated_taints(given.tolerations, info.node, HARD))
                )
            if len(known[key]) < len(nodes):
                found[guest.vmid] = known[key]
        for rule in rules:
            wanted = frozenset(info.index for info in nodes if rule.wants(info.name))
            for vmid in rule.vmids if rule.type == NODES and rule.strict else ():
                found[vmid] = found.get(vmid, self._everywhere) & wanted
        return found

    def _vmids_apart(self, rules: Iterable[HARule]) -> dict[int, frozenset[int]]:
        """Return the VMIDs that guests must be apart from, by VMID."""
        found: dict[int, frozenset[int]] = {}
        for rule in rules:
            for vmid in rule.vmids if rule.type == RESOURCES and not rule.positive else ():
                found[vmid] = found.get(vmid, frozenset()) | rule.vmids - {vmid}
        selected: dict[Selector, frozenset[int]] = {}
        for guest in self._cluster.snapshot.guests:
            for term in repelling_terms(guest.constraints.affinity):
                if term.topology_key != NODE_KEY:
                    continue
                if term.selector not in selected:
                    by_node = self._cluster.select(term.selector).values()
                    selected[term.selector] = frozenset(vmid for guests in by_node for vmid in guests)
                for one in selected[term.selector] - {guest.vmid}:
                    found[one] = found.get(one, frozenset()) | {guest.vmid}
                    found[guest.vmid] = found.get(guest.vmid, frozenset()) | {one}
        return found

    def hosts_of_concerned(self) -> list[NodeInfo]:
        """Return the nodes of guests that must be apart from one that is on another node than at the last call."""
        now = {vmid: self._host(vmid) for vmid in self._apart}
        moved = [vmid for vmid, host in now.items() if host is not self._where[vmid]]
        self._where = now
        concerned = {other for vmid in moved for other in self._apart[vmid]}
        return [host for vmid in concerned if (host := self._host(vmid)) is not None]

    def homes_for(self, vmid: int, home: int) -> frozenset[int] | None:
        """Return the nodes, by index, that may take a guest when its node home is lost; None for all. What leaves a
        guest no other node does not count: no room would help it.
        """
        within = self._within.get(vmid)
        if within is not None and not within - {home}:
            within = None
        if vmid not in self._apart:
            return within
        hosts = (self._host(other) for other in self._apart[vmid])
        left = (self._everywhere if within is None else within) - {info.index for info in hosts if info is not None}
        return left if left - {home} else within

    def _host(self, vmid: int) -> NodeInfo | None:
        guest = self._cluster.guests.get(vmid)
        return None if guest is None else self._cluster.by_name.get(guest.node)


def _loads(info: NodeInfo, bonds: _Bonds) -> list[Loads]:
    """Return the guests that have to be placed when the node is lost, largest first; of equal ones, those with the
    fewest nodes to choose from.
    """
    running = [guest for guest in info.guests if guest.running and not guest.template]
    sizes: dict[tuple[float, float, frozenset[int] | None], list[Guest | str]] = {}
    for guest in running:
        within = bonds.homes_for(guest.vmid, info.index)
        sizes.setdefault((guest.memory, guest.cores, within), []).append(guest)
    return _largest_first(
        Loads(Room(memory, cores), guests, within) for (memory, cores, within), guests in sizes.items()
    )


def _with(loads: Iterable[Loads], new: GuestSize) -> list[Loads]:
    """Add one guest, as the last of its size."""
    return _largest_first([*loads, Loads(new.size, [new.label])])


def _largest_first(loads: Iterable[Loads]) -> list[Loads]:
    def key(load: Loads) -> tuple[float, float, float]:
        return (-load.size.memory, -load.size.cores, math.inf if load.within is None else len(load.within))

    return sorted(loads, key=key)
