# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places VMs on several clusters: rules between clusters choose among them, and the scheduler of each cluster decides
whether and where a VM fits there.

To the rules between clusters, a cluster is a node with labels and guests, so the plugins that place VMs by labels
evaluate clusters in the same way as nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import CollectionError, NoNodesAvailable, NoStorageAvailable
from ..model import VMID_MIN, AffinityTerm, Constraints, Decision, Guest, Node, Request, Snapshot
from .cache import ClusterState, assumed_guest
from .framework.status import Status
from .node_selection import CLUSTER_KEY
from .plugins.nodes import NodeAffinity
from .plugins.topology_spread import TopologySpread
from .plugins.vm_affinity import VMAffinity
from .profiles import Profile, Registry
from .scheduling_cycle import Scheduler
from .verdicts import Outcome

BETWEEN_CLUSTERS = (NodeAffinity, TopologySpread, VMAffinity)
"""The plugins whose rules apply between clusters, if the profile contains them."""


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """The verdict of one cluster on one request: the best node and its score (0..100), or the reason against it.

    preference is the score (0..100) of the cluster by the preferred rules between clusters; it takes precedence over
    score.
    """

    cluster: str
    node: str | None = None
    score: float | None = None
    preference: float = 0.0
    reason: str | None = None


@dataclass(slots=True, eq=False)
class Member:
    """One cluster in one scheduling cycle.

    Attributes:
        labels: the cluster labels that the user assigns; its nodes have these labels, and CLUSTER_KEY.
        scheduler: the cluster's own, whose nodes have the labels.
        requests: the new VMs as they would be created there, by name.
        obstacles: why other new VMs cannot be created there, by name. VMs in neither belong to other clusters.
    """

    name: str
    labels: Mapping[str, str]
    scheduler: Scheduler
    requests: dict[str, Request] = field(default_factory=dict)
    obstacles: dict[str, CollectionError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A decision with its cluster. between is the same decision with the cluster as its node."""

    member: Member
    decision: Decision
    between: Decision


class MultiClusterScheduler(Scheduler):
    """Places requests on several clusters. A batch goes through it as through any scheduler.

    The names of requests must differ. Of the clusters in which a VM fits, the one with the highest preference is
    chosen; of equal ones, the one whose best node has the highest score, then the first by name.

    Attributes:
        chosen: the assumed decisions, by VM name.
        verdicts: the clusters' verdicts at the last attempt for a VM, by its name.
    """

    def __init__(
        self,
        members: Sequence[Member],
        profiles: Mapping[str, Profile],
        default_profile: str,
        silent: Mapping[str, str] | None = None,
    ) -> None:
        """silent are the clusters that cannot be used, each with the reason."""
        self._members = sorted(members, key=lambda member: member.name)
        self._silent = [ClusterVerdict(name, reason=reason) for name, reason in sorted((silent or {}).items())]
        self._keys = frozenset({CLUSTER_KEY, *(key for member in members for key in member.labels)})
        self._numbers = itertools.count(VMID_MIN)
        snapshot = Snapshot(
            nodes=tuple(Node(each.name, labels={**each.labels, CLUSTER_KEY: each.name}) for each in self._members),
            guests=tuple(
                self._guest_between(member.name, guest)
                for member in self._members
                for guest in member.scheduler.cluster.guests.values()
                # A guest that is being moved counts on two nodes.
                if guest.vmid > 0
            ),
        )
        super().__init__(ClusterState(snapshot), profiles, default_profile)
        between = {name: profile_between(profile) for name, profile in profiles.items()}
        self._rules = Scheduler(self.cluster, between, default_profile)
        self.chosen: dict[str, Chosen] = {}
        self.verdicts: dict[str, tuple[ClusterVerdict, ...]] = {}

    def schedule(self, request: Request, now: float = 0.0, place: tuple[str, int] | None = None) -> Outcome:
        """Place one request on the best cluster and assume the decision there. place must be None."""
        between = self._request_between(request)
        try:
            refusals, preferences = self._rules.refusals(between, now), self._rules.scores(between, now)
        except CollectionError as error:
            return Outcome(request, error=error)
        verdicts: list[ClusterVerdict] = []
        outcomes: dict[str, Outcome] = {}
        best: tuple[tuple[float, float], Member, Decision] | None = None
        for member in self._members:
            outcome = outcomes[member.name] = _try_member(member, request, refusals[member.name], now)
            decision, preference = outcome.decision, preferences.get(member.name, 0.0)
            if decision is None:
                reason = outcome.error.message if outcome.error is not None else ""
                verdicts.append(ClusterVerdict(member.name, preference=preference, reason=reason))
                continue
            verdicts.append(ClusterVerdict(member.name, decision.node, decision.score, preference))
            rank = (preference, decision.score)
            if best is not None and rank <= best[0]:
                member.scheduler.undo(decision)
                continue
            if best is not None:
                best[1].scheduler.undo(best[2])
            best = rank, member, decision
        self.verdicts[request.name] = (*verdicts, *self._silent)
        if best is None:
            return self._unplaceable_outcome(request, list(outcomes.values()))
        _rank, member, decision = best
        self._assume(member, decision, between)
        return outcomes[member.name]

    def undo(self, decision: Decision) -> None:
        """Take an assumed decision back."""
        chosen = self.chosen.pop(decision.request.name)
        chosen.member.scheduler.undo(chosen.decision)
        self.cluster.forget(chosen.between.vmid)

    def _assume(self, member: Member, decision: Decision, between: Request) -> None:
        there = Decision(between, member.name, next(self._numbers))
        self.cluster.assume(self._guest_between(member.name, assumed_guest(decision), there.vmid))
        self.chosen[decision.request.name] = Chosen(member, decision, there)

    def _guest_between(self, cluster: str, guest: Guest, number: int | None = None) -> Guest:
        """Return a guest as the rules between clusters see it: its cluster is its node, with a number of its own as
        VMID.
        """
        constraints = Constraints(affinity=self._terms(guest.constraints.affinity), gang=guest.constraints.gang)
        return Guest(
            next(self._numbers) if number is None else number,
            guest.name,
            cluster,
            kind=guest.kind,
            status=guest.status,
            template=guest.template,
            tags=guest.tags,
            pool=guest.pool,
            constraints=constraints,
        )

    def _request_between(self, request: Request) -> Request:
        """Return the request with only its rules between clusters, without what each cluster decides itself."""
        known = (member.requests.get(request.name) for member in self._members)
        request = next((each for each in known if each is not None), request)
        return Request(
            request.name,
            tags=request.tags,
            pool=request.pool,
            affinity=self._terms(request.affinity),
            topology_spread=tuple(each for each in request.topology_spread if each.topology_key in self._keys),
            node_required=tuple(each for each in request.node_required if each.key in self._keys),
            node_preferred=tuple(each for each in request.node_preferred if each.key in self._keys),
            gang=request.gang,
            profile=request.profile,
        )

    def _terms(self, terms: Iterable[AffinityTerm]) -> tuple[AffinityTerm, ...]:
        """Return the terms between clusters: VMs that must share a node or a rack must share a cluster, too."""
        return tuple(
            term if term.topology_key in self._keys else replace(term, topology_key=CLUSTER_KEY)
            for term in terms
            if term.together or term.topology_key in self._keys
        )

    def _unplaceable_outcome(self, request: Request, outcomes: Sequence[Outcome]) -> Outcome:
        """Return the outcome of a request that does not fit in any cluster."""
        verdicts = self.verdicts[request.name]
        told = "; ".join(f"{verdict.cluster}: {verdict.reason}" for verdict in verdicts)
        message = f'0/{len(verdicts)} clusters are available for VM "{request.name}": {told}'
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        kinds = {type(error) for error in errors}
        error: CollectionError = NoNodesAvailable(message)
        if kinds == {NoStorageAvailable}:
            error = NoStorageAvailable(message)
        elif len(kinds) == 1 and NoNodesAvailable not in kinds:
            # The error does not concern nodes and is the same in every cluster.
            error = errors[0]
        return Outcome(
            request,
            error=error,
            rejected_by=frozenset().union(*(outcome.rejected_by for outcome in outcomes)),
            resolvable=any(outcome.resolvable for outcome in outcomes),
            until=min((outcome.until for outcome in outcomes if outcome.until is not None), default=None),
        )


def _try_member(member: Member, request: Request, refused: Mapping[str, Status], now: float) -> Outcome:
    """Return the outcome of a request in one cluster, assumed there if it is a decision."""
    for status in refused.values():
        return Outcome(
            request,
            error=NoNodesAvailable(f"the cluster {status.text}"),
            rejected_by=frozenset(refused),
            resolvable=all(each.resolvable for each in refused.values()),
        )
    if request.name not in member.requests:
        elsewhere = NoNodesAvailable("the VM belongs to another cluster")
        return Outcome(request, error=member.obstacles.get(request.name, elsewhere))
    return member.scheduler.schedule(member.requests[request.name], now)


def profile_between(profile: Profile) -> Profile:
    """Return the profile with those of its plugins whose rules hold between clusters."""
    there = {type(plugin) for plugin in profile.plugins}
    return Profile(profile.name, Registry(plugin for plugin in BETWEEN_CLUSTERS if plugin in there))
