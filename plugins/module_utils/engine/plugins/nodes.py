# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins about properties of a node itself: its name, state, labels, taints, bridges and CPU types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from ...model import Expression, Node, Request
from ..cache import ClusterState, NodeInfo, of_hosts
from ..framework.interface import CycleState, Event, FilterPlugin, PreFilterPlugin, ScorePlugin, Subject
from ..framework.many_nodes import FilterOfMany
from ..framework.status import SKIP, SKIP_FILTER, SKIP_SCORE, Category, Status, unresolvable, unschedulable
from ..node_selection import HARD, SOFT, compile_node_regex, matches, matches_all, untolerated_taints
from ..patterns.names import NamePattern
from ..texts import NAMED_KINDS

OTHER_NAME = "didn't match the requested node name"


class NodeName(FilterPlugin):
    """Keeps only the node that C(node) names. A request without C(node) may go anywhere."""

    name = "NodeName"
    category = Category.PLACEMENT
    events = frozenset({Event.NODE})
    about = ("node",)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return None if request.node == node.name else unresolvable(OTHER_NAME)


NO_MATCH = "didn't match node regex '{}'"


class NodeRegex(PreFilterPlugin, FilterPlugin):
    """Keeps the nodes whose whole name matches C(node_regex), or the context key C(node.qemu-scheduler/regex).

    The pattern is always anchored at both ends. A request without a pattern may go anywhere.
    """

    name = "NodeRegex"
    category = Category.PLACEMENT
    events = frozenset({Event.NODE})
    about = ("node_regex", "context")

    def pre_enqueue(self, request: Request) -> Status | None:
        compile_node_regex(request)
        return None

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        state[self.name] = compile_node_regex(request)
        return SKIP if state[self.name] is None else None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        pattern: NamePattern = state[self.name]
        return None if pattern.matches(node.name) else unresolvable(NO_MATCH.format(pattern.text))


OFFLINE = "were offline"
MAINTENANCE = "were in HA maintenance"
DRAINED = "were drained"
NO_SIZE = "showed no CPU and memory sizes: the user needs Sys.Audit on /nodes"


class NodeReady(FilterOfMany):
    """Rejects nodes that are offline, nodes in HA maintenance (Proxmox itself would accept a VM there), nodes that
    C(node_drain) keeps free of guests, and nodes whose size Proxmox does not show to this user.
    """

    name = "NodeReady"
    category = Category.PLACEMENT
    events = frozenset({Event.NODE})

    def filter_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[Status | None]:
        return of_hosts(nodes, NodeReady, lambda hosts: [_readiness(host) for host in hosts])


def _readiness(node: Node) -> Status | None:
    """Return why no guest may come to the node now; None if it may."""
    if not node.online:
        return unschedulable(OFFLINE)
    if node.maintenance:
        return unschedulable(MAINTENANCE)
    if node.drained:
        return unschedulable(DRAINED)
    # A node that has just booted shows no size either, for some seconds.
    return None if node.memory else unschedulable(NO_SIZE)


NO_AFFINITY = "didn't match the VM's node affinity"


class NodeAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Keeps the nodes for which every required expression holds. Scores the weights of the preferred expressions that
    hold: 100 for the node where they sum up to most, 0 where none holds.

    Expressions refer to the labels in C(nodes). The label C(node) is the name of the node.
    """

    name = "NodeAffinity"
    category = Category.PLACEMENT
    weight = 2.0
    bounded = True
    events = frozenset({Event.NODE})
    about = ("node_required", "node_preferred")

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        preferred = request.node_preferred
        most = max((preference(preferred, info.node) for info in cluster.nodes), default=0) if preferred else 0
        state[self.name] = most
        if not request.node_required:
            return SKIP_FILTER if most else SKIP
        return None if most else SKIP_SCORE

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return None if matches_all(request.node_required, node.node) else unresolvable(NO_AFFINITY)

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        most: int = state[self.name]
        return 100.0 * preference(request.node_preferred, node.node) / most


def preference(expressions: Iterable[Expression], node: Node) -> int:
    """Return the sum of the weights of the expressions that hold for node."""
    return sum(expression.weight for expression in expressions if matches(expression, node))


UNTOLERATED = "had untolerated taint {{{}}}"


class TaintToleration(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects a node with a C(NoSchedule) taint that the request does not tolerate. Scores 100 for a node without
    untolerated C(PreferNoSchedule) taints, 0 for the node of the cluster with the most of them.
    """

    name = "TaintToleration"
    category = Category.PLACEMENT
    weight = 3.0
    bounded = True
    events = frozenset({Event.NODE})
    about_cluster = ("tainted",)

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        most = state[self.name] = max(_unwelcome(request, node) for node in cluster.tainted)
        return None if most else SKIP_SCORE

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        for taint in untolerated_taints(request.tolerations, node.node, HARD):
            return unresolvable(UNTOLERATED.format(f"{taint.key}: {taint.value}" if taint.value else taint.key))
        return None

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        most: int = state[self.name]
        return 100.0 * (most - _unwelcome(request, node.node)) / most


def _unwelcome(request: Request, node: Node) -> int:
    return sum(1 for _taint in untolerated_taints(request.tolerations, node, SOFT))


NO_BRIDGE = "didn't have bridge '{}'"


class NetworkBridge(FilterPlugin):
    """Rejects a node that lacks a bridge or VNet which the VM's network interfaces name.

    Proxmox would create the VM on such a node, but could not start it. The bridges of a chosen node are read before
    anything is written, with this plugin or without, unless it had them within the last hour. So the plugin costs
    nothing where all nodes have the same bridges. If a chosen node lacks one, all nodes of its cluster are read, one
    API request for each, and the run decides again; C(capacity_info) reads all that no other filter excludes for good.
    A node whose bridges cannot be read, or of which the user sees none, is accepted.
    """

    name = "NetworkBridge"
    events = frozenset({Event.NODE})
    reads = frozenset({Subject.BRIDGES})
    about = ("bridges",)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        missing = missing_bridge(request.bridges, node.node)
        return None if missing is None else unresolvable(NO_BRIDGE.format(missing))


def missing_bridge(bridges: Set[str], node: Node) -> str | None:
    """Return the first by name of the bridges that node lacks, or None."""
    return None if node.bridges is None else min(bridges - node.bridges, default=None)


NOT_THERE = "didn't have {} '{}'"


class NamedResources(FilterPlugin):
    """Rejects a node that lacks what options of the VM name: the mapping in C(virtiofs), C(hostpci) or C(usb), or a
    device that these name by its address, the snippet in C(cicustom) or C(hookscript), or the storage in
    C(vmstatestorage).

    Proxmox would create the VM on such a node, but could not start it. Costs one API request per kind of mapping; for
    snippets, one per storage and node; for devices, one per node. What cannot be read is accepted.
    """

    name = "NamedResources"
    events = frozenset({Event.NODE})
    reads = frozenset({Subject.NAMED})
    about = ("named",)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        missing = missing_resource(request, node.node)
        return None if missing is None else unresolvable(NOT_THERE.format(NAMED_KINDS[missing[0]], missing[1]))


def missing_resource(request: Request, node: Node) -> tuple[str, str] | None:
    """Return the first thing that the VM's options name and the node certainly lacks, or None."""
    return min((each for each in request.named if node.has.get(each) is False), default=None)


NO_MODEL = "couldn't run CPU type '{}'"
NO_FLAG = "didn't support CPU flag '{}'"

COMMON_CPU_TYPES = frozenset({"host", "max", "kvm32", "kvm64", "qemu32", "qemu64"})
"""CPU types that every node can run."""
_HYPER_V = "hv-"


class CPUModel(PreFilterPlugin, FilterPlugin):
    """Rejects a node that cannot run the VM's CPU type, or lacks a CPU flag that the VM turns on.

    The types C(host), C(max), C(kvm32), C(kvm64), C(qemu32) and C(qemu64) run everywhere. A node whose CPU types or
    flags were not read is accepted. Flags whose name begins with C(hv-) are not checked, as Proxmox VE does not report
    which nodes support them.
    """

    name = "CPUModel"
    events = frozenset({Event.NODE})
    reads = frozenset({Subject.CPU})
    about = ("cpu_type", "cpu_flags")

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        return SKIP if request.cpu_type in (None, *COMMON_CPU_TYPES) and not request.cpu_flags else None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        if request.cpu_type is not None and not runs_cpu_type(request.cpu_type, node.node):
            return unresolvable(NO_MODEL.format(request.cpu_type))
        missing = missing_flag(request.cpu_flags, node.node)
        return None if missing is None else unresolvable(NO_FLAG.format(missing))


def runs_cpu_type(cpu_type: str, node: Node) -> bool:
    """Whether node can run VMs of this CPU type, as far as is known."""
    return cpu_type in COMMON_CPU_TYPES or node.cpu_models is None or cpu_type in node.cpu_models


def missing_flag(flags: Set[str], node: Node) -> str | None:
    """Return the first by name of the flags that node does not support, or None."""
    told = (flag for flag in flags if not flag.startswith(_HYPER_V))
    return None if node.cpu_flags is None else min(set(told) - node.cpu_flags, default=None)
