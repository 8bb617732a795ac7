# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plain data of tours: the maintenance of several nodes, one turn after the other, as one plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .plans import Plan, Stuck

SHUT_DOWN, STAY = "shut_down", "stay"
"""What becomes of a guest that is not moved: it is shut down for the maintenance, or stays as it is."""


@dataclass(frozen=True, slots=True)
class TourGoals:
    """What a tour shall reach.

    Attributes:
        nodes: the nodes to maintain.
        keep_order: whether they are maintained in that order; otherwise in the one that needs the fewest moves.
        first: nodes whose maintenance has begun already; they come first.
        homes: whether the guests of a node return to it after its maintenance.
        returning: the guests that left nodes of the tour before and return with homes, by node.
        stays: the guests that are not moved, by VMID, with what becomes of them.
        if_stuck: the same for guests that stay only if they cannot be moved.
        parallel: the most nodes that are maintained in one turn.
        may_be_away: whether these nodes may be away at once, as far as it does not depend on their guests.
    """

    nodes: tuple[str, ...]
    keep_order: bool = False
    first: frozenset[str] = frozenset()
    homes: bool = False
    returning: Mapping[str, frozenset[int]] = field(default_factory=dict)
    stays: Mapping[int, str] = field(default_factory=dict)
    if_stuck: Mapping[int, str] = field(default_factory=dict)
    parallel: int = 1
    may_be_away: Callable[[frozenset[str]], bool] = lambda _names: True


@dataclass(frozen=True, slots=True)
class TourStep:
    """One turn: the maintenance of a node, or of several at once.

    Attributes:
        node: the node, or the first of them.
        beside: the other nodes.
        out: the plan that empties them.
        prefer: the nodes to which its guests go first.
        shut_down, stay: the guests that are not moved, by VMID: those that are shut down, and those that stay.
        back: the plan that brings its guests back; None if they do not return.
        stranded: what the other nodes could not take over if one of them failed meanwhile, as a sentence part; empty if
            they could absorb the loss of any node.
    """

    node: str
    out: Plan
    prefer: frozenset[str] = frozenset()
    shut_down: tuple[int, ...] = ()
    stay: tuple[int, ...] = ()
    back: Plan | None = None
    stranded: str = ""
    beside: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node, *self.beside)

    @property
    def moves(self) -> int:
        """How many guests it moves."""
        plans = [self.out, *([self.back] if self.back is not None else [])]
        return sum(len(move.vmids) for plan in plans for move in plan.moves)


@dataclass(frozen=True, slots=True)
class Tour:
    """How to maintain the nodes.

    Attributes:
        steps: the turns, in order; none if some node cannot be maintained.
        stuck: the guests because of which the tour is not possible, with the reason and the remedy.
    """

    steps: tuple[TourStep, ...] = ()
    stuck: tuple[Stuck, ...] = ()

    @property
    def feasible(self) -> bool:
        return not self.stuck

    @property
    def moves(self) -> int:
        """How many guests it moves in total; a guest that moves twice counts twice."""
        return sum(step.moves for step in self.steps)
