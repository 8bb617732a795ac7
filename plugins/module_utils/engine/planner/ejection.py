# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search: where something goes, and what has to go elsewhere first so that it can.

An item goes to the node that it fits best. Where it fits nowhere, the fewest smaller guests of one node are moved on
first, and where one of those fits nowhere either, the same is done for it: an ejection chain. Each chain is tried in
the order of how many guests it moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from .board import NOWHERE, Board
from .items import Item

LEVELS = 3
"""How long a chain may be: what makes room for what makes room."""

VICTIMS = 4
"""The most guests that are moved off one node to make room for one item."""

RELIEVING = 4
"""The most guests that are moved off a node to remove one excess."""

MANY_SHAPES = 12
"""On a node with more different guests than that, at most two are moved off it."""

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
        self._limit: float = math.inf
        # Whether something was left out that more moves, or more steps, would allow.
        self._cut = False
        self._free = [item for item in board.items if item.movable and item.free]

    def place(self, item: Item, extra: int | None, why: str) -> bool:
        """Put the item somewhere by moving at most so many guests that need not move; None moves no other item.

        why is the reason of its move.
        """
        self._limit = math.inf
        if self._direct(item, NOWHERE, why):
            return True
        if extra is None or self.steps >= self._most:
            return False
        return self._with_others(item, extra, why)

    def bring(self, item: Item, node: int, extra: int | None, why: str) -> bool:
        """Put the item on one node by moving at most so many others off it; None moves none."""
        self._limit = math.inf
        if self.board.fits(item, node) and self._admitted(item, node, why):
            return True
        if extra is None or node not in self.board.rows(item).nodes:
            return False
        return self._with_others(item, extra, why, frozenset({node}))

    def relieve(self, node: int, short_cpu: float, short_memory: float, extra: int, why: str) -> bool:
        """Free so much CPU and memory on a node by moving off it the fewest items, and at most so many others."""
        board, mark = self.board, len(self.board.trail)
        found: list[tuple[int, float, tuple[Item, ...]]] = []
        self._limit = self._most
        try:
            for items in self._covering(
                [(group, 1) for group in board.alike(node)], short_cpu, short_memory, RELIEVING
            ):
                found.append((len(items), sum(item.cost for item in items), items))
        except OutOfStepsError:
            self.exhausted = True
        for _count, _cost, items in sorted(found, key=lambda each: each[:2])[:WIDTH]:
            if all(self.place(item, extra, why) for item in items):
                return True
            board.undo(mark)
        return False

    def _with_others(self, item: Item, extra: int, why: str, only: frozenset[int] | None = None) -> bool:
        """Put the item somewhere by moving as few others as that takes, and at most so many."""
        # Half of the steps are kept for finding any way at all.
        half = self.steps + (self._most - self.steps) // 2
        for allowed in range(extra + 1):
            if self._deepen(item, allowed, half if allowed < extra else self._most, why, only):
                return True
            if not self._cut:
                break
        return False

    def _deepen(self, item: Item, extra: int, limit: int, why: str, only: frozenset[int] | None) -> bool:
        """Put the item somewhere by moving so many others, within a limit of steps."""
        mark = len(self.board.trail)
        self._limit = limit
        self._cut = self.steps >= limit
        if self._cut:
            return False
        try:
            return self._eject(item, extra, LEVELS, NOWHERE, frozenset(), why, only)
        except OutOfStepsError:
            self.board.undo(mark)
            self.exhausted = self._cut = True
            return False

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
        nodes = [node for node in self._with_room(item) if node != avoid]
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

    def _eject(
        self,
        item: Item,
        extra: int,
        level: int,
        avoid: int,
        held: frozenset[int],
        why: str,
        only: frozenset[int] | None = None,
    ) -> bool:
        """Put the item where others make room for it, moving exactly as many as extra allows or fewer."""
        board = self.board
        if level == 0:
            return False
        held = held | {item.index}
        here = board.node_of(item)
        nodes = [n for n in board.rows(item).nodes if n not in (here, avoid) and (only is None or n in only)]
        for node, victims in self._options(item, extra, level, nodes, held):
            mark = len(board.trail)
            if self._carry_out(item, node, victims, extra, level, held, why):
                return True
            board.undo(mark)
        return False

    def _carry_out(
        self, item: Item, node: int, victims: Sequence[Item], extra: int, level: int, held: frozenset[int], why: str
    ) -> bool:
        left = extra - sum(victim.extra for victim in victims)
        room = f"makes room on {self.board.nodes[node].name} for {item.label}"
        chain = held.union(victim.index for victim in victims)
        for victim in victims:
            mark = len(self.board.trail)
            if self._direct(victim, node, room):
                continue
            if not self._eject(victim, left, level - 1, node, chain - {victim.index}, room):
                return False
            left -= sum(step.item.extra for step in self.board.trail[mark:-1])
        return self.board.fits(item, node) and self._admitted(item, node, why)

    def _options(
        self, item: Item, extra: int, level: int, nodes: Sequence[int], held: frozenset[int]
    ) -> list[tuple[int, tuple[Item, ...]]]:
        """The nodes with the guests that would have to leave them, fewest moves and least memory first."""
        board = self.board
        rows = board.rows(item)
        roomy: dict[tuple[float, int], list[int]] = {}
        # What moves on for nothing may make room for what else would cost another move.
        detour = int(not any(board.at[each.index] for each in self._free))
        found = []
        for node in nodes:
            short_cpu = board.cpu[node] + item.cores - rows.cpu[node]
            short_memory = board.memory[node] + item.memory - rows.memory[node]
            groups = []
            for group in self._groups(node, held, self._smaller(item, short_cpu, short_memory)):
                first = group[0]
                key = (first.cores, first.memory)
                if key not in roomy:
                    roomy[key] = self._with_room(first)
                direct = any(other != node for other in roomy[key])
                if direct or level > 1:
                    groups.append((group, first.extra + (0 if direct else detour)))
            for victims in self._covering(groups, short_cpu, short_memory, extra):
                size = sum(victim.share for victim in victims)
                cost = sum(victim.cost for victim in victims)
                found.append((sum(victim.extra for victim in victims), len(victims), size, cost, node, victims))
        found.sort(key=lambda each: each[:5])
        return [(node, victims) for _weight, _count, _size, _cost, node, victims in found[:WIDTH]]

    def _smaller(self, item: Item, short_cpu: float, short_memory: float) -> Callable[[Item], bool]:
        """Whether another item has a smaller share of what is short, be it CPU, memory or both."""
        share, cpu, memory = self.board.share, short_cpu > 0, short_memory > 0
        size = share(item.cores * cpu, item.memory * memory)
        return lambda other: share(other.cores * cpu, other.memory * memory) < size

    def _groups(self, node: int, held: frozenset[int], smaller: Callable[[Item], bool]) -> Iterator[list[Item]]:
        """The items that may be moved off a node for what needs the room: smaller ones, those of one size together."""
        for group in self.board.alike(node):
            if smaller(group[0]):
                left = [item for item in group if item.index not in held]
                if left:
                    yield left

    def _covering(
        self, groups: Sequence[tuple[Sequence[Item], int]], short_cpu: float, short_memory: float, extra: int
    ) -> Iterator[tuple[Item, ...]]:
        """Sets of items that free so much when they leave, of which no part would do; alike ones only once."""
        most = VICTIMS if len(groups) <= MANY_SHAPES else 2
        for items in self._chosen(groups, 0, 0, most, short_cpu, short_memory, extra):
            cores, memory = sum(each.cores for each in items), sum(each.memory for each in items)
            if not any(cores - e.cores >= short_cpu and memory - e.memory >= short_memory for e in items):
                yield items

    def _chosen(
        self,
        groups: Sequence[tuple[Sequence[Item], int]],
        first: int,
        used: int,
        count: int,
        short_cpu: float,
        short_memory: float,
        extra: int,
    ) -> Iterator[tuple[Item, ...]]:
        """Up to so many items that cover what is short, from the groups after the first ones and the items used.

        Each group comes with the fewest moves that one of its items costs.
        """
        for number in range(first, len(groups)):
            group, weight = groups[number]
            position = used if number == first else 0
            if position == len(group):
                continue
            if weight > extra:
                self._cut = True
                continue
            item = group[position]
            self._step(1)
            cpu, memory = short_cpu - item.cores, short_memory - item.memory
            if cpu <= 0 and memory <= 0:
                yield (item,)
            elif count > 1:
                for others in self._chosen(groups, number, position + 1, count - 1, cpu, memory, extra - weight):
                    yield (item, *others)

    def _with_room(self, item: Item) -> list[int]:
        """The nodes, other than its own, where there is room for the item."""
        board = self.board
        rows, here = board.rows(item), board.node_of(item)
        cpu, memory = board.cpu, board.memory
        self._step(len(rows.nodes))
        return [
            node
            for node in rows.nodes
            if memory[node] + item.memory <= rows.memory[node]
            and cpu[node] + item.cores <= rows.cpu[node]
            and node != here
        ]

    def _step(self, count: int) -> None:
        self.steps += count
        if self.steps > self._limit:
            raise OutOfStepsError
