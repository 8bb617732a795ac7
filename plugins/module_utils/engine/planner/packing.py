# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packing: place all free items at once by tabu search.

While a plan is made, new VMs and guests that leave drained nodes can be placed anywhere at no cost. First every item
gets a node, even one with too little room. Then single items change nodes, or two items swap nodes, each time with the
change that lowers the excess most or raises it least, until no node is overfull. An item that has just changed stays
for a while, so that the search does not go in circles. Rules hold from the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .board import NOWHERE, Board
from .items import Item

TENURE = 6
"""A changed item stays for at least this many turns, and for less than twice as many."""

PER_STEP = 8
"""The number of compared changes that cost one step of the budget."""

PER_QUESTION = 100
"""The number of compared changes that a call of the filters costs."""

MOST_IDLE = 50
"""The search ends after this many turns without a change."""

EPSILON = 1e-9

PIECES = 50
"""Before the search, this many of the largest item sizes are checked against the room of the nodes."""


class Packing:
    """Places a set of items on a board together.

    Attributes:
        steps: the number of steps used.
        exhausted: whether the search ended because the steps were used up.
    """

    def __init__(self, board: Board, items: Sequence[Item], most: int) -> None:
        """most is the budget of steps."""
        self.board = board
        self.steps = 0
        self.exhausted = False
        self._most = most * PER_STEP
        self._weighed = 0
        self._items = items
        self._apart: dict[int, set[int]] = {item.index: set() for item in items}
        self._free_until: dict[int, int] = dict.fromkeys(self._apart, 0)
        self._barred: dict[tuple[int, int], int] = {}
        self._sizes = {item.index: board.shares(item.cores, item.memory) for item in items}
        self._best = 0.0

    def run(self, why: dict[int, str]) -> bool:
        """Place all items within the room of the nodes and return True, or leave the board as it was.

        why has the reason for each item's move, by the index of the item.
        """
        mark = len(self.board.trail)
        self._why = why
        self._nodes = sorted({node for item in self._items for node in self.board.reach.rows(item).nodes})
        for item in self._items:
            self.board.lift(item)
        if self._may_fit() and self._start() and self._improve():
            return True
        self.board.undo(mark)
        return False

    # --- inside ---

    def _may_fit(self) -> bool:
        """Whether each item fits alone and all of them may fit together."""
        board = self.board
        if not all(any(board.fits(item, node) for node in board.reach.rows(item).nodes) for item in self._items):
            return False
        cpu, memory = zip(*(self._room(node) for node in self._nodes), strict=True)
        return (
            _may_suffice([item.cores for item in self._items], cpu)
            and _may_suffice([item.memory for item in self._items], memory)
        )  # fmt: skip

    def _room(self, node: int) -> tuple[float, float]:
        """Return the CPU and memory that a node has left for the items."""
        board = self.board
        rows = next(board.reach.rows(item) for item in self._items if node in board.reach.rows(item).nodes)
        return rows.cpu[node] - board.cpu[node], rows.memory[node] - board.memory[node]

    def _start(self) -> bool:
        """Put every item where it exceeds the room least; items with rules first, as they have less choice."""
        board = self.board
        self._left = {node: list(board.shares(*self._room(node))) for node in self._nodes}
        self._on: dict[int, dict[int, Item]] = {node: {} for node in self._nodes}
        for item in sorted(self._items, key=lambda each: (each.plain, -each.share, each.index)):
            cpu, memory = self._sizes[item.index]
            nodes = sorted(
                board.reach.rows(item).nodes,
                key=lambda n: (
                    self._excess(self._left[n][0] - cpu, self._left[n][1] - memory),
                    -min(self._left[n][0] - cpu, self._left[n][1] - memory),
                    n,
                ),
            )
            node = next((node for node in nodes if not board.is_forbidden(item, node)), NOWHERE)
            if node == NOWHERE:
                return False
            self._put(item, NOWHERE, node)
        return True

    @staticmethod
    def _excess(cpu: float, memory: float) -> float:
        return (-cpu if cpu < -EPSILON else 0.0) + (-memory if memory < -EPSILON else 0.0)

    def _put(self, item: Item, source: int, target: int) -> None:
        """Take an item from one node to another, or off the board."""
        cpu, memory = self._sizes[item.index]
        if source != NOWHERE:
            del self._on[source][item.index]
            self._left[source][0] += cpu
            self._left[source][1] += memory
        if target == NOWHERE:
            self.board.lift(item)
            return
        self._on[target][item.index] = item
        self._left[target][0] -= cpu
        self._left[target][1] -= memory
        self.board.move(item, target, self._why[item.index])

    def _improve(self) -> bool:
        """Change places until no node is overfull."""
        excess = {node: self._excess(*self._left[node]) for node in self._nodes}
        self._best = sum(excess.values())
        turn = changed = 0
        while self._weighed < self._most:
            total = sum(excess.values())
            if total <= EPSILON:
                self.steps += self._weighed // PER_STEP
                return True
            self._best = min(self._best, total)
            turn += 1
            idle = turn - changed
            found = self._best_change(turn, excess, total)
            if idle > MOST_IDLE:
                break
            # A call of the filters takes as long as comparing many changes.
            self._weighed += PER_QUESTION
            if found is None or not self._change(*found, turn):
                continue
            changed = turn
            _item, source, target, _other = found
            for node in (source, target):
                excess[node] = self._excess(*self._left[node])
        self.steps += self._weighed // PER_STEP
        self.exhausted = self._weighed >= self._most
        return False

    def _best_change(
        self, turn: int, excess: dict[int, float], total: float
    ) -> tuple[Item, int, int, Item | None] | None:
        """Return the best change: an item, its overfull node, its new node, and the item that it swaps with or None."""
        best = float("inf")
        found: tuple[Item, int, int, Item | None] | None = None
        record = self._best - total - EPSILON
        sizes, left, on = self._sizes, self._left, self._on
        for source in self._nodes:
            if excess[source] <= 0:
                continue
            for item in on[source].values():
                cpu, memory = sizes[item.index]
                held = self._free_until[item.index] > turn
                apart = self._apart[item.index]
                source_cpu, source_memory = left[source][0] + cpu, left[source][1] + memory
                for target in self.board.reach.rows(item).nodes:
                    if target == source or self._barred.get((item.index, target), 0) > turn:
                        continue
                    against = apart & on[target].keys() if apart else ()
                    target_cpu, target_memory = left[target][0] - cpu, left[target][1] - memory
                    before = excess[source] + excess[target]
                    others = on[target]
                    self._weighed += len(others) + 1
                    if not against:
                        change = (
                            self._excess(source_cpu, source_memory)
                            + self._excess(target_cpu, target_memory)
                            - before
                        )  # fmt: skip
                        if change < best and (not held or change < record):
                            best, found = change, (item, source, target, None)
                    if len(against) > 1:
                        continue
                    for other in others.values():
                        if against and other.index not in against:
                            continue
                        back_cpu, back_memory = sizes[other.index]
                        if back_cpu == cpu and back_memory == memory:
                            continue
                        change = (
                            self._excess(source_cpu - back_cpu, source_memory - back_memory)
                            + self._excess(target_cpu + back_cpu, target_memory + back_memory)
                            - before
                        )
                        open_now = change < record or not (held or self._free_until[other.index] > turn)
                        if change < best and open_now and self._may_return(other, source, item, turn):
                            best, found = change, (item, source, target, other)
        return found

    def _may_return(self, other: Item, node: int, leaving: Item, turn: int) -> bool:
        """Return whether, by what was learnt so far, an item may go to a node that another leaves."""
        apart = self._apart[other.index] - {leaving.index}
        return self._barred.get((other.index, node), 0) <= turn and apart.isdisjoint(self._on[node])

    def _change(self, item: Item, source: int, target: int, other: Item | None, turn: int) -> bool:
        """Make a change unless a rule forbids it; remember what a rule forbids."""
        board, mark = self.board, len(self.board.trail)
        until = turn + TENURE
        if other is not None:
            board.lift(other)
        refused = self._learn_if_refused(item, target, until)
        if not refused:
            board.move(item, target, self._why[item.index])
            refused = other is not None and self._learn_if_refused(other, source, until)
        board.undo(mark)
        if refused:
            return False
        if other is not None:
            self._put(other, target, NOWHERE)
        self._put(item, source, target)
        self._free_until[item.index] = until + (item.index + turn) % TENURE
        if other is not None:
            self._put(other, NOWHERE, source)
            self._free_until[other.index] = until + (other.index + turn) % TENURE
        return True

    def _learn_if_refused(self, item: Item, node: int, until: int) -> bool:
        """Learn from a rule that forbids the item on the node which items it must be apart from. Returns whether one
        does.
        """
        board = self.board
        if not board.is_forbidden(item, node):
            return False
        self._barred[item.index, node] = until
        for other in list(self._on[node].values()):
            if other is item or other.plain:
                continue
            mark = len(board.trail)
            board.lift(other)
            if not board.is_forbidden(item, node):
                self._apart[item.index].add(other.index)
                self._apart[other.index].add(item.index)
                del self._barred[item.index, node]
                board.undo(mark)
                break
            board.undo(mark)
        return True


def _may_suffice(sizes: Sequence[float], rooms: Sequence[float]) -> bool:
    """Whether the rooms may be enough, in total and counted in whole pieces of each size.

    An item counts as the number of whole pieces in it, and so does a room.
    """
    rooms = [max(room, 0.0) for room in rooms]
    if sum(sizes) > sum(rooms):
        return False
    pieces = sorted({size for size in sizes if size > 0}, reverse=True)[:PIECES]
    return math.inf in rooms or all(
        sum(size // piece for size in sizes) <= sum(room // piece for room in rooms) for piece in pieces
    )
