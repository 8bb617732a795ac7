# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups of nodes on which the drives of a request go to the same shared storages.

A node belongs to its group as long as the shared storage of each drive has more free space than every suitable local
storage of the node. Drives that only local storages can hold do not depend on the shared ones: what they leave there is
part of what defines the group.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model import Disk, Guest, Request, StorageClass
from .cache import ClusterState, NodeInfo
from .framework.cycle_state import CycleState
from .framework.interface import SharedPlugin
from .framework.status import Status
from .volumes import class_of, drives_on, room, share_out, suitable


@dataclass(slots=True)
class View:
    """Shared storages that several nodes see in the same way.

    Attributes:
        node: one of the nodes.
        disks: the drives that shared storages may hold, largest first.
        least: the least free space of the storages that the drives go to; minus infinity if a drive does not fit.
        own: the negated free space of the largest local storage of each node, with the node; some entries are outdated.
        number: identifies the group.
    """

    node: NodeInfo
    disks: Sequence[Disk]
    least: float
    number: int
    own: list[tuple[float, int, NodeInfo]] = field(default_factory=list)


class VolumeGroups:
    """The groups for one kind of request. A node leaves its group when its local storages count."""

    def __init__(self, request: Request, classes: Mapping[str, StorageClass]) -> None:
        self._request = request
        self._classes = classes
        self._views: dict[Hashable, View] = {}

    def group(self, node: NodeInfo) -> Hashable:
        """The group of a node; None if its local storages count. Raises InvalidRequest."""
        made = drives_on(self._request, node)
        if isinstance(made, Status):
            return made
        own = -math.inf
        seen: set[Hashable] = set()
        local: list[Disk] = []
        disks: list[Disk] = []
        for disk in made[1]:
            room_here, shared = self._candidates(disk, node)
            if room_here != -math.inf and not shared:
                local.append(disk)
            else:
                disks.append(disk)
                seen |= shared
                own = max(own, room_here)
        if local and not disks:
            return None
        key = tuple(disks), frozenset(seen)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = View(node, disks, self._least(node, disks), len(self._views))
        if own != -math.inf:
            if own >= view.least:
                return None
            heapq.heappush(view.own, (-own, node.index, node))
        return (view.number, self._on_local(local, node)) if local else view.number

    def _candidates(self, disk: Disk, node: NodeInfo) -> tuple[float, set[Hashable]]:
        """The most room of the local storages that a drive could go to, minus infinity without any; and the shared
        ones.
        """
        wanted = class_of(disk, self._classes)
        if disk.storage is not None:
            named = node.storages.get(disk.storage)
            if named is not None and not named.use.shared:
                return room(named, wanted, 0), set()
            return -math.inf, {(disk.storage, named and (named.active, named.content))}
        found = [(name, storage) for name, storage, _limit in suitable(node, disk.content, wanted)]
        own = (room(storage, wanted, 0) for _name, storage in found if not storage.use.shared)
        shared: set[Hashable] = {(name, s.active, s.content) for name, s in found if s.use.shared}
        return max(own, default=-math.inf), shared

    def _on_local(self, disks: Sequence[Disk], node: NodeInfo) -> Hashable:
        """What the verdicts depend on of drives that only local storages of the node can hold."""
        found = share_out(disks, node, self._classes)
        if isinstance(found, Status):
            return found
        uses = [(name, node.storages[name].use) for name in sorted(set(found.storages.values()))]
        return tuple((name, use.free - found.bytes.get(name, 0), use.total) for name, use in uses)

    def update(self, guest: Guest, node: NodeInfo) -> list[NodeInfo]:
        """The nodes whose local storages may count after a guest came to a node or left it."""
        turned: list[NodeInfo] = []
        pending = guest.storage_pending
        if any((seen := node.storages.get(name)) is not None and seen.use.shared for name, _node in pending):
            for view in self._views.values():
                view.least = self._least(view.node, view.disks)
                while view.own and -view.own[0][0] >= view.least:
                    turned.append(heapq.heappop(view.own)[2])
        return turned

    def _least(self, node: NodeInfo, disks: Sequence[Disk]) -> float:
        """The least free space of the shared storages that the drives go to, before each drive is put there."""
        least = math.inf
        taken: dict[str, int] = {}
        for disk in disks:
            if disk.storage is not None:
                taken[disk.storage] = taken.get(disk.storage, 0) + disk.size
        for disk in (disk for disk in disks if disk.storage is None):
            wanted = class_of(disk, self._classes)
            rooms = [
                (-room(storage, wanted, taken.get(name, 0)), name)
                for name, storage, _limit in suitable(node, disk.content, wanted)
                if storage.use.shared and storage.active
            ]
            negated, name = min(rooms, default=(math.inf, ""))
            if disk.size > max(-negated, 0):
                return -math.inf
            least = min(least, -negated)
            taken[name] = taken.get(name, 0) + disk.size
        return least


class SharedByVolumes(SharedPlugin):
    """A plugin whose verdicts depend on the storages that a request's drives go to. All of them share the groups.

    Its C(pre_filter) calls C(find_groups).
    """

    regroups = True

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return request.disks, request.clone

    def find_groups(self, state: CycleState, request: Request) -> None:
        """Store the groups of the request in the state."""
        state[self.name] = state.once(VolumeGroups, VolumeGroups, request, self.policy.storage_classes)

    def group(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        groups: VolumeGroups = state[self.name]
        return state.once((VolumeGroups, node.index), groups.group, node)

    def update(
        self, state: CycleState, request: Request, guest: Guest, node: NodeInfo, sign: int
    ) -> Iterable[NodeInfo]:
        groups: VolumeGroups = state[self.name]
        return groups.update(guest, node)
