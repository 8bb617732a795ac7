# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node may allocate: overcommit ratio x (size - reserve for the host).

Each profile has one policy. The user configures it at the filters that enforce it; scores, failover headroom and
reports use it as well.
"""

from __future__ import annotations

import operator
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model import Node, Request, StorageClass
from .cache import NodeInfo, of_hosts


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of one resource of a node may be allocated.

    Attributes:
        ratio: the default overcommit ratio.
        reserved: the reserve for the host, for nodes without a reserve of their own.
        pools, tags: overcommit ratios for VMs by their pool or tag.
        include_stopped: whether stopped guests count, too.
    """

    ratio: float
    reserved: float = 0.0
    pools: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, float] = field(default_factory=dict)
    include_stopped: bool = False

    own: t.ClassVar[operator.attrgetter[tuple[float, float | None, float | None]]]
    """The size of a host, and the reserve and the ratio that it has of its own."""

    def sizes_and_ratios(self, hosts: Iterable[Node], request: Request | None = None) -> list[tuple[float, float]]:
        """Return for each host its size minus the reserve, and the applicable overcommit ratio: the node's own, else
        that of the VM's pool, else the smallest of its tags, else ratio.
        """
        reserved, ratio = self.reserved, self.ratio_of(request)
        return [
            (size - (reserved if own_reserve is None else own_reserve), ratio if own_ratio is None else own_ratio)
            for size, own_reserve, own_ratio in map(self.own, hosts)
        ]

    def on_nodes(self, nodes: Sequence[NodeInfo], request: Request) -> list[tuple[float, float]]:
        """Return the same for the hosts of nodes."""
        key = type(self), self.reserved, self.ratio_of(request)
        return of_hosts(nodes, key, lambda hosts: self.sizes_and_ratios(hosts, request))

    def allocatable(self, host: Node, request: Request | None = None) -> float:
        """Return how much host may allocate in total to requests like this one; without a request, to VMs without pool
        and tags.
        """
        ((size, ratio),) = self.sizes_and_ratios((host,), request)
        return ratio * size if size > 0 else 0.0

    def holds(self, amount: float, host: Node, request: Request | None = None) -> bool:
        """Whether host may allocate that amount in total.

        Compares the quotient with the ratio, to avoid rounding errors of the product: 1.15 times 100 is slightly below
        115.
        """
        ((size, ratio),) = self.sizes_and_ratios((host,), request)
        return size > 0 and amount / size <= ratio

    def ratio_of(self, request: Request | None) -> float:
        """Return the ratio for VMs like the request, on nodes without a ratio of their own."""
        if request is None:
            return self.ratio
        if request.pool is not None and request.pool in self.pools:
            return self.pools[request.pool]
        return min((self.tags[tag] for tag in request.tags if tag in self.tags), default=self.ratio)


class CPULimit(Limit):
    """The limit of vCPUs."""

    __slots__ = ()
    own = operator.attrgetter("cores", "reserved_cores", "cpu_ratio")


class MemoryLimit(Limit):
    """The limit of memory, in bytes."""

    __slots__ = ()
    own = operator.attrgetter("memory", "reserved_memory", "memory_ratio")


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that all plugins of a profile share.

    Attributes:
        enforced: the names of the other attributes that enabled plugins have set.
    """

    cpu: Limit = field(default_factory=lambda: CPULimit(4.0))
    memory: Limit = field(default_factory=lambda: MemoryLimit(1.0))
    storage_classes: Mapping[str, StorageClass] = field(default_factory=dict)
    enforced: frozenset[str] = frozenset()
