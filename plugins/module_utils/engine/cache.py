# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster as the scheduler sees it: the snapshot plus the decisions since then.

The sums per node are updated with every change.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..model import Decision, Device, Guest, Node, Selector, Snapshot, Storage
from .devices.hardware import share_hardware
from .guest_index import GuestIndex, GuestsByNode, RepellingTerms, RuleIndex
from .vmids.choice import TakenVMIDs

T = t.TypeVar("T")

_DIGITS = 6
"""Containers may have fractions of a CPU. Without rounding, sums would depend on the order in which guests
are counted.
"""


@dataclass(slots=True, eq=False)
class Shelf:
    """Storages that are ranked together: the local ones of a node, or the shared ones of the cluster.

    changes counts the changes of what is pending on them. rankings caches those of volumes.suitable.
    """

    changes: int = 0
    rankings: dict[Hashable, t.Any] = field(default_factory=dict)


@dataclass(slots=True)
class StorageUse:
    """The space in bytes of one storage: one object for all nodes that see it if it is shared, else one per node.

    nodes are those that are online and have the storage active.
    """

    name: str
    shared: bool
    type: str
    total: int
    used: int
    shelf: Shelf
    pending: int = 0
    nodes: set[str] = field(default_factory=set)

    @property
    def free(self) -> int:
        """The space that neither volumes nor decided VMs take; negative if more is allocated than exists."""
        return self.total - self.used - self.pending


@dataclass(slots=True)
class NodeStorage:
    """One storage as one node sees it: one object for all nodes that see a shared one alike."""

    use: StorageUse
    active: bool
    content: frozenset[str]


@dataclass(slots=True)
class DeviceUse:
    """One passthrough device of one mapping, and how many decided VMs take it that the snapshot does not count yet.

    pending counts the VMs that hold it, blocked those that hold other devices of the same hardware.
    """

    device: Device
    pending: int = 0
    blocked: int = 0

    @property
    def left(self) -> int:
        """How many more VMs it can serve; negative if it is overbooked."""
        return self.device.capacity - self.device.in_use - self.pending

    def count(self, driver: str, device: str, sign: int) -> None:
        """Count a device of this node that a VM takes (sign 1) or releases (-1)."""
        if driver == self.device.driver and share_hardware(driver, device, self.device.id):
            if device == self.device.id:
                self.pending += sign
            else:
                self.blocked += sign


@dataclass(slots=True)
class NodeInfo:
    """One node with its guests and the sums over them. Templates are in guests but never counted.

    cores and memory (bytes) are sums over the guests that run or are decided; cores_all and memory_all over all guests.
    volumes are those that were looked for on the node: their bytes, or None if missing. suitable caches
    volumes.suitable.
    """

    node: Node
    index: int
    by_vmid: dict[int, Guest] = field(default_factory=dict)
    storages: dict[str, NodeStorage] = field(default_factory=dict)
    devices: list[DeviceUse] = field(default_factory=list)
    volumes: dict[str, int | None] = field(default_factory=dict)
    suitable: dict[Hashable, t.Any] = field(default_factory=dict)
    cores: float = 0
    memory: int = 0
    cores_all: float = 0
    memory_all: int = 0

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def guests(self) -> Collection[Guest]:
        """The VMs and containers of the node, with those that are decided for it."""
        return self.by_vmid.values()


COLUMNS_KEPT = 16
"""How many columns are kept, of VMs of different sizes that take turns."""


@dataclass(slots=True)
class Column:
    """What was derived from the sums of each node, and how many of the changes that has seen."""

    values: list[t.Any]
    seen: int


class AllNodes(list[NodeInfo]):
    """All nodes of a cluster.

    Attributes:
        derived: what was derived from their hosts, which never change.
        columns: what was derived from their sums, the oldest first.
        changed: the nodes that guests came to or left, in order; append-only.
    """

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        super().__init__(nodes)
        self.derived: dict[Hashable, t.Any] = {}
        self.columns: dict[Hashable, Column] = {}
        self.changed: list[NodeInfo] = []


def of_hosts(nodes: Sequence[NodeInfo], key: Hashable, find: Callable[[Sequence[Node]], T]) -> T:
    """What find derives from the hosts of nodes. For all nodes of a cluster together, it is found once per key."""
    if not isinstance(nodes, AllNodes):
        return find([info.node for info in nodes])
    if key not in nodes.derived:
        nodes.derived[key] = find([info.node for info in nodes])
    found: T = nodes.derived[key]
    return found


def of_sums(nodes: Sequence[NodeInfo], key: Hashable, find: Callable[[Sequence[NodeInfo]], list[T]]) -> list[T]:
    """What find derives from the hosts and the sums of nodes, one value for each. For all nodes of a cluster together,
    only the nodes that have changed are looked at again. The result must not be changed.
    """
    if not isinstance(nodes, AllNodes):
        return find(nodes)
    changes, column = len(nodes.changed), nodes.columns.get(key)
    if column is None:
        column = nodes.columns[key] = Column(find(nodes), changes)
        if len(nodes.columns) > COLUMNS_KEPT:
            del nodes.columns[next(iter(nodes.columns))]
    elif column.seen < changes:
        changed, column.seen = nodes.changed[column.seen :], changes
        if len(changed) < len(nodes):
            for info, value in zip(changed, find(changed), strict=True):
                column.values[info.index] = value
        else:
            column.values = find(nodes)
    return column.values


class ClusterState:
    """The snapshot with assumed decisions, like kube-scheduler's cache and its volume binder's AssumeCache.

    Attributes:
        nodes: all nodes, sorted by name; NodeInfo.index is the position.
        taken: every VMID that is taken or assumed.
        repelling: the known anti-affinity rules of guests.
        changed: those of nodes.
        ha_rules: the HA rules by their members, decided VMs included.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes = AllNodes(
            NodeInfo(node, index) for index, node in enumerate(sorted(snapshot.nodes, key=lambda node: node.name))
        )
        self.taken = TakenVMIDs(snapshot.vmids_unseen)
        self.repelling = RepellingTerms()
        self.changed = self.nodes.changed
        self.ha_rules = RuleIndex(snapshot.ha_rules)
        self._by_name = {info.name: info for info in self.nodes}
        self._guests: dict[int, Guest] = {}
        self._index = GuestIndex(self._guests)
        self._assumed: set[int] = set()
        self._derived: dict[Hashable, t.Any] = {}
        self._shared: dict[str, StorageUse] = {}
        self._place_storages(snapshot.storages)
        for device in snapshot.devices:
            if device.node in self._by_name:
                self._by_name[device.node].devices.append(DeviceUse(device))
        for (name, volume), size in snapshot.volumes.items():
            if name in self._by_name:
                self._by_name[name].volumes[volume] = size
        for guest in snapshot.guests:
            self._add(guest)

    # --- reading: the assumed view ---

    def node(self, name: str) -> NodeInfo | None:
        return self._by_name.get(name)

    def get(self, vmid: int) -> Guest | None:
        """Return the guest, assumed or as the API showed it."""
        return self._guests.get(vmid)

    def select(self, selector: Selector) -> GuestsByNode:
        """Return the guests that the selector selects, by the name of their node."""
        return self._index.select(selector)

    def __iter__(self) -> Iterator[Guest]:
        return iter(self._guests.values())

    def derive_once(self, key: Hashable, make: Callable[[ClusterState], T]) -> T:
        """What make derives from this cluster. make is called once per key; its result keeps itself up to date by what
        has changed.
        """
        if key not in self._derived:
            self._derived[key] = make(self)
        found: T = self._derived[key]
        return found

    # --- writing ---

    def assume(self, decision: Decision) -> Guest:
        """Count a decision as taken. The VMID must be free."""
        guest = assumed_guest(decision)
        self.assume_guest(guest)
        return guest

    def assume_guest(self, guest: Guest) -> None:
        """Count a guest that the cluster does not show yet: a decision of this run, or another process's
        reservation.
        """
        if guest.vmid in self._guests:
            raise ValueError(f"VMID {guest.vmid} is taken by {self._guests[guest.vmid].name!r}")
        self._assumed.add(guest.vmid)
        self._add(guest)

    def forget(self, vmid: int) -> None:
        """Remove an assumed guest. A guest that the API showed stays."""
        if vmid in self._assumed:
            self._assumed.discard(vmid)
            self._remove(vmid)

    def remove(self, vmid: int) -> None:
        """Stop counting a guest until restore adds it again."""
        self._assumed.discard(vmid)
        self._remove(vmid)

    def restore(self, guest: Guest) -> None:
        """Replace what is known of this VMID by a guest that the API shows."""
        self._assumed.discard(guest.vmid)
        if guest.vmid in self._guests:
            self._remove(guest.vmid)
        self._add(guest)

    # --- inside ---

    def _place_storages(self, storages: Iterable[Storage]) -> None:
        """Give each node its storages. A shared one is counted once, whatever node reports it."""
        shared, local = Shelf(), {name: Shelf() for name in self._by_name}
        alike: dict[tuple[str, bool, frozenset[str]], NodeStorage] = {}
        for storage in sorted(storages, key=lambda s: (s.name, s.node)):
            info = self._by_name.get(storage.node)
            if info is None:
                continue
            shelf = shared if storage.shared else local[storage.node]
            use = StorageUse(storage.name, storage.shared, storage.type, storage.total, storage.used, shelf)
            if storage.shared:
                use = self._shared.setdefault(storage.name, use)
                # An offline node reports a shared storage without figures: the largest report is the true one.
                use.total, use.used = max(use.total, storage.total), max(use.used, storage.used)
            if storage.active and info.node.online:
                use.nodes.add(storage.node)
            seen = NodeStorage(use, storage.active, storage.content)
            if storage.shared:
                seen = alike.setdefault((storage.name, storage.active, storage.content), seen)
            info.storages[storage.name] = seen

    def _add(self, guest: Guest) -> None:
        self._guests[guest.vmid] = guest
        self.taken.add(guest.vmid)
        self._count(guest, 1)

    def _remove(self, vmid: int) -> None:
        guest = self._guests.pop(vmid)
        if vmid not in self.snapshot.vmids_unseen:
            self.taken.remove(vmid)
        self._count(guest, -1)

    def _count(self, guest: Guest, sign: int) -> None:
        """Add what the guest takes to all sums (sign 1), or subtract it (sign -1)."""
        self._index.count(guest, sign)
        if guest.constraints.ha is not None:
            self.ha_rules.count(guest, sign)
        for (storage, node), size in guest.storage_pending.items():
            holder = self._by_name.get(node)
            if holder is not None and storage in holder.storages:
                use = holder.storages[storage].use
                use.pending += sign * size
                use.shelf.changes += 1
        info = self._by_name.get(guest.node)
        if info is None:
            return
        if sign > 0:
            info.by_vmid[guest.vmid] = guest
        else:
            del info.by_vmid[guest.vmid]
        if not guest.template:
            info.cores_all = round(info.cores_all + sign * guest.cores, _DIGITS)
            info.memory_all += sign * guest.memory
            if guest.running:
                info.cores = round(info.cores + sign * guest.cores, _DIGITS)
                info.memory += sign * guest.memory
        if guest.constraints.affinity:
            self.repelling.count(guest, sign)
        for driver, device in guest.devices:
            for held in info.devices:
                held.count(driver, device, sign)
        self.changed.append(info)


def assumed_guest(decision: Decision) -> Guest:
    """Return the guest that a decision will become."""
    request = decision.request
    return Guest(
        vmid=decision.vmid,
        name=request.name,
        node=decision.node,
        status="assumed",
        cores=request.cores,
        memory=request.memory,
        tags=request.tags,
        pool=request.pool,
        constraints=request.constraints,
        demand=request.demand,
        storage_pending=decision.storage_bytes,
        devices=tuple((a.driver, a.device) for a in decision.devices),
    )
