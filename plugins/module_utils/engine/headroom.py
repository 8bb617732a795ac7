# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""N+1: would the guests of any one lost node find room on the others?

The lost node's running guests are placed on the remaining nodes one by one, largest first, each where the least memory
is left over. What this finds is a real way out; that it finds none is, as with every quick packing, not quite a proof
that there is none. CPU and memory count, storage does not.
"""

from __future__ import annotations

import bisect
import math
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .allocatable import Limit
from .cache import ClusterState, NodeInfo


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node may allocate after a loss; None: any amount."""

    cpu: Limit | None
    memory: Limit | None

    def room(self, info: NodeInfo) -> Room:
        """What a node has left to allocate; below zero when too much is allocated."""
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


class Load(t.NamedTuple):
    """One guest that must find room; label is how the user knows it."""

    size: Room
    label: str


class Stranding(t.NamedTuple):
    """The loss of node lost would leave the guest without a place."""

    lost: str
    guest: Load


Rest = Mapping[int, Room]
"""By index the nodes that took guests of the lost one, with what they then have left."""


class Headroom:
    """The answers for one state of a cluster, computed again after each change.

    A new VM on a node is covered by what was found before as long as every way out leaves it the room that it takes;
    only where one does not is that loss worked through again.
    """

    def __init__(self, cluster: ClusterState, limits: Limits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._seen = -1
        self._room: dict[int, Room] = {}
        self._order: list[tuple[float, int]] = []
        self._loads: dict[int, list[Load]] = {}
        self._rests: dict[int, Rest] = {}
        self._least: dict[int, Room] = {}
        self._stranding: Stranding | None = None
        self._suspect = -1
        self._answers: dict[tuple[int, Room], Stranding | None] = {}

    def stranding(self, node: NodeInfo, new: Load) -> Stranding | None:
        """A loss that could not be absorbed if the new VM ran on node; None if all could."""
        self._catch_up()
        if self._stranding is not None or node.index not in self._room:
            return self._stranding
        key = node.index, new.size
        if key not in self._answers:
            self._answers[key] = self._looked_for(node, new)
        return self._answers[key]

    def _looked_for(self, node: NodeInfo, new: Load) -> Stranding | None:
        found: Rest | Stranding = {}
        if not self._held(node.index, new):
            found = self._absorb(node.index, _largest_first([*self._loads[node.index], new]))
        if isinstance(found, Stranding) or self._least[node.index].holds(new.size):
            return found if isinstance(found, Stranding) else None
        # What one node's new VM makes unbearable, another's most likely does too.
        for lost in sorted(self._rests, key=lambda lost: lost != self._suspect):
            rest = self._rests[lost]
            if lost != node.index and not rest.get(node.index, self._room[node.index]).holds(new.size):
                found = self._absorb(lost, self._loads[lost], node.index, new.size)
                if isinstance(found, Stranding):
                    self._suspect = lost
                    return found
        return None

    def _catch_up(self) -> None:
        if self._seen == len(self._cluster.journal):
            return
        self._seen = len(self._cluster.journal)
        online = [info for info in self._cluster.nodes if info.node.online]
        self._room = {info.index: self._limits.room(info) for info in online if not info.node.maintenance}
        self._order = sorted((room.memory, index) for index, room in self._room.items())
        self._loads = {info.index: _loads(info) for info in online}
        self._least = dict(self._room)
        self._rests = {}
        self._stranding = None
        self._suspect = -1
        self._answers = {}
        for lost, loads in self._loads.items():
            rest = self._absorb(lost, loads)
            if isinstance(rest, Stranding):
                self._stranding = rest
                return
            self._rests[lost] = rest
            for index, room in rest.items():
                least = self._least[index]
                self._least[index] = Room(min(least.memory, room.memory), min(least.cores, room.cores))

    def _held(self, lost: int, new: Load) -> bool:
        """Whether, once the guests of the lost node found room, some node has room for the new VM as well."""
        rest = self._rests[lost]
        return any(
            rest.get(index, self._room[index]).holds(new.size)
            for _memory, index in reversed(self._order)
            if index != lost
        )

    def _absorb(
        self, lost: int, loads: Iterable[Load], taken_on: int | None = None, taken: Room | None = None
    ) -> Rest | Stranding:
        """Place loads, in their order, on all nodes but the lost one; on node taken_on as much as taken is gone."""
        order = self._order.copy()
        rest: dict[int, Room] = {}
        if lost in self._room:
            _take(order, self._room[lost].memory, lost)
        if taken_on is not None and taken is not None:
            _take(order, self._room[taken_on].memory, taken_on)
            rest[taken_on] = self._room[taken_on].less(taken)
            bisect.insort(order, (rest[taken_on].memory, taken_on))
        for load in loads:
            position = bisect.bisect_left(order, (load.size.memory, -1))
            while position < len(order):
                index = order[position][1]
                room = rest.get(index) or self._room[index]
                if room.cores >= load.size.cores:
                    break
                position += 1
            else:
                return Stranding(self._cluster.nodes[lost].name, load)
            del order[position]
            rest[index] = room.less(load.size)
            bisect.insort(order, (rest[index].memory, index))
        return rest


def _take(order: list[tuple[float, int]], memory: float, index: int) -> None:
    del order[bisect.bisect_left(order, (memory, index))]


def _loads(info: NodeInfo) -> list[Load]:
    return _largest_first(
        Load(Room(guest.memory, guest.cores), f"VM {guest.name} ({vmid})" if guest.name else f"VM {vmid}")
        for vmid, guest in info.guests.items()
        if guest.running and not guest.template
    )


def _largest_first(loads: Iterable[Load]) -> list[Load]:
    return sorted(loads, key=lambda load: (-load.size.memory, -load.size.cores, load.label))
