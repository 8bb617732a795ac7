# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node may allocate: overcommit ratio x (size - reserve for the host).

Each profile has one policy. The user configures it at the filters that enforce it; scores, failover headroom and
reports use it as well.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model import Node, Request, StorageClass
from .cache import NodeInfo, of_hosts


@dataclass(frozen=True, slots=True)
class Limit(abc.ABC):
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

    @abc.abstractmethod
    def terms_of(self, hosts: Iterable[Node], request: Request | None = None) -> list[tuple[float, float]]:
        """For each host its size minus the reserve, and the applicable overcommit ratio: the node's own, else that of
        the VM's pool, else the smallest of its tags, else ratio.
        """

    def terms_on(self, nodes: Sequence[NodeInfo], request: Request) -> list[tuple[float, float]]:
        """Return the same for the hosts of nodes."""
        key = type(self), self.reserved, self._ratio(request)
        return of_hosts(nodes, key, lambda hosts: self.terms_of(hosts, request))

    def terms(self, host: Node, request: Request | None = None) -> tuple[float, float]:
        """Return the same for one host."""
        return self.terms_of((host,), request)[0]

    def allocatable(self, host: Node, request: Request | None = None) -> float:
        """What host may allocate in total to requests like this one; without a request, to VMs without pool
        and tags.
        """
        size, ratio = self.terms(host, request)
        return ratio * size if size > 0 else 0.0

    def holds(self, amount: float, host: Node, request: Request | None = None) -> bool:
        """Whether host may allocate that amount in total.

        Compares the quotient with the ratio, to avoid rounding errors of the product: 1.15 times 100 is slightly below
        115.
        """
        size, ratio = self.terms(host, request)
        return size > 0 and amount / size <= ratio

    def ratio_of(self, request: Request) -> float | None:
        """Return the ratio of the VM's pool or tags, None if they have none."""
        if request.pool is not None and request.pool in self.pools:
            return self.pools[request.pool]
        return min((self.tags[tag] for tag in request.tags if tag in self.tags), default=None)

    def _ratio(self, request: Request | None) -> float:
        given = self.ratio_of(request) if request is not None and (self.pools or self.tags) else None
        return self.ratio if given is None else given


class CPULimit(Limit):
    """The limit of vCPUs."""

    __slots__ = ()

    def terms_of(self, hosts: Iterable[Node], request: Request | None = None) -> list[tuple[float, float]]:
        """Return for each host its cores less the reserve, and the ratio."""
        reserved, ratio = self.reserved, self._ratio(request)
        return [
            (
                host.cores - (reserved if host.reserved_cores is None else host.reserved_cores),
                ratio if host.cpu_ratio is None else host.cpu_ratio,
            )
            for host in hosts
        ]


class MemoryLimit(Limit):
    """The limit of memory, in bytes."""

    __slots__ = ()

    def terms_of(self, hosts: Iterable[Node], request: Request | None = None) -> list[tuple[float, float]]:
        """Return for each host its bytes less the reserve, and the ratio."""
        reserved, ratio = self.reserved, self._ratio(request)
        return [
            (
                host.memory - (reserved if host.reserved_memory is None else host.reserved_memory),
                ratio if host.memory_ratio is None else host.memory_ratio,
            )
            for host in hosts
        ]


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
