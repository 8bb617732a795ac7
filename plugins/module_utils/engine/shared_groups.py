# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sharing plugins say of nodes and of groups of nodes, as data; and asking them."""

from __future__ import annotations

import typing as t
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError
from ..model import Request
from .cache import NodeInfo
from .framework.cycle_state import CycleState
from .framework.interface import FilterPlugin, Plugin, ScorePlugin
from .framework.status import Status
from .guard import checked, in_range, raised

POINTS = 1_000_000
"""Weighted scores are summed up and compared in millionths: what computers cannot represent decides nothing."""


class Answer(t.NamedTuple):
    """What is said of all nodes of a group in one cycle.

    Attributes:
        rejection: why not, if so.
        scores, total: of the plugins that answer for the whole group, and their weighted sum in POINTS.
        raws, normalized: of each score that is not bounded.
    """

    rejection: Status | None
    scores: tuple[float, ...] = ()
    total: int = 0
    raws: tuple[float, ...] = ()
    normalized: tuple[float, ...] = ()


NOTHING = Answer(None)


class Scoring(t.NamedTuple):
    """A score, where it is noted for each node, and its weight."""

    plugin: ScorePlugin
    scores: array[float]
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Nodes for which the same plugins answer: some for their group, and those for which they are in none.

    Attributes:
        filters, scorers: those that answer for the group; the scorers are bounded.
        node_filters, node_scorers: those that are asked about the node.
        alone: for each score that is not bounded, whether the node is asked about.
        watched: whether one of them, asked about the node, looks at the space of storages.
        nodes: by index, if they are watched.
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
    """The nodes that are in the same group for every grouping plugin, and have the same scores that are not bounded.

    Attributes:
        raws: the scores that are not bounded; None for those that are requested for the whole group.
        heap: the nodes that passed, the best first; some outdated.
        top: the index of the best node, in this cycle.
    """

    division: Division
    raws: tuple[float | None, ...]
    heap: list[int] = field(default_factory=list)
    top: int = -1


class Was(t.NamedTuple):
    """What was said of one node besides what was said of its group.

    Attributes:
        scores, total: of the bounded scores, and their weighted sum in POINTS; nothing for a node that was rejected.
    """

    rejection: Status | None
    scores: tuple[float, ...]
    total: int
    group: Group | None


class Past(t.NamedTuple):
    """What was said of the nodes at a moment, by their indices: of each one the parts, and of one everything."""

    rejections: Sequence[Status | None]
    totals: Sequence[int]
    groups: Sequence[Group | None]
    of: Callable[[int], Was]


class Moment:
    """A point in time that a reader may look back at.

    Attributes:
        changed: by the nodes' indices, what was said at this moment of those that have changed before the next one.
        next: the next moment; None while this is the last.
    """

    __slots__ = ("changed", "next")

    def __init__(self) -> None:
        self.changed: dict[int, Was] = {}
        self.next: Moment | None = None


def first_refusal(
    state: CycleState, request: Request, filters: Sequence[FilterPlugin], info: NodeInfo
) -> Status | None:
    """What the first filter says that refuses a node."""
    plugin: Plugin | None = None
    try:
        for plugin in filters:
            status = plugin.filter(state, request, info)
            if status is not None and (status := checked(plugin, status)) is not None:
                return status
    except CollectionError:
        raise
    # A plugin may be anybody's code and raise anything; guarded() per call would cost more than most plugins do.
    except Exception as error:
        if plugin is None:
            raise
        raise raised(plugin, error) from error
    return None


def score_node(state: CycleState, request: Request, scorers: Sequence[Scoring], info: NodeInfo) -> int:
    """Note what plugins score a node, and return the weighted sum in POINTS."""
    plugin: Plugin | None = None
    total = 0
    try:
        for plugin, scores, weight in scorers:
            score = scores[info.index] = in_range(plugin, plugin.score(state, request, info))
            total += round(weight * score * POINTS)
    except CollectionError:
        raise
    except Exception as error:  # as above
        if plugin is None:
            raise
        raise raised(plugin, error) from error
    return total
