# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMAffinity: affinity and anti-affinity to other VMs."""

from __future__ import annotations

from dataclasses import dataclass

from ...model import AffinityTerm, Node, Request
from ..cache import ClusterState, NodeInfo
from ..framework.interface import CycleState, FilterPlugin, PreFilterPlugin, ScorePlugin
from ..framework.status import SKIP, SKIP_FILTER, SKIP_SCORE, Status, unresolvable, unschedulable
from ..guest_index import GuestsByNode
from ..node_selection import label
from ..selectors import selects_request
from ..topology import DomainCounts

NO_DOMAIN = "didn't have label '{}' of an affinity rule"
NOT_WITH = "didn't hold the VMs that the VM must be with"
NOT_APART = "held VMs that the VM must be apart from"
REPELLED = "held VMs that must be apart from the VM"


@dataclass(slots=True)
class CountedTerm:
    """One term of a rule with the selected VMs, counted by domain."""

    term: AffinityTerm
    counts: DomainCounts


@dataclass(slots=True)
class Affinity:
    """What the rules of a request, and those of guests about it, amount to.

    Attributes:
        attracting: the terms about VMs that the VM must be with.
        repelling: the terms about VMs that it must be apart from.
        repelled: the terms of other VMs that repel this VM; counted are the VMs that have the term.
        preferred: the preferred terms of both kinds.
        first_of_group: whether the VM itself is selected by all terms in attracting.
    """

    attracting: list[CountedTerm]
    repelling: list[CountedTerm]
    repelled: list[CountedTerm]
    preferred: list[CountedTerm]
    first_of_group: bool


class VMAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes outside of the topology domains of the VMs that the request has an affinity to, and nodes in the
    domains of those that it has an anti-affinity to. Scores preferred terms: each selected VM in the node's domain adds
    the term's weight, or subtracts it for anti-affinity; the best node gets 100 and the worst 0.

    VMs and containers of any status count, templates do not. As in Kubernetes, the anti-affinity of a VM of the same
    run also keeps the VMs that it selects away; and if no VM matches an affinity term yet, a VM that matches it itself
    may go anywhere. Nodes without the label of an affinity term are rejected.
    """

    name = "VMAffinity"
    weight = 2.0
    selective = True
    about = ("affinity",)
    about_cluster = ("repelling",)

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        against = cluster.repelling.terms_against(request)
        if not request.affinity and not against:
            return SKIP
        required = [term for term in request.affinity if term.required]
        affinity = state[self.name] = Affinity(
            attracting=[_count_term(term, cluster) for term in required if term.together],
            repelling=[_count_term(term, cluster) for term in required if not term.together],
            repelled=[_count_holders(term, cluster) for term in against],
            preferred=[_count_term(term, cluster) for term in request.affinity if not term.required],
            first_of_group=is_first_of_group(request),
        )
        if not required and not against:
            return SKIP_FILTER
        return None if affinity.preferred else SKIP_SCORE

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        affinity: Affinity = state[self.name]
        host = node.node
        for counted in affinity.attracting:
            if label(host, counted.term.topology_key) is None:
                return unresolvable(NO_DOMAIN.format(counted.term.topology_key))
        for counted in affinity.attracting:
            if not counted.counts.count(host):
                if _may_be_first(affinity):
                    break
                return unschedulable(NOT_WITH)
        for counted in affinity.repelling:
            if counted.counts.count(host):
                return unschedulable(NOT_APART, _first_guest(counted, host))
        for counted in affinity.repelled:
            if counted.counts.count(host):
                return unschedulable(REPELLED, _first_guest(counted, host))
        return None

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        affinity: Affinity = state[self.name]
        return float(
            sum(
                (counted.term.weight if counted.term.together else -counted.term.weight)
                * counted.counts.count(node.node)
                for counted in affinity.preferred
            )
        )


def is_first_of_group(request: Request) -> bool:
    """Whether the request has required affinity terms, and is itself selected by each of them."""
    together = [term for term in request.affinity if term.required and term.together]
    return bool(together) and all(selects_request(term.selector, request) for term in together)


def _first_guest(counted: CountedTerm, host: Node) -> str:
    """Return one of the guests in the way."""
    guest = counted.counts.first_guest(host)
    return guest.name or f"VM {guest.vmid}"


def _may_be_first(affinity: Affinity) -> bool:
    return affinity.first_of_group and not any(counted.counts.total for counted in affinity.attracting)


def _count_term(term: AffinityTerm, cluster: ClusterState) -> CountedTerm:
    return _count_by_domain(term, cluster.select(term.selector), cluster)


def _count_holders(term: AffinityTerm, cluster: ClusterState) -> CountedTerm:
    return _count_by_domain(term, cluster.repelling.get(term, {}), cluster)


def _count_by_domain(term: AffinityTerm, selected: GuestsByNode, cluster: ClusterState) -> CountedTerm:
    return CountedTerm(term, DomainCounts(term.topology_key, selected, (info.node for info in cluster.nodes)))
