# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling cycle of one request, from top to bottom: filter and score the nodes, choose a VMID, storages and
devices, assume the decision.

All decisions stay in memory. C(batch_cycle) does this for the requests of a batch.
"""

from __future__ import annotations

import typing as t
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError, InvalidRequest, NoStorageAvailable, NoVMIDAvailable, VMIDConflict
from ..model import VMID_MAX, VMID_MIN, Decision, Request
from .cache import ClusterState, NodeInfo
from .diagnosis import not_reserved, unplaceable
from .framework.interface import (
    CycleState,
    Draft,
    FilterPlugin,
    Plugin,
    ReservePlugin,
    ScorePlugin,
    VMIDPlugin,
    concerns,
)
from .framework.status import SKIPS, Code, Status
from .guard import (
    Blame,
    all_in_range,
    ask,
    call_plugin,
    check_answer,
    check_request,
    normalize_scores,
    raw_scores,
    run_filters,
)
from .profiles import Profile, profile_of
from .unknown_names import unknown_names
from .verdicts import Outcome, Scores, Verdicts
from .vmids.choice import ANY_VMID, InvalidVMIDChoice, VMIDChoice, intersection

P = t.TypeVar("P", bound=Plugin)


@dataclass(slots=True)
class Cycle:
    """One request on its way through a cycle.

    Attributes:
        filters, scorers: the plugins that evaluate nodes for the request.
        refusing: the plugins whose PreFilter refused the request on every node, with their statuses.
        rejections: the statuses of the filters, by node index.
        passed: the nodes that passed all filters.
    """

    request: Request
    profile: Profile
    filters: Sequence[FilterPlugin]
    scorers: Sequence[ScorePlugin]
    state: CycleState
    refusing: Mapping[str, Status]
    rejections: dict[int, Status] = field(default_factory=dict)
    passed: Sequence[NodeInfo] = ()

    def verdicts(self, nodes: Sequence[NodeInfo]) -> Verdicts:
        """Return the verdicts on all nodes after Filter."""
        return Verdicts(nodes, self.passed, self.rejections, next(iter(self.refusing.values()), None))


class Scheduler:
    """Places requests on one cluster. Same state, same requests, same profiles: same decisions."""

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
        self._turn = 0

    def profile(self, request: Request) -> Profile:
        return profile_of(request, self.profiles, self.default_profile)

    # --- PreFilter, Filter, PostFilter, Score, Normalize, VMID, Reserve, assume ---

    def schedule(self, request: Request, now: float = 0.0, place: tuple[str, int] | None = None) -> Outcome:
        """Place one request and assume the decision. Permit is not asked: a batch cycle does that.

        place fixes the node and the VMID; the filters run all the same.
        """
        verdicts: Verdicts | None = None
        try:
            check_request(self.profile(request), request)
            cycle = self._run_pre_filter(request, now)
            if not cycle.refusing:
                nodes = self.cluster.nodes
                cycle.passed = run_filters(cycle.state, request, cycle.filters, nodes, cycle.rejections)
            verdicts = cycle.verdicts(self.cluster.nodes)
            node, score = self._run_score(cycle, verdicts)
            if node is not None and place is not None:
                node, score = self._at(verdicts, place[0])
            if node is None:
                return self._run_post_filter(cycle, verdicts)
            draft = Draft(request, node.name, score, self.pick_vmid(request) if place is None else place[1])
            refused = self._run_reserve(cycle, node, draft)
            if refused is not None:
                return not_reserved(request, node.name, refused, verdicts)
            self._turn += 1
            decision = draft.decision(self._turn)
            self.cluster.assume(decision)
        except NoVMIDAvailable as error:
            plugins = frozenset(plugin.name for plugin in self.profile(request).plugins("vmids"))
            return Outcome(request, error=error, looked=verdicts, rejected_by=plugins, resolvable=True)
        except CollectionError as error:
            return Outcome(request, error=error, looked=verdicts)
        return Outcome(request, decision=decision, looked=verdicts)

    def _run_pre_filter(self, request: Request, now: float) -> Cycle:
        """Run PreFilter. Its answers say which plugins evaluate nodes for the request."""
        profile = self.profile(request)
        concerned = profile.plugins_about(request)
        state = CycleState()
        codes: dict[str, Code] = {}
        refusing: dict[str, Status] = {}
        with Blame() as blame:
            for plugin in concerned.pre_filters:
                blame.plugin = plugin
                status = check_answer(plugin, plugin.pre_filter(state, request, self.cluster, now))
                if status is not None:
                    codes[plugin.name] = status.code
                    if status.code not in SKIPS:
                        refusing[plugin.name] = status
        filters = _without_skipped(concerned.filters, codes, Code.SKIP_SCORE)
        return Cycle(
            request, profile, filters, _without_skipped(concerned.scorers, codes, Code.SKIP_FILTER), state, refusing
        )

    def _run_post_filter(self, cycle: Cycle, verdicts: Verdicts) -> Outcome:
        """Explain why no node passed, and ask the PostFilter plugins what would have to change."""
        request, refusals = cycle.request, self._refusals(cycle, self.cluster.nodes)
        findings = {
            plugin.name: call_plugin(plugin, plugin.post_filter, request, self.cluster, refusals)
            for plugin in cycle.profile.plugins("post_filters")
        }
        told = zip(self.cluster.nodes, verdicts.rejections(), strict=True)
        rejections = {info.name: rejection for info, rejection in told if rejection is not None}
        resolvable = any(
            all(status.resolvable for status in (rejection, *refusals[name].values()))
            for name, rejection in rejections.items()
        )
        return unplaceable(
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
            raw = array("d", raw_scores(plugin, cycle.state, cycle.request, cycle.passed))
            scores: Sequence[float] = (
                all_in_range(plugin, raw)
                if plugin.bounded
                else array("d", normalize_scores(plugin, cycle.state, cycle.request, cycle.passed, raw))
            )
            verdicts.add(Scores(plugin.name, cycle.profile.weights[plugin.name], raw, scores))
        return verdicts.chosen()

    def _at(self, verdicts: Verdicts, name: str) -> tuple[NodeInfo | None, float]:
        """Return a node with its score; None when it was rejected."""
        found = next((each for each in verdicts.all() if each.node == name), None)
        if found is None or found.score is None:
            return None, 0.0
        return self.cluster.node(name), found.score

    def pick_vmid(self, request: Request) -> int:
        """Return the VMID that the request fixes, or the lowest free one that its range and pattern allow.

        Without either, the lowest free one within the datacenter's bounds. Raises NoVMIDAvailable, VMIDConflict,
        InvalidRequest.
        """
        taken = self.cluster.taken
        if request.vmid is not None:
            if request.vmid in taken:
                raise VMIDConflict(f'VMID {request.vmid} is taken and cannot be given to VM "{request.name}"')
            return request.vmid
        choice = self._vmid_choice(request)
        lower, upper = (VMID_MIN, VMID_MAX)
        if choice is None:
            choice, (lower, upper) = ANY_VMID, self.cluster.snapshot.next_id
        vmid = choice.lowest_free(taken, lower, upper)
        if vmid is None:
            count = choice.count(lower, upper)
            whom = f' for VM "{request.name}"' if request.name else ""
            raise NoVMIDAvailable(f"no free VMID in {choice.describe()}{whom}: all {count} are taken")
        return vmid

    def _vmid_choice(self, request: Request) -> VMIDChoice | None:
        """What all VMID plugins together allow; None when the request asks none of them."""
        allowed: VMIDChoice | None = None
        plugins: list[VMIDPlugin] = self.profile(request).plugins("vmids")
        try:
            for plugin in plugins:
                choice = call_plugin(plugin, plugin.choice, request) if concerns(plugin, request) else None
                if choice is not None:
                    allowed = choice if allowed is None else intersection(allowed, choice)
        except InvalidVMIDChoice as error:
            raise InvalidRequest(f'VM "{request.name}": {error}') from error
        return allowed

    def _run_reserve(self, cycle: Cycle, node: NodeInfo, draft: Draft) -> Status | None:
        """Run the Reserve plugins, which complete the draft. Returns the status of the first one that refuses."""
        plugins: list[ReservePlugin] = cycle.profile.plugins("reserves")
        for plugin in plugins:
            if not concerns(plugin, cycle.request):
                continue
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
            nodes = self.cluster.nodes
            cycle.passed = run_filters(cycle.state, request, cycle.filters, nodes, cycle.rejections)
        verdicts = cycle.verdicts(self.cluster.nodes)
        self._run_score(cycle, verdicts)
        return {verdict.node: verdict.score for verdict in verdicts.all() if verdict.score is not None}

    def storages_on(self, request: Request, node: str, now: float = 0.0) -> dict[str, str]:
        """Choose a storage on one node for each drive of a request, by slot, whatever the filters say of that node.

        Raises NoStorageAvailable.
        """
        info = self.cluster.node(node)
        taken = None if info is None else self.draft(request, info, now=now)
        if taken is None or isinstance(taken, Status):
            why = "is not there" if taken is None else taken.text
            raise NoStorageAvailable(f'no storage for VM "{request.name}": {node} {why}')
        return taken.storages

    def draft(self, request: Request, node: NodeInfo, vmid: int = 0, now: float = 0.0) -> Draft | Status:
        """What the request would take on a node, whatever the filters say of that node; or why it gets nothing."""
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


def _without_skipped(plugins: Iterable[P], codes: Mapping[str, Code], other: Code) -> list[P]:
    """Return the plugins that PreFilter did not skip; other is the code that skips only another extension point."""
    return [plugin for plugin in plugins if codes.get(plugin.name) in (None, other)]
