# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling cycle of one request, from top to bottom: filter and score the nodes, choose a VMID, storages and
devices, assume the decision.

All decisions stay in memory. C(batch_cycle) does this for the requests of a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError, InvalidRequest, NoStorageAvailable, NoVMIDAvailable, VMIDConflict
from ..model import VMID_MAX, VMID_MIN, Decision, Request
from .cache import ClusterState, NodeInfo, assumed_guest
from .framework.interface import CycleState, Draft, FilterPlugin, ScorePlugin, VMIDPlugin
from .framework.status import SKIPS, Code, Status
from .guard import ask, call_plugin, check_request, run_filters, score_nodes
from .profiles import Concerned, Profile, profile_of
from .verdicts import Outcome, Scores, Verdicts
from .vmids.choice import ANY_VMID, InvalidVMIDChoice, VMIDChoice, intersection


@dataclass(slots=True)
class Cycle:
    """One request on its way through a cycle.

    Attributes:
        plugins: those that have anything to say about the request.
        filters, scorers: those of them that evaluate nodes for it.
        refusing: the plugins whose PreFilter refused the request on every node, with their statuses.
        rejections: the statuses of the filters, by node index.
        passed: the nodes that passed all filters.
    """

    request: Request
    plugins: Concerned
    filters: Sequence[FilterPlugin]
    scorers: Sequence[ScorePlugin]
    state: CycleState
    refusing: Mapping[str, Status]
    rejections: dict[int, Status] = field(default_factory=dict)
    passed: Sequence[NodeInfo] = ()


class Scheduler:
    """Places requests on one cluster. Same state, same requests, same profiles: same decisions.

    Attributes:
        profile: returns the profile of a request. Raises InvalidRequest.
    """

    def __init__(
        self,
        cluster: ClusterState,
        profiles: Mapping[str, Profile],
        default_profile: str = "balanced",
    ) -> None:
        """default_profile names the profile of requests that name none; it must be among profiles."""
        self.cluster = cluster
        self.profiles = profiles
        self.default_profile = default_profile
        self.profile = functools.partial(profile_of, profiles=profiles, default=default_profile)
        self._turn = 0

    # --- PreFilter, Filter, PostFilter, Score, Normalize, VMID, Reserve, assume ---

    def schedule(self, request: Request, now: float = 0.0, place: tuple[str, int] | None = None) -> Outcome:
        """Place one request and assume the decision. Permit is not asked: a batch cycle does that.

        place fixes the node and the VMID; the filters run all the same.
        """
        verdicts: Verdicts | None = None
        try:
            plugins = self.profile(request).plugins_about(request, self.cluster)
            check_request(plugins, request)
            cycle = self._run_pre_filter(request, now, plugins)
            if not cycle.refusing:
                cycle.passed = run_filters(cycle.state, request, cycle.filters, self.cluster.nodes, cycle.rejections)
            verdicts = Verdicts(self.cluster.nodes, cycle.passed, cycle.rejections, cycle.refusing)
            node, score = self._run_score(cycle, verdicts)
            if node is not None and place is not None:
                node, score = self._node_with_score(verdicts, place[0])
            if node is None:
                return self._run_post_filter(cycle, verdicts)
            vmid = self.pick_vmid(request, plugins) if place is None else place[1]
            draft = Draft(request, node.name, score, vmid)
            refused = self._run_reserve(cycle, node, draft)
            if refused is not None:
                from .diagnosis import not_reserved_outcome

                return not_reserved_outcome(request, node.name, refused, verdicts)
            self._turn += 1
            decision = draft.decision(self._turn)
            self.cluster.assume(assumed_guest(decision))
        except NoVMIDAvailable as error:
            by = frozenset(plugin.name for plugin in self.profile(request).sections["vmids"])
            return Outcome(request, error=error, looked=verdicts, rejected_by=by, resolvable=True)
        except CollectionError as error:
            return Outcome(request, error=error, looked=verdicts)
        return Outcome(request, decision=decision, looked=verdicts)

    def _run_pre_filter(self, request: Request, now: float, plugins: Concerned | None = None) -> Cycle:
        """Run PreFilter. Its answers say which plugins evaluate nodes for the request."""
        concerned = plugins or self.profile(request).plugins_about(request, self.cluster)
        state = CycleState()
        codes: dict[str, Code] = {}
        refusing: dict[str, Status] = {}
        for plugin in concerned.pre_filters:
            status = ask(plugin, plugin.pre_filter, state, request, self.cluster, now)
            if status is not None:
                codes[plugin.name] = status.code
                if status.code not in SKIPS:
                    refusing[plugin.name] = status
        filters, scorers = concerned.filters, concerned.scorers
        if codes:
            filters = [p for p in filters if codes.get(p.name) in (None, Code.SKIP_SCORE)]
            scorers = [p for p in scorers if codes.get(p.name) in (None, Code.SKIP_FILTER)]
        return Cycle(request, concerned, filters, scorers, state, refusing)

    def _run_post_filter(self, cycle: Cycle, verdicts: Verdicts) -> Outcome:
        """Explain why no node passed, and ask the PostFilter plugins what would have to change."""
        from .diagnosis import unplaceable_outcome
        from .unknown_names import unknown_names

        request, refusals = cycle.request, self._refusals(cycle, self.cluster.nodes)
        findings = {
            plugin.name: call_plugin(plugin, plugin.post_filter, request, self.cluster, refusals)
            for plugin in cycle.plugins.profile.sections["post_filters"]
        }
        told = zip(self.cluster.nodes, verdicts.rejections(), strict=True)
        rejections = {info.name: rejection for info, rejection in told if rejection is not None}
        resolvable = any(
            all(status.resolvable for status in (rejection, *refusals[name].values()))
            for name, rejection in rejections.items()
        )
        return unplaceable_outcome(
            request,
            rejections,
            verdicts,
            findings,
            resolvable=resolvable,
            unknown=unknown_names(request, self.cluster),
        )

    def _run_score(self, cycle: Cycle, verdicts: Verdicts) -> tuple[NodeInfo | None, float]:
        """Choose the node with the highest weighted mean of all scores; of equal ones the first by name."""
        if not cycle.passed:
            return None, 0.0
        for plugin in cycle.scorers:
            raw, scores = score_nodes(plugin, cycle.state, cycle.request, cycle.passed)
            verdicts.add(Scores(plugin.name, cycle.plugins.profile.weights[plugin.name], raw, scores))
        return verdicts.choose()

    def _node_with_score(self, verdicts: Verdicts, name: str) -> tuple[NodeInfo | None, float]:
        """Return a node with its score; None when it was rejected."""
        found = next((each for each in verdicts.all() if each.node == name), None)
        if found is None or found.score is None:
            return None, 0.0
        return self.cluster.by_name.get(name), found.score

    def pick_vmid(self, request: Request, concerned: Concerned | None = None) -> int:
        """Return the VMID that the request fixes, or the lowest free one that its range and pattern allow.

        Without either, the lowest free one within the datacenter's bounds. Raises NoVMIDAvailable, VMIDConflict,
        InvalidRequest.
        """
        taken = self.cluster.taken
        if request.vmid is not None:
            if request.vmid in taken:
                raise VMIDConflict(f'VMID {request.vmid} is taken and cannot be given to VM "{request.name}"')
            return request.vmid
        plugins = (concerned or self.profile(request).plugins_about(request)).vmids
        choice = _vmid_choice(plugins, request) if plugins else None
        lower, upper = (VMID_MIN, VMID_MAX)
        if choice is None:
            choice, (lower, upper) = ANY_VMID, self.cluster.snapshot.next_id
        vmid = choice.lowest_free(taken, lower, upper)
        if vmid is None:
            count = choice.count(lower, upper)
            whom = f' for VM "{request.name}"' if request.name else ""
            raise NoVMIDAvailable(f"no free VMID in {choice.describe()}{whom}: all {count} are taken")
        return vmid

    def _run_reserve(self, cycle: Cycle, node: NodeInfo, draft: Draft) -> Status | None:
        """Run the Reserve plugins, which complete the draft. Returns the status of the first one that refuses."""
        for plugin in cycle.plugins.reserves:
            status = ask(plugin, plugin.reserve, cycle.state, cycle.request, node, draft)
            if status is not None and status.code is not Code.SKIP:
                return status
        return None

    def undo(self, decision: Decision) -> None:
        """Take an assumed decision back."""
        self.cluster.forget(decision.vmid)

    # --- queries that place nothing ---

    def refusals(
        self, request: Request, now: float = 0.0, nodes: Sequence[NodeInfo] | None = None
    ) -> Mapping[str, Mapping[str, Status]]:
        """Return the statuses of all filters that refuse the request on these nodes, by default all, by node and by
        plugin.
        """
        return self._refusals(self._run_pre_filter(request, now), self.cluster.nodes if nodes is None else nodes)

    def scores(self, request: Request, now: float = 0.0) -> dict[str, float]:
        """Return the score of every node that all filters let pass, by name."""
        cycle = self._run_pre_filter(request, now)
        if not cycle.refusing:
            cycle.passed = run_filters(cycle.state, request, cycle.filters, self.cluster.nodes, cycle.rejections)
        verdicts = Verdicts(self.cluster.nodes, cycle.passed, cycle.rejections, cycle.refusing)
        self._run_score(cycle, verdicts)
        return {verdict.node: verdict.score for verdict in verdicts.all() if verdict.score is not None}

    def storages_on(self, request: Request, node: str, now: float = 0.0) -> dict[str, str]:
        """Choose a storage on one node for each drive of a request, by slot, whatever the filters say of that node.

        Raises NoStorageAvailable.
        """
        info = self.cluster.by_name.get(node)
        taken = None if info is None else self.draft(request, info, now=now)
        if taken is None or isinstance(taken, Status):
            why = "is not there" if taken is None else taken.text
            raise NoStorageAvailable(f'no storage for VM "{request.name}": {node} {why}')
        return taken.storages

    def draft(self, request: Request, node: NodeInfo, vmid: int = 0, now: float = 0.0) -> Draft | Status:
        """Return what the request would take on a node, whatever the filters say of that node; or why it gets nothing.
        """
        draft = Draft(request, node.name, 0.0, vmid)
        return self._run_reserve(self._run_pre_filter(request, now), node, draft) or draft

    def _refusals(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> dict[str, dict[str, Status]]:
        """Return the statuses of all filters that refuse a node, by node and by plugin."""
        found = {info.index: dict(cycle.refusing) for info in nodes}
        for plugin in cycle.filters:
            refused: dict[int, Status] = {}
            run_filters(cycle.state, cycle.request, [plugin], nodes, refused)
            for index, status in refused.items():
                found[index][plugin.name] = status
        return {info.name: found[info.index] for info in nodes}


def _vmid_choice(plugins: Sequence[VMIDPlugin], request: Request) -> VMIDChoice | None:
    """Return the VMIDs that all VMID plugins together allow; None if the request asks none of them."""
    allowed: VMIDChoice | None = None
    try:
        for plugin in plugins:
            choice = call_plugin(plugin, plugin.choice, request)
            if choice is not None:
                allowed = choice if allowed is None else intersection(allowed, choice)
    except InvalidVMIDChoice as error:
        raise InvalidRequest(f'VM "{request.name}": {error}') from error
    return allowed
