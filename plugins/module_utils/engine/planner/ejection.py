# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Search by ejection chains: find a node for an item, and move other guests away first where that is needed.

An item goes to the node that it fits best. If it fits nowhere, the search moves the fewest smaller guests off one node.
If a rule keeps it off a node because of guests there, these guests move; as other guests may find room on such nodes,
larger guests may then make room elsewhere. If one of those fits nowhere, the search does the same for it: an ejection
chain. Chains that move fewer guests are tried first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from .board import NOWHERE, Board
from .items import Item

LEVELS = 3
"""The maximum length of a chain."""

VICTIMS = 4
"""All sets of at most this many guests that could leave a node are tried. Of larger sets, only two are."""

MANY_SHAPES = 12
"""Where the guests of a node have more different sizes than this, all sets of at most two guests are tried."""

WIDTH = 400
"""At most this many ways to make room for one item are tried at each level of a chain."""

PER_QUESTION = 10
"""The steps that a question to the filters costs in the search for the guests because of which they refuse."""

Rank = Callable[[Item, Sequence[int]], Sequence[int]]
"""Orders the nodes that an item fits on, best first."""


class OutOfStepsError(Exception):
    """The search has used up its steps."""


class Search:
    """Finds places on a board within a budget of steps.

    Attributes:
        steps: the number of places examined so far.
        exhausted: whether the budget ran out; from then on items go only where there is room.
        rank: orders the nodes that have room.
    """

    def __init__(self, board: Board, steps: int, rank: Rank | None = None) -> None:
        self.board = board
        self.steps = 0
        self.exhausted = False
        self.rank: Rank = rank or self.rank_by_free_room
        self._most = steps
        self._limit: float = math.inf
        # Whether more moves, or more steps, would have allowed another way.
        self._cut = False
        # Whether something keeps the item that is placed off some nodes: larger guests may find room there.
        self._ruled = False
        self._free = [item for item in board.items if item.movable and item.free]

    def place(self, item: Item, extra: int | None, why: str) -> bool:
        """Place the item, moving at most extra guests that could stay; None moves no other item.

        why is the reason that the item's move gets.
        """
        self._limit = math.inf
        if self._direct(item, NOWHERE, why):
            return True
        if extra is None:
            return False
        return self._with_others(item, extra, why)

    def bring(self, item: Item, node: int, extra: int | None, why: str) -> bool:
        """Place the item on the node, moving at most extra others off it; None moves none."""
        self._limit = math.inf
        if self.board.fits(item, node) and self._admit(item, node, why):
            return True
        if extra is None or node not in self.board.reach.rows(item).nodes:
            return False
        return self._with_others(item, extra, why, frozenset({node}))

    def relieve(self, node: int, short_cpu: float, short_memory: float, extra: int, why: str) -> bool:
        """Free CPU and memory on a node by moving the fewest items off it, and for each at most extra other guests."""
        board, mark = self.board, len(self.board.trail)
        found: list[tuple[int, float, tuple[Item, ...]]] = []
        self._limit = self._most
        try:
            groups = [(group, 1) for group in board.alike(node)]
            for items in self._find_covering(groups, short_cpu, short_memory, len(board.on[node])):
                found.append((len(items), sum(item.cost for item in items), items))
        except OutOfStepsError:
            self.exhausted = True
        for _count, _cost, items in sorted(found, key=lambda each: each[:2])[:WIDTH]:
            if all(self.place(item, extra, why) for item in items):
                return True
            board.undo(mark)
        return False

    def _with_others(self, item: Item, extra: int, why: str, only: frozenset[int] | None = None) -> bool:
        """Place the item by moving as few others as possible, and at most extra."""
        board, nodes = self.board, self.board.reach.rows(item).nodes
        barred = len(nodes) < len(board.nodes) - len(board.reach.closed)
        self._ruled = barred or any(board.fits(item, node) for node in only or nodes)
        # Half of the steps are kept for finding any way, however many guests it moves.
        half = self.steps + (self._most - self.steps) // 2
        for allowed in range(extra + 1):
            if self._deepen(item, allowed, half if allowed < extra else self._most, why, only):
                return True
            if not self._cut:
                break
        return False

    def _deepen(self, item: Item, extra: int, limit: int, why: str, only: frozenset[int] | None) -> bool:
        """Place the item by moving this many others, within a limit of steps."""
        mark = len(self.board.trail)
        self._limit = limit
        self._cut = self.steps >= limit
        if self._cut:
            self.exhausted = True
            return False
        try:
            return self._eject(item, extra, LEVELS, NOWHERE, frozenset(), why, only)
        except OutOfStepsError:
            self.board.undo(mark)
            self.exhausted = self._cut = True
            return False

    def rank_by_free_room(self, item: Item, nodes: Sequence[int]) -> Sequence[int]:
        """Return the nodes ordered by what remains free with the item on them, least first."""
        rows, board = self.board.reach.rows(item), self.board
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
        """Place the item on a node with room."""
        nodes = [node for node in self._with_room(item) if node != avoid]
        if len(nodes) > 1:
            nodes = list(self.rank(item, nodes))
            wanted = (self.board.preferred, item.prefers)
            nodes.sort(key=lambda node: [self.board.nodes[node].name not in names for names in wanted])
        return any(self._admit(item, node, why) for node in nodes)

    def _admit(self, item: Item, node: int, why: str) -> bool:
        """Place the item on the node unless a filter refuses."""
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
        """Place the item on a node that other guests leave for it, moving at most extra of them."""
        board = self.board
        if level == 0:
            return False
        held = held | {item.index}
        here = board.node_of(item)
        nodes = [n for n in board.reach.rows(item).nodes if n not in (here, avoid) and (only is None or n in only)]
        for node, victims in self._options(item, extra, level, nodes, held):
            mark = len(board.trail)
            if self._carry_out(item, node, victims, extra, level, held, why):
                return True
            board.undo(mark)
        return False

    def _carry_out(
        self, item: Item, node: int, victims: Sequence[Item], extra: int, level: int, held: frozenset[int], why: str
    ) -> bool:
        """Move the victims away, and those because of which a filter refuses the item; then place the item."""
        left = self._move_away(victims, node, f"makes room on {self.board.nodes[node].name} for {item.label}",
                               extra, level, held)  # fmt: skip
        if left is None or not self.board.fits(item, node):
            return False
        if self._admit(item, node, why):
            return True
        left = self._move_away(self._blockers(item, node, held), node,
                               f"lets {item.label} onto {self.board.nodes[node].name}", left, level, held)  # fmt: skip
        return left is not None and self._admit(item, node, why)

    def _move_away(
        self, victims: Sequence[Item], node: int, why: str, extra: int, level: int, held: frozenset[int]
    ) -> int | None:
        """Move items off the node; return how many of the extra moves are left, or None if some find no place."""
        left = extra - sum(victim.extra for victim in victims)
        if left < 0:
            self._cut = True
            return None
        chain = held.union(victim.index for victim in victims)
        for victim in victims:
            mark = len(self.board.trail)
            if self._direct(victim, node, why):
                continue
            if not self._eject(victim, left, level - 1, node, chain - {victim.index}, why):
                return None
            left -= sum(step.item.extra for step in self.board.trail[mark:-1])
        return left

    def _blockers(self, item: Item, node: int, held: frozenset[int]) -> list[Item]:
        """Return the fewest items because of which a filter refuses the item on the node: it would not without them.
        None are returned if others matter too.
        """
        board = self.board
        leaving = [other for group in board.alike(node) for other in group if other.index not in held]
        self._step(PER_QUESTION * (len(leaving) + 1))
        mark = len(board.trail)
        for other in leaving:
            board.lift(other)
        blockers: list[Item] = []
        if not board.is_forbidden(item, node):
            for other in leaving:
                # Large ones come first: they stay if small ones can leave instead.
                back = len(board.trail)
                board.move(other, node, "")
                if board.is_forbidden(item, node):
                    board.undo(back)
                    blockers.append(other)
        board.undo(mark)
        return blockers

    def _options(
        self, item: Item, extra: int, level: int, nodes: Sequence[int], held: frozenset[int]
    ) -> list[tuple[int, tuple[Item, ...]]]:
        """Return the nodes with the guests that would have to leave; fewest moves first, then least memory."""
        board = self.board
        rows = board.reach.rows(item)
        roomy: dict[tuple[float, int], list[int]] = {}
        # An item whose move is free may make room for one whose move is not.
        detour = int(not any(board.at[each.index] for each in self._free))
        found: list[tuple[int, int, float, int, int, tuple[Item, ...]]] = []
        for node in nodes:
            short_cpu = board.cpu[node] + item.cores - rows.cpu[node]
            short_memory = board.memory[node] + item.memory - rows.memory[node]
            if short_cpu <= 0 and short_memory <= 0:
                found.append((0, 0, 0.0, 0, node, ()))
                continue
            groups = []
            for group in self._groups(node, held, self._room_test(item, short_cpu, short_memory)):
                first = group[0]
                key = (first.cores, first.memory)
                if key not in roomy:
                    roomy[key] = self._with_room(first)
                direct = any(other != node for other in roomy[key])
                if direct or level > 1:
                    groups.append((group, first.extra + (0 if direct else detour)))
            for victims in self._find_covering(groups, short_cpu, short_memory, extra):
                size = sum(victim.share for victim in victims)
                cost = sum(victim.cost for victim in victims)
                found.append((sum(victim.extra for victim in victims), len(victims), size, cost, node, victims))
        found.sort(key=lambda each: each[:5])
        return [(node, victims) for _weight, _count, _size, _cost, node, victims in found[:WIDTH]]

    def _room_test(self, item: Item, short_cpu: float, short_memory: float) -> Callable[[Item], bool]:
        """Return the test of which other items may make room: those with a smaller share of what is short (CPU, memory
        or both), or all in the search for an item that something keeps off some nodes.
        """
        if self._ruled:
            return lambda other: True
        share, cpu, memory = self.board.share, short_cpu > 0, short_memory > 0
        size = share(item.cores * cpu, item.memory * memory)
        return lambda other: share(other.cores * cpu, other.memory * memory) < size

    def _groups(self, node: int, held: frozenset[int], eligible: Callable[[Item], bool]) -> Iterator[list[Item]]:
        """Return the eligible items that may leave a node for the one that needs room, grouped by size."""
        for group in self.board.alike(node):
            if eligible(group[0]):
                left = [item for item in group if item.index not in held]
                if left:
                    yield left

    def _find_covering(
        self, groups: Sequence[tuple[Sequence[Item], int]], short_cpu: float, short_memory: float, extra: int
    ) -> Iterator[tuple[Item, ...]]:
        """Yield the minimal sets of items that free the missing CPU and memory; of alike sets only one. Where no small
        set does, yield the large one with the largest items and the one with the smallest.
        """
        most, small = VICTIMS if len(groups) <= MANY_SHAPES else 2, False
        for items in self._choices(groups, 0, 0, most, short_cpu, short_memory, extra):
            cores, memory = sum(each.cores for each in items), sum(each.memory for each in items)
            if not any(cores - e.cores >= short_cpu and memory - e.memory >= short_memory for e in items):
                small = True
                yield items
        if small:
            return
        cpu, memory_too = short_cpu > 0, short_memory > 0
        flat = [(item, weight) for group, weight in groups for item in group]
        flat.sort(key=lambda each: (-self.board.share(each[0].cores * cpu, each[0].memory * memory_too), each[0].index))
        self._step(len(flat))
        seen: set[tuple[int, ...]] = set()
        for ordered in (flat, flat[::-1]):
            chosen = pick_enough(ordered, short_cpu, short_memory)
            key = tuple(sorted(item.index for item, _weight in chosen))
            if len(chosen) > most and key not in seen:
                seen.add(key)
                if sum(weight for _item, weight in chosen) <= extra:
                    yield tuple(item for item, _weight in chosen)
                else:
                    self._cut = True

    def _choices(
        self,
        groups: Sequence[tuple[Sequence[Item], int]],
        first: int,
        used: int,
        count: int,
        short_cpu: float,
        short_memory: float,
        extra: int,
    ) -> Iterator[tuple[Item, ...]]:
        """Yield sets of items that cover what is short, built from the remaining groups and the items already chosen.

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
                for others in self._choices(groups, number, position + 1, count - 1, cpu, memory, extra - weight):
                    yield (item, *others)

    def _with_room(self, item: Item) -> list[int]:
        """Return the other nodes that have room for the item."""
        board = self.board
        rows, here = board.reach.rows(item), board.node_of(item)
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


def pick_enough(items: Sequence[tuple[Item, int]], short_cpu: float, short_memory: float) -> list[tuple[Item, int]]:
    """Return the first of these items that free the missing CPU and memory, without those of them that are not needed;
    nothing if all of them are too little.
    """
    chosen: list[tuple[Item, int]] = []
    for each in items:
        if short_cpu <= 0 and short_memory <= 0:
            break
        chosen.append(each)
        short_cpu, short_memory = short_cpu - each[0].cores, short_memory - each[0].memory
    if short_cpu > 0 or short_memory > 0:
        return []
    for each in sorted(chosen, key=lambda each: (each[0].share, each[0].index)):
        if short_cpu + each[0].cores <= 0 and short_memory + each[0].memory <= 0:
            chosen.remove(each)
            short_cpu, short_memory = short_cpu + each[0].cores, short_memory + each[0].memory
    return chosen
