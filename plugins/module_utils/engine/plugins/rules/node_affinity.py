# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeAffinity: the nodes whose labels match."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ....model import Expression, Guest, Node, Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PreFilterPlugin, ScorePlugin, SharedPlugin
from ...framework.status import SKIP, SKIP_FILTER, SKIP_SCORE, Category, Status, unresolvable
from ...node_selection import matches, matches_all

REASON = "didn't match the VM's node affinity"


class NodeAffinity(SharedPlugin, PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Keeps the nodes for which every required expression holds. Scores the weights of the preferred expressions that
    hold: 100 for the node where they sum up to most, 0 where none holds.

    Expressions are about the labels that C(nodes) gives; C(node) is the name of the node itself.
    """

    name = "NodeAffinity"
    category = Category.PLACEMENT
    weight = 2.0
    bounded = True
    events = frozenset({Event.NODE})
    about = ("node_required", "node_preferred")

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return request.node_required, request.node_preferred

    def group(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        return None

    def update(
        self, state: CycleState, request: Request, guest: Guest, node: NodeInfo, sign: int
    ) -> Iterable[NodeInfo]:
        return ()

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        preferred = request.node_preferred
        most = max((preference(preferred, info.node) for info in cluster.nodes), default=0) if preferred else 0
        state[self.name] = most
        if not request.node_required:
            return SKIP_FILTER if most else SKIP
        return None if most else SKIP_SCORE

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return None if matches_all(request.node_required, node.node) else unresolvable(REASON)

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        most: int = state[self.name]
        return 100.0 * preference(request.node_preferred, node.node) / most


def preference(expressions: Iterable[Expression], node: Node) -> int:
    """The sum of the weights of the expressions that hold for node."""
    return sum(expression.weight for expression in expressions if matches(expression, node))
