# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on every node for one kind of request, kept up to date by looking only at what changed.

Requests that every plugin gives the same signature share one evaluation. What a plugin of C(Scope.NODE) said of a node
stands until a guest comes to that node or leaves it; a plugin of C(Scope.DOMAIN) is asked once per topology domain;
only C(Scope.CLUSTER) is asked anew, node by node. So a run of equal VMs costs one look at every node and then one look
per VM.
"""

from __future__ import annotations

import heapq
import typing as t
from collections.abc import Hashable, Mapping, Sequence

from ..errors import CollectionError
from ..model import NodeVerdict, PluginScore, Request
from .cache import ClusterState, NodeInfo
from .framework.cycle_state import CycleState
from .framework.interface import UNIQUE, FilterPlugin, Plugin, PreFilterPlugin, PreScorePlugin, Scope, ScorePlugin
from .framework.profile import Profile
from .framework.status import Code, Status
from .guard import Rejection, all_in_range, asked, checked, failed, guarded, in_range

NO_SCORE = -1.0
"""Stands where a node was rejected; below every score."""

_HEAP_SLACK = 4
"""The heap is rebuilt once it holds this many times the number of nodes: the rest is outdated."""


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
        self.refused: Rejection | None = None
        """Set when PreFilter refused the request on every node."""
        self._cluster = cluster
        self._profile = profile
        self._cursor = len(cluster.journal)
        self._pre_filters: list[PreFilterPlugin] = []
        self._refused: dict[str, Status] = {}
        self._refusals: dict[str, dict[str, Status]] | None = None
        filters = [(f, guarded(f, f.filter_scope, request)) for f in self._run_pre_filter(now)]
        self._node_filters = [f for f, scope in filters if scope is Scope.NODE]
        self._domain_filters = [f for f, scope in filters if scope is Scope.DOMAIN]
        self._cluster_filters = [f for f, scope in filters if scope is Scope.CLUSTER]
        in_force: list[ScorePlugin] = [s for s in profile.plugins("scores") if profile.weights[s.name] > 0]
        scorers = [(s, guarded(s, s.score_scope, request)) for s in in_force]
        self._node_scorers = self._run_pre_score([s for s, scope in scorers if scope is Scope.NODE], cluster.nodes)
        self._cluster_scorers = [s for s, scope in scorers if scope is Scope.CLUSTER]
        self._rejections: list[Rejection | None] = [None] * len(cluster.nodes)
        self._scores: list[tuple[float, ...]] = [()] * len(cluster.nodes)
        self._totals: list[float] = [NO_SCORE] * len(cluster.nodes)
        self._groups: dict[Hashable, list[tuple[float, int]]] = {}
        self._group_of: list[Hashable] = [()] * len(cluster.nodes)
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
                top for group in self._groups if group not in choice.closed and (top := self._top(group)) is not None
            ]
            if tops:
                negated, index = min(tops)
                choice.index, choice.score = index, -negated / self._weight_sum(self._node_scorers)
        return choice

    def refusals(self) -> dict[str, dict[str, Status]]:
        """For each node, every plugin that refuses it: what the explanation of a failure starts from."""
        self._catch_up()
        if self._refusals is None:
            # A plugin that refused in PreFilter has left no state that its Filter could work with.
            filters = [
                f
                for f in (*self._node_filters, *self._domain_filters, *self._cluster_filters)
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
        for change in journal[self._cursor :]:
            for plugin in self._pre_filters:
                call = plugin.add_vm if change.added else plugin.remove_vm
                others = guarded(plugin, call, self.state, self.request, change.guest, change.node)
                if others:
                    dirty.update({info.index: info for info in others})
            dirty[change.node.index] = change.node
            if self.request.disks or self.request.clone:
                for storage, _node in change.guest.storage_pending:
                    seen = change.node.storages.get(storage)
                    if seen is not None and seen.use.shared:
                        dirty.update({info.index: info for info in self._cluster.nodes_with_storage(storage)})
        self._cursor = len(journal)
        self._refusals = None
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
                self.refused = self.refused or Rejection(plugin.name, status)
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

    def _evaluate(self, info: NodeInfo) -> None:
        """Ask the plugins of Scope.NODE about one node."""
        state, request, index = self.state, self.request, info.index
        plugin: Plugin | None = None
        try:
            for plugin in self._node_filters:
                status = plugin.filter(state, request, info)
                if status is not None and (status := checked(plugin, status)) is not None:
                    self._rejections[index] = Rejection(plugin.name, status)
                    self._totals[index] = NO_SCORE
                    return
            scores = []
            total = 0.0
            weights = self._profile.weights
            for plugin in self._node_scorers:
                score = in_range(plugin, plugin.score(state, request, info))
                scores.append(score)
                total += weights[plugin.name] * score
        except CollectionError:
            raise
        # A plugin may be anybody's code and raise anything; guarded() per call would cost more than most plugins do.
        except Exception as error:
            if plugin is None:
                raise
            raise failed(plugin, f"{type(error).__name__}: {error}") from error
        self._rejections[index] = None
        self._scores[index] = tuple(scores)
        self._totals[index] = total

    # --- choosing ---

    def _build_heaps(self) -> None:
        self._groups = {}
        for info in self._cluster.nodes:
            group = tuple(guarded(f, f.domain, self.state, self.request, info) for f in self._domain_filters)
            self._group_of[info.index] = group
            self._groups.setdefault(group, [])
            if self._totals[info.index] >= 0:
                self._groups[group].append((-self._totals[info.index], info.index))
        for heap in self._groups.values():
            heapq.heapify(heap)

    def _push(self, index: int) -> None:
        if self._totals[index] < 0:
            return
        heap = self._groups[self._group_of[index]]
        if len(heap) > _HEAP_SLACK * len(self._totals):
            self._build_heaps()
        else:
            heapq.heappush(heap, (-self._totals[index], index))

    def _top(self, group: Hashable) -> tuple[float, int] | None:
        heap = self._groups[group]
        while heap and self._totals[heap[0][1]] != -heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _ask_domains(self, choice: Choice) -> None:
        """Ask the domain filters about one node of each group of domains; close the groups that they refuse."""
        for group in self._groups:
            top = self._top(group)
            if top is None:
                continue
            for plugin in self._domain_filters:
                status = self._filter(plugin, self._cluster.nodes[top[1]])
                if status is not None:
                    choice.closed[group] = Rejection(plugin.name, status)
                    break

    def _ask_all(self, choice: Choice) -> None:
        """Ask the plugins that look at the whole cluster, node by node."""
        candidates: list[NodeInfo] = []
        for info in self._cluster.nodes:
            if self._totals[info.index] < 0 or self._group_of[info.index] in choice.closed:
                continue
            for plugin in self._cluster_filters:
                status = self._filter(plugin, info)
                if status is not None:
                    choice.late[info.index] = Rejection(plugin.name, status)
                    break
            else:
                candidates.append(info)
        if not candidates:
            return
        scorers = self._run_pre_score(self._cluster_scorers, candidates)
        totals = [self._totals[info.index] for info in candidates]
        for scorer in scorers:
            raw = guarded(scorer, self._score_all, scorer, candidates)
            normalized = self._normalize(scorer, raw)
            weight = self._profile.weights[scorer.name]
            totals = [total + weight * score for total, score in zip(totals, normalized, strict=True)]
            choice.late_scores.append(LateScores(scorer.name, weight, raw, normalized))
        choice.scored = [info.index for info in candidates]
        best = max(range(len(candidates)), key=lambda position: (totals[position], -candidates[position].index))
        weight_sum = self._weight_sum([*self._node_scorers, *scorers])
        choice.index = candidates[best].index
        choice.score = totals[best] / weight_sum
        choice.weight_sum = weight_sum

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
        self.closed: dict[Hashable, Rejection] = {}
        self.late: dict[int, Rejection] = {}
        self.late_scores: list[LateScores] = []
        self.scored: list[int] = []
        self.weight_sum = evaluation._weight_sum(evaluation._node_scorers)
        self._evaluation = evaluation
        self._rejections = evaluation._rejections.copy()
        self._scores = evaluation._scores.copy()

    def rejection(self, index: int) -> Rejection | None:
        """Why the node at index was rejected, or None."""
        evaluation = self._evaluation
        if evaluation.refused is not None:
            return evaluation.refused
        early = self._rejections[index]
        if early is not None:
            return early
        return self.closed.get(evaluation._group_of[index]) or self.late.get(index)

    def verdicts(self) -> tuple[NodeVerdict, ...]:
        """One verdict per node, in order of name."""
        positions = {index: position for position, index in enumerate(self.scored)}
        nodes = self._evaluation._cluster.nodes
        return tuple(self._verdict(info.name, info.index, positions.get(info.index)) for info in nodes)

    def _verdict(self, name: str, index: int, position: int | None) -> NodeVerdict:
        rejection = self.rejection(index)
        if rejection is not None:
            return NodeVerdict(name, False, rejected_by=rejection.plugin, reason=rejection.status.text)
        weights: Mapping[str, float] = self._evaluation._profile.weights
        scores = {
            scorer.name: PluginScore(raw, raw, weights[scorer.name])
            for scorer, raw in zip(self._evaluation._node_scorers, self._scores[index], strict=True)
        }
        if position is not None:
            for late in self.late_scores:
                scores[late.plugin] = PluginScore(late.raw[position], late.normalized[position], late.weight)
        total = sum(score.weight * score.normalized for score in scores.values()) / self.weight_sum
        return NodeVerdict(name, True, score=total, scores=scores)
