# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which share of a node's CPU, memory and storage would be given out, and what all scores by that notion share."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Hashable, Mapping

from ..model import Node, Request
from .cache import NodeInfo
from .conflict import Conflict
from .framework.config import Setting
from .framework.interface import Event, Scope, ScorePlugin
from .storage_classes import parse_storage_classes
from .volumes import find_volumes

SETTINGS: Mapping[str, Setting] = {
    "cpu_weight": Setting("float", 1.0, "weight of CPU within this score", minimum=0),
    "memory_weight": Setting("float", 1.0, "weight of memory within this score", minimum=0),
    "storage_weight": Setting(
        "float", 0.0, "weight of the storages that the request's drives would go to, within this score", minimum=0
    ),
    "cpu_ratio": Setting("float", 4.0, "vCPUs that may be given out per logical CPU", minimum=0),
    "memory_ratio": Setting("float", 1.0, "bytes that may be given out per byte of memory", minimum=0),
    "storage_classes": Setting("dict", {}, "storage classes by name, as VolumeBinding has them"),
}


class Share(t.NamedTuple):
    """The part of one resource that would be given out.

    weight is as configured, above 0; used is 0..1, above 1 when more would be given out than there is.
    """

    weight: float
    used: float


class Allocation:
    """How much of a node would be given out after a request went there, by configured size.

    Capacity is what may be given out: the node's CPUs and memory times the ratios, a storage's size.
    """

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        self.cpu_weight: float = config["cpu_weight"]
        self.memory_weight: float = config["memory_weight"]
        self.storage_weight: float = config["storage_weight"]
        self.cpu_ratio: float = config["cpu_ratio"]
        self.memory_ratio: float = config["memory_ratio"]
        self.classes = parse_storage_classes(config["storage_classes"])
        without_storage = self.cpu_weight + self.memory_weight or 1.0
        self._cpu_part: float = self.cpu_weight / without_storage
        self._memory_part: float = self.memory_weight / without_storage

    def signature(self, request: Request) -> Hashable:
        """What of the request the shares depend on."""
        storage = (request.disks, request.clone) if self.storage_weight else None
        return request.cores, request.memory, storage

    def mean(self, request: Request, node: NodeInfo, worth: Callable[[float], float]) -> float:
        """The mean, by the weights, of what worth makes of each resource's used share; 0 when nothing has a weight.

        The same as going through shares, which costs three times as much where storage does not count.
        """
        if self.storage_weight:
            shares = self.shares(request, node)
            return weighted_mean(shares, [worth(share.used) for share in shares])
        cpu = worth(used_share(node.cores + request.cores, cpu_capacity(node.node, self.cpu_ratio)))
        memory = worth(used_share(node.memory + request.memory, memory_capacity(node.node, self.memory_ratio)))
        return self._cpu_part * cpu + self._memory_part * memory

    def shares(self, request: Request, node: NodeInfo) -> list[Share]:
        """One share per resource that has a weight; storage only when the request's drives take space on the node."""
        shares = []
        if self.cpu_weight:
            capacity = cpu_capacity(node.node, self.cpu_ratio)
            shares.append(Share(self.cpu_weight, used_share(node.cores + request.cores, capacity)))
        if self.memory_weight:
            capacity = memory_capacity(node.node, self.memory_ratio)
            shares.append(Share(self.memory_weight, used_share(node.memory + request.memory, capacity)))
        if self.storage_weight:
            used = storage_share(request, node, self)
            if used is not None:
                shares.append(Share(self.storage_weight, used))
        return shares


class AllocationScore(ScorePlugin):
    """A score that looks at nothing but the shares of one node."""

    settings = SETTINGS
    events = frozenset({Event.NODE, Event.GUEST, Event.STORAGE})

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.allocation = Allocation(config)

    def signature(self, request: Request) -> Hashable:
        return self.allocation.signature(request)

    def score_scope(self, request: Request) -> Scope:
        return Scope.STORAGES if self.allocation.storage_weight and (request.disks or request.clone) else Scope.NODE


def cpu_capacity(host: Node, ratio: float) -> float:
    """The vCPUs that may be given out on a node; its own ratio goes before the given one."""
    return host.cores * (ratio if host.cpu_ratio is None else host.cpu_ratio)


def memory_capacity(host: Node, ratio: float) -> float:
    """The bytes of memory that may be given out on a node; its own ratio goes before the given one."""
    return host.memory * (ratio if host.memory_ratio is None else host.memory_ratio)


def used_share(used: float, capacity: float) -> float:
    """used as a part of capacity; infinite when there is no capacity."""
    return used / capacity if capacity > 0 else math.inf


def storage_share(request: Request, node: NodeInfo, allocation: Allocation) -> float | None:
    """The mean used part of the storages that the drives would go to, after they went there; None when none takes
    space.
    """
    found = find_volumes(request, node, allocation.classes)
    if isinstance(found, Conflict) or not found.bytes:
        return None
    uses = [(node.storages[name].use, size) for name, size in found.bytes.items()]
    return sum(used_share(use.total - use.free + size, use.total) for use, size in uses) / len(uses)


def weighted_mean(shares: list[Share], values: list[float]) -> float:
    """The mean of one value per share, by the shares' weights; 0 without shares."""
    total = sum(share.weight for share in shares)
    return sum(share.weight * value for share, value in zip(shares, values, strict=True)) / total if total else 0.0
