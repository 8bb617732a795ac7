# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster as the scheduler sees it: the snapshot plus the decisions since then.

The sums per node are updated with every change.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
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

    guests are the VMs and containers of the node, with those that are decided for it; by_vmid the same by VMID.
    cores and memory (bytes) are sums over the guests that run or are decided; cores_all and memory_all over all guests.
    volumes are those that were looked for on the node: their bytes, or None if missing. suitable caches
    volumes.suitable.
    """

    node: Node
    index: int
    name: str = field(init=False)
    guests: Collection[Guest] = field(init=False, repr=False)
    by_vmid: dict[int, Guest] = field(default_factory=dict)
    storages: dict[str, NodeStorage] = field(default_factory=dict)
    devices: list[DeviceUse] = field(default_factory=list)
    volumes: dict[str, int | None] = field(default_factory=dict)
    suitable: dict[Hashable, t.Any] = field(default_factory=dict)
    cores: float = 0
    memory: int = 0
    cores_all: float = 0
    memory_all: int = 0

    def __post_init__(self) -> None:
        self.name = self.node.name
        self.guests = self.by_vmid.values()

    def count(self, guest: Guest, sign: int) -> None:
        """Add the guest with what it takes to all sums (sign 1), or subtract it (sign -1)."""
        if sign > 0:
            self.by_vmid[guest.vmid] = guest
        else:
            del self.by_vmid[guest.vmid]
        if not guest.template:
            self.cores_all = round(self.cores_all + sign * guest.cores, _DIGITS)
            self.memory_all += sign * guest.memory
            if guest.running:
                self.cores = round(self.cores + sign * guest.cores, _DIGITS)
                self.memory += sign * guest.memory
        for driver, device in guest.devices:
            for held in self.devices:
                held.count(driver, device, sign)


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
    """Return what find derives from the hosts of nodes. For all nodes of a cluster together, find is called once per
    key.
    """
    if not isinstance(nodes, AllNodes):
        return find([info.node for info in nodes])
    if key not in nodes.derived:
        nodes.derived[key] = find([info.node for info in nodes])
    found: T = nodes.derived[key]
    return found


def of_sums(nodes: Sequence[NodeInfo], key: Hashable, find: Callable[[Sequence[NodeInfo]], list[T]]) -> list[T]:
    """Return what find derives from the hosts and the sums of nodes, one value for each. For all nodes of a cluster
    together, only the nodes that have changed are looked at again. The result must not be changed.
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
        nodes: all nodes, sorted by name; NodeInfo.index is the position. by_name are the same by name.
        guests: all guests by VMID, decided ones included.
        taken: every VMID that is taken or assumed.
        repelling: the known anti-affinity rules of guests.
        tainted: the nodes that have taints; devices: the passthrough devices.
        changed: those of nodes.
        ha_rules: the HA rules by their members, decided VMs included.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes = AllNodes(
            NodeInfo(node, index) for index, node in enumerate(sorted(snapshot.nodes, key=lambda node: node.name))
        )
        self.by_name = {info.name: info for info in self.nodes}
        self.guests: dict[int, Guest] = {}
        self.taken = TakenVMIDs(snapshot.vmids_unseen)
        self.repelling = RepellingTerms()
        self.tainted = [info.node for info in self.nodes if info.node.taints]
        self.devices = snapshot.devices
        self.changed = self.nodes.changed
        self.ha_rules = RuleIndex(snapshot.ha_rules)
        self._index = GuestIndex(self.guests)
        self._assumed: set[int] = set()
        self._derived: dict[Hashable, t.Any] = {}
        self._place_storages(snapshot.storages)
        for device in snapshot.devices:
            if device.node in self.by_name:
                self.by_name[device.node].devices.append(DeviceUse(device))
        for (name, volume), size in snapshot.volumes.items():
            if name in self.by_name:
                self.by_name[name].volumes[volume] = size
        for guest in snapshot.guests:
            self._count(guest, 1)

    # --- reading: the assumed view ---

    def select(self, selector: Selector) -> GuestsByNode:
        """Return the guests that the selector selects, by the name of their node."""
        return self._index.select(selector)

    def derive_once(self, key: Hashable, make: Callable[[ClusterState], T]) -> T:
        """Return what make derives from this cluster. make is called once per key; its result keeps itself up to date
        by what has changed.
        """
        if key not in self._derived:
            self._derived[key] = make(self)
        found: T = self._derived[key]
        return found

    # --- writing ---

    def assume(self, guest: Guest) -> None:
        """Count a guest that the cluster does not show yet: a decision of this run, or another process's reservation.
        Its VMID must be free.
        """
        if guest.vmid in self.guests:
            raise ValueError(f"VMID {guest.vmid} is taken by {self.guests[guest.vmid].name!r}")
        self._assumed.add(guest.vmid)
        self._count(guest, 1)

    def forget(self, vmid: int) -> None:
        """Remove an assumed guest. A guest that the API showed stays."""
        if vmid in self._assumed:
            self.remove(vmid)

    def remove(self, vmid: int) -> None:
        """Stop counting a guest, if it is there, until restore adds it again."""
        if vmid in self.guests:
            self._assumed.discard(vmid)
            self._count(self.guests[vmid], -1)

    def restore(self, guest: Guest) -> None:
        """Replace what is known of this VMID by a guest that the API shows."""
        self.remove(guest.vmid)
        self._count(guest, 1)

    # --- inside ---

    def _place_storages(self, storages: Iterable[Storage]) -> None:
        """Give each node its storages. A shared one is counted once, whatever node reports it."""
        shelf_of = {name: Shelf() for name in self.by_name}
        shared, uses = Shelf(), dict[str, StorageUse]()
        alike: dict[tuple[str, bool, frozenset[str]], NodeStorage] = {}
        for storage in sorted(storages, key=lambda s: (s.name, s.node)):
            info = self.by_name.get(storage.node)
            if info is None:
                continue
            shelf = shared if storage.shared else shelf_of[storage.node]
            use = StorageUse(storage.name, storage.shared, storage.type, storage.total, storage.used, shelf)
            if storage.shared:
                use = uses.setdefault(storage.name, use)
                # An offline node reports a shared storage without figures: the largest report is the true one.
                use.total, use.used = max(use.total, storage.total), max(use.used, storage.used)
            if storage.active and info.node.online:
                use.nodes.add(storage.node)
            seen = NodeStorage(use, storage.active, storage.content)
            if storage.shared:
                seen = alike.setdefault((storage.name, storage.active, storage.content), seen)
            info.storages[storage.name] = seen

    def _count(self, guest: Guest, sign: int) -> None:
        """Add the guest with what it takes to all sums (sign 1), or subtract it (sign -1)."""
        if sign > 0:
            self.guests[guest.vmid] = guest
            self.taken.add(guest.vmid)
        else:
            del self.guests[guest.vmid]
            if guest.vmid not in self.snapshot.vmids_unseen:
                self.taken.discard(guest.vmid)
        self._index.count(guest, sign)
        for (storage, node), size in guest.storage_pending.items():
            holder = self.by_name.get(node)
            if holder is not None and storage in holder.storages:
                use = holder.storages[storage].use
                use.pending += sign * size
                use.shelf.changes += 1
        if guest.constraints.ha is not None:
            self.ha_rules.count(guest, sign)
        info = self.by_name.get(guest.node)
        if info is not None:
            info.count(guest, sign)
            if guest.constraints.affinity:
                self.repelling.count(guest, sign)
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
