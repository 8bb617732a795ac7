# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TopologySpread: evenly over racks, rooms or nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...model import Request, SpreadConstraint
from ..cache import ClusterState, NodeInfo
from ..framework.interface import CycleState, FilterPlugin, PreFilterPlugin, ScorePlugin
from ..framework.status import SKIP_FILTER, SKIP_SCORE, Status, unresolvable, unschedulable
from ..node_selection import label, node_matcher
from ..selectors import selects_request
from ..topology import DomainCounts

NO_LABEL = "didn't have label '{}' of a topology spread rule"
SKEWED = "would break a topology spread rule over '{}'"

WITHOUT_LABEL = -1.0
"""The raw score of a node that lacks a label; below every other, as those count VMs."""


@dataclass(slots=True)
class Spread:
    """One constraint with the VMs that it is about, counted by domain.

    Attributes:
        itself: 1 when the request is among these VMs, else 0.
        nodes: indices of the nodes that make up the domains.
    """

    constraint: SpreadConstraint
    counts: DomainCounts
    itself: int
    nodes: frozenset[int]


@dataclass(slots=True)
class CountedSpreads:
    """The constraints of a request, and the weights of the soft ones."""

    hard: list[Spread]
    soft: list[Spread]
    weights: list[float]


class TopologySpread(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects a node when the selected VMs in its topology domain would exceed those in the emptiest domain by more
    than C(max_skew), and nodes without the label. Constraints with C(schedule_anyway) are scored instead: 100 for the
    emptiest domain, less the more VMs there are.

    Domains are those of the nodes that the request's C(node), C(node_regex) and C(node_affinity) allow, whether or not
    other filters reject these nodes, both for filtering and for scoring; Kubernetes scores only domains of nodes that
    passed. VMs and containers of any status count there, templates do not.
    """

    name = "TopologySpread"
    weight = 2.0
    selective = True
    about = ("topology_spread",)

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        hard, soft = _spreads(request, cluster, True), _spreads(request, cluster, False)
        state[self.name] = CountedSpreads(hard, soft, [domain_weight(spread) for spread in soft])
        if not hard:
            return SKIP_FILTER
        return None if soft else SKIP_SCORE

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        counted: CountedSpreads = state[self.name]
        for spread in counted.hard:
            status = _refusal(spread, node)
            if status is not None:
                return status
        return None

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        counted: CountedSpreads = state[self.name]
        raw = 0.0
        for spread, weight in zip(counted.soft, counted.weights, strict=True):
            if node.index not in spread.nodes:
                return WITHOUT_LABEL
            raw += spread.counts.count(node.node) * weight + spread.constraint.max_skew - 1
        return raw

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        return normalize_counts(scores)


def _refusal(spread: Spread, node: NodeInfo) -> Status | None:
    """Return None if the VM on node would keep the constraint, else the status."""
    key = spread.constraint.topology_key
    domain = label(node.node, key)
    if domain is None:
        return unresolvable(NO_LABEL.format(key))
    skew = spread.counts.count(node.node) + spread.itself - spread.counts.lowest
    if skew <= spread.constraint.max_skew:
        return None
    return unschedulable(SKEWED.format(key), f"{domain}: skew {skew}, at most {spread.constraint.max_skew}")


def domain_weight(spread: Spread) -> float:
    """Return how much each VM in a domain weighs: more when there are more domains, as each then holds fewer."""
    return math.log(len(spread.counts) + 2)


def normalize_counts(scores: Sequence[float]) -> list[float]:
    """Return 100 x (highest + lowest - score) / highest; 0 for nodes without the label, which do not count as lowest.
    """
    known = [score for score in scores if score != WITHOUT_LABEL]
    highest, lowest = max(known, default=0.0), min(known, default=0.0)

    def of(score: float) -> float:
        if score == WITHOUT_LABEL:
            return 0.0
        return 100.0 * (highest + lowest - score) / highest if highest else 100.0

    return [of(score) for score in scores]


def _spreads(request: Request, cluster: ClusterState, hard: bool) -> list[Spread]:
    """Return how the selected guests are spread, for each hard or each soft constraint of the request."""
    constraints = [c for c in request.topology_spread if c.hard is hard]
    allowed = node_matcher(request)
    nodes = [
        info
        for info in cluster.nodes
        if allowed(info.node) and all(label(info.node, c.topology_key) is not None for c in constraints)
    ]
    indices = frozenset(info.index for info in nodes)
    return [_spread(request, constraint, cluster, indices) for constraint in constraints]


def _spread(request: Request, constraint: SpreadConstraint, cluster: ClusterState, indices: frozenset[int]) -> Spread:
    key, selector = constraint.topology_key, constraint.selector
    nodes = (info.node for info in cluster.nodes if info.index in indices)
    counts = DomainCounts(key, cluster.select(selector), nodes)
    return Spread(constraint, counts, int(selects_request(selector, request)), indices)
