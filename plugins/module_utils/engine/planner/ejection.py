# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search: where something goes, and what has to go elsewhere first so that it can.

An item goes to the node that it fits best. Where it fits nowhere, the fewest smaller guests of one node are moved on
first, and where one of those fits nowhere either, the same is done for it: an ejection chain. Each chain is tried in
the order of how many guests it moves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from .board import NOWHERE, Board
from .items import Item

LEVELS = 3
"""How long a chain may be: what makes room for what makes room."""

VICTIMS = 4
"""The most guests that are moved off one node to make room for one item."""

WIDTH = 400
"""How many ways to make room for one item are tried at each level."""

Rank = Callable[[Item, Sequence[int]], Sequence[int]]
"""The nodes that an item fits on, best first."""


class OutOfStepsError(Exception):
    """The search has used all the steps that it may take."""


class Search:
    """Finds places on a board, with a number of steps to spend.

    Attributes:
        steps: how many places were looked at so far.
        exhausted: whether the steps did not suffice; from then on items go only where there is room.
        rank: which of the nodes that have room comes first.
    """

    def __init__(self, board: Board, steps: int, rank: Rank | None = None) -> None:
        self.board = board
        self.steps = 0
        self.exhausted = False
        self.rank: Rank = rank or self.tightest
        self._most = steps
        self._refused: dict[tuple[int, int], frozenset[int]] = {}

    def place(self, item: Item, extra: int | None, why: str) -> bool:
        """Put the item somewhere by moving at most so many guests that need not move; None moves no other item.

        why is the reason of its move.
        """
        mark = len(self.board.trail)
        try:
            if self._direct(item, NOWHERE, why):
                return True
            if self.exhausted or extra is None:
                return False
            return any(self._eject(item, allowed, LEVELS, NOWHERE, frozenset(), why) for allowed in range(extra + 1))
        except OutOfStepsError:
            self.board.undo(mark)
            self.exhausted = True
            return self._direct(item, NOWHERE, why)

    def tightest(self, item: Item, nodes: Sequence[int]) -> Sequence[int]:
        """The nodes by what is left on them when the item is there, least first."""
        rows, board = self.board.rows(item), self.board
        return sorted(
            nodes,
            key=lambda n: (
                board.share(rows.cpu[n] - board.cpu[n] - item.cores, 0)
                + board.share(0, rows.memory[n] - board.memory[n] - item.memory),
                n,
            ),
        )

    # --- inside ---

    def _direct(self, item: Item, avoid: int, why: str) -> bool:
        """Put the item where there is room."""
        board = self.board
        rows = board.rows(item)
        here = board.node_of(item)
        self._step(len(rows.nodes))
        cores, memory, cpu_used, memory_used = item.cores, item.memory, board.cpu, board.memory
        cpu, mem = rows.cpu, rows.memory
        nodes = [
            n
            for n in rows.nodes
            if memory_used[n] + memory <= mem[n] and cpu_used[n] + cores <= cpu[n] and n not in (here, avoid)
        ]
        if len(nodes) > 1:
            nodes = list(self.rank(item, nodes))
        return any(self._admitted(item, node, why) for node in nodes)

    def _admitted(self, item: Item, node: int, why: str) -> bool:
        """Put the item on the node unless a filter refuses that."""
        board = self.board
        if board.refusal(item, node) is not None:
            return False
        board.move(item, node, why)
        return True

    def _eject(self, item: Item, extra: int, level: int, avoid: int, held: frozenset[int], why: str) -> bool:
        """Put the item where others make room for it, moving exactly as many as extra allows or fewer."""
        board = self.board
        if level == 0:
            return False
        held = held | {item.index}
        for node, victims in self._options(item, extra, avoid, held):
            mark = len(board.trail)
            if self._carry_out(item, node, victims, extra, level, held, why):
                return True
            board.undo(mark)
        return False

    def _carry_out(
        self, item: Item, node: int, victims: Sequence[Item], extra: int, level: int, held: frozenset[int], why: str
    ) -> bool:
        left = extra - sum(self.weight(victim) for victim in victims)
        room = f"makes room on {self.board.nodes[node].name} for {item.label}"
        chain = held.union(victim.index for victim in victims)
        for victim in victims:
            mark = len(self.board.trail)
            if self._direct(victim, node, room):
                continue
            if not self._eject(victim, left, level - 1, node, chain - {victim.index}, room):
                return False
            left -= sum(self.weight(step.item) for step in self.board.trail[mark:-1])
        return self.board.fits(item, node) and self._admitted(item, node, why)

    def weight(self, item: Item) -> int:
        """How many moves it costs to move an item that is where it is now: none when it has to move anyway."""
        return 0 if item.new or item.closed_home else item.weight

    def _options(self, item: Item, extra: int, avoid: int, held: frozenset[int]) -> list[tuple[int, tuple[Item, ...]]]:
        """The nodes with the guests that would have to leave them, fewest moves and least memory first."""
        board = self.board
        rows, here = board.rows(item), board.node_of(item)
        found = []
        for node in rows.nodes:
            if node in (here, avoid):
                continue
            short_cpu = board.cpu[node] + item.cores - rows.cpu[node]
            short_memory = board.memory[node] + item.memory - rows.memory[node]
            candidates = [
                other
                for index, other in board.on[node].items()
                if other.movable and index not in held and other.share < item.share and self._may_move(other)
            ]
            for weight, victims in self._sets(candidates, short_cpu, short_memory, extra):
                size = sum(victim.share for victim in victims)
                cost = sum(victim.cost for victim in victims)
                found.append((weight, len(victims), size, cost, node, victims))
        found.sort(key=lambda each: each[:5])
        return [(node, victims) for _weight, _count, _size, _cost, node, victims in found[:WIDTH]]

    def _may_move(self, item: Item) -> bool:
        """Whether it can be moved from where it is now: what has moved once does not move again."""
        if item.new or item.closed_home:
            return True
        return self.board.node_of(item) in item.homes

    def _sets(
        self, candidates: Sequence[Item], short_cpu: float, short_memory: float, extra: int
    ) -> Iterator[tuple[int, tuple[Item, ...]]]:
        """Sets of candidates that free so much when they leave, and no smaller set of them does."""
        shapes: dict[tuple[float, int, int], list[Item]] = {}
        for each in candidates:
            shapes.setdefault((each.cores, each.memory, self.weight(each)), []).append(each)
        for alike in shapes.values():
            alike.sort(key=lambda each: (each.cost, each.index))
        kinds = sorted(shapes)
        for count in range(1, VICTIMS + 1):
            if count > 2 and len(kinds) > 12:
                return
            for combination in itertools.combinations_with_replacement(kinds, count):
                self._step(1)
                weight = sum(kind[2] for kind in combination)
                cores, memory = sum(kind[0] for kind in combination), sum(kind[1] for kind in combination)
                if weight > extra or cores < short_cpu or memory < short_memory:
                    continue
                if any(
                    cores - kind[0] >= short_cpu and memory - kind[1] >= short_memory for kind in combination
                ):  # fmt: skip
                    continue
                taken: dict[tuple[float, int, int], int] = {}
                victims = []
                for kind in combination:
                    position = taken[kind] = taken.get(kind, -1) + 1
                    if position < len(shapes[kind]):
                        victims.append(shapes[kind][position])
                if len(victims) == count:
                    victims.sort(key=lambda each: (-each.share, each.index))
                    yield weight, tuple(victims)

    def _step(self, count: int) -> None:
        self.steps += count
        if self.steps > self._most and not self.exhausted:
            raise OutOfStepsError
