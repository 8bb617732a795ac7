# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The board: a model of the cluster in which the search can change placements and undo them quickly.

The board counts CPU and memory itself. For everything else it asks the filters, on a cluster state that it brings up to
date just before.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from ...model import NO_CONSTRAINTS, VMID_MAX, Guest
from ...plans import Mobility
from ..cache import ClusterState, NodeInfo
from ..framework.interface import Draft
from ..framework.status import Category, Status
from ..scheduling_cycle import Scheduler
from .items import Item, Part, Position, as_guest, guest_part
from .reach import Reach

NOWHERE = -1


class BoardStep(t.NamedTuple):
    """One change: an item that moved from its earlier positions to the node target."""

    item: Item
    before: tuple[Position, ...]
    target: int
    why: str


class Board:
    """Items on nodes.

    Attributes:
        nodes: the nodes of the cluster; items refer to them by index.
        cpu, memory: the cores and bytes allocated on each node.
        on: the items on each node, by the index of the item.
        at: the positions of each item.
        reach: which nodes each item may use.
        trail: all changes so far, in order.
        preferred: the names of nodes that every item goes to first.
    """

    def __init__(
        self, scheduler: Scheduler, closed: frozenset[str], now: float, preferred: frozenset[str] = frozenset()
    ) -> None:
        """now is in seconds, on the clock of Request.created."""
        self.scheduler = scheduler
        self.preferred = preferred
        self.now = now
        self.state: ClusterState = scheduler.cluster
        self.nodes: Sequence[NodeInfo] = self.state.nodes
        self.reach = Reach(scheduler, closed, now)
        self.items: list[Item] = []
        self.item_of: dict[int, Item] = {}
        filters = [plugin for profile in scheduler.profiles.values() for plugin in profile.sections["filters"]]
        self._about_guests = {plugin.name for plugin in filters if plugin.about}
        self.cures: Mapping[str, str] = {plugin.name: plugin.cure for plugin in filters if plugin.cure}
        policy = self.reach.policy
        self.cpu: list[float] = [i.cores_all if policy.cpu.include_stopped else i.cores for i in self.nodes]
        self.memory: list[float] = [i.memory_all if policy.memory.include_stopped else i.memory for i in self.nodes]
        self.on: list[dict[int, Item]] = [{} for _info in self.nodes]
        self.at: list[tuple[Position, ...]] = []
        self.trail: list[BoardStep] = []
        self.drafts: dict[int, Draft] = {}
        self._shown: list[int] = []
        self._stale: dict[int, Item] = {}
        self._alike: dict[int, list[list[Item]]] = {}

    # --- items ---

    def add_guests(self, guests: Sequence[Guest], mobility: Mapping[int, Mobility]) -> Item:
        """Add guests that move together as one item."""
        rules = self.state.snapshot.ha_rules
        parts = [guest_part(guest, mobility[guest.vmid], self.reach.policy, rules) for guest in guests]
        hosts = {guest.node: host.index for guest in guests if (host := self.state.by_name.get(guest.node)) is not None}
        homes = frozenset(hosts.values())
        known = all(
            guest.node in hosts and self.nodes[hosts[guest.node]].node.online and not mobility[guest.vmid].stuck[0]
            for guest in guests
        )
        item = self._item(
            parts,
            weight=len(parts),
            cost=sum(part.mobility.cost for part in parts),
            movable=known,
            homes=homes,
            free=homes <= self.reach.closed,
            not_to={name: why for part in parts for name, why in part.mobility.not_to.items()},
            prefers=self._preference_of(parts),
        )
        places = [(hosts[p.guest.node], p) for p in parts if p.guest is not None and p.guest.node in hosts]
        self.at[item.index] = _positions(places)
        for node in homes:
            self.on[node][item.index] = item
        self._shown[item.index] = min(homes, default=NOWHERE)
        return item

    def _preference_of(self, parts: Sequence[Part]) -> frozenset[str]:
        """Return the nodes that have the disks of guests already, and if there are none, all; except for those to which
        they move only by being restarted.
        """
        replicated = frozenset[str]().union(*(part.mobility.replicated_to for part in parts))
        restarted = frozenset[str]().union(*(part.mobility.restart_to for part in parts))
        return (replicated or frozenset(info.name for info in self.nodes)) - restarted if restarted else replicated

    def add_new(self, parts: Sequence[Part]) -> Item:
        """Add new VMs that must share a node as one item."""
        return self._item(parts)

    def _item(self, parts: Sequence[Part], **fields: t.Any) -> Item:
        """Add an item of these parts, which is nowhere yet."""
        cores, memory = sum(part.cores for part in parts), sum(part.memory for part in parts)
        priority = max(part.request.priority for part in parts)
        share = self.share(cores, memory)
        item = Item(len(self.items), tuple(parts), cores, memory, share=share, priority=priority, **fields)
        self.items.append(item)
        self.at.append(())
        self._shown.append(NOWHERE)
        self.item_of.update({part.vmid: item for part in parts})
        return item

    def share(self, cores: float, memory: float) -> float:
        """Return the dominant share: the larger of the shares of CPU and memory."""
        return max(self.shares(cores, memory))

    def shares(self, cores: float, memory: float) -> tuple[float, float]:
        """Return these cores and this memory as fractions of an average node."""
        return cores / self.reach.mean[0], memory / self.reach.mean[1]

    def close(self, nodes: Iterable[int]) -> None:
        """Close exactly these nodes: nothing may be placed on them."""
        changed = self.reach.close(nodes)
        self._alike.clear()
        for item in self.items if changed else ():
            if not changed.isdisjoint(item.homes):
                item.free = item.homes <= self.reach.closed

    # --- looking ---

    def fits(self, item: Item, node: int) -> bool:
        """Whether the node has CPU and memory for an item that is elsewhere."""
        rows = self.reach.rows(item)
        return (
            self.cpu[node] + item.cores <= rows.cpu[node]
            and self.memory[node] + item.memory <= rows.memory[node]
        )  # fmt: skip

    def node_of(self, item: Item) -> int:
        """Return the node that holds the whole item, or NOWHERE."""
        at = self.at[item.index]
        return at[0].node if len(at) == 1 else NOWHERE

    def alike(self, node: int) -> list[list[Item]]:
        """Return the items that may leave a node, grouped by size, largest first. An item that has moved does not move
        again unless its move is free.
        """
        found = self._alike.get(node)
        if found is None:
            groups: dict[Hashable, list[Item]] = {}
            for index, item in self.on[node].items():
                if item.movable and (item.free or self.node_of(item) in item.homes):
                    alone = NOWHERE if item.plain else index
                    request = item.parts[0].request
                    asks = (request.cpu_type, request.cpu_flags, request.named)
                    groups.setdefault((item.cores, item.memory, item.extra, alone, asks), []).append(item)
            for group in groups.values():
                group.sort(key=lambda each: (each.cost, each.index))
            found = sorted(groups.values(), key=lambda group: (-group[0].share, group[0].index))
            self._alike[node] = found
        return found

    def broken_rule(self, item: Item) -> Status | None:
        """Return the rule that the item breaks on its node, or the limit (other than CPU and memory), or None."""
        return self.refusal(item, self.node_of(item), lambda status: self._breaks(status) and not _of_room(status))

    def _breaks(self, status: Status) -> bool:
        """Whether a refusal on a guest's own node means that it breaks a rule or limit. Whether the node takes new
        guests does not matter; a plugin about nodes that evaluates attributes of the request enforces a rule.
        """
        return status.category in (Category.RULE, Category.CAPACITY) or (
            status.category is Category.PLACEMENT and status.plugin in self._about_guests
        )

    def is_forbidden(self, item: Item, node: int, beside: Sequence[Part] = ()) -> bool:
        """Whether a filter refuses the item on a node for a reason other than CPU and memory.

        beside are parts that are on other nodes and count on this one as well.
        """
        for number, part in enumerate(beside, start=VMID_MAX + 1):
            host = self.nodes[node].name
            self.state.assume(replace(as_guest(part), vmid=number, node=host, constraints=NO_CONSTRAINTS))
        found = self.refusal(item, node, lambda status: not _of_room(status))
        for number in range(VMID_MAX + 1, VMID_MAX + 1 + len(beside)):
            self.state.forget(number)
        return found is not None

    def refusal(self, item: Item, node: int, counts: Callable[[Status], bool] | None = None) -> Status | None:
        """Return why a filter refuses the item on the node, or None. The board stays as it is.

        Only refusals for which counts returns True count; None: all do.
        """
        self.show_all()
        for part in item.parts:
            self.state.remove(part.vmid)
        info, found = self.nodes[node], None
        for part in item.parts:
            refusals = self.scheduler.refusals(part.request_on(info), self.now, (info,))[info.name]
            found = next(filter(counts, refusals.values()), None)
            if found is not None or len(item.parts) == 1:
                break
            self._show(part, node)
        shown = self._shown[item.index]
        for part in item.parts:
            self.state.remove(part.vmid)
        for part in item.parts:
            self._show(part, shown)
        return found

    # --- changing ---

    def move(self, item: Item, node: int, why: str) -> None:
        """Put the item on a node without asking the filters."""
        self.trail.append(BoardStep(item, self.at[item.index], node, why))
        self._put(item, (Position(node, item.cores, item.memory, len(item.parts)),))

    def hold(self, item: Item) -> None:
        """Keep the item where it is: it makes no room for others."""
        item.movable = False
        self._alike.clear()

    def lift(self, item: Item) -> None:
        """Take the item off the board."""
        self.trail.append(BoardStep(item, self.at[item.index], NOWHERE, ""))
        self._put(item, ())

    def undo(self, mark: int) -> None:
        """Undo all changes made since the trail had this length."""
        while len(self.trail) > mark:
            step = self.trail.pop()
            self._put(step.item, step.before)

    def _put(self, item: Item, positions: tuple[Position, ...]) -> None:
        """Take the item off its nodes, and count it at these positions."""
        index = item.index
        for node, cores, memory, _guests in self.at[index]:
            self.cpu[node] -= cores
            self.memory[node] -= memory
            del self.on[node][index]
            self._alike.pop(node, None)
        for node, cores, memory, _guests in positions:
            self.cpu[node] += cores
            self.memory[node] += memory
            self.on[node][index] = item
            self._alike.pop(node, None)
        self.at[index] = positions
        self._stale[index] = item

    # --- the state that the filters see ---

    def show_all(self) -> None:
        """Bring the cluster state that the filters see up to date."""
        for index, item in self._stale.items():
            now = self.node_of(item)
            if now == NOWHERE and self.at[index]:
                now = min(item.homes)
            if now != self._shown[index]:
                for part in item.parts:
                    self.state.remove(part.vmid)
                for part in item.parts:
                    self._show(part, now)
                self._shown[index] = now
        self._stale.clear()

    def _show(self, part: Part, node: int) -> None:
        """Add the part to a node in the cluster state. On its original node, a guest is restored unchanged."""
        if node == NOWHERE:
            return
        info, guest, item = self.nodes[node], part.guest, self.item_of[part.vmid]
        is_scattered_home = len(self.at[item.index]) > 1 and node == min(item.homes)
        if guest is not None and (guest.node == info.name or is_scattered_home):
            self.state.restore(guest)
            return
        request = part.request_on(info)
        taken: Draft | Status | None = None
        if request.disks or request.devices or request.clone is not None:
            taken = self.scheduler.draft(request, info, part.vmid, self.now)
        pending: Mapping[tuple[str, str], int] = {}
        devices: tuple[tuple[str, str], ...] = ()
        if isinstance(taken, Draft):
            self.drafts[part.vmid] = taken
            pending = taken.storage_bytes
            devices = tuple((each.driver, each.device) for each in taken.devices)
        if guest is None:
            guest = Guest(part.vmid, request.name, info.name, status="assumed", cores=request.cores,
                          memory=request.memory, tags=request.tags, pool=request.pool,
                          constraints=request.constraints, demand=request.demand)  # fmt: skip
        self.state.restore(replace(guest, node=info.name, storage_pending=pending, devices=devices))


def _of_room(status: Status) -> bool:
    """Whether a refusal is about CPU and memory only."""
    return bool(status.shortages) and all(short.resource in ("cpu", "memory") for short in status.shortages)


def _positions(places: Iterable[tuple[int, Part]]) -> tuple[Position, ...]:
    found: dict[int, Position] = {}
    for node, part in places:
        _node, cores, memory, guests = found.get(node, Position(node))
        found[node] = Position(node, cores + part.cores, memory + part.memory, guests + 1)
    return tuple(found.values())
