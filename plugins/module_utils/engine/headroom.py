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
from collections.abc import Mapping, Sequence

from .cache import ClusterState, NodeInfo
from .evacuees import Bonds, GuestSize, Limits, Loads, Room, label_of, loads_of, with_guest


class Stranding(t.NamedTuple):
    """The loss of node lost would leave the guest without a place."""

    lost: str
    guest: GuestSize


Step: t.TypeAlias = tuple[int, int, tuple[float, int], tuple[float, float]]
"""One node takes guests of one size: the number of their load, how many guests of that have a place afterwards, the
memory that the node had left with its index, and the memory and vCPUs that it has left afterwards.
"""


class Evacuation(t.NamedTuple):
    """A placement of the guests of a lost node on the other nodes.

    Attributes:
        steps: in their order.
        rest: what the nodes that take some of them have left afterwards, by index.
        reach: the node with the most memory left that takes one, as in the order of nodes. Changes of nodes beyond it
            do not affect the plan.
    """

    steps: Sequence[Step]
    rest: Mapping[int, tuple[float, float]]
    reach: tuple[float, int]

    def steps_before(self, loads: Sequence[Loads], room: Mapping[int, Room]) -> Sequence[Step]:
        """Return the steps that stay as they are when nodes have that left, by index: those before the first one that
        one of these nodes took or would take now.
        """
        tightest = min((left.memory, index) for index, left in room.items())
        for at, (load, _placed, place, _rest) in enumerate(self.steps):
            if place[1] in room:
                return self.steps[:at]
            if tightest < place:
                size, _guests, within = loads[load]
                for index, left in room.items():
                    if left.holds(size) and (left.memory, index) < place and (within is None or index in within):
                        return self.steps[:at]
        return self.steps


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
        self._foreseen: dict[int, tuple[Mapping[int, Room], Evacuation | Stranding]] = {}
        self._suspect = -1
        self._answers: dict[tuple[int, Room], Stranding | None] = {}
        self._bonds = Bonds(cluster)

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
            found = self._absorb(node.index, with_guest(self._loads[node.index], new))
        if isinstance(found, Stranding) or self._least[node.index].holds(new.size):
            return found if isinstance(found, Stranding) else None
        # A loss that a VM on one node makes impossible is probably also impossible with the VM on another node.
        for lost in sorted(self._plans, key=lambda lost: lost != self._suspect):
            if lost != node.index and not self._remaining_room(lost, node.index).holds(new.size):
                found = self._absorb_again(lost, {node.index: self._room[node.index].less(new.size)})
                if isinstance(found, Stranding):
                    self._suspect = lost
                    return found
        return None

    def _remaining_room(self, lost: int, index: int) -> Room:
        """Return what a node has left after the guests of the lost node were placed."""
        plan = self._plans[lost]
        taken = plan.rest.get(index) if isinstance(plan, Evacuation) else None
        return self._room[index] if taken is None else Room(*taken)

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
        looked_at = {info.index: info for info in (*nodes, *self._bonds.hosts_of_concerned()) if info.node.online}
        self._seen = len(changes)
        self._suspect = -1
        self._answers = {}
        # A VM that came and left again changes nothing.
        changed = {info.index for info in looked_at.values() if self._count(info)}
        room = {index: self._room[index] for index in changed & self._room.keys()}
        due = {
            lost
            for lost, plan in self._plans.items()
            if isinstance(plan, Stranding)
            or any(index in plan.rest or (left.memory, index) < plan.reach for index, left in room.items())
        }
        touched = set(changed)
        for lost in sorted(due | changed):
            again = self._absorb(lost, self._loads[lost]) if lost in changed else self._absorb_again(lost, room)
            touched |= self._keep(lost, again)
        self._foreseen = {}
        for index in touched & self._room.keys():
            rests = [self._remaining_room(lost, index) for lost in self._users[index]]
            self._least[index] = Room(
                min((rest.memory for rest in rests), default=self._room[index].memory),
                min((rest.cores for rest in rests), default=self._room[index].cores),
            )

    def _count(self, info: NodeInfo) -> bool:
        """Count what a node has left and which guests run there; return whether that has changed."""
        index, loads = info.index, loads_of(info, self._bonds)
        room = self._limits.room(info) if info.node.is_open else None
        if loads == self._loads.get(index) and room == self._room.get(index):
            return False
        self._loads[index] = loads
        if room is not None:
            if index in self._room:
                self._order.remove((self._room[index].memory, index))
            bisect.insort(self._order, (room.memory, index))
            self._room[index] = room
            self._users.setdefault(index, set())
        return True

    def _keep(self, lost: int, after: Evacuation | Stranding) -> set[int]:
        """Keep a new plan for the loss of a node; return the nodes that took its guests before or take them now."""
        before = self._plans.get(lost)
        self._plans[lost] = after
        old = set(before.rest) if isinstance(before, Evacuation) else set[int]()
        new = set(after.rest) if isinstance(after, Evacuation) else set[int]()
        for index in old - new:
            self._users[index].discard(lost)
        for index in new - old:
            self._users[index].add(lost)
        (self._stranded.add if isinstance(after, Stranding) else self._stranded.discard)(lost)
        return old | new

    # --- finding a way out ---

    def _absorb_again(self, lost: int, room: Mapping[int, Room]) -> Evacuation | Stranding:
        """Plan again for the loss of a node, when some of the other nodes have that left, by index."""
        known = self._foreseen.get(lost)
        if known is None or known[0] != room:
            plan, loads = self._plans[lost], self._loads[lost]
            steps = plan.steps_before(loads, room) if isinstance(plan, Evacuation) else ()
            known = self._foreseen[lost] = room, self._absorb(lost, loads, steps, room)
        return known[1]

    def _absorb(
        self, lost: int, loads: Sequence[Loads], steps: Sequence[Step] = (), changed: Mapping[int, Room] | None = None
    ) -> Evacuation | Stranding:
        """Place loads, in their order, on all nodes but the lost one, after steps that are certain. changed is what
        some nodes have left, where that is not what was counted.
        """
        steps = list(steps)
        moved: dict[int, tuple[float, float]] = {
            **(changed or {}),
            **{place[1]: rest for _load, _placed, place, rest in steps},
        }
        order = self._order.copy()
        for index in self._room.keys() & {lost, *moved}:
            del order[bisect.bisect_left(order, (self._room[index].memory, index))]
        for index, (memory, _cores) in moved.items():
            bisect.insort(order, (memory, index))
        fewest = min([size.cores for size, _guests, _within in loads], default=0)
        first, placed = steps[-1][:2] if steps else (0, 0)
        for load in range(first, len(loads)):
            (memory, cores), guests, within = loads[load]
            count = len(guests)
            while placed < count:
                # The node with the least memory left of those that have room, of equal ones the first by name.
                at = bisect.bisect_left(order, (memory, -1))
                while at < len(order):
                    left, index = order[at]
                    left_cores = (moved.get(index) or self._room[index])[1]
                    if left_cores >= cores and (within is None or index in within):
                        break
                    if left_cores < fewest:
                        del order[at]
                    else:
                        at += 1
                else:
                    size = GuestSize(Room(memory, cores), sorted(map(label_of, guests))[placed])
                    return Stranding(self._cluster.nodes[lost].name, size)
                # Having taken one, it is the tightest for the next of the same size as well, as long as that fits.
                while placed < count and left >= memory and left_cores >= cores:
                    left, left_cores, placed = left - memory, left_cores - cores, placed + 1
                moved[index] = left, left_cores
                steps.append((load, placed, order.pop(at), moved[index]))
                bisect.insort(order, (left, index))
            placed = 0
        reach = max([step[2] for step in steps], default=(-math.inf, -1))
        return Evacuation(steps, {place[1]: rest for _load, _placed, place, rest in steps}, reach)
