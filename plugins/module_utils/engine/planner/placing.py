# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several items, each placed somewhere: tried in several ways, of which the best is kept."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .board import Board
from .ejection import Rank, Search
from .items import Item


class Task(t.NamedTuple):
    """An item that has to go somewhere else, or anywhere if it is new; why is the reason."""

    item: Item
    why: str


Order = Callable[[Task], t.Any]

ORDERS: Sequence[Order] = (
    lambda task: (-task.item.share, task.item.index),
    lambda task: (-task.item.memory, -task.item.cores, task.item.index),
    lambda task: (-task.item.cores, -task.item.memory, task.item.index),
)
"""In which orders items are placed: the largest first, by the larger share, by memory and by CPU."""


@dataclass(slots=True)
class Placed:
    """What came of one way to place the items.

    Attributes:
        failed: the tasks whose items found no place.
        extra: how many guests were moved that need not have moved.
        cost: the bytes that all moves send.
        steps: (item, node, why) of all changes.
    """

    failed: list[Task]
    extra: int
    cost: int
    steps: list[tuple[Item, int, str]]

    @property
    def worth(self) -> tuple[int, int, int]:
        """Less is better."""
        return len(self.failed), self.extra, self.cost


class Placer:
    """Places items on a board, with a number of steps to spend in all."""

    def __init__(self, board: Board, steps: int, by_score: Rank) -> None:
        self.board = board
        self.steps = 0
        self.exhausted = False
        self._most = steps
        self._by_score = by_score

    def place(self, tasks: Sequence[Task], most_extra: int) -> list[Task]:
        """Place all items, moving at most so many others for each; return the tasks that failed.

        The profile's scores choose among the nodes as long as all fit without moving others.
        """
        mark = len(self.board.trail)
        first = self._attempt(tasks, ORDERS[0], self._by_score, None)
        if not first.failed:
            return []
        best: Placed | None = None
        for order in ORDERS:
            found = self._attempt(tasks, order, None, most_extra)
            if best is None or found.worth < best.worth:
                best = found
            if not (best.failed or best.extra):
                break
            self.board.undo(mark)
        if best is None:
            return []
        self.board.undo(mark)
        for item, node, why in best.steps:
            self.board.move(item, node, why)
        return best.failed

    def _attempt(self, tasks: Iterable[Task], order: Order, rank: Rank | None, most_extra: int | None) -> Placed:
        """Place the items in an order. Without most_extra no others are moved, and the first failure ends it."""
        search = Search(self.board, max(self._most - self.steps, 0), rank)
        mark = len(self.board.trail)
        failed: list[Task] = []
        due = sorted(tasks, key=order)
        for task in due:
            if not search.place(task.item, most_extra, task.why):
                failed.append(task)
                if most_extra is None:
                    break
        trail = self.board.trail[mark:]
        result = Placed(
            failed,
            sum(search.weight(step.item) for step in trail),
            sum(step.item.cost for step in trail),
            [(step.item, step.target, step.why) for step in trail],
        )
        self.steps += search.steps
        self.exhausted |= search.exhausted
        if failed and most_extra is None:
            self.board.undo(mark)
        return result
