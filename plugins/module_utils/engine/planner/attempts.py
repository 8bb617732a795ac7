# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place several items: try several orders and keep the best result."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...plans import Bounds
from .board import Board, BoardStep
from .ejection import Rank, Search
from .items import Item
from .packing import Packing


class ItemToPlace(t.NamedTuple):
    """An item that needs another node, or a first one if it is new. why is the reason."""

    item: Item
    why: str


Order = Callable[[ItemToPlace], t.Any]

ORDERS: Sequence[Order] = (
    lambda task: (-task.item.priority, -task.item.share, -task.item.memory, -task.item.cores, task.item.index),
    lambda task: (-task.item.priority, -task.item.memory, -task.item.cores, task.item.index),
    lambda task: (-task.item.priority, -task.item.cores, -task.item.memory, task.item.index),
)
"""The orders in which items are placed: by priority, then largest first by dominant share, by memory or by CPU."""


@dataclass(slots=True)
class Attempt:
    """The result of one attempt to place the items.

    Attributes:
        failed: the tasks whose items found no place.
        extra: the number of moved guests that could have stayed.
        cost: the bytes that all moves send.
        steps: (item, node, why) of all changes.
    """

    failed: list[ItemToPlace]
    extra: int
    cost: int
    steps: list[tuple[Item, int, str]]

    @property
    def worth(self) -> tuple[int, int, int]:
        """Compares attempts; the smaller one is better."""
        return len(self.failed), self.extra, self.cost


class Attempts:
    """Places items on a board within a budget of steps and within bounds on moves and bytes.

    Attributes:
        steps: the number of steps used.
        exhausted: whether the budget ran out.
        bounded: the indexes of items whose places the bounds do not allow.
    """

    def __init__(self, board: Board, bounds: Bounds, by_score: Rank) -> None:
        self.board = board
        self.steps = 0
        self.exhausted = False
        self.bounded: set[int] = set()
        self._bounds = bounds
        self._by_score = by_score

    def place(
        self, tasks: Sequence[ItemToPlace], most_extra: int | None, *, by_score: bool = True
    ) -> list[ItemToPlace]:
        """Place all items, moving at most most_extra others for each; return the tasks that failed.

        With by_score the profile's scores choose the nodes, as long as all items fit without moving others.
        """
        if not tasks:
            return []
        if by_score and not self._attempt(tasks, ORDERS[0], self._by_score, None, until_failure=True).failed:
            return []
        mark = len(self.board.trail)
        best = self._pack(tasks)
        self.board.undo(mark)
        tried: list[list[int]] = []
        for order in (*ORDERS, self._least_choice):
            sequence = [task.item.index for task in sorted(tasks, key=order)]
            if (best is not None and not (best.failed or best.extra)) or sequence in tried:
                continue
            tried.append(sequence)
            found = self._attempt(tasks, order, None, most_extra)
            self.board.undo(mark)
            if best is None or found.worth < best.worth:
                best = found
        if best is None:
            return list(tasks)
        for item, node, why in best.steps:
            self.board.move(item, node, why)
        return best.failed

    def one(self, item: Item, extra: int, why: str) -> bool:
        """Place one item by the scores if there is room, otherwise by moving a limited number of others."""
        return not self.place([ItemToPlace(item, why)], extra)

    def bring(self, item: Item, node: int, extra: int | None, why: str) -> bool:
        """Place an item on one node, moving a limited number of others off it; None moves none."""
        return item.movable and self._try(item, lambda search: search.bring(item, node, extra, why))

    def relieve(self, node: int, short_cpu: float, short_memory: float, extra: int, why: str, share: int) -> bool:
        """Free this much CPU and memory on a node, with one of so many shares of the remaining steps."""
        return self._try(None, lambda search: search.relieve(node, short_cpu, short_memory, extra, why), share)

    def leave(self, item: Item, why: str) -> bool:
        """Move the item to another node that has room for it, if there is one."""
        return self._try(item, lambda search: search.place(item, None, why))

    # --- inside ---

    def _least_choice(self, task: ItemToPlace) -> t.Any:
        """Order items by how little choice they have: by how many nodes they may use, and those with rules first."""
        item = task.item
        return (-item.priority, len(self.board.reach.rows(item).nodes), item.plain, ORDERS[0](task))

    def _try(self, item: Item | None, action: Callable[[Search], bool], share: int = 1) -> bool:
        """Run the action and return whether it succeeds within the bounds; if not, undo it."""
        mark = len(self.board.trail)
        search = Search(self.board, max(self._bounds.steps - self.steps, 0) // share)
        done = action(search)
        self.steps += search.steps
        self.exhausted |= search.exhausted
        return done and self._keep_if_within_bounds(item, mark)

    def _keep_if_within_bounds(self, item: Item | None, mark: int) -> bool:
        """Undo the moves since the mark if all moves so far exceed the bounds. Returns whether they are kept."""
        most, most_bytes = self._bounds.max_moves, self._bounds.max_bytes
        if most is None and most_bytes is None:
            return True
        steps = compress(self.board.trail)
        moves, cost = sum(step.item.weight for step in steps), sum(step.item.cost for step in steps)
        if (most is None or moves <= most) and (most_bytes is None or cost <= most_bytes):
            return True
        self.board.undo(mark)
        if item is not None:
            self.bounded.add(item.index)
        return False

    def _pack(self, tasks: Sequence[ItemToPlace]) -> Attempt | None:
        """Place all items by packing, without moving others, where the items allow that."""
        items = [task.item for task in tasks]
        if len(items) < 2 or not all(item.free for item in items):
            return None
        mark, left = len(self.board.trail), max(self._bounds.steps - self.steps, 0) // 2
        if len(items) * len(self.board.nodes) > left:
            self.exhausted = True
            return None
        packing = Packing(self.board, items, left)
        found = packing.run({task.item.index: task.why for task in tasks})
        self.steps += packing.steps
        self.exhausted |= packing.exhausted
        if not found or not self._keep_if_within_bounds(None, mark):
            return None
        steps = [(task.item, self.board.node_of(task.item), task.why) for task in tasks]
        return Attempt([], 0, sum(item.cost for item in items), steps)

    def _attempt(
        self,
        tasks: Iterable[ItemToPlace],
        order: Order,
        rank: Rank | None,
        most_extra: int | None,
        *,
        until_failure: bool = False,
    ) -> Attempt:
        """Place the items in an order, and those that failed again if later ones found places. With until_failure the
        first failure ends the attempt, and nothing is placed.
        """
        search = Search(self.board, max(self._bounds.steps - self.steps, 0), rank)
        mark = len(self.board.trail)
        due, helped = sorted(tasks, key=order), True
        while due and helped:
            failed: list[ItemToPlace] = []
            helped = False
            for task in due:
                before = len(self.board.trail)
                if search.place(task.item, most_extra, task.why) and self._keep_if_within_bounds(task.item, before):
                    helped = bool(failed)
                    continue
                failed.append(task)
                if until_failure:
                    break
            due = failed
        steps = self.board.trail[mark:]
        result = Attempt(
            due,
            sum(step.item.extra for step in steps),
            sum(step.item.cost for step in steps),
            [(step.item, step.target, step.why) for step in steps],
        )
        self.steps += search.steps
        self.exhausted |= search.exhausted
        if due and until_failure:
            self.board.undo(mark)
        return result


def compress(steps: Sequence[BoardStep]) -> list[BoardStep]:
    """Keep only the last step of each item whose move is free."""
    last = {step.item.index: number for number, step in enumerate(steps)}
    return [step for number, step in enumerate(steps) if number == last[step.item.index] or not step.item.free]
