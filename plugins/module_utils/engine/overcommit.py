# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base class of the filters that limit how much of a node's CPU or memory is allocated."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Hashable, Mapping, Sequence

from ..model import Node, Request
from .allocatable import Limit
from .cache import ClusterState, NodeInfo
from .framework.config import Setting
from .framework.cycle_state import CycleState
from .framework.interface import PerNode
from .framework.many_nodes import FilterOfMany
from .framework.status import Category, Shortage, Status, unresolvable, unschedulable

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
