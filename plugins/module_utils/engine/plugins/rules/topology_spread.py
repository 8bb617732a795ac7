# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TopologySpread: evenly over racks, rooms or nodes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ....model import Guest, Request, SpreadConstraint
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import FilterPlugin, PreFilterPlugin, PreScorePlugin, Scope, ScorePlugin
from ...framework.status import SKIP, Status, unresolvable, unschedulable
from ...node_selection import NODE_KEY, asked_for, label, wanted_regex
from ...selectors import selects, selects_request
from ...topology import EvenCounts

NO_LABEL = "didn't have label '{}' of a topology spread rule"
SKEWED = "would break a topology spread rule over '{}'"

SOFT = "TopologySpread/soft"
ALL_NODES = "TopologySpread/nodes"

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
    counts: EvenCounts
    itself: int
    nodes: frozenset[int]


class TopologySpread(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Rejects a node when the selected VMs in its topology domain would exceed those in the emptiest domain by more
    than C(max_skew), and nodes without the label. Constraints with C(schedule_anyway) are scored instead: 100 for the
    emptiest domain, less the more VMs there are.

    Domains are those of the nodes that the request's C(node), C(node_regex) and C(node_affinity) allow. VMs and
    containers of any status count there, templates do not.
    """

    name = "TopologySpread"
    weight = 2.0

    def signature(self, request: Request) -> Hashable:
        if not request.topology_spread:
            return None
        itself = tuple(selects_request(c.selector, request) for c in request.topology_spread)
        return request.topology_spread, itself, request.node, wanted_regex(request), request.node_required

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        if not request.topology_spread:
            return SKIP
        state[ALL_NODES] = cluster.nodes
        state[self.name] = [*_spreads(request, cluster, True), *_spreads(request, cluster, False)]
        return None

    def add_vm(self, state: CycleState, request: Request, guest: Guest, node: NodeInfo) -> Iterable[NodeInfo]:
        moved = _count(state[self.name], guest, node, 1)
        return state[ALL_NODES] if moved and self.filter_scope(request) is Scope.NODE else ()

    def remove_vm(self, state: CycleState, request: Request, guest: Guest, node: NodeInfo) -> Iterable[NodeInfo]:
        moved = _count(state[self.name], guest, node, -1)
        return state[ALL_NODES] if moved and self.filter_scope(request) is Scope.NODE else ()

    def filter_scope(self, request: Request) -> Scope:
        # With a domain per node the emptiest domain's number seldom moves; with a few domains it does all the time.
        hard = [constraint for constraint in request.topology_spread if constraint.hard]
        return Scope.NODE if all(constraint.topology_key == NODE_KEY for constraint in hard) else Scope.DOMAIN

    def domain(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        return tuple(label(node.node, c.topology_key) for c in request.topology_spread if c.hard)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        for spread in state[self.name]:
            status = fits(spread, node) if spread.constraint.hard else None
            if status is not None:
                return status
        return None

    def score_scope(self, request: Request) -> Scope:
        return Scope.NODE if all(c.hard for c in request.topology_spread) else Scope.CLUSTER

    def pre_score(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> Status | None:
        soft = [spread for spread in state.get(self.name, ()) if not spread.constraint.hard]
        if not soft:
            return SKIP
        state[SOFT] = [(spread, domain_weight(spread, nodes)) for spread in soft]
        return None

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        raw = 0.0
        for spread, weight in state[SOFT]:
            if node.index not in spread.nodes:
                return WITHOUT_LABEL
            raw += spread.counts.count(node.node) * weight + spread.constraint.max_skew - 1
        return raw

    def normalize(self, state: CycleState, request: Request, scores: list[float]) -> list[float]:
        return normalized(scores)


def fits(spread: Spread, node: NodeInfo) -> Status | None:
    """None when the VM on node would keep the constraint, else the status."""
    key = spread.constraint.topology_key
    domain = label(node.node, key)
    if domain is None:
        return unresolvable(NO_LABEL.format(key))
    skew = spread.counts.count(node.node) + spread.itself - spread.counts.lowest
    if skew <= spread.constraint.max_skew:
        return None
    return unschedulable(SKEWED.format(key), f"{domain}: skew {skew}, at most {spread.constraint.max_skew}")


def domain_weight(spread: Spread, nodes: Sequence[NodeInfo]) -> float:
    """How much each VM in a domain weighs: more when there are more domains among nodes, as each then holds fewer."""
    domains = {label(info.node, spread.constraint.topology_key) for info in nodes if info.index in spread.nodes}
    return math.log(len(domains) + 2)


def normalized(scores: Sequence[float]) -> list[float]:
    """100 x (highest + lowest - score) / highest; 0 for nodes without the label, which do not count as lowest."""
    known = [score for score in scores if score != WITHOUT_LABEL]
    highest, lowest = max(known, default=0.0), min(known, default=0.0)

    def of(score: float) -> float:
        if score == WITHOUT_LABEL:
            return 0.0
        return 100.0 * (highest + lowest - score) / highest if highest else 100.0

    return [of(score) for score in scores]


def _spreads(request: Request, cluster: ClusterState, hard: bool) -> list[Spread]:
    constraints = [c for c in request.topology_spread if c.hard is hard]
    allowed = asked_for(request)
    nodes = [
        info
        for info in cluster.nodes
        if allowed(info.node) and all(label(info.node, c.topology_key) is not None for c in constraints)
    ]
    indices = frozenset(info.index for info in nodes)
    return [_spread(request, constraint, nodes, indices) for constraint in constraints]


def _spread(
    request: Request, constraint: SpreadConstraint, nodes: Sequence[NodeInfo], indices: frozenset[int]
) -> Spread:
    key = constraint.topology_key
    domains = (label(info.node, key) or "" for info in nodes)
    counts = EvenCounts(key, partial(selects, constraint.selector), domains)
    counts.fill(nodes)
    return Spread(constraint, counts, int(selects_request(constraint.selector, request)), indices)


def _count(spreads: list[Spread], guest: Guest, node: NodeInfo, sign: int) -> bool:
    """Count guest in or out; tell whether that moved the number in the emptiest domain of a hard constraint."""
    moved = False
    for spread in spreads:
        if node.index in spread.nodes:
            before = spread.counts.lowest
            spread.counts.change(guest, node.node, sign)
            moved |= spread.constraint.hard and spread.counts.lowest != before
    return moved
