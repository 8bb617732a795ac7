# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TaintToleration: nodes that are kept for some."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from ....model import Guest, Node, Request, Taint, Toleration
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PreFilterPlugin, ScorePlugin, SharedPlugin
from ...framework.status import SKIP, SKIP_SCORE, Category, Status, unresolvable

REASON = "had untolerated taint {{{}}}"

HARD = "NoSchedule"
SOFT = "PreferNoSchedule"


class TaintToleration(SharedPlugin, PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects a node with a C(NoSchedule) taint that the request does not tolerate. Scores 100 for a node without
    untolerated C(PreferNoSchedule) taints, 0 for the node of the cluster with the most of them.
    """

    name = "TaintToleration"
    category = Category.PLACEMENT
    weight = 3.0
    bounded = True
    events = frozenset({Event.NODE})

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return request.tolerations

    def group(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        return None

    def update(
        self, state: CycleState, request: Request, guest: Guest, node: NodeInfo, sign: int
    ) -> Iterable[NodeInfo]:
        return ()

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        tainted = [info.node for info in cluster.nodes if info.node.taints]
        most = state[self.name] = max((_unwelcome(request, node) for node in tainted), default=0)
        if not tainted:
            return SKIP
        return None if most else SKIP_SCORE

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        for taint in untolerated(request.tolerations, node.node, HARD):
            return unresolvable(REASON.format(f"{taint.key}: {taint.value}" if taint.value else taint.key))
        return None

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        most: int = state[self.name]
        return 100.0 * (most - _unwelcome(request, node.node)) / most


def untolerated(tolerations: Sequence[Toleration], node: Node, effect: str) -> Iterator[Taint]:
    """The node's taints of that effect that none of the tolerations covers."""
    return (taint for taint in node.taints if taint.effect == effect and not tolerated(tolerations, taint))


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers the taint; empty keys and effects cover all."""
    return any(
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in tolerations
    )


def _unwelcome(request: Request, node: Node) -> int:
    return sum(1 for _taint in untolerated(request.tolerations, node, SOFT))
