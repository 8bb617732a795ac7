# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node may allocate: the overcommit ratio times its size less the reserve for the host.

A profile has one policy. The filters that enforce it are where the user configures it; scores, the headroom for a lost
node and reports read the same.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ..model import Node, Request, StorageClass


@dataclass(frozen=True, slots=True)
class Limit(abc.ABC):
    """How much of one resource of a node may be allocated.

    Attributes:
        ratio: the overcommit ratio where nothing more particular is given.
        reserved: what is kept for the host, where the node has no reserve of its own.
        pools, tags: overcommit ratios for the VMs of a pool, or with a tag.
        include_stopped: whether guests that are stopped count as well.
    """

    ratio: float
    reserved: float = 0.0
    pools: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, float] = field(default_factory=dict)
    include_stopped: bool = False

    @abc.abstractmethod
    def terms(self, host: Node, request: Request | None = None) -> tuple[float, float]:
        """The node's size less the reserve, and the overcommit ratio in force: the node's own, else that of the VM's
        pool, else the smallest of its tags, else ratio.
        """

    def allocatable(self, host: Node, request: Request | None = None) -> float:
        """What host may allocate to requests like this one, or to one without pool and tags."""
        size, ratio = self.terms(host, request)
        return ratio * size if size > 0 else 0.0

    def holds(self, amount: float, host: Node, request: Request | None = None) -> bool:
        """Whether host may allocate that amount in all.

        The quotient is compared, which is rounded as the ratio itself was: 1.15 times 100 comes out below 115.
        """
        size, ratio = self.terms(host, request)
        return size > 0 and amount / size <= ratio

    def ratio_of(self, request: Request) -> float | None:
        """The ratio that the VM's pool or tags give it, None where they give none."""
        if request.pool is not None and request.pool in self.pools:
            return self.pools[request.pool]
        return min((self.tags[tag] for tag in request.tags if tag in self.tags), default=None)

    def _ratio(self, request: Request | None) -> float:
        given = self.ratio_of(request) if request is not None and (self.pools or self.tags) else None
        return self.ratio if given is None else given


class CPULimit(Limit):
    """Of logical CPUs, in vCPUs."""

    __slots__ = ()

    def terms(self, host: Node, request: Request | None = None) -> tuple[float, float]:
        reserved = self.reserved if host.reserved_cores is None else host.reserved_cores
        return host.cores - reserved, self._ratio(request) if host.cpu_ratio is None else host.cpu_ratio


class MemoryLimit(Limit):
    """Of memory, in bytes."""

    __slots__ = ()

    def terms(self, host: Node, request: Request | None = None) -> tuple[float, float]:
        reserved = self.reserved if host.reserved_memory is None else host.reserved_memory
        return host.memory - reserved, self._ratio(request) if host.memory_ratio is None else host.memory_ratio


@dataclass(frozen=True, slots=True)
class Policy:
    """What is configured once and holds for all plugins of a profile.

    Attributes:
        enforced: the names of those of the other attributes that an enabled plugin has set.
    """

    cpu: Limit = field(default_factory=lambda: CPULimit(4.0))
    memory: Limit = field(default_factory=lambda: MemoryLimit(1.0))
    storage_classes: Mapping[str, StorageClass] = field(default_factory=dict)
    enforced: frozenset[str] = frozenset()

    def ratios_of(self, request: Request) -> Hashable:
        """What of the request the limits depend on."""
        return self.cpu.ratio_of(request), self.memory.ratio_of(request)
