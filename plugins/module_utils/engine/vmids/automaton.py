# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a regular expression's tree to all the numbers that it matches, without a list of them.

Two steps. Glushkov's construction makes a nondeterministic automaton whose states are the positions (symbols) of the
expression. Following it for a fixed number of digits, from every set of positions that can be reached, gives a graph
without cycles: equal parts are shared, each node knows how many numbers lie below it, and matching never tries twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...model import VMID_MAX
from .syntax import DIGITS, END, START, Alternatives, Repeat, Sequence, Symbol, Tree
from .taken import BLOCK_DIGITS, set_bits

MAX_DIGITS = len(str(VMID_MAX))

# Bounds of what one expression may cost. The first is the number of symbols when counted repeats are written out (none
# is written out more than MAX_DIGITS + 1 times). The second counts steps from position to position, of which a computer
# makes about a million in a second; `9\d{8}` needs a few hundred. A part of the expression costs about as much as ten.
MAX_POSITIONS = 2_000
MAX_STEPS = 500_000
STEPS_PER_PART = 10


class TooComplex(Exception):
    """An expression would cost more than the bounds above allow."""


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """A set of digit strings of one length, as the root of a graph.

    Attributes:
        children: for each first digit, 0 to 9, what may follow it; None where nothing does. Empty for length 0.
        count: how many strings there are; never 0.
        block: for lengths up to `taken.BLOCK_DIGITS` the strings as bits, each at the index that is its value; else 0.
    """

    children: tuple[Digits | None, ...]
    count: int
    block: int


def matching_numbers(tree: Tree) -> dict[int, Digits]:
    """Return, by number of digits, the numbers without leading zeros that `tree` matches in full.

    A number of digits that no match has is left out. Numbers have `taken.BLOCK_DIGITS` to MAX_DIGITS digits.

    Raises:
        TooComplex: the expression is beyond MAX_POSITIONS or MAX_STEPS.
    """
    unrolled = _Unrolled(_Automaton(tree))
    roots = {length: unrolled.numbers(length) for length in range(BLOCK_DIGITS, MAX_DIGITS + 1)}
    return {length: root for length, root in roots.items() if root is not None}


class _Part(NamedTuple):
    """A part of the expression: the positions that it can begin and end with, and whether it may be empty."""

    first: int
    last: int
    optional: bool


class _Automaton:
    """The positions of an expression. Sets of positions are integers, with bit i for position i.

    A position is in a set when its symbol may be read next; one more position, which reads nothing, stands for the end.

    Attributes:
        start: what may be read first.
        viable: for 0 to MAX_DIGITS, the positions from which exactly so many digits lead to the end.
    """

    def __init__(self, tree: Tree) -> None:
        self._steps = 0
        self._follow: list[int] = []
        self._reading = dict.fromkeys((*DIGITS, START, END), 0)
        end = self._symbol(frozenset())
        self.start = self._with_starts(self._sequence([self._part(tree), end]).first)
        self.viable = self._viable(end.first)

    def read(self, positions: int, symbol: str) -> int:
        """Return what may be read after `symbol` was read at any of `positions`."""
        reading = positions & self._reading[symbol]
        self._spend(1 + reading.bit_count())
        reached = 0
        for position in set_bits(reading):
            reached |= self._follow[position]
        return reached

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TooComplex

    def _with_starts(self, positions: int) -> int:
        """Add what may be read once any number of START was read: before the first digit they all hold."""
        added = positions
        while added:
            added = self.read(added, START) & ~positions
            positions |= added
        return positions

    def _viable(self, end: int) -> list[int]:
        # After the last digit any number of END holds, as START does before the first.
        at_end = added = end
        while added:
            added = self._leading_to(at_end, (END,)) & ~at_end
            at_end |= added
        viable = [at_end]
        for _digit in range(MAX_DIGITS):
            viable.append(self._leading_to(viable[-1], DIGITS))
        return viable

    def _leading_to(self, positions: int, symbols: Iterable[str]) -> int:
        """Return the positions at which one of `symbols` can be read and one of `positions` comes next."""
        reading = 0
        for symbol in symbols:
            reading |= self._reading[symbol]
        self._spend(reading.bit_count())
        return sum(1 << position for position in set_bits(reading) if self._follow[position] & positions)

    def _part(self, tree: Tree) -> _Part:
        self._spend(STEPS_PER_PART)
        match tree:
            case Symbol(allowed):
                return self._symbol(allowed)
            case Sequence(items):
                return self._sequence(self._part(item) for item in items)
            case Alternatives(branches):
                return self._alternatives([self._part(branch) for branch in branches])
            case Repeat(item, least, most):
                return self._repeat(item, least, most)

    def _symbol(self, allowed: frozenset[str]) -> _Part:
        if len(self._follow) == MAX_POSITIONS:
            raise TooComplex
        position = 1 << len(self._follow)
        self._follow.append(0)
        for symbol in allowed:
            self._reading[symbol] |= position
        return _Part(position, position, optional=False)

    def _sequence(self, parts: Iterable[_Part]) -> _Part:
        whole = _Part(0, 0, optional=True)
        for part in parts:
            self._connect(whole.last, part.first)
            whole = _Part(
                first=whole.first | part.first if whole.optional else whole.first,
                last=whole.last | part.last if part.optional else part.last,
                optional=whole.optional and part.optional,
            )
        return whole

    def _alternatives(self, parts: Iterable[_Part]) -> _Part:
        first = last = 0
        optional = False
        for part in parts:
            first |= part.first
            last |= part.last
            optional |= part.optional
        return _Part(first, last, optional)

    def _repeat(self, item: Tree, least: int, most: int | None) -> _Part:
        # Of more than MAX_DIGITS repetitions at least one takes no digit, and any number of those is as good as one.
        least = min(least, MAX_DIGITS + 1)
        parts = [self._part(item) for _copy in range(least)]
        if most is None:
            again = self._part(item)
            self._connect(again.last, again.first)
            parts.append(again._replace(optional=True))
        else:
            optional = min(most, MAX_DIGITS + 1) - least
            parts += [self._part(item)._replace(optional=True) for _copy in range(optional)]
        return self._sequence(parts)

    def _connect(self, last: int, first: int) -> None:
        self._spend(last.bit_count())
        for position in set_bits(last):
            self._follow[position] |= first


class _Unrolled:
    """Follows an automaton for so many digits; equal sets of strings become one object."""

    def __init__(self, automaton: _Automaton) -> None:
        self._automaton = automaton
        self._by_positions: dict[tuple[int, int], Digits | None] = {}
        self._by_children: dict[tuple[Digits | None, ...], Digits] = {}
        self._nothing = Digits((), count=1, block=1)

    def numbers(self, length: int) -> Digits | None:
        """Return the strings of `length` digits that are matched and begin with no zero, or None."""
        strings = self._strings(self._automaton.start, length)
        return self._joined((None, *strings.children[1:]), length) if strings else None

    def _strings(self, positions: int, length: int) -> Digits | None:
        positions &= self._automaton.viable[length]
        if not positions:
            return None
        if length == 0:
            return self._nothing
        key = (positions, length)
        if key not in self._by_positions:
            following = (self._strings(self._automaton.read(positions, digit), length - 1) for digit in DIGITS)
            self._by_positions[key] = self._joined(tuple(following), length)
        return self._by_positions[key]

    def _joined(self, children: tuple[Digits | None, ...], length: int) -> Digits | None:
        if not any(children):
            return None
        if children not in self._by_children:
            count = sum(child.count for child in children if child)
            block = 0
            if length <= BLOCK_DIGITS:
                for digit, child in enumerate(children):
                    block |= child.block << digit * 10 ** (length - 1) if child else 0
            self._by_children[children] = Digits(children, count, block)
        return self._by_children[children]
