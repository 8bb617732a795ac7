# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests that need another node when theirs is lost, what they take, and where they may go."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


class Loads(t.NamedTuple):
    """Guests of one size, which are placed one after the other, on any node or within some, by index: those of the
    snapshot, or what messages call them.
    """

    size: Room
    guests: Sequence[Guest | str]
    within: frozenset[int] | None = None


def label(name: str | None, vmid: int | None) -> str:
    """Return what messages call a guest."""
    return f"VM {name} ({vmid})" if name else f"VM {vmid}"


def label_of(guest: Guest | str) -> str:
    """Return what messages call one of the guests of loads."""
    return guest if isinstance(guest, str) else label(guest.name, guest.vmid)


class Bonds:
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


def loads_of(info: NodeInfo, bonds: Bonds) -> list[Loads]:
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


def with_guest(loads: Iterable[Loads], new: GuestSize) -> list[Loads]:
    """Add one guest, as the last of its size."""
    return _largest_first([*loads, Loads(new.size, [new.label])])


def _largest_first(loads: Iterable[Loads]) -> list[Loads]:
    def key(load: Loads) -> tuple[float, float, float]:
        return (-load.size.memory, -load.size.cores, math.inf if load.within is None else len(load.within))

    return sorted(loads, key=key)
