# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reach: which nodes an item may use, and how much each may allocate with it. No move of guests changes that."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ...model import Node, Request
from ..allocatable import Policy
from ..cache import NodeInfo
from ..framework.status import Category, Status
from ..scheduling_cycle import Scheduler
from .items import Item, Part

NO_REQUEST = Request("")
NO_NODE = Node("", cores=1, memory=1)

ROUNDING = 1e-9
"""The fraction of a limit that sums may exceed it by. The filters decide such cases, with their own rounding."""


class ReachRows(t.NamedTuple):
    """For one item: what each node may allocate with it; negative where it may never be.

    nodes are the indexes of the nodes that it may use; refusals are the reasons against the rest, by index.
    """

    cpu: list[float]
    memory: list[float]
    nodes: list[int]
    refusals: Mapping[int, Status]


class Reach:
    """Finds the rows of items.

    Attributes:
        policy: the allocation policy for guests.
        closed: the indexes of nodes on which nothing may be placed.
        mean: the CPU and memory that an average node may allocate.
    """

    def __init__(self, scheduler: Scheduler, closed: frozenset[str], now: float) -> None:
        self._scheduler = scheduler
        self._now = now
        self._nodes = scheduler.cluster.nodes
        self.policy: Policy = scheduler.profile(NO_REQUEST).policy
        self.closed = frozenset(info.index for info in self._nodes if info.name in closed)
        online = [info.node for info in self._nodes if info.node.online and info.node.memory] or [NO_NODE]
        self.mean = (
            sum(map(self.policy.cpu.allocatable, online)) / len(online) or 1.0,
            sum(map(self.policy.memory.allocatable, online)) / len(online) or 1.0,
        )
        self._rows: dict[int, ReachRows] = {}
        self._open_rows: dict[int, ReachRows] = {}

    def rows(self, item: Item) -> ReachRows:
        """Return which nodes the item may use, and how much each may allocate with it."""
        index = item.index
        found = self._open_rows.get(index)
        if found is None:
            if index not in self._rows:
                self._rows[index] = self._find_rows(item)
            rows, closed = self._rows[index], self.closed
            cpu = [-1.0 if node in closed else limit for node, limit in enumerate(rows.cpu)]
            memory = [-1.0 if node in closed else limit for node, limit in enumerate(rows.memory)]
            nodes = [node for node in rows.nodes if node not in closed]
            found = self._open_rows[index] = ReachRows(cpu, memory, nodes, rows.refusals)
        return found

    def close(self, nodes: Iterable[int]) -> frozenset[int]:
        """Close exactly these nodes; return those whose state changed."""
        changed, self.closed = self.closed.symmetric_difference(nodes), frozenset(nodes)
        if changed:
            self._open_rows.clear()
        return changed

    def limits(self, node: int, *, enforced: bool = True) -> tuple[float, float]:
        """Return the CPU and memory that a node may allocate to guests without a ratio of their own; infinite where the
        limit is not enforced.
        """
        policy, host = self.policy, self._nodes[node].node
        cpu = policy.cpu.allocatable(host) if not enforced or "cpu" in policy.enforced else math.inf
        memory = policy.memory.allocatable(host) if not enforced or "memory" in policy.enforced else math.inf
        return cpu * (1 + ROUNDING), memory * (1 + ROUNDING)

    # --- inside ---

    def _find_rows(self, item: Item) -> ReachRows:
        """Ask the filters where an item can go at all. Refusals that end when guests leave do not count."""
        refusals: dict[int, Status] = {}
        for part in item.parts:
            # What the filters check depends on the node only if disks are copied.
            asked: Iterable[tuple[Request, Sequence[NodeInfo]]] = [(part.request, self._nodes)]
            if part.copied:
                asked = [(part.request_on(info), (info,)) for info in self._nodes]
            for request, hosts in asked:
                found = self._scheduler.refusals(request, self._now, hosts)
                for info in hosts:
                    for status in found[info.name].values():
                        if not status.resolvable or status.category is Category.PLACEMENT:
                            refusals.setdefault(info.index, status)
        cpu, memory = [], []
        for info in self._nodes:
            barred = info.index in refusals or info.name in item.not_to
            limits = [self._limits(part, info) for part in item.parts]
            cpu.append(-1.0 if barred else min(limit[0] for limit in limits))
            memory.append(-1.0 if barred else min(limit[1] for limit in limits))
        nodes = [node for node, limit in enumerate(cpu) if limit >= item.cores and memory[node] >= item.memory]
        return ReachRows(cpu, memory, nodes, refusals)

    def _limits(self, part: Part, info: NodeInfo) -> tuple[float, float]:
        """Return the CPU and memory that a node may allocate with a part; infinite where no limit is enforced."""
        policy, cpu, memory = self._scheduler.profile(part.request).policy, math.inf, math.inf
        if "cpu" in policy.enforced:
            cpu = policy.cpu.allocatable(info.node, part.request) * (1 + ROUNDING)
        if "memory" in policy.enforced:
            memory = policy.memory.allocatable(info.node, part.request) * (1 + ROUNDING)
        return cpu, memory
