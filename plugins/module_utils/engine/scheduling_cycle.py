# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling cycle, from top to bottom: sort the requests, filter and score the nodes, choose a VMID, storages and
devices, and assume the decision.

All decisions stay in memory. VMs of a group are placed together or not at all: if Permit rejects a group in the end,
every placement is rolled back and the requests are placed again without that group.
"""

from __future__ import annotations

import enum
import itertools
import operator
import typing as t
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError, InvalidRequest, NoStorageAvailable, NoVMIDAvailable, SchedulingGated, VMIDConflict
from ..model import VMID_MAX, VMID_MIN, Decision, Request
from .cache import ClusterState, NodeInfo
from .diagnosis import Outcome, not_permitted, not_reserved, unplaceable
from .framework.cycle_state import CycleState, Draft, Numbered, Requests
from .framework.interface import (
    NOT_SHARED,
    FilterPlugin,
    PermitPlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    SharedPlugin,
    VMIDPlugin,
    concerns,
)
from .framework.many_nodes import score_all
from .framework.profile import Profile
from .framework.status import SKIPS, Category, Code, Status
from .guard import Blame, all_in_range, asked, check_request, checked, failed, finite, guarded
from .profiles import profile_of
from .selectors import attracts
from .shared_groups import POINTS, run_filters
from .sharing import SharedVerdicts
from .verdicts import PlainScores, Verdicts
from .vmids.choice import AnyVMID, InvalidVMIDChoice, VMIDChoice, intersection

VERDICTS_KEPT = 1_000_000
"""How many verdicts on nodes are kept for all kinds of requests together, which takes about 100 MB. The kinds that were
not used for the longest time are dropped first.
"""


@dataclass(slots=True)
class Cycle:
    """One request on its way through a cycle.

    Attributes:
        key: requests with the same key share verdicts.
        shared: the verdicts of the plugins that share them.
        filters, scorers: the plain plugins that apply to the request.
        refusing: the plugins whose PreFilter refused the request on every node, with their statuses.
        rejections: those of plain filters, by node index.
        passed: the nodes that passed all filters; None if no plain plugin has to evaluate each node.
    """

    request: Request
    profile: Profile
    key: Hashable
    shared: SharedVerdicts
    filters: Sequence[FilterPlugin]
    scorers: Sequence[ScorePlugin]
    state: CycleState
    refusing: dict[str, Status]
    rejections: dict[int, Status] = field(default_factory=dict)
    passed: Sequence[NodeInfo] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    """A request of a run, with its number in order of arrival."""

    request: Request
    arrival: int


class Hope(enum.Enum):
    """Which placements of other VMs in the run may make a failed request fit."""

    NONE = "none"
    SELECTED = "those that its own rules select"
    ANY = "any"

    def is_met(self, request: Request, placements: Iterable[Request]) -> bool:
        """Whether one of the placements may make the request fit; there is at least one."""
        if self is Hope.SELECTED:
            return any(attracts(request, other) for other in placements)
        return self is Hope.ANY


@dataclass(slots=True)
class Run:
    """The requests of one run and their outcomes so far, by their number in order of arrival.

    Attributes:
        placed: the requests placed so far; those of VMs that exist already have negative numbers.
        undecided, unplaced: those still to be decided; those that failed or are held back.
        barred: requests that Permit rejected in the end, which are tried again after all others; held: those that never
            entered the queue.
        hopes: for each failed request what may make it fit, with the outcome from which this was derived.
        queue: the requests in the order in which they are tried.
    """

    placed: Numbered
    undecided: Numbered = field(default_factory=Numbered)
    unplaced: Numbered = field(default_factory=Numbered)
    barred: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    hopes: dict[int, tuple[Outcome, Hope]] = field(default_factory=dict)
    queue: list[Queued] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)


class Scheduler:
    """Places requests on one cluster. Same state, same requests, same profiles: same decisions."""

    def __init__(
        self,
        cluster: ClusterState,
        profiles: Mapping[str, Profile],
        default_profile: str = "balanced",
        *,
        sharing: bool = True,
    ) -> None:
        """default_profile names the profile of requests that name none; it must be among profiles. Without sharing,
        every plugin evaluates every node in every cycle, which takes longer and leads to the same decisions.
        """
        self.cluster = cluster
        self.profiles = profiles
        self.default_profile = default_profile
        self._sharing = sharing
        self._kept: OrderedDict[Hashable, SharedVerdicts] = OrderedDict()
        self._kept_size = 0

    def profile(self, request: Request) -> Profile:
        return profile_of(request, self.profiles, self.default_profile)

    # --- a run: every request in the order of the queue, groups together or not at all ---

    def schedule_all(
        self, requests: Iterable[Request], now: float = 0.0, present: Iterable[Request] = ()
    ) -> list[Outcome]:
        """Place all requests; each decision counts for the following ones.

        present are the requests of VMs of the same run that exist already. now is in seconds, on the clock of
        Request.created. The outcomes are in the order of the requests.
        """
        run = Run(Numbered((-1 - number, request) for number, request in enumerate(present)))
        self._run_queue_sort(run, requests)
        groups: list[list[Queued]] = []
        at_once = 1
        while True:
            self._place_in_order(run, [queued for queued in run.queue if queued.arrival not in run.barred], now)
            barred = list(itertools.islice(iter(lambda: self._bar_one_group(run), []), at_once))
            if not barred:
                break
            groups += barred
            # If one group lacks room, others probably do, too. Barring one group per round would take quadratic time.
            at_once *= 2
            for queued in [queued for queued in run.queue if queued.arrival in run.placed]:
                self._take_back(run, queued)
                del run.outcomes[queued.arrival]
        # A barred group may fit now, if the requests that took its place were barred later.
        position = {queued.arrival: number for number, queued in enumerate(run.queue)}
        for group in sorted(groups, key=lambda group: min(position[queued.arrival] for queued in group)):
            self._try_again(run, group, now)
        return [run.outcomes[arrival] for arrival in sorted(run.outcomes)]

    def _run_queue_sort(self, run: Run, requests: Iterable[Request]) -> None:
        """Sort the requests into the queue. Requests that a PreEnqueue plugin holds back, or that have no valid sort
        key, get their outcome here.
        """
        keys: dict[int, t.Any] = {}
        for arrival, request in enumerate(requests):
            by = frozenset[str]()
            try:
                held = self._run_pre_enqueue(request)
                if held is not None:
                    by = frozenset({held.plugin})
                    raise SchedulingGated(f'VM "{request.name}" is held back: {held.plugin}: {held.text}')
                keys[arrival] = self._sort_key(request, arrival, keys)
            except CollectionError as error:
                run.outcomes[arrival] = Outcome(request, error=error, rejected_by=by)
                run.unplaced[arrival] = request
                run.held.add(arrival)
            else:
                run.queue.append(Queued(request, arrival))
        run.queue.sort(key=lambda queued: (keys[queued.arrival], queued.arrival))

    def _run_pre_enqueue(self, request: Request) -> Status | None:
        """The status of the first PreEnqueue plugin that holds the request back."""
        for plugin in self.profile(request).checking:
            if not concerns(plugin, request):
                continue
            status = asked(plugin, plugin.pre_enqueue, request)
            if status is not None:
                return status
        return None

    def _sort_key(self, request: Request, arrival: int, others: Mapping[int, t.Any]) -> t.Any:
        """The key by which the request is sorted: that of the QueueSort plugin, or else its arrival."""
        sorters: list[QueueSortPlugin] = self.profiles[self.default_profile].plugins("queue")
        if not sorters:
            return arrival
        key = guarded(sorters[0], sorters[0].sort_key, request, arrival)
        for other in list(others.values())[:1]:
            guarded(sorters[0], operator.lt, key, other)
        return key

    def _place_in_order(self, run: Run, due: Sequence[Queued], now: float) -> None:
        """Place the requests in order. Repeat this with failed ones as long as later placements may make them fit."""
        placements: list[Request] = []
        seen: dict[int, int] = {}
        while due:
            run.undecided = Numbered((queued.arrival, queued.request) for queued in due)
            for queued in due:
                run.unplaced.take(queued.arrival)
            for queued in due:
                seen[queued.arrival] = len(placements)
                if self._place(run, queued, now):
                    placements.append(queued.request)
            due = []
            for queued in run.queue:
                if queued.arrival in run.unplaced and queued.arrival not in run.barred:
                    since = placements[seen.get(queued.arrival, 0) :]
                    seen[queued.arrival] = len(placements)
                    if since and self._hope(run, queued).is_met(queued.request, since):
                        due.append(queued)

    def _hope(self, run: Run, queued: Queued) -> Hope:
        """Which placements may make a failed request fit. A placement can satisfy a rule, but never adds capacity."""
        outcome = run.outcomes[queued.arrival]
        known = run.hopes.get(queued.arrival)
        if known is not None and known[0] is outcome:
            return known[1]
        plugins = [plugin for plugin in self.profile(queued.request).all() if plugin.name in outcome.rejected_by]
        rules = [plugin for plugin in plugins if plugin.category is Category.RULE]
        hope = Hope.SELECTED if rules and all(plugin.selective for plugin in rules) else Hope.ANY
        if not outcome.resolvable or (plugins and not rules):
            hope = Hope.NONE
        run.hopes[queued.arrival] = outcome, hope
        return hope

    def _place(self, run: Run, queued: Queued, now: float) -> bool:
        """Place one request. Returns whether it stays placed: Permit may reject it."""
        arrival, request = queued.arrival, queued.request
        before = run.outcomes.get(arrival)
        outcome = run.outcomes[arrival] = self.schedule(request, now)
        del run.undecided[arrival]
        if outcome.decision is None:
            run.unplaced[arrival] = request
            return False
        run.placed[arrival] = request
        refused = self._run_permit(run, request, run.undecided.all(), run.unplaced.all())
        if refused is None or refused.code is Code.WAIT:
            return True
        self._take_back(run, queued)
        # An earlier failure of the request itself explains more than the failure of its group.
        run.outcomes[arrival] = before or not_permitted(outcome, refused)
        return False

    def _run_permit(self, run: Run, request: Request, waiting: Requests, failed: Requests) -> Status | None:
        """The first status with which a Permit plugin does not accept the request. If a plugin raises, that rejects the
        request.
        """
        plugins: list[PermitPlugin] = self.profile(request).plugins("permits")
        for plugin in plugins:
            if not concerns(plugin, request):
                continue
            try:
                status = asked(plugin, plugin.permit, request, run.placed.all(), waiting, failed)
            except CollectionError as error:
                return Status(Code.ERROR, error.message, plugin=plugin.name)
            if status is not None and status.code is not Code.SKIP:
                return status
        return None

    def _bar_one_group(self, run: Run) -> list[Queued]:
        """Bar the last placed request that Permit finally rejects, and all others that Permit rejects without it.
        Returns the barred requests; empty if Permit accepts all.

        Call this only when no request is left to decide.
        """
        refused = [
            (queued, status)
            for queued in run.queue
            if queued.arrival in run.placed and (status := self._final(run, queued.request)) is not None
        ]
        hopeful = Numbered(
            (q.arrival, q.request) for q in run.queue if q.arrival in run.unplaced and q.arrival not in run.barred
        )
        hopeless = Numbered(item for item in run.unplaced.items() if item[0] in run.barred or item[0] in run.held)
        group: list[Queued] = []
        for queued, status in reversed(refused):
            again = self._run_permit(run, queued.request, hopeful.all(), hopeless.all()) if group else status
            if again is not None and (again.code is not Code.WAIT or not group):
                self._take_back(run, queued)
                run.outcomes[queued.arrival] = not_permitted(run.outcomes[queued.arrival], again)
                run.barred.add(queued.arrival)
                hopeless[queued.arrival] = queued.request
                group.append(queued)
        return group

    def stand(self, placed: Iterable[Request], failed: Iterable[Request]) -> bool:
        """Whether Permit accepts all placed requests if no other is left to decide."""
        run = Run(Numbered(enumerate(placed)), unplaced=Numbered(enumerate(failed)))
        return all(self._final(run, request) is None for request in run.placed.values())

    def _final(self, run: Run, request: Request) -> Status | None:
        """The final status of Permit for a placed request: no other request is left to decide."""
        return self._run_permit(run, request, Numbered().all(), run.unplaced.all())

    def _try_again(self, run: Run, group: Sequence[Queued], now: float) -> None:
        """Try to place a barred group beside the VMs that are placed, and then the failed requests that this may help.
        If Permit rejects any of them, restore the state before.
        """
        placed, unplaced, outcomes = set(run.placed), Numbered(run.unplaced.items()), dict(run.outcomes)
        run.barred.difference_update(queued.arrival for queued in group)
        self._place_in_order(run, self._with_members(run, group), now)
        if all(self._final(run, request) is None for request in run.placed.values()):
            return
        for queued in run.queue:
            if queued.arrival in run.placed and queued.arrival not in placed:
                self._take_back(run, queued)
        run.unplaced, run.outcomes = unplaced, outcomes
        run.barred.update(queued.arrival for queued in group)

    @staticmethod
    def _with_members(run: Run, group: Sequence[Queued]) -> list[Queued]:
        """A barred group, and members of its groups that failed without being barred."""
        arrivals = {queued.arrival for queued in group}
        names = {queued.request.gang.name for queued in group if queued.request.gang is not None}
        return [
            queued
            for queued in run.queue
            if queued.arrival in run.unplaced
            and queued.arrival not in run.barred
            and (queued.arrival in arrivals or (queued.request.gang is not None and queued.request.gang.name in names))
        ]

    def _take_back(self, run: Run, queued: Queued) -> None:
        decision = run.outcomes[queued.arrival].decision
        run.placed.take(queued.arrival)
        run.unplaced[queued.arrival] = queued.request
        if decision is not None:
            self.undo(decision)

    def undo(self, decision: Decision) -> None:
        """Take an assumed decision back."""
        self.cluster.forget(decision.vmid)

    # --- one request: PreFilter, Filter, PostFilter, Score, VMID, Reserve, assume ---

    def schedule(self, request: Request, now: float = 0.0, place: tuple[str, int] | None = None) -> Outcome:
        """Place one request and assume the decision. Permit is not asked: schedule_all does that.

        place fixes the node and the VMID; the filters run all the same.
        """
        verdicts: Verdicts | None = None
        try:
            profile = self.profile(request)
            check_request(profile, request)
            cycle = self._run_pre_filter(profile, request, now)
            self._run_filter(cycle)
            refused = next(iter(cycle.refusing.values()), None)
            verdicts = Verdicts(self.cluster.nodes, profile.weights, cycle.shared, cycle.rejections, refused)
            node, score = self._run_score(cycle, verdicts)
            if node is not None and place is not None:
                node, score = self._at(verdicts, place[0])
            if node is None:
                return self._run_post_filter(cycle, verdicts)
            draft = Draft(request, node.name, score, self.pick_vmid(request) if place is None else place[1])
            refused = self._run_reserve(cycle, node, draft)
            if refused is not None:
                return not_reserved(request, node.name, refused, verdicts)
            decision = draft.decision()
            self.cluster.assume(decision)
        except NoVMIDAvailable as error:
            plugins = frozenset(plugin.name for plugin in self.profile(request).plugins("vmids"))
            return Outcome(request, error=error, looked=verdicts, rejected_by=plugins, resolvable=True)
        except CollectionError as error:
            return Outcome(request, error=error, looked=verdicts)
        return Outcome(request, decision=decision, looked=verdicts)

    def _run_pre_filter(self, profile: Profile, request: Request, now: float) -> Cycle:
        """Run PreFilter, and look up the verdicts that are shared with requests of the same kind."""
        concerned = profile.concerned(request)
        signatures = self._signatures(concerned.sharing, request)
        key: Hashable = (profile.name, concerned.idle, *signatures)
        try:
            shared = self._kept.get(key)
        except TypeError:
            for sharing, signature in zip(concerned.sharing, signatures, strict=True):
                guarded(sharing, hash, signature)
            raise
        state = CycleState()
        statuses: dict[str, Status | None] = {}
        if shared is not None:
            shared.restore(state)
            statuses.update(shared.kept)
        refusing: dict[str, Status] = {}
        with Blame() as blame:
            for plugin in concerned.pre_filters:
                if plugin.name not in statuses:
                    blame.plugin = plugin
                    status = plugin.pre_filter(state, request, self.cluster, now)
                    statuses[plugin.name] = status
                    if status is not None:
                        statuses[plugin.name] = status = checked(plugin, status)
                    if status is not None and status.code not in SKIPS:
                        refusing[plugin.name] = status
        alone = tuple([p.name for p, s in zip(concerned.sharing, signatures, strict=True) if s is NOT_SHARED])
        codes = {name: status.code for name, status in statuses.items() if status is not None}
        if shared is None or not shared.holds_for(codes):
            shared = SharedVerdicts(
                self.cluster,
                profile.weights,
                _that_filter(profile.shared_filters(alone), concerned.idle, codes),
                _that_score(profile.shared_scorers(alone), concerned.idle, codes),
                {
                    plugin: statuses[plugin.name]
                    for plugin in profile.keeping
                    if plugin in concerned.sharing and plugin.name not in alone and plugin.name not in refusing
                },
                codes,
                {plugin.name for plugin in concerned.sharing if plugin.name not in alone},
            )
        filters = _that_filter(profile.plain_filters(alone), concerned.idle, codes)
        scorers = _that_score(profile.plain_scorers(alone), concerned.idle, codes)
        return Cycle(request, profile, key, shared, filters, scorers, state, refusing)

    def _signatures(self, sharing: Sequence[SharedPlugin], request: Request) -> list[Hashable]:
        """The signatures of the request: for each sharing plugin, what of the request affects its verdicts."""
        if not self._sharing:
            return [NOT_SHARED] * len(sharing)
        signatures: list[Hashable] = []
        with Blame() as blame:
            for plugin in sharing:
                blame.plugin = plugin
                signatures.append(plugin.signature(request, self.cluster))
        return signatures

    def _run_filter(self, cycle: Cycle) -> None:
        """Bring the shared verdicts up to date, and run plain filters on the nodes that are left."""
        try:
            cycle.shared.catch_up(cycle.state, cycle.request)
        except CollectionError:
            # A plugin failed during the update, so the kept verdicts may be inconsistent.
            dropped = self._kept.pop(cycle.key, None)
            self._kept_size -= dropped.size if dropped is not None else 0
            raise
        if not cycle.refusing:
            self._keep(cycle)
        if cycle.refusing or not (cycle.filters or cycle.scorers):
            return
        passing = cycle.shared.passing()
        cycle.passed = run_filters(cycle.state, cycle.request, cycle.filters, passing, cycle.rejections)

    def _keep(self, cycle: Cycle) -> None:
        """Keep the shared verdicts for requests of the same kind, and drop those that were not used for the longest
        time.
        """
        before = self._kept.get(cycle.key)
        if before is not cycle.shared:
            self._kept[cycle.key] = cycle.shared
            self._kept_size += cycle.shared.size - (before.size if before is not None else 0)
        self._kept.move_to_end(cycle.key)
        while self._kept_size > VERDICTS_KEPT and len(self._kept) > 1:
            self._kept_size -= self._kept.popitem(last=False)[1].size

    def _run_post_filter(self, cycle: Cycle, verdicts: Verdicts) -> Outcome:
        """Explain why no node passed, and ask the PostFilter plugins what would have to change."""
        from .unknown_names import unknown_names

        request, refusals = cycle.request, self._refusals(cycle)
        findings = {
            plugin.name: guarded(plugin, plugin.post_filter, request, self.cluster, refusals)
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
        shared = cycle.shared
        if cycle.refusing:
            return None, 0.0
        if cycle.passed is None:
            best = shared.best(cycle.state, cycle.request)
            return (None, 0.0) if best is None else (self.cluster.nodes[best[0]], verdicts.mean(best[1]))
        if not cycle.passed:
            return None, 0.0
        totals = shared.totals(cycle.passed)
        given: list[PlainScores] = []
        for plugin in (*shared.ranked, *cycle.scorers):
            raw = guarded(plugin, self._score_all, plugin, cycle)
            normalized = raw if plugin.bounded else self._normalize(plugin, cycle, raw)
            given.append(PlainScores(plugin, raw, all_in_range(plugin, normalized)))
            weight = cycle.profile.weights[plugin.name]
            totals = [
                total + round(weight * score * POINTS)
                for total, score in zip(totals, given[-1].normalized, strict=True)
            ]
        if given:
            verdicts.add_scores(cycle.passed, given)
        total, index = min(zip([-total for total in totals], [info.index for info in cycle.passed], strict=True))
        return self.cluster.nodes[index], verdicts.mean(-total)

    def _at(self, verdicts: Verdicts, name: str) -> tuple[NodeInfo | None, float]:
        """A node with its score; None when it was rejected."""
        found = next((each for each in verdicts.all() if each.node == name), None)
        if found is None or found.score is None:
            return None, 0.0
        return self.cluster.node(name), found.score

    def _score_all(self, plugin: ScorePlugin, cycle: Cycle) -> list[float]:
        scores = score_all(plugin, cycle.state, cycle.request, cycle.passed or ())
        return [finite(plugin, score) for score in scores]

    def _normalize(self, plugin: ScorePlugin, cycle: Cycle, raw: list[float]) -> list[float]:
        normalized = guarded(plugin, plugin.normalize, cycle.state, cycle.request, cycle.passed, raw)
        if len(normalized) != len(raw):
            raise failed(plugin, f"normalize() made {len(normalized)} scores of {len(raw)}")
        return normalized

    def pick_vmid(self, request: Request) -> int:
        """The VMID that the request fixes, or the lowest free one that its range and pattern allow.

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
            choice, (lower, upper) = AnyVMID(), self.cluster.snapshot.next_id
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
                choice = guarded(plugin, plugin.choice, request) if concerns(plugin, request) else None
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
            status = asked(plugin, plugin.reserve, cycle.state, cycle.request, node, draft)
            if status is not None and status.code is not Code.SKIP:
                return status
        return None

    # --- queries that place nothing ---

    def refusals(self, request: Request, now: float = 0.0) -> Mapping[str, Mapping[str, Status]]:
        """The statuses of all filters that refuse the request, by node and by plugin."""
        cycle = self._run_pre_filter(self.profile(request), request, now)
        self._run_filter(cycle)
        return self._refusals(cycle)

    def scores(self, request: Request, now: float = 0.0) -> dict[str, float]:
        """The score of every node that all filters let pass, by name."""
        profile = self.profile(request)
        cycle = self._run_pre_filter(profile, request, now)
        self._run_filter(cycle)
        refused = next(iter(cycle.refusing.values()), None)
        verdicts = Verdicts(self.cluster.nodes, profile.weights, cycle.shared, cycle.rejections, refused)
        self._run_score(cycle, verdicts)
        return {verdict.node: verdict.score for verdict in verdicts.all() if verdict.score is not None}

    def storages_on(self, request: Request, node: str, now: float = 0.0) -> dict[str, str]:
        """Choose a storage on one node for each drive of a request, by slot, whatever the filters say of that node.

        Raises NoStorageAvailable.
        """
        info = self.cluster.node(node)
        draft = Draft(request, node, 0.0)
        cycle = self._run_pre_filter(self.profile(request), request, now)
        refused = self._run_reserve(cycle, info, draft) if info is not None else None
        if info is None or refused is not None:
            why = "is not there" if refused is None else refused.text
            raise NoStorageAvailable(f'no storage for VM "{request.name}": {node} {why}')
        return draft.storages

    def _refusals(self, cycle: Cycle) -> Mapping[str, Mapping[str, Status]]:
        shared, plain = cycle.shared, bool(cycle.filters or cycle.refusing)
        if shared.refusals is None or plain:
            refusals = self._all_refusals(cycle)
            if plain:
                return refusals
            shared.refusals = refusals
        return shared.refusals

    def _all_refusals(self, cycle: Cycle) -> dict[str, dict[str, Status]]:
        """The statuses of all filters that refuse a node, by node and by plugin."""
        nodes = self.cluster.nodes
        found = [dict(cycle.refusing) for _info in nodes]
        known = cycle.shared.rejected()
        for plugin in (*cycle.shared.filters, *cycle.filters):
            refused = dict(known.get(plugin.name, {}))
            others = [info for info in nodes if info.index not in refused] if refused else nodes
            run_filters(cycle.state, cycle.request, [plugin], others, refused)
            for index, status in refused.items():
                found[index][plugin.name] = status
        return {info.name: by_plugin for info, by_plugin in zip(nodes, found, strict=True)}


def _that_filter(
    plugins: Iterable[FilterPlugin], idle: Collection[str], codes: Mapping[str, Code]
) -> list[FilterPlugin]:
    """The plugins that the request concerns, and whose Filter was not skipped by PreFilter."""
    return [p for p in plugins if p.name not in idle and codes.get(p.name) in (None, Code.SKIP_SCORE)]


def _that_score(plugins: Iterable[ScorePlugin], idle: Collection[str], codes: Mapping[str, Code]) -> list[ScorePlugin]:
    """The plugins that the request concerns, and whose Score was not skipped by PreFilter."""
    return [p for p in plugins if p.name not in idle and codes.get(p.name) in (None, Code.SKIP_FILTER)]
