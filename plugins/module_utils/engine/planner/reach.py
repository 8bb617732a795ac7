# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reach: which nodes an item may use, and how much each may allocate with it. No move of guests changes that."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Hashable, Iterable, Mapping

from ...model import Node, Request
from ..allocatable import Policy
from ..cache import NodeInfo
from ..framework.status import Status
from .admission import Admission, lasting
from .items import Item, Part

NO_REQUEST = Request("")
NO_NODE = Node("", cores=1, memory=1)

ROUNDING = 1e-9
"""The fraction of a limit that sums may exceed it by. The filters decide such cases, with their own rounding."""


class Rows(t.NamedTuple):
    """For one kind of item: what each node may allocate with it; negative where it may never be.

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

    def __init__(self, admission: Admission, closed: frozenset[str]) -> None:
        self._admission = admission
        self._nodes = admission.state.nodes
        self.policy: Policy = admission.profile_of(NO_REQUEST).policy
        self.closed = frozenset(info.index for info in self._nodes if info.name in closed)
        self.mean = self._means()
        self._rows: dict[int, Rows] = {}
        self._rows_of: dict[Hashable, Rows] = {}
        self._open_rows: dict[int, Rows] = {}
        self._closed_rows: dict[int, Rows] = {}

    def rows(self, item: Item) -> Rows:
        """Return which nodes the item may use, and how much each may allocate with it."""
        index = item.index
        found = self._open_rows.get(index)
        if found is None:
            if index not in self._rows:
                self._rows[index] = self._find_rows(item)
            found = self._open_rows[index] = self._without_closed(self._rows[index])
        return found

    def close(self, nodes: Iterable[int]) -> frozenset[int]:
        """Close exactly these nodes; return those whose state changed."""
        changed, self.closed = self.closed.symmetric_difference(nodes), frozenset(nodes)
        if changed:
            self._open_rows.clear()
            self._closed_rows.clear()
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

    def _find_rows(self, item: Item) -> Rows:
        if len(item.parts) == 1 and not item.not_to and not item.parts[0].mobility.disks:
            request = item.parts[0].request
            key = self._admission.shared(request)
            if key is not None:
                key = (key, request.cores, request.memory, item.new)
                if key not in self._rows_of:
                    self._rows_of[key] = self._made_rows(item)
                return self._rows_of[key]
        return self._made_rows(item)

    def _made_rows(self, item: Item) -> Rows:
        refusals: dict[int, Status] = {}
        for part in item.parts:
            for info in self._nodes:
                for _info, status in self._admission.refusals(part.request_on(info), (info,)):
                    if lasting(status):
                        refusals.setdefault(info.index, status)
        cpu, memory = [], []
        for info in self._nodes:
            barred = info.index in refusals or info.name in item.not_to
            limits = [self._limits(part, info) for part in item.parts]
            cpu.append(-1.0 if barred else min(limit[0] for limit in limits))
            memory.append(-1.0 if barred else min(limit[1] for limit in limits))
        nodes = [node for node, limit in enumerate(cpu) if limit >= item.cores and memory[node] >= item.memory]
        return Rows(cpu, memory, nodes, refusals)

    def _without_closed(self, rows: Rows) -> Rows:
        """Return the rows without closed nodes. Alike items share them."""
        found = self._closed_rows.get(id(rows))
        if found is None:
            cpu = [-1.0 if node in self.closed else limit for node, limit in enumerate(rows.cpu)]
            memory = [-1.0 if node in self.closed else limit for node, limit in enumerate(rows.memory)]
            nodes = [node for node in rows.nodes if node not in self.closed]
            found = self._closed_rows[id(rows)] = Rows(cpu, memory, nodes, rows.refusals)
        return found

    def _limits(self, part: Part, info: NodeInfo) -> tuple[float, float]:
        policy = self._admission.profile_of(part.request).policy
        return t.cast(
            "tuple[float, float]",
            tuple(
                getattr(policy, name).allocatable(info.node, part.request) * (1 + ROUNDING)
                if name in policy.enforced
                else float("inf")
                for name in ("cpu", "memory")
            ),
        )

    def _means(self) -> tuple[float, float]:
        policy = self.policy
        online = [info.node for info in self._nodes if info.node.online and info.node.memory] or [NO_NODE]
        return (
            sum(policy.cpu.allocatable(node) for node in online) / len(online) or 1.0,
            sum(policy.memory.allocatable(node) for node in online) / len(online) or 1.0,
        )
