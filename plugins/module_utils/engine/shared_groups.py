# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdicts of sharing plugins on nodes and on groups of nodes, as data; and the calls that evaluate
single nodes.
"""

from __future__ import annotations

import typing as t
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError
from ..model import Request
from .cache import NodeInfo
from .framework.cycle_state import CycleState
from .framework.interface import FilterPlugin, Plugin, ScorePlugin
from .framework.many_nodes import filter_all, score_all
from .framework.status import Status
from .guard import all_in_range, checked, raised

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


def run_filters(
    state: CycleState,
    request: Request,
    filters: Iterable[FilterPlugin],
    nodes: Sequence[NodeInfo],
    rejections: list[Status | None] | dict[int, Status],
) -> Sequence[NodeInfo]:
    """Let each filter evaluate the nodes that those before it accept. Store the rejections by the index of the node;
    return the nodes that all filters accept.
    """
    plugin: Plugin | None = None
    try:
        for plugin in filters:
            statuses = filter_all(plugin, state, request, nodes)
            if statuses.count(None) == len(nodes):
                continue
            left = []
            last: Status | None = None
            rejection: Status | None = None
            for info, status in zip(nodes, statuses, strict=True):
                # Many nodes may share one status.
                if status is not None and status is not last:
                    last, rejection = status, checked(plugin, status)
                if status is None or rejection is None:
                    left.append(info)
                else:
                    rejections[info.index] = rejection
            nodes = left
    except CollectionError:
        raise
    # Custom plugins may raise anything; guarded() per call would cost more than most plugins do.
    except Exception as error:
        if plugin is None:
            raise
        raise raised(plugin, error) from error
    return nodes


def run_scorers(
    state: CycleState, request: Request, scorers: Iterable[Scoring], nodes: Sequence[NodeInfo]
) -> Sequence[int]:
    """Store the scores of the nodes; return their weighted sums in POINTS."""
    totals = [0] * len(nodes)
    plugin: Plugin | None = None
    try:
        for plugin, scores, weight in scorers:
            given = all_in_range(plugin, score_all(plugin, state, request, nodes))
            for info, score in zip(nodes, given, strict=True):
                scores[info.index] = score
            totals = [total + round(weight * score * POINTS) for total, score in zip(totals, given, strict=True)]
    except CollectionError:
        raise
    except Exception as error:  # as above
        if plugin is None:
            raise
        raise raised(plugin, error) from error
    return totals
