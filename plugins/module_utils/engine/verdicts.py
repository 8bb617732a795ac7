# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of a request in one scheduling cycle, with its verdicts on all nodes: those of sharing plugins on nodes
and on groups of nodes, and the whole verdict on each node.
"""

from __future__ import annotations

import bisect
import heapq
import typing as t
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError
from ..model import Decision, Request
from .cache import NodeInfo
from .framework.interface import FilterPlugin, ScorePlugin
from .framework.status import Status

if t.TYPE_CHECKING:
    from .sharing import SharedVerdicts

POINTS = 1_000_000
"""Weighted scores are summed and compared as whole millionths, so that rounding errors of floats decide nothing."""


class Answer(t.NamedTuple):
    """The verdict on all nodes of a group in one cycle.

    Attributes:
        rejection: the reason if the group is rejected.
        scores, total: the scores of the plugins that evaluate the whole group, and their weighted sum in POINTS.
        raws, normalized: the values of each unbounded score.
    """

    rejection: Status | None
    scores: tuple[float, ...] = ()
    total: int = 0
    raws: tuple[float, ...] = ()
    normalized: tuple[float, ...] = ()


NOTHING = Answer(None)


class Scoring(t.NamedTuple):
    """A score plugin, the array of its scores by node index, and its weight."""

    plugin: ScorePlugin
    scores: array[float]
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Nodes for which the same plugins evaluate groups, and the same plugins evaluate single nodes.

    Attributes:
        filters, scorers: the plugins that evaluate the group; the scorers are bounded.
        node_filters: the filters that evaluate the node itself because it is in no group of theirs.
        node_scorers: all bounded scores that evaluate the node itself.
        alone: for each unbounded score, whether it is evaluated for the node itself.
        watched: whether a plugin that evaluates the node itself depends on the space of storages.
        nodes: the nodes by index; filled only if watched.
    """

    filters: Sequence[FilterPlugin]
    scorers: Sequence[ScorePlugin]
    node_filters: Sequence[FilterPlugin]
    node_scorers: Sequence[Scoring]
    alone: Sequence[bool]
    watched: bool
    nodes: dict[int, NodeInfo] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Group:
    """The nodes that are in the same group for every grouping plugin and have the same unbounded scores.

    Attributes:
        raws: the unbounded scores; None for those that are evaluated for the whole group.
        heap: the rankings of nodes that passed, the best first; some may be outdated.
        top: the index of the best node, in this cycle.
    """

    division: Division
    raws: tuple[float | None, ...]
    heap: list[int] = field(default_factory=list)
    top: int = -1


class Was(t.NamedTuple):
    """The verdict on one node at some time, without that on its group.

    Attributes:
        scores, total: the bounded scores and their weighted sum in POINTS; without meaning for a rejected node.
    """

    rejection: Status | None
    scores: tuple[float, ...]
    total: int
    group: Group | None


class Past(t.NamedTuple):
    """The verdicts on the nodes at a moment, by index; of returns all of one node."""

    rejections: Sequence[Status | None]
    totals: Sequence[int]
    groups: Sequence[Group | None]
    of: Callable[[int], Was]


class Moment:
    """A point in time that a reader may look back at.

    Attributes:
        changed: the verdicts at this moment on nodes that changed before the next moment, by index.
        next: the next moment; None while this is the last.
    """

    __slots__ = ("changed", "next")

    def __init__(self) -> None:
        self.changed: dict[int, Was] = {}
        self.next: Moment | None = None


@dataclass(frozen=True, slots=True)
class PluginScore:
    """One plugin's score of one node: raw in the plugin's own unit, normalized 0..100, weight as configured."""

    raw: float
    normalized: float
    weight: float


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The verdict on one node for one request: status is the reason of a rejection; otherwise score is the weighted
    mean, 0..100.
    """

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


BEST = 5
"""How many of the best nodes are determined at once, as callers ask for them two or three times."""


class PlainScores(t.NamedTuple):
    """One plugin's scores of the nodes that passed, in their order."""

    plugin: ScorePlugin
    raw: list[float]
    normalized: list[float]


class Verdicts:
    """The verdicts of one cycle, at the time when it chose a node. They are not copied: later changes are undone when
    the verdicts are read.
    """

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        weights: Mapping[str, float],
        shared: SharedVerdicts,
        plain: Mapping[int, Status],
        refused: Status | None = None,
    ) -> None:
        """plain are the rejections of plain plugins, by the nodes' indices; refused is the status of PreFilter."""
        self._nodes = nodes
        self._weights = weights
        self._refused = refused
        self._plain = plain
        self._plain_scores: Sequence[PlainScores] | None = None
        self._scored: Sequence[NodeInfo] = ()
        self._shared = shared
        self._moment = shared.moment()
        self._answers = shared.answers
        self._best: tuple[int, list[NodeVerdict]] | None = None

    def add_scores(self, nodes: Sequence[NodeInfo], scores: Sequence[PlainScores]) -> None:
        """Add the scores that were computed node by node: those of plain plugins, and the unbounded ones."""
        self._scored = nodes
        self._plain_scores = scores

    def mean(self, total: int) -> float:
        """Convert a sum in POINTS to a score, 0..100. Equal sums give equal scores."""
        scorers: list[ScorePlugin] = [*self._shared.bounded]
        scorers += self._shared.ranked if self._plain_scores is None else [each.plugin for each in self._plain_scores]
        return round(total / POINTS / (sum(self._weights[scorer.name] for scorer in scorers) or 1.0), 6)

    def rejections(self) -> list[Status | None]:
        """For each node, in order of name, why it was rejected, or None."""
        return self._rejections(self._shared.as_of(self._moment))

    @property
    def node_count(self) -> int:
        return len(self._nodes)

    def rejected(self) -> dict[tuple[str, str], list[str]]:
        """The names of the rejected nodes by plugin and reason, the most frequent reasons first."""
        found: dict[tuple[str, str], list[str]] = {}
        for info, rejection in zip(self._nodes, self.rejections(), strict=True):
            if rejection is not None:
                found.setdefault((rejection.plugin, rejection.reason), []).append(info.name)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))

    def all(self) -> tuple[NodeVerdict, ...]:
        """One verdict per node, in order of name."""
        past = self._shared.as_of(self._moment)
        told = zip(self._nodes, self._rejections(past), strict=True)
        return tuple(self._verdict(info, rejection, past) for info, rejection in told)

    def best(self, count: int) -> list[NodeVerdict]:
        """The verdicts on the best nodes that passed, at most count, the best first. Equal nodes are in order
        of name.
        """
        if self._best is None or count > self._best[0]:
            count = max(count, BEST)
            past = self._shared.as_of(self._moment)
            passed = [index for index, rejection in enumerate(self._rejections(past)) if rejection is None]
            found = heapq.nsmallest(count, zip([-total for total in self._totals(passed, past)], passed, strict=True))
            self._best = count, [self._verdict(self._nodes[index], None, past) for _total, index in found]
        return self._best[1][:count]

    def _rejections(self, past: Past) -> list[Status | None]:
        if self._refused is not None:
            return [self._refused] * len(self._nodes)
        of_groups: dict[Group | None, Status | None] = {group: a.rejection for group, a in self._answers.items()}
        if any(of_groups.values()):
            pairs = zip(past.rejections, past.groups, strict=True)
            told = [rejection or of_groups.get(group) for rejection, group in pairs]
        else:
            told = list(past.rejections)
        for index, rejection in self._plain.items():
            told[index] = told[index] or rejection
        return told

    def _totals(self, passed: Sequence[int], past: Past) -> list[int]:
        """The weighted sums of all scores of nodes that passed, in POINTS."""
        of_groups: dict[Group | None, int] = {}
        for group, answer in self._answers.items():
            ranked = zip(self._shared.ranked, answer.normalized, strict=False)
            of_groups[group] = answer.total + sum(self._points(scorer.name, score) for scorer, score in ranked)
        totals = [past.totals[index] + of_groups.get(past.groups[index], 0) for index in passed]
        for plugin, _raw, normalized in self._plain_scores or ():
            scored = (normalized[self._position(index)] for index in passed)
            totals = [total + self._points(plugin.name, score) for total, score in zip(totals, scored, strict=True)]
        return totals

    def _points(self, plugin: str, score: float) -> int:
        return round(self._weights[plugin] * score * POINTS)

    def _position(self, index: int) -> int:
        """The position of a node among those that were scored one by one."""
        return bisect.bisect_left(self._scored, index, key=lambda info: info.index)

    def _verdict(self, info: NodeInfo, rejection: Status | None, past: Past) -> NodeVerdict:
        was = past.of(info.index)
        if rejection is not None or was.group is None:
            return NodeVerdict(info.name, rejection)
        answer, of_group = self._answers[was.group], was.group.division.scorers
        bounded = dict(zip((s.name for s in self._shared.bounded), was.scores, strict=True))
        bounded.update(zip((s.name for s in of_group), answer.scores, strict=True))
        scores = {plugin: PluginScore(raw, raw, self._weights[plugin]) for plugin, raw in bounded.items()}
        for scorer, raw, normalized in zip(self._shared.ranked, answer.raws, answer.normalized, strict=False):
            scores[scorer.name] = PluginScore(raw, normalized, self._weights[scorer.name])
        for plugin, raws, normalized_of in self._plain_scores or ():
            position = self._position(info.index)
            scores[plugin.name] = PluginScore(raws[position], normalized_of[position], self._weights[plugin.name])
        return NodeVerdict(info.name, score=self.mean(self._totals([info.index], past)[0]), scores=scores)


class RunnerUp(t.NamedTuple):
    """The second-best node, and how much lower its score is than that of the chosen node."""

    node: str
    distance: float


@dataclass(slots=True)
class Outcome:
    """The outcome of one request.

    Attributes:
        decision: set if the request was placed.
        error: set if it was not placed.
        looked: the verdicts on the nodes; None when the request failed before.
        findings: those of the PostFilter plugins, by plugin.
        rejected_by: the plugins that rejected nodes; an event of one of them may make the request fit.
        resolvable: whether a change in the cluster can help.
        turn: the number of this decision among those of the batch, by the time when they were made; None for a VM
            that has no decision of its own.
        exhausted: whether a search for places of all requests together ended at its limit.
        until: the time at which it fits without any change, on the clock of Request.created; None if there is none.
    """

    request: Request
    decision: Decision | None = None
    error: CollectionError | None = None
    looked: Verdicts | None = None
    findings: Mapping[str, t.Any] = field(default_factory=dict)
    rejected_by: frozenset[str] = frozenset()
    resolvable: bool = False
    turn: int | None = None
    exhausted: bool = False
    until: float | None = None

    def verdicts(self) -> tuple[NodeVerdict, ...]:
        """One verdict per node, in order of name; empty when the request failed before any node was looked at."""
        return self.looked.all() if self.looked is not None else ()

    @property
    def runner_up(self) -> RunnerUp | None:
        """The best of the other nodes that passed; None when none did, or the request was not placed."""
        decision = self.decision
        if decision is None:
            return None
        best = self.looked.best(2) if self.looked is not None else []
        second = next((verdict for verdict in best if verdict.node != decision.node), None)
        return None if second is None else RunnerUp(second.node, decision.score - (second.score or 0.0))

    @property
    def message(self) -> str:
        """One sentence: where the VM goes and how far that node leads, or why it is not placed."""
        if self.error is not None:
            return self.error.message
        decision = self.decision
        if decision is None:
            return f'VM "{self.request.name}" was not decided'
        text = f'VM "{self.request.name}" goes to {decision.node} as {decision.vmid} with score {decision.score:.1f}'
        second = self.runner_up
        if second is None:
            return f"{text}: no other node passed"
        if second.distance < 0:
            return f"{text}, {-second.distance:.1f} behind {second.node}, so that all VMs fit"
        lead = f"{second.distance:.1f} ahead of" if second.distance > 0 else "level with"
        return f"{text}, {lead} {second.node}"
