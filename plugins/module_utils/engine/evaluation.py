# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on every node for one kind of request, kept up to date by looking only at what changed.

Requests that every plugin gives the same signature share one evaluation. What a plugin of C(Scope.NODE) said of a node
stands until a guest comes to that node or leaves it. A VM on a shared storage leaves less of it to every node that sees
it: plugins of C(Scope.STORAGES) are asked again then, but once for all nodes that see their storages alike. A plugin of
C(Scope.DOMAIN) is asked once per topology domain; only C(Scope.CLUSTER) is asked anew, node by node. So a run of equal
VMs costs one look at every node and then one look per VM.

Nodes of the same domains and the same view of the storages make a group. The best node is the best of its group, and
what a node gets is what it gets itself plus what its group gets.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import typing as t
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError
from ..model import NodeVerdict, PluginScore, Request
from .cache import ClusterState, NodeInfo
from .framework.cycle_state import CycleState
from .framework.interface import UNIQUE, FilterPlugin, Plugin, PreFilterPlugin, PreScorePlugin, Scope, ScorePlugin
from .framework.profile import Profile
from .framework.status import Code, Status
from .guard import Rejection, all_in_range, asked, checked, failed, guarded, in_range
from .ranking import Rank, Ranking, RankingByRank

NO_SCORE = -1.0
"""Stands where a node was rejected; below every score."""

_RANKING_SLACK = 4
"""The rankings are made anew once this many times the number of nodes was added: most is outdated then."""

_ROUNDING = 1e-12
"""More than what the order in which scores are added up can change of their sum."""

_BY_NODE = (Scope.NODE, Scope.STORAGES)
"""The scopes of plugins that can be asked about one node by itself."""


class _Answer(t.NamedTuple):
    """What plugins say: why not, or the scores that they give and the weighted sum of them."""

    rejection: Rejection | None = None
    scores: tuple[float, ...] = ()
    total: float = 0.0


@dataclass(slots=True, eq=False)
class _Group:
    """The nodes of the same topology domains that see the storages alike, and what holds for all of them.

    Attributes:
        domains: of the plugins of C(Scope.DOMAIN), in their order.
        view: of the plugins of C(Scope.STORAGES), in their order; None where each node is asked by itself.
        nodes: the indices of those in it.
        ranking: of those that passed, by what they get themselves.
        answer: what the plugins of C(Scope.STORAGES) say; None when they have to be asked.
    """

    domains: Hashable
    view: Hashable
    answer: _Answer | None
    nodes: set[int] = field(default_factory=set)
    ranking: Ranking = field(init=False)

    def any(self) -> int:
        """The index of one of its nodes."""
        return next(iter(self.nodes))


def signature(profile: Profile, cluster: ClusterState, request: Request) -> Hashable | None:
    """What all plugins of a profile look at in a request; None when one of them shares nothing."""
    parts: list[Hashable] = []
    plugins = profile.all()
    try:
        for plugin in plugins:
            part = plugin.signature_in(cluster, request)
            hash(part)
            parts.append(part)
    except CollectionError:
        raise
    except Exception as error:  # as in _evaluate
        raise failed(plugins[len(parts)], f"{type(error).__name__}: {error}") from error
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
        self._node_filters = [f for f, scope in filters if scope in _BY_NODE]
        self._storage_filters = [f for f, scope in filters if scope is Scope.STORAGES]
        self._domain_filters = [f for f, scope in filters if scope is Scope.DOMAIN]
        self._cluster_filters = [f for f, scope in filters if scope is Scope.CLUSTER]
        in_force: list[ScorePlugin] = [s for s in profile.plugins("scores") if profile.weights[s.name] > 0]
        scopes = {s.name: guarded(s, s.score_scope, request) for s in in_force}
        self._node_scorers = self._run_pre_score([s for s in in_force if scopes[s.name] in _BY_NODE], cluster.nodes)
        self._storage_scorers = [s for s in self._node_scorers if scopes[s.name] is Scope.STORAGES]
        self._cluster_scorers = [s for s in in_force if scopes[s.name] is Scope.CLUSTER]
        storage_plugins = (*self._storage_filters, *self._storage_scorers)
        self._storage_plugins: list[Plugin] = list({plugin.name: plugin for plugin in storage_plugins}.values())
        self._own_filters = [f for f in self._node_filters if f not in self._storage_filters]
        self._own_scorers = [s for s in self._node_scorers if s not in self._storage_scorers]
        self._rejections: list[Rejection | None] = [None] * len(cluster.nodes)
        self._scores: list[tuple[float, ...]] = [()] * len(cluster.nodes)
        self._totals: list[float] = [NO_SCORE] * len(cluster.nodes)
        self._domains: list[Hashable] = [()] * len(cluster.nodes)
        self._pushed = 0
        self.lent = False
        """Whether a choice relies on the groups as they are; they are copied before they change then."""
        everywhere = _Group((), None, _Answer(), set(range(len(cluster.nodes))))
        self._groups: dict[Hashable, _Group] = {(everywhere.domains, everywhere.view): everywhere}
        self._group_of: list[_Group] = [everywhere] * len(cluster.nodes)
        if self.refused is None:
            for info in cluster.nodes:
                if self._domain_filters:
                    domains = (guarded(f, f.domain, self.state, request, info) for f in self._domain_filters)
                    self._domains[info.index] = tuple(domains)
                if self._domain_filters or self._storage_plugins:
                    self._regroup(info)
                self._evaluate(info)
            self._rank_all()
            self._ask_groups()

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
                top
                for group, answer in choice.answers.items()
                if answer.rejection is None
                and group.domains not in choice.closed
                and (top := self._best_of(group, answer)) is not None
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
        shared: set[str] = set()
        for change in journal[self._cursor :]:
            for plugin in self._pre_filters:
                call = plugin.add_vm if change.added else plugin.remove_vm
                others = guarded(plugin, call, self.state, self.request, change.guest, change.node)
                if others:
                    dirty.update({info.index: info for info in others})
            dirty[change.node.index] = change.node
            if self._storage_plugins:
                for storage, _node in change.guest.storage_pending:
                    seen = change.node.storages.get(storage)
                    if seen is not None and seen.use.shared:
                        shared.add(storage)
        self._cursor = len(journal)
        self._refusals = None
        for info in dirty.values():
            self._update(info)
        if shared:
            self._look_again(shared, dirty)
        self._ask_groups()

    def _look_again(self, shared: set[str], done: Mapping[int, NodeInfo]) -> None:
        """Find out what a change of shared storages means, but for nodes that are done."""
        nodes = self._cluster.nodes
        for key, group in list(self._groups.items()):
            if not group.nodes:
                del self._groups[key]
            elif group.view is not None and self._view(nodes[group.any()]) == group.view:
                group.answer = None
            else:
                for info in [nodes[index] for index in group.nodes if index not in done]:
                    if not shared.isdisjoint(info.storages):
                        self._update(info)

    def _update(self, info: NodeInfo) -> None:
        """Look at one node again."""
        if self._storage_plugins:
            self._regroup(info)
        self._evaluate(info)
        group = self._group_of[info.index]
        rank = self._rank(group, info.index)
        if rank is not None:
            group.ranking.push(rank, info.index)
            self._pushed += 1
            if self._pushed > _RANKING_SLACK * len(self._totals):
                self._rank_all()

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
        """Ask about one node what its group does not answer."""
        state, request, index = self.state, self.request, info.index
        filters, scorers = self._node_filters, self._node_scorers
        if self._group_of[index].view is not None:
            filters, scorers = self._own_filters, self._own_scorers
        plugin: Plugin | None = None
        try:
            for plugin in filters:
                status = plugin.filter(state, request, info)
                if status is not None and (status := checked(plugin, status)) is not None:
                    self._rejections[index] = Rejection(plugin.name, status)
                    self._totals[index] = NO_SCORE
                    return
            scores = []
            total = 0.0
            weights = self._profile.weights
            for plugin in scorers:
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

    def _regroup(self, info: NodeInfo) -> None:
        """Move a node to the group that it belongs to now."""
        index = info.index
        former = self._group_of[index]
        key = domains, view = self._domains[index], self._view(info)
        if view == former.view and domains == former.domains:
            return
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(domains, view, _Answer() if view is None else None)
            group.ranking = self._ranking(group)
        former.nodes.discard(index)
        group.nodes.add(index)
        if self.lent:
            self._group_of, self.lent = self._group_of.copy(), False
        self._group_of[index] = group

    def _view(self, info: NodeInfo) -> Hashable:
        """The node's view of the storages; None when a plugin wants to be asked about this node."""
        views = []
        for plugin in self._storage_plugins:
            view = guarded(plugin, plugin.view, self.request, info)
            if view is None:
                return None
            guarded(plugin, hash, view)
            views.append(view)
        return tuple(views) or None

    def _ask_groups(self) -> None:
        """Ask the plugins of Scope.STORAGES about one node of each group that has no answer."""
        for group in self._groups.values():
            if group.answer is None and group.nodes:
                group.answer = self._answer(self._cluster.nodes[group.any()])

    def _answer(self, info: NodeInfo) -> _Answer:
        for plugin in self._storage_filters:
            status = self._filter(plugin, info)
            if status is not None:
                return _Answer(Rejection(plugin.name, status))
        scorers = self._storage_scorers
        scores = tuple(guarded(scorer, self._score, scorer, info) for scorer in scorers)
        weights = self._profile.weights
        return _Answer(None, scores, sum(weights[s.name] * score for s, score in zip(scorers, scores, strict=True)))

    def _score(self, plugin: ScorePlugin, info: NodeInfo) -> float:
        return in_range(plugin, plugin.score(self.state, self.request, info))

    # --- choosing ---

    def _ranking(self, group: _Group) -> Ranking:
        """An empty ranking of the nodes of a group."""
        kind = Ranking if group.view is None else RankingByRank
        return kind(functools.partial(self._rank, group))

    def _rank(self, group: _Group, index: int) -> Rank | None:
        """The rank of a node in a group; None when it is not in it or was rejected.

        By its own total, and by the scores that this was made of where the group adds to them.
        """
        total = self._totals[index]
        if total < 0 or self._group_of[index] is not group:
            return None
        return (-total,) if group.view is None else (-total, *self._scores[index])

    def _rank_all(self) -> None:
        self._pushed = 0
        for group in self._groups.values():
            group.ranking = self._ranking(group)
            for index in group.nodes:
                rank = self._rank(group, index)
                if rank is not None:
                    group.ranking.push(rank, index)

    def _best_of(self, group: _Group, answer: _Answer) -> tuple[float, int] | None:
        """The negated total and the index of the best node."""
        ranking = group.ranking
        best = ranking.top()
        if best is None or not isinstance(ranking, RankingByRank):
            return None if best is None else (-self._totals[best], best)
        # What the group adds may turn ranks round that differ in the last digits only, or make them equal.
        close = (self._totals[best] + answer.total) * (1 - _ROUNDING) - answer.total
        with contextlib.closing(ranking.tops()) as tops:
            near = itertools.takewhile(lambda index: self._totals[index] >= close, tops)
            return min((-self._total(index, group, answer), index) for index in near)

    def _total(self, index: int, group: _Group, answer: _Answer) -> float:
        """What a node gets with what its group gets, added up in the order of the plugins as for any other node."""
        if not answer.scores:
            return self._totals[index]
        total = 0.0
        for scorer, score in self.merged(self._scores[index], group, answer):
            total += self._profile.weights[scorer.name] * score
        return total

    def merged(self, scores: tuple[float, ...], group: _Group, answer: _Answer) -> Iterator[tuple[ScorePlugin, float]]:
        """Each plugin that is asked about single nodes, in order, with the score of a node with these of its own."""
        own, shared = iter(scores), iter(answer.scores)
        for scorer in self._node_scorers:
            yield scorer, next(shared if group.view is not None and scorer in self._storage_scorers else own)

    def _ask_domains(self, choice: Choice) -> None:
        """Ask the domain filters about one node of each combination of domains; close those that they refuse."""
        asked_about = set()
        for group, answer in choice.answers.items():
            if answer.rejection is not None or group.domains in asked_about:
                continue
            index = group.ranking.top()
            if index is None:
                continue
            asked_about.add(group.domains)
            for plugin in self._domain_filters:
                status = self._filter(plugin, self._cluster.nodes[index])
                if status is not None:
                    choice.closed[group.domains] = Rejection(plugin.name, status)
                    break

    def _ask_all(self, choice: Choice) -> None:
        """Ask the plugins that look at the whole cluster, node by node."""
        candidates: list[NodeInfo] = []
        totals: list[float] = []
        for info in self._cluster.nodes:
            group = self._group_of[info.index]
            answer = choice.answers[group]
            if self._totals[info.index] < 0 or answer.rejection is not None or group.domains in choice.closed:
                continue
            for plugin in self._cluster_filters:
                status = self._filter(plugin, info)
                if status is not None:
                    choice.late[info.index] = Rejection(plugin.name, status)
                    break
            else:
                candidates.append(info)
                totals.append(self._total(info.index, group, answer))
        if not candidates:
            return
        scorers = self._run_pre_score(self._cluster_scorers, candidates)
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
        answers: what each group of nodes was answered.
        closed: the domains that were refused.
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
        self._group_of, evaluation.lent = evaluation._group_of, True
        self.answers = {group: group.answer for group in evaluation._groups.values() if group.answer is not None}

    def rejection(self, index: int) -> Rejection | None:
        """Why the node at index was rejected, or None."""
        evaluation = self._evaluation
        if evaluation.refused is not None:
            return evaluation.refused
        group = self._group_of[index]
        early = [r for r in (self._rejections[index], self.answers[group].rejection) if r is not None]
        if early:
            order = [plugin.name for plugin in evaluation._node_filters]
            return min(early, key=lambda rejection: order.index(rejection.plugin))
        return self.closed.get(group.domains) or self.late.get(index)

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
        group = self._group_of[index]
        scores = {
            scorer.name: PluginScore(raw, raw, weights[scorer.name])
            for scorer, raw in self._evaluation.merged(self._scores[index], group, self.answers[group])
        }
        if position is not None:
            for late in self.late_scores:
                scores[late.plugin] = PluginScore(late.raw[position], late.normalized[position], late.weight)
        total = sum(score.weight * score.normalized for score in scores.values()) / self.weight_sum
        return NodeVerdict(name, True, score=total, scores=scores)
