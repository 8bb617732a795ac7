# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on every node for one kind of request, kept up to date by looking only at what changed.

Requests that every plugin gives the same signature share one evaluation. What a plugin of C(Scope.NODE) said of a node
stands until a guest comes to that node or leaves it; a plugin of C(Scope.DOMAIN) is asked once per topology domain;
only C(Scope.CLUSTER) is asked anew, node by node. So a run of equal VMs costs one look at every node and then one look
per VM.

Nodes of the same topology domains and the same C(view) of shared storages make a group. Plugins of C(Scope.STORAGES)
are asked about one node of it, anew when a VM came to a shared storage or left it: a node gets what it gets itself and
then what its group gets. Where a node has no view, they are asked about that node by itself.
"""

from __future__ import annotations

import heapq
import typing as t
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError
from ..model import Request
from .cache import ClusterState, NodeInfo
from .framework.cycle_state import CycleState
from .framework.interface import UNIQUE, FilterPlugin, Plugin, PreFilterPlugin, PreScorePlugin, Scope, ScorePlugin
from .framework.profile import Profile
from .framework.status import Code, Status
from .guard import all_in_range, asked, checked, failed, guarded, in_range


@dataclass(frozen=True, slots=True)
class PluginScore:
    """What one plugin gave one node: raw in the plugin's own unit, normalized 0..100, weight as configured."""

    raw: float
    normalized: float
    weight: float


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What became of one node for one request: status says why not; without it score is the weighted mean, 0..100."""

    node: str
    status: Status | None = None
    score: float | None = None
    scores: Mapping[str, PluginScore] = field(default_factory=dict)

    @property
    def feasible(self) -> bool:
        return self.status is None

    @property
    def rejected_by(self) -> str | None:
        """The plugin that rejected the node."""
        return None if self.status is None else self.status.plugin

    @property
    def reason(self) -> str | None:
        return None if self.status is None else self.status.text


NO_SCORE = -1
"""Stands where a node was rejected; below every score."""

POINTS = 1_000_000
"""Weighted scores are summed up and compared in millionths: what computers cannot represent decides nothing."""

_HEAP_SLACK = 4
"""The heap is rebuilt once it holds this many times the number of nodes: the rest is outdated."""

_Answer: t.TypeAlias = "tuple[Status | None, tuple[float, ...], int]"
"""What plugins say: why not, if so; else the score of each; and the weighted sum of the scores in POINTS."""


@dataclass(slots=True, eq=False)
class _Group:
    """The nodes of the same topology domains and the same view.

    Attributes:
        view: None when each of them is asked about by itself.
        rejection, scores, total: what the plugins of C(Scope.STORAGES) say of all of them.
        heap: the negated totals and the indices of those that passed; some outdated.
    """

    view: Hashable
    nodes: list[NodeInfo] = field(default_factory=list)
    rejection: Status | None = None
    scores: tuple[float, ...] = ()
    total: int = 0
    heap: list[tuple[int, int]] = field(default_factory=list)


def signature(profile: Profile, cluster: ClusterState, request: Request) -> Hashable | None:
    """What all plugins of a profile look at in a request; None when one of them shares nothing."""
    parts = []
    for plugin in profile.all():
        part = guarded(plugin, plugin.signature_in, cluster, request)
        guarded(plugin, hash, part)
        parts.append(part)
    return None if UNIQUE in parts else (profile.name, *parts)


class Evaluation:
    """Filters and scores for one kind of request on all nodes of one cluster state."""

    def __init__(self, profile: Profile, cluster: ClusterState, request: Request, now: float) -> None:
        self.request = request
        self.state = CycleState()
        self.refused: Status | None = None
        """Set when PreFilter refused the request on every node."""
        self._cluster = cluster
        self._profile = profile
        self._cursor = len(cluster.journal)
        self._pre_filters: list[PreFilterPlugin] = []
        self._refused: dict[str, Status] = {}
        self._refusals: dict[str, dict[str, Status]] | None = None
        filters = [(f, guarded(f, f.filter_scope, request)) for f in self._run_pre_filter(now)]
        self._node_filters = [f for f, scope in filters if scope is Scope.NODE]
        self._storage_filters = [f for f, scope in filters if scope is Scope.STORAGES]
        self._domain_filters = [f for f, scope in filters if scope is Scope.DOMAIN]
        self._cluster_filters = [f for f, scope in filters if scope is Scope.CLUSTER]
        in_force: list[ScorePlugin] = [s for s in profile.plugins("scores") if profile.weights[s.name] > 0]
        scorers = [(s, guarded(s, s.score_scope, request)) for s in in_force]
        self._node_scorers = self._run_pre_score([s for s, scope in scorers if scope is Scope.NODE], cluster.nodes)
        self._storage_scorers = self._run_pre_score(
            [s for s, scope in scorers if scope is Scope.STORAGES], cluster.nodes
        )
        self._storage_plugins: list[Plugin] = [*self._storage_filters, *self._storage_scorers]
        self._early_scorers = [*self._node_scorers, *self._storage_scorers]
        self._cluster_scorers = [s for s, scope in scorers if scope is Scope.CLUSTER]
        self._rejections: list[Status | None] = [None] * len(cluster.nodes)
        self._scores: list[tuple[float, ...]] = [()] * len(cluster.nodes)
        self._totals: list[int] = [NO_SCORE] * len(cluster.nodes)
        self._groups: dict[Hashable, _Group] = {}
        self._group_of: dict[int, _Group] = {}
        if self.refused is None:
            for info in cluster.nodes:
                self._evaluate(info)
            self._build_heaps()

    # --- one scheduling cycle ---

    def best(self) -> Choice:
        """The verdicts as of now, with the best node; ties go to the name that sorts first."""
        self._catch_up()
        choice = Choice(self)
        if self.refused is not None:
            return choice
        if self._domain_filters:
            self._ask_domains(choice)
        if self._cluster_filters or self._cluster_scorers:
            self._ask_all(choice)
        else:
            tops = [
                (-self._total(index), index)
                for group in self._groups.values()
                if group not in choice.closed and (index := self._top(group)) is not None
            ]
            if tops:
                negated, choice.index = min(tops)
                choice.score = mean(-negated, choice.weight_sum)
        return choice

    def refusals(self) -> dict[str, dict[str, Status]]:
        """For each node, every plugin that refuses it: what the explanation of a failure starts from."""
        self._catch_up()
        if self._refusals is None:
            # A plugin that refused in PreFilter has left no state that its Filter could work with.
            filters = [
                f
                for f in (*self._node_filters, *self._storage_filters, *self._domain_filters, *self._cluster_filters)
                if f.name not in self._refused
            ]
            self._refusals = {
                info.name: {
                    **self._refused,
                    **{f.name: status for f in filters if (status := self._filter(f, info)) is not None},
                }
                for info in self._cluster.nodes
            }
        return self._refusals

    # --- keeping up ---

    def _catch_up(self) -> None:
        journal = self._cluster.journal
        if self._cursor == len(journal) or self.refused is not None:
            return
        dirty: dict[int, NodeInfo] = {}
        shared: set[str] = set()
        for change in journal[self._cursor :]:
            for plugin in self._pre_filters:
                call = plugin.add_vm if change.added else plugin.remove_vm
                others = guarded(plugin, call, self.state, self.request, change.guest, change.node)
                if others:
                    dirty.update({info.index: info for info in others})
            dirty[change.node.index] = change.node
            for storage, _node in change.guest.storage_pending if self._storage_plugins else ():
                seen = change.node.storages.get(storage)
                if seen is not None and seen.use.shared:
                    shared.add(storage)
        self._cursor = len(journal)
        self._refusals = None
        for group in self._groups.values() if shared else ():
            if group.view is None:
                dirty.update({info.index: info for info in group.nodes if not shared.isdisjoint(info.storages)})
            else:
                self._ask_group(group)
        for info in dirty.values():
            self._evaluate(info)
            self._push(info.index)

    def _run_pre_filter(self, now: float) -> list[FilterPlugin]:
        """Run PreFilter of every plugin that has one, and return the filters that are not skipped."""
        skipped: set[str] = set()
        for plugin in self._profile.all():
            if not isinstance(plugin, PreFilterPlugin):
                continue
            status = asked(plugin, plugin.pre_filter, self.state, self.request, self._cluster, now)
            if status is not None and status.code is Code.SKIP:
                skipped.add(plugin.name)
                continue
            self._pre_filters.append(plugin)
            if status is not None:
                self._refused[plugin.name] = status
                self.refused = self.refused or status
        return [plugin for plugin in self._profile.plugins("filters") if plugin.name not in skipped]

    def _run_pre_score(self, scorers: Sequence[ScorePlugin], nodes: Sequence[NodeInfo]) -> list[ScorePlugin]:
        kept: list[ScorePlugin] = []
        for scorer in scorers:
            if isinstance(scorer, PreScorePlugin):
                status = asked(scorer, scorer.pre_score, self.state, self.request, nodes)
                if status is not None and status.code is Code.SKIP:
                    continue
            kept.append(scorer)
        return kept

    def _filter(self, plugin: FilterPlugin, info: NodeInfo) -> Status | None:
        return asked(plugin, plugin.filter, self.state, self.request, info)

    def _view(self, info: NodeInfo) -> Hashable:
        """What the plugins of Scope.STORAGES see on a node; None when one wants to be asked about it."""
        views = []
        for plugin in self._storage_plugins:
            view = guarded(plugin, plugin.view, self.request, info)
            if view is None:
                return None
            guarded(plugin, hash, view)
            views.append(view)
        return tuple(views)

    def _join(self, info: NodeInfo) -> _Group:
        """Find the group of a node, once and for all, when no plugin of Scope.NODE rejects it for the first time."""
        view = self._view(info) if self._storage_plugins else ()
        domains = [guarded(f, f.domain, self.state, self.request, info) for f in self._domain_filters]
        key: Hashable = (view, *domains) if domains else view
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(view, [info])
            self._ask_group(group)
        else:
            group.nodes.append(info)
        self._group_of[info.index] = group
        return group

    def _ask_group(self, group: _Group) -> None:
        """Ask the plugins of Scope.STORAGES about one node; without such plugins the view is empty."""
        if group.view:
            answer = self._ask(self._storage_filters, self._storage_scorers, group.nodes[0])
            group.rejection, group.scores, group.total = answer

    def _evaluate(self, info: NodeInfo) -> None:
        """Ask about one node what its group does not answer."""
        rejection, scores, total = self._ask(self._node_filters, self._node_scorers, info)
        if rejection is None:
            group = self._group_of.get(info.index) or self._join(info)
            if group.view is None:
                rejection, more, added = self._ask(self._storage_filters, self._storage_scorers, info)
                scores, total = scores + more, total + added
        self._rejections[info.index] = rejection
        self._scores[info.index] = scores
        self._totals[info.index] = NO_SCORE if rejection is not None else total

    def _ask(self, filters: Sequence[FilterPlugin], scorers: Sequence[ScorePlugin], info: NodeInfo) -> _Answer:
        state, request = self.state, self.request
        plugin: Plugin | None = None
        try:
            for plugin in filters:
                status = plugin.filter(state, request, info)
                if status is not None and (status := checked(plugin, status)) is not None:
                    return status, (), 0
            scores = []
            total = 0
            weights = self._profile.weights
            for plugin in scorers:
                score = in_range(plugin, plugin.score(state, request, info))
                scores.append(score)
                total += round(weights[plugin.name] * score * POINTS)
        except CollectionError:
            raise
        # A plugin may be anybody's code and raise anything; guarded() per call would cost more than most plugins do.
        except Exception as error:
            if plugin is None:
                raise
            raise failed(plugin, f"{type(error).__name__}: {error}") from error
        return None, tuple(scores), total

    # --- choosing ---

    def _build_heaps(self) -> None:
        totals = self._totals
        for group in self._groups.values():
            group.heap = [(-totals[info.index], info.index) for info in group.nodes if totals[info.index] >= 0]
            heapq.heapify(group.heap)

    def _push(self, index: int) -> None:
        if self._totals[index] < 0:
            return
        heap = self._group_of[index].heap
        if len(heap) > _HEAP_SLACK * len(self._totals):
            self._build_heaps()
        else:
            heapq.heappush(heap, (-self._totals[index], index))

    def _top(self, group: _Group) -> int | None:
        """The index of the best node; what the group gets is the same for all, so what a node gets itself decides."""
        heap = group.heap
        while heap and self._totals[heap[0][1]] != -heap[0][0]:
            heapq.heappop(heap)
        return heap[0][1] if heap and group.rejection is None else None

    def _total(self, index: int) -> int:
        return self._totals[index] + self._group_of[index].total

    def _ask_domains(self, choice: Choice) -> None:
        """Ask the domain filters about one node of each group; close the groups that they refuse."""
        for group in self._groups.values():
            top = self._top(group)
            if top is None:
                continue
            for plugin in self._domain_filters:
                status = self._filter(plugin, self._cluster.nodes[top])
                if status is not None:
                    choice.closed[group] = status
                    break

    def _ask_all(self, choice: Choice) -> None:
        """Ask the plugins that look at the whole cluster, node by node."""
        candidates: list[NodeInfo] = []
        for info in self._cluster.nodes:
            if choice.rejection(info.index) is not None:
                continue
            for plugin in self._cluster_filters:
                status = self._filter(plugin, info)
                if status is not None:
                    choice.late[info.index] = status
                    break
            else:
                candidates.append(info)
        if not candidates:
            return
        scorers = self._run_pre_score(self._cluster_scorers, candidates)
        totals = [self._total(info.index) for info in candidates]
        for scorer in scorers:
            raw = guarded(scorer, self._score_all, scorer, candidates)
            normalized = self._normalize(scorer, raw)
            weight = self._profile.weights[scorer.name]
            totals = [total + round(weight * score * POINTS) for total, score in zip(totals, normalized, strict=True)]
            choice.late_scores.append(LateScores(scorer.name, weight, raw, normalized))
        choice.scored = [info.index for info in candidates]
        best = max(range(len(candidates)), key=lambda position: (totals[position], -candidates[position].index))
        choice.weight_sum = self._weight_sum([*self._early_scorers, *scorers])
        choice.index = candidates[best].index
        choice.score = mean(totals[best], choice.weight_sum)

    def _score_all(self, scorer: ScorePlugin, candidates: Sequence[NodeInfo]) -> list[float]:
        return [scorer.score(self.state, self.request, info) for info in candidates]

    def _normalize(self, scorer: ScorePlugin, raw: list[float]) -> list[float]:
        normalized = guarded(scorer, scorer.normalize, self.state, self.request, raw)
        if len(normalized) != len(raw):
            raise failed(scorer, f"normalize made {len(normalized)} scores of {len(raw)}")
        return guarded(scorer, all_in_range, scorer, normalized)

    def _weight_sum(self, scorers: Sequence[ScorePlugin]) -> float:
        return sum(self._profile.weights[scorer.name] for scorer in scorers) or 1.0


class LateScores(t.NamedTuple):
    """What one plugin of C(Scope.CLUSTER) gave the nodes that were scored, in their order."""

    plugin: str
    weight: float
    raw: list[float]
    normalized: list[float]


class Choice:
    """The outcome of one look at an evaluation. Its verdicts stay as they were when the choice was made.

    Attributes:
        index: of the best node; None when no node passed.
        score: of that node, 0..100.
        scored: the indices of the nodes that late_scores is about.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self.index: int | None = None
        self.score = 0.0
        self.closed: dict[_Group, Status] = {}
        self.late: dict[int, Status] = {}
        self.late_scores: list[LateScores] = []
        self.scored: list[int] = []
        self.weight_sum = evaluation._weight_sum(evaluation._early_scorers)
        self._evaluation = evaluation
        self._rejections = evaluation._rejections.copy()
        self._scores = evaluation._scores.copy()
        self._shared = {group: (group.rejection, group.scores) for group in evaluation._groups.values()}

    def rejection(self, index: int) -> Status | None:
        """Why the node at index was rejected, or None."""
        evaluation = self._evaluation
        if evaluation.refused is not None:
            return evaluation.refused
        early = self._rejections[index]
        if early is not None:
            return early
        group = evaluation._group_of[index]
        return self._shared[group][0] or self.closed.get(group) or self.late.get(index)

    def verdicts(self) -> tuple[NodeVerdict, ...]:
        """One verdict per node, in order of name."""
        positions = {index: position for position, index in enumerate(self.scored)}
        nodes = self._evaluation._cluster.nodes
        return tuple(self._verdict(info.name, info.index, positions.get(info.index)) for info in nodes)

    def _verdict(self, name: str, index: int, position: int | None) -> NodeVerdict:
        rejection = self.rejection(index)
        if rejection is not None:
            return NodeVerdict(name, status=rejection)
        weights: Mapping[str, float] = self._evaluation._profile.weights
        _rejection, shared = self._shared[self._evaluation._group_of[index]]
        scores = {
            scorer.name: PluginScore(raw, raw, weights[scorer.name])
            for scorer, raw in zip(self._evaluation._early_scorers, self._scores[index] + shared, strict=True)
        }
        if position is not None:
            for late in self.late_scores:
                scores[late.plugin] = PluginScore(late.raw[position], late.normalized[position], late.weight)
        total = sum(round(score.weight * score.normalized * POINTS) for score in scores.values())
        return NodeVerdict(name, score=mean(total, self.weight_sum), scores=scores)


def mean(total: int, weights: float) -> float:
    """The weighted mean, of a sum in POINTS and the sum of the weights; equal sums have equal means."""
    return round(total / POINTS / weights, 6)
