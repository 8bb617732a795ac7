# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on each node in one scheduling cycle."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .cache import NodeInfo
from .framework.interface import ScorePlugin
from .framework.status import Status
from .sharing import POINTS, SharedVerdicts


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
    """The verdicts of one cycle, as they were when it chose a node.

    Attributes:
        weight_sum: of all scores in force.
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
        self._plain_scores: list[PlainScores] = []
        self._scored: dict[int, int] = {}
        self._shared = shared
        # What the sharing plugins say changes with the cluster, and is read only when it is reported.
        self._rejections = shared.rejections.copy()
        self._scores = shared.scores.copy()
        self._answers = shared.answers
        self.weight_sum = sum(weights[scorer.name] for scorer in shared.scorers)

    def add_scores(self, nodes: Sequence[NodeInfo], scores: Sequence[PlainScores]) -> None:
        """Note what plain plugins gave the nodes that passed."""
        self._scored = {info.index: position for position, info in enumerate(nodes)}
        self._plain_scores.extend(scores)
        self.weight_sum += sum(self._weights[each.plugin.name] for each in scores)

    def mean(self, total: int) -> float:
        """The score that a sum in POINTS makes, 0..100. Equal sums make equal scores."""
        return round(total / POINTS / (self.weight_sum or 1.0), 6)

    def rejection(self, index: int) -> Status | None:
        """Why the node was rejected, or None."""
        if self._refused is not None:
            return self._refused
        rejection = self._rejections[index]
        if rejection is not None:
            return rejection
        group = self._shared.group_of[index]
        of_group = self._answers[group].rejection if group is not None else None
        return of_group or self._plain.get(index)

    def all(self) -> tuple[NodeVerdict, ...]:
        """One verdict per node, in order of name."""
        return tuple(self._verdict(info) for info in self._nodes)

    def _verdict(self, info: NodeInfo) -> NodeVerdict:
        rejection = self.rejection(info.index)
        group = self._shared.group_of[info.index]
        if rejection is not None or group is None:
            return NodeVerdict(info.name, rejection)
        scorers = [*self._shared.node_scorers, *group.node_scorers, *group.scorers]
        given = zip(scorers, self._scores[info.index] + self._answers[group].scores, strict=True)
        scores = {scorer.name: PluginScore(raw, raw, self._weights[scorer.name]) for scorer, raw in given}
        position = self._scored.get(info.index)
        for plugin, raws, normalized in self._plain_scores:
            if position is not None:
                scores[plugin.name] = PluginScore(raws[position], normalized[position], self._weights[plugin.name])
        total = sum(round(score.weight * score.normalized * POINTS) for score in scores.values())
        return NodeVerdict(info.name, score=self.mean(total), scores=scores)
