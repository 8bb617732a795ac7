# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on each node in one scheduling cycle."""

from __future__ import annotations

import bisect
import heapq
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .cache import NodeInfo
from .framework.interface import ScorePlugin
from .framework.status import Status
from .sharing import POINTS, SharedVerdicts, Was


@dataclass(frozen=True, slots=True)
class PluginScore:
    """What one plugin gave one node: raw in the plugin's own unit, normalized 0..100, weight as configured."""

    raw: float
    normalized: float
    weight: float


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The verdict on one node for one request: status says why not; without it score is the weighted mean, 0..100."""

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


class PlainScores(t.NamedTuple):
    """What one plugin gave the nodes that passed, in their order."""

    plugin: ScorePlugin
    raw: list[float]
    normalized: list[float]


class Verdicts:
    """The verdicts of one cycle, as they were when it chose a node. Little is kept of them: what has changed since is
    taken back when they are read.
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

    def add_scores(self, nodes: Sequence[NodeInfo], scores: Sequence[PlainScores]) -> None:
        """Note what was scored node by node, and not by the sharing plugins: all that is not bounded."""
        self._scored = nodes
        self._plain_scores = scores

    def mean(self, total: int) -> float:
        """The score that a sum in POINTS makes, 0..100. Equal sums make equal scores."""
        scorers: list[ScorePlugin] = [*self._shared.bounded]
        scorers += self._shared.ranked if self._plain_scores is None else [each.plugin for each in self._plain_scores]
        return round(total / POINTS / (sum(self._weights[scorer.name] for scorer in scorers) or 1.0), 6)

    def rejections(self) -> list[Status | None]:
        """For each node, in order of name, why it was rejected, or None."""
        look = self._shared.as_of(self._moment)
        return [self._rejection(info.index, look(info.index)) for info in self._nodes]

    def all(self) -> tuple[NodeVerdict, ...]:
        """One verdict per node, in order of name."""
        look = self._shared.as_of(self._moment)
        return tuple(self._verdict(info, look(info.index)) for info in self._nodes)

    def best(self, count: int) -> list[NodeVerdict]:
        """The verdicts on the so many best of the nodes that passed, the best first; of equal ones the first by name
        first.
        """
        look = self._shared.as_of(self._moment)
        seen = ((info, look(info.index)) for info in self._nodes)
        passed = (
            (-self._total(info.index, was), info.index) for info, was in seen if not self._rejection(info.index, was)
        )
        return [self._verdict(self._nodes[index], look(index)) for _total, index in heapq.nsmallest(count, passed)]

    def _rejection(self, index: int, was: Was) -> Status | None:
        if self._refused is not None:
            return self._refused
        of_group = was.rejection or (self._answers[was.group].rejection if was.group is not None else None)
        return of_group or self._plain.get(index)

    def _total(self, index: int, was: Was) -> int:
        """The weighted sum of all scores of a node that passed, in POINTS."""
        if was.group is None:
            return 0
        answer = self._answers[was.group]
        rest = zip(self._shared.ranked, answer.normalized, strict=False)
        total = was.total + answer.total + sum(self._points(scorer.name, score) for scorer, score in rest)
        if self._plain_scores is None:
            return total
        position = self._position(index)
        return total + sum(self._points(each.plugin.name, each.normalized[position]) for each in self._plain_scores)

    def _position(self, index: int) -> int:
        """Where a node stands among those that were scored one by one."""
        return bisect.bisect_left(self._scored, index, key=lambda info: info.index)

    def _points(self, plugin: str, score: float) -> int:
        return round(self._weights[plugin] * score * POINTS)

    def _verdict(self, info: NodeInfo, was: Was) -> NodeVerdict:
        rejection = self._rejection(info.index, was)
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
        return NodeVerdict(info.name, score=self.mean(self._total(info.index, was)), scores=scores)
