# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters that limit how much a node may hold: CPU, memory, guests, and room for the guests of a lost node."""

from __future__ import annotations

import abc
import math
import operator
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...model import GIB, MIB, Node, Request
from ..allocatable import CPULimit, Limit, MemoryLimit
from ..cache import ClusterState, NodeInfo, of_hosts, of_sums
from ..framework.deferred import DeferredFilter
from ..framework.interface import CycleState, Event, FilterPlugin, PreFilterPlugin, Setting, Subject
from ..framework.many_nodes import FilterOfMany
from ..framework.status import SKIP, Category, Shortage, Status, unresolvable, unschedulable
from ..texts import vcpus

if t.TYPE_CHECKING:
    from ..evacuees import GuestSize, Limits
    from ..headroom import Headroom

RATIO = Setting("float", 1.0, "", minimum=0)

COMMON_SETTINGS: Mapping[str, Setting] = {
    "include_stopped": Setting("bool", False, "count guests that are stopped as well; templates never count"),
    "pools": Setting("dict", {}, "ratio for the VMs of a pool, by the pool's name, instead of C(ratio)", values=RATIO),
    "tags": Setting("dict", {}, "ratio for the VMs with a tag, by tag, instead of C(ratio)", values=RATIO),
}


class Overcommit(FilterOfMany):
    """Rejects a node where more of a resource would be allocated than its limit allows.

    Attributes:
        resource: the name of the limit in the policy.
        kind: the class of the limit.
        amount: the attribute of requests and of nodes that counts.
        unit: the unit of C(reserved), in terms of the limit.
        reason: the reason of a rejection, with a placeholder for the ratio.
    """

    category = Category.CAPACITY
    resource: t.ClassVar[str]
    kind: t.ClassVar[type[Limit]]
    amount: t.ClassVar[str]
    unit: t.ClassVar[int]
    reason: t.ClassVar[str]

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        stopped: bool = config["include_stopped"]
        reserved = config["reserved"] * self.unit
        self.sets = {self.resource: self.kind(config["ratio"], reserved, config["pools"], config["tags"], stopped)}
        self._requested = operator.attrgetter(self.amount)
        self._allocated = operator.attrgetter(f"{self.amount}_all" if stopped else self.amount)

    @abc.abstractmethod
    def text(self, wanted: float, allocatable: float) -> str:
        """Return the detail of a rejection: how much would be allocated of how much."""

    def filter_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[Status | None]:
        limit: Limit = getattr(self.policy, self.resource)
        asked, allocated = self._requested(request), self._allocated

        def judge(some: Sequence[NodeInfo]) -> list[Status | None]:
            return [
                None
                if size > 0 and (allocated(node) + asked) / size <= ratio
                else self._refusal(asked, allocated(node) + asked, node.node, size, ratio)
                for node, (size, ratio) in zip(some, limit.on_nodes(some, request), strict=True)
            ]

        return of_sums(nodes, (self, asked, limit.ratio_of(request)), judge)

    def _refusal(self, asked: float, wanted: float, host: Node, size: float, ratio: float) -> Status:
        """Return the status of a node whose limit would be exceeded. No event helps a request that is larger than the
        limit itself.
        """
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


class CPUOvercommit(Overcommit):
    """Rejects a node when (vCPUs of its running guests + the request's) / (its logical CPUs - reserved) exceeds the
    overcommit ratio, 4 by default.

    VMs, containers and earlier decisions of this run count. The ratio is that of the node (C(nodes)), else of the VM's
    pool, else the smallest of its tags, else C(ratio). Scores use the same limits. The run does not wait for a VM that
    even the empty node could not hold.
    """

    name = "CPUOvercommit"
    resource = "cpu"
    kind = CPULimit
    amount = "cores"
    unit = 1
    reason = "would exceed the CPU overcommit ratio {}"
    settings = {
        "ratio": Setting("float", 4.0, "CPU overcommit ratio: vCPUs per logical CPU", minimum=0),
        "reserved": Setting("float", 0.0, "logical CPUs kept for the host", minimum=0),
        **COMMON_SETTINGS,
    }

    def text(self, wanted: float, allocatable: float) -> str:
        return f"{vcpus(wanted)} against a limit of {allocatable:g}"


class MemoryOvercommit(Overcommit):
    """Rejects a node when (memory of its running guests + the request's) / (its memory - reserved) exceeds the
    overcommit ratio, 1 by default.

    The configured memory counts, not what a guest uses at the moment. VMs, containers and earlier decisions of this run
    count. The ratio is that of the node (C(nodes)), else of the VM's pool, else the smallest of its tags, else
    C(ratio). Scores use the same limits. The run does not wait for a VM that even the empty node could not hold.
    """

    name = "MemoryOvercommit"
    resource = "memory"
    kind = MemoryLimit
    amount = "memory"
    unit = MIB
    reason = "would exceed the memory overcommit ratio {}"
    settings = {
        "ratio": Setting("float", 1.0, "memory overcommit ratio", minimum=0),
        "reserved": Setting("float", 0.0, "MiB kept for the host", minimum=0),
        **COMMON_SETTINGS,
    }

    def text(self, wanted: float, allocatable: float) -> str:
        return f"{wanted / GIB:.1f} GiB against a limit of {allocatable / GIB:.1f} GiB"


TOO_FEW_CPUS = "had fewer CPUs than the VM has vCPUs"


class VCPULimit(FilterOfMany):
    """Rejects a node that has fewer logical CPUs than the VM has vCPUs: C(cores) times C(sockets), even if C(vcpus) is
    lower.

    Proxmox VE creates such a VM and then refuses to start it, whatever the overcommit ratio. A node whose number of
    CPUs is unknown is accepted.
    """

    name = "VCPULimit"
    category = Category.CAPACITY
    events = frozenset({Event.NODE})

    def filter_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[Status | None]:
        most = most_vcpus(request)
        if most <= of_hosts(nodes, VCPULimit, _fewest_cpus):
            return [None] * len(nodes)
        return [
            None if most <= (node.node.cores or most) else unresolvable(TOO_FEW_CPUS, _too_few(most, node.node))
            for node in nodes
        ]


def _fewest_cpus(hosts: Iterable[Node]) -> float:
    return min((host.cores for host in hosts if host.cores), default=math.inf)


def _too_few(most: float, node: Node) -> str:
    return f"{vcpus(most)}, the node has {node.cores}"


def most_vcpus(request: Request) -> float:
    """Return the vCPUs of the VM, with those that can be plugged in."""
    return max(request.cores, request.cores_max)


def fits(request: Request, node: Node) -> bool:
    """Whether Proxmox VE would start the VM on the node."""
    return not node.cores or most_vcpus(request) <= node.cores


TOO_MANY = "reached max_guests {}"
MOST_TAGGED = Setting("int", 0, "", minimum=1)
TOO_MANY_TAGGED = "reached the limit {} of guests with tag '{}'"


class GuestLimit(PreFilterPlugin, FilterPlugin):
    """Rejects a node that holds C(max_guests) guests already, or as many guests with one of the request's tags as
    C(tags) allows. No limit by default.

    VMs and containers of any status count, templates do not.
    """

    name = "GuestLimit"
    category = Category.CAPACITY
    settings = {
        "max_guests": Setting("int", None, "guests that a node may hold; not set: any number", minimum=1),
        "tags": Setting("dict", {}, "guests with a tag that a node may hold, by tag", values=MOST_TAGGED),
    }
    idle_without = ("max_guests", "tags")

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        tags: Mapping[str, int] = self.config["tags"]
        limits = state[self.name] = {tag: tags[tag] for tag in sorted(request.tags & tags.keys())}
        return None if limits or self.config["max_guests"] is not None else SKIP

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        most, limits = t.cast("int | None", self.config["max_guests"]), t.cast("dict[str, int]", state[self.name])
        if most is not None and (holds := guests_with(node)) >= most:
            return unschedulable(TOO_MANY.format(most), f"it holds {holds}")
        for tag, limit in limits.items():
            if (holds := guests_with(node, tag)) >= limit:
                return unschedulable(TOO_MANY_TAGGED.format(limit, tag), f"it holds {holds}")
        return None


def guests_with(node: NodeInfo, tag: str | None = None) -> int:
    """Return the number of guests on the node, without templates; with a tag, only the guests that have it."""
    return sum(1 for guest in node.guests if not guest.template and (tag is None or tag in guest.tags))


NO_HEADROOM = "would leave no headroom in CPU and memory for the loss of a node"
NEW, EXISTING = "the new VM", "the VM"


class FailoverHeadroom(PreFilterPlugin, DeferredFilter):
    """Rejects a node when, with the VM on it, the loss of some node could no longer be absorbed by the others: its
    running guests, largest first, would not all fit in what is left to allocate on the remaining nodes. Off by default.

    CPU, memory and taints count, and the rules that bind guests of the cluster to nodes or keep them apart on nodes:
    strict HA rules, the rules of tags and those that the task lists. Other rules, local disks and devices do not count,
    and can keep a guest of a lost node off the others. Nor does a rule that leaves a guest no other node at all: no
    room would help it. The limits after a loss are those of CPUOvercommit and MemoryOvercommit,
    unless others are given here. If the cluster could not absorb a loss even without the VM, every node is rejected.
    Nodes in HA maintenance, and drained nodes, do not take guests of a lost node.
    """

    name = "FailoverHeadroom"
    category = Category.CAPACITY
    enabled = False
    reads = frozenset({Subject.HA_RULES})
    settings = {
        "cpu_ratio": Setting("float", None, "CPU overcommit ratio after a loss", minimum=0),
        "memory_ratio": Setting("float", None, "memory overcommit ratio after a loss", minimum=0),
        "cpu_reserved": Setting("float", None, "logical CPUs kept for the host", minimum=0),
        "memory_reserved": Setting("float", None, "MiB kept for the host", minimum=0),
    }

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        from ..evacuees import GuestSize, Room, label

        name = NEW if request.vmid is None else EXISTING
        name = label(request.name, request.vmid) if request.existing else name
        state[self.name] = (
            cluster.derive_once(self, self._headroom),
            GuestSize(Room(request.memory, request.cores), name),
        )
        return None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        asked: tuple[Headroom, GuestSize] = state[self.name]
        headroom, load = asked
        found = headroom.find_stranding(node, load)
        if found is None:
            return None
        memory, cores = found.guest.size
        parts = [f"{memory / GIB:.1f} GiB"] if memory >= GIB / 20 else []
        parts += [vcpus(cores)] if cores else []
        size = f" of {' and '.join(parts)}" if parts else ""
        return unschedulable(NO_HEADROOM, f"the loss of {found.lost} would strand {found.guest.label}{size}")

    def is_certain(self, cluster: ClusterState) -> bool:
        from ..plenty import has_plenty

        return has_plenty(cluster, self._limits())

    def _headroom(self, cluster: ClusterState) -> Headroom:
        from ..headroom import Headroom

        return Headroom(cluster, self._limits())

    def _limits(self) -> Limits:
        from ..evacuees import Limits

        return Limits(self._limit("cpu", 1), self._limit("memory", MIB))

    def _limit(self, resource: str, unit: int) -> Limit | None:
        """Return the limit after a loss; None where neither the profile nor this plugin's config sets one."""
        limit: Limit = getattr(self.policy, resource)
        ratio, reserved = self.config[f"{resource}_ratio"], self.config[f"{resource}_reserved"]
        if ratio is None and resource not in self.policy.enforced:
            return None
        return replace(
            limit,
            ratio=limit.ratio if ratio is None else ratio,
            reserved=limit.reserved if reserved is None else reserved * unit,
        )
