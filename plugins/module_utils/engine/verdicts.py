# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of a request in one scheduling cycle, with its verdict on every node."""

from __future__ import annotations

import heapq
import operator
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError
from ..model import Decision, Request
from .cache import NodeInfo
from .framework.status import Status

POINTS = 1_000_000
"""Weighted scores are summed and compared as whole millionths, so that rounding errors of floats decide nothing."""


class PluginScore(t.NamedTuple):
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
    def rejected_by(self) -> str | None:
        """The plugin that rejected the node."""
        return None if self.status is None else self.status.plugin

    @property
    def reason(self) -> str | None:
        return None if self.status is None else self.status.text


class Scores(t.NamedTuple):
    """One plugin's scores of the nodes that passed all filters, in order of name."""

    plugin: str
    weight: float
    raw: Sequence[float]
    normalized: Sequence[float]


class Verdicts:
    """The verdicts of one cycle."""

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        passed: Sequence[NodeInfo],
        rejections: Mapping[int, Status],
        refusing: Mapping[str, Status],
    ) -> None:
        """passed are the nodes that passed all filters, rejections the statuses of the others by the node's index.
        refusing are the statuses of the plugins whose PreFilter refused every node; the first one counts.
        """
        self.nodes = nodes
        self._passed = passed
        self._rejections = rejections
        self._refused = next(iter(refusing.values()), None)
        self._scores: list[Scores] = []
        self._totals = [0] * len(passed)

    def add(self, scores: Scores) -> None:
        """Add a plugin's scores."""
        weight = scores.weight
        points = [round(weight * score * POINTS) for score in scores.normalized]
        self._totals = list(map(operator.add, self._totals, points)) if self._scores else points
        self._scores.append(scores)

    def scoring_plugins(self) -> set[str]:
        """Return the names of the plugins that scored the nodes."""
        return {scores.plugin for scores in self._scores}

    def best(self, count: int) -> list[NodeVerdict]:
        """Return the verdicts on the best nodes that passed, at most count, the best first. Equal nodes are in order of
        name.
        """
        ranked = zip([-total for total in self._totals], range(len(self._passed)), strict=True)
        return [self._of(position) for _total, position in heapq.nsmallest(count, ranked)]

    def choose(self) -> tuple[NodeInfo, float]:
        """Return the first of the best nodes, with its score."""
        position = self._totals.index(max(self._totals))
        return self._passed[position], self._mean(position)

    def rejections(self) -> list[Status | None]:
        """Return for each node, in order of name, why it was rejected, or None."""
        return [self._refused or self._rejections.get(info.index) for info in self.nodes]

    def rejected_nodes(self) -> dict[tuple[str, str], list[str]]:
        """Return the names of the rejected nodes by plugin and reason, the most frequent reasons first."""
        found: dict[tuple[str, str], list[str]] = {}
        for info, rejection in zip(self.nodes, self.rejections(), strict=True):
            if rejection is not None:
                found.setdefault((rejection.plugin, rejection.reason), []).append(info.name)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))

    def all(self) -> tuple[NodeVerdict, ...]:
        """Return one verdict per node, in order of name."""
        positions = {info.index: position for position, info in enumerate(self._passed)}
        return tuple(
            self._of(positions[info.index]) if rejection is None else NodeVerdict(info.name, rejection)
            for info, rejection in zip(self.nodes, self.rejections(), strict=True)
        )

    def _of(self, position: int) -> NodeVerdict:
        """Return the verdict on a node that passed."""
        scores = {
            each.plugin: PluginScore(each.raw[position], each.normalized[position], each.weight)
            for each in self._scores
        }
        return NodeVerdict(self._passed[position].name, score=self._mean(position), scores=scores)

    def _mean(self, position: int) -> float:
        weights = sum([each.weight for each in self._scores]) or 1.0
        return round(self._totals[position] / POINTS / weights, 6)


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
