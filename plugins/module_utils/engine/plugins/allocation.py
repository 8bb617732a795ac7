# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scores that compare what would be allocated on a node, with the request on it, with what is allocatable there."""

from __future__ import annotations

import bisect
import math
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ...errors import InvalidPluginConfig
from ...model import Request
from ..bindings import volumes_of
from ..cache import NodeInfo, of_sums
from ..framework.interface import CycleState, Event, Setting, check_settings
from ..framework.many_nodes import ScoreOfMany
from ..framework.status import Status

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


class AllocationScore(ScoreOfMany):
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

    def means(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], worth: Callable[[float], float]
    ) -> list[float]:
        """Return for each node the weighted mean of worth(used share) over the resources; 0 if none has a weight.

        Equals going through shares, but is three times as fast if storage has no weight.
        """
        if self.storage_weight:
            of_nodes = [self.shares(state, request, node) for node in nodes]
            return [weighted_mean(shares, [worth(share.used) for share in shares]) for shares in of_nodes]
        cores, memory, cpu_part, memory_part = request.cores, request.memory, self._cpu_part, self._memory_part
        cpu_limit, memory_limit = self.policy.cpu, self.policy.memory

        def mean(some: Sequence[NodeInfo]) -> list[float]:
            limits = cpu_limit.on_nodes(some, request), memory_limit.on_nodes(some, request)
            return [
                cpu_part * worth(used_share(node.cores_all + cores, cpus * cpu_ratio))
                + memory_part * worth(used_share(node.memory_all + memory, size * ratio))
                for node, (cpus, cpu_ratio), (size, ratio) in zip(some, *limits, strict=True)
            ]

        key = self, cores, memory, cpu_limit.ratio_of(request), memory_limit.ratio_of(request)
        return of_sums(nodes, key, mean)

    def shares(self, state: CycleState, request: Request, node: NodeInfo) -> list[Share]:
        """Return the shares of the resources with a weight; storage only if the request's drives take space on the
        node.
        """
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
        """Return the mean used share of the storages that the drives would go to, including the drives; None if none
        takes space.
        """
        (found,) = volumes_of(state, request, (node,), self.policy.storage_classes)
        if isinstance(found, Status) or not found.bytes:
            return None
        uses = [(node.storages[name].use, size) for name, size in found.bytes.items()]
        return sum(used_share(use.total - use.free + size, use.total) for use, size in uses) / len(uses)


def used_share(used: float, capacity: float) -> float:
    """Return used / capacity; infinite if there is no capacity."""
    return used / capacity if capacity > 0 else math.inf


def weighted_mean(shares: list[Share], values: list[float]) -> float:
    """Return the mean of one value per share, by the shares' weights; 0 without shares."""
    total = sum(share.weight for share in shares)
    return sum(share.weight * value for share, value in zip(shares, values, strict=True)) / total if total else 0.0


class LeastAllocated(AllocationScore):
    """Scores 100 for a node whose CPU and memory would be completely free after the request, 0 for one where both would
    be completely allocated.

    The weighted mean of both, and of storage if it has a weight. Guests count with their configured size, whether they
    run or not. CPUOvercommit and MemoryOvercommit define what is allocatable: ratio x (size - reserve).
    """

    name = "LeastAllocated"

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        return [100.0 * mean for mean in self.means(state, request, nodes, free_part)]


def free_part(used: float) -> float:
    """Return the fraction of a resource that is left, 0..1."""
    return 1.0 - used if used < 1.0 else 0.0


class MostAllocated(AllocationScore):
    """Scores 100 for a node whose CPU and memory would be completely allocated after the request, 0 for one where both
    would be completely free. Off by default.

    The weighted mean of both, and of storage if it has a weight. Guests count with their configured size, whether they
    run or not. A resource of which more would be allocated than is allocatable scores 0.
    """

    name = "MostAllocated"
    enabled = False

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        return [100.0 * mean for mean in self.means(state, request, nodes, used_part)]


def used_part(used: float) -> float:
    """Return the allocated part of a resource, 0..1; nothing when it is overfull."""
    return used if used <= 1.0 else 0.0


_POINT: Mapping[str, Setting] = {
    "utilization": Setting("float", None, "percentage of what is allocatable, 0..100", minimum=0),
    "score": Setting("float", None, "what that is worth, 0..10", minimum=0),
}


class RequestedToCapacityRatio(AllocationScore):
    """Scores a node by the percentage of its allocatable CPU and memory that would be allocated after the request,
    interpolated linearly between the points of C(shape). Off by default.

    A point is C({utilization: 0..100, score: 0..10}). By default, the score rises from 0 for an empty node to 10 for a
    full one. Before the first and after the last point, the score is constant. CPU, memory and storage are scored one
    by one and averaged by weight.
    """

    name = "RequestedToCapacityRatio"
    enabled = False
    settings = {
        "shape": Setting(
            "list",
            [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
            "points of utilization (percent, rising) and score (0..10)",
        ),
        **SETTINGS,
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.line = read_shape(f"{self.name}.config.shape", config["shape"])

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        return self.means(state, request, nodes, lambda used: height(self.line, 100.0 * used))


def read_shape(where: str, points: list[t.Any]) -> list[tuple[float, float]]:
    """Return the points as (utilization, score), both 0..100. Raises InvalidPluginConfig."""
    line: list[tuple[float, float]] = []
    for number, point in enumerate(points):
        values = check_settings(f"{where}[{number}]", _POINT, point)
        utilization, score = values["utilization"], values["score"]
        if utilization is None or utilization > 100:
            raise InvalidPluginConfig(f"{where}[{number}].utilization: expected 0..100, got {utilization!r}")
        if score is None or score > 10:
            raise InvalidPluginConfig(f"{where}[{number}].score: expected 0..10, got {score!r}")
        if line and utilization <= line[-1][0]:
            raise InvalidPluginConfig(
                f"{where}[{number}].utilization: expected more than {line[-1][0]:g}, got {utilization:g}"
            )
        line.append((utilization, 10.0 * score))
    if not line:
        raise InvalidPluginConfig(f"{where}: expected at least one point")
    return line


def height(line: list[tuple[float, float]], at: float) -> float:
    """Return the height of the broken line at a point; level before its first and after its last point."""
    right = bisect.bisect_left(line, at, key=lambda point: point[0])
    if right == 0:
        return line[0][1]
    if right == len(line):
        return line[-1][1]
    (x0, y0), (x1, y1) = line[right - 1], line[right]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


class BalancedAllocation(AllocationScore):
    """Scores 100 for a node of whose CPU and memory the same fraction would be allocated after the request, less the
    more these fractions differ: 100 x (1 - standard deviation). Off by default.

    It does not depend on how full a node is: combine it with another score, and give it a small weight. Storage counts
    if it has a weight.
    """

    name = "BalancedAllocation"
    enabled = False

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        return [100.0 * (1.0 - deviation(self.shares(state, request, node))) for node in nodes]


def deviation(shares: list[Share]) -> float:
    """Return the weighted standard deviation of the used parts, each capped at 1. For two parts of equal weight,
    it is half their distance.
    """
    used = [min(share.used, 1.0) for share in shares]
    mean = weighted_mean(shares, used)
    return math.sqrt(weighted_mean(shares, [(part - mean) ** 2 for part in used]))
