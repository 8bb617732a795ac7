# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What plugins have in common that compare what is allocated on a node with what is allocatable: the filters that limit
the one, and the scores that measure its share."""

from __future__ import annotations

import abc
import math
import typing as t
from collections.abc import Callable, Hashable, Mapping, Sequence

from ..model import Node, Request
from .allocatable import Limit
from .cache import ClusterState, NodeInfo
from .framework.config import Setting
from .framework.cycle_state import CycleState
from .framework.interface import NOT_SHARED, Event, PerNode
from .framework.many_nodes import FilterOfMany, ScoreOfMany
from .framework.status import Category, Shortage, Status, unresolvable, unschedulable
from .volumes import volumes_on

COMMON_SETTINGS: Mapping[str, Setting] = {
    "include_stopped": Setting("bool", False, "count guests that are stopped as well; templates never count"),
    "pools": Setting("dict", {}, "ratio for the VMs of a pool, by the pool's name, instead of C(ratio)"),
    "tags": Setting("dict", {}, "ratio for the VMs with a tag, by tag, instead of C(ratio)"),
}


class Overcommit(PerNode, FilterOfMany):
    """Rejects a node where more of a resource would be allocated than its limit allows.

    Attributes:
        resource: the name of the limit in the policy.
        kind: the class of the limit.
        unit: the unit of C(reserved), in terms of the limit.
        reason: the reason of a rejection, with a placeholder for the ratio.
    """

    category = Category.CAPACITY
    resource: t.ClassVar[str]
    kind: t.ClassVar[type[Limit]]
    unit: t.ClassVar[int]
    reason: t.ClassVar[str]

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.include_stopped: bool = config["include_stopped"]
        pools, tags = (self._ratios(key) for key in ("pools", "tags"))
        reserved = config["reserved"] * self.unit
        self.sets = {self.resource: self.kind(config["ratio"], reserved, pools, tags, self.include_stopped)}

    @abc.abstractmethod
    def allocated(self, node: NodeInfo) -> float:
        """How much of the resource is allocated on node."""

    @abc.abstractmethod
    def asked(self, request: Request) -> float:
        """How much of it the request asks for."""

    @abc.abstractmethod
    def text(self, wanted: float, allocatable: float) -> str:
        """The detail of a rejection: how much would be allocated of how much."""

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        limit: Limit = getattr(self.policy, self.resource)
        return self.asked(request), limit.ratio_of(request)

    def filter_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[Status | None]:
        limit: Limit = getattr(self.policy, self.resource)
        asked, allocated = self.asked(request), self.allocated
        terms = limit.terms_of([node.node for node in nodes], request)
        return [
            None
            if size > 0 and (allocated(node) + asked) / size <= ratio
            else self._refusal(asked, allocated(node) + asked, node.node, size, ratio)
            for node, (size, ratio) in zip(nodes, terms, strict=True)
        ]

    def _refusal(self, asked: float, wanted: float, host: Node, size: float, ratio: float) -> Status:
        # The size of an offline node is not known: it may be large enough.
        known = host.cores and host.memory
        fits_alone = size > 0 and asked / size <= ratio
        refused = unschedulable if fits_alone or not known else unresolvable
        allocatable = ratio * size if size > 0 else 0.0
        return refused(
            self.reason.format(ratio),
            self.text(wanted, allocatable),
            Shortage(self.resource, wanted - allocatable),
        )

    def _ratios(self, key: str) -> dict[str, float]:
        ratio = Setting("float", 1.0, "", minimum=0)
        where = f"{self.name}.config.{key}"
        return {name: ratio.check(f"{where}.{name}", value) for name, value in self.config[key].items()}


SETTINGS: Mapping[str, Setting] = {
    "cpu_weight": Setting("float", 1.0, "weight of CPU within this score", minimum=0),
    "memory_weight": Setting("float", 1.0, "weight of memory within this score", minimum=0),
    "storage_weight": Setting(
        "float", 0.0, "weight of the storages that the request's drives would go to, within this score", minimum=0
    ),
}


class Share(t.NamedTuple):
    """The allocated share of one resource.

    weight is as configured, above 0; used is 0..1, above 1 if more would be allocated than is allocatable.
    """

    weight: float
    used: float


class AllocationScore(PerNode, ScoreOfMany):
    """A score that depends only on how much of a node would be allocated with the request on it.

    Guests count by their configured size, even if stopped, as they may be started at any time; templates do not count.
    CPUOvercommit and MemoryOvercommit define what is allocatable; for a storage, it is the size.
    """

    bounded = True
    settings = SETTINGS
    events = frozenset({Event.NODE, Event.GUEST, Event.STORAGE})

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.cpu_weight: float = config["cpu_weight"]
        self.memory_weight: float = config["memory_weight"]
        self.storage_weight: float = config["storage_weight"]
        without_storage = self.cpu_weight + self.memory_weight or 1.0
        self._cpu_part: float = self.cpu_weight / without_storage
        self._memory_part: float = self.memory_weight / without_storage

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        if self.storage_weight and (request.disks or request.clone):
            return NOT_SHARED
        return request.cores, request.memory, self.policy.ratios_of(request)

    def means(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], worth: Callable[[float], float]
    ) -> list[float]:
        """For each node the weighted mean of worth(used share) over the resources; 0 if none has a weight.

        Equals going through shares, but is three times as fast if storage has no weight.
        """
        if self.storage_weight:
            of_nodes = [self.shares(state, request, node) for node in nodes]
            return [weighted_mean(shares, [worth(share.used) for share in shares]) for shares in of_nodes]
        hosts = [node.node for node in nodes]
        cores, memory, cpu_part, memory_part = request.cores, request.memory, self._cpu_part, self._memory_part
        limits = self.policy.cpu.terms_of(hosts, request), self.policy.memory.terms_of(hosts, request)
        return [
            cpu_part * worth(used_share(node.cores_all + cores, cpus * cpu_ratio))
            + memory_part * worth(used_share(node.memory_all + memory, size * ratio))
            for node, (cpus, cpu_ratio), (size, ratio) in zip(nodes, *limits, strict=True)
        ]

    def shares(self, state: CycleState, request: Request, node: NodeInfo) -> list[Share]:
        """The shares of the resources with a weight; storage only if the request's drives take space on the node."""
        shares = []
        if self.cpu_weight:
            shares.append(Share(self.cpu_weight, self._cpu(request, node)))
        if self.memory_weight:
            shares.append(Share(self.memory_weight, self._memory(request, node)))
        if self.storage_weight:
            used = self._storage(state, request, node)
            if used is not None:
                shares.append(Share(self.storage_weight, used))
        return shares

    def _cpu(self, request: Request, node: NodeInfo) -> float:
        return used_share(node.cores_all + request.cores, self.policy.cpu.allocatable(node.node, request))

    def _memory(self, request: Request, node: NodeInfo) -> float:
        return used_share(node.memory_all + request.memory, self.policy.memory.allocatable(node.node, request))

    def _storage(self, state: CycleState, request: Request, node: NodeInfo) -> float | None:
        """The mean used share of the storages that the drives would go to, including the drives; None if none takes
        space.
        """
        found = volumes_on(state, request, node, self.policy.storage_classes)
        if isinstance(found, Status) or not found.bytes:
            return None
        uses = [(node.storages[name].use, size) for name, size in found.bytes.items()]
        return sum(used_share(use.total - use.free + size, use.total) for use, size in uses) / len(uses)


def used_share(used: float, capacity: float) -> float:
    """used / capacity; infinite if there is no capacity."""
    return used / capacity if capacity > 0 else math.inf


def weighted_mean(shares: list[Share], values: list[float]) -> float:
    """The mean of one value per share, by the shares' weights; 0 without shares."""
    total = sum(share.weight for share in shares)
    return sum(share.weight * value for share, value in zip(shares, values, strict=True)) / total if total else 0.0
