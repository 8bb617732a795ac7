# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a regular expression's tree to all the numbers that it matches, without a list of them.

Following the expression's automaton for a fixed number of digits, from every set of positions that can be reached,
gives a graph without cycles: equal parts are shared, each node knows how many numbers lie below it, and matching never
tries twice.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass

from ...model import VMID_MAX
from ..patterns.automaton import Automaton, set_bits
from ..patterns.syntax import END, START, Tree
from .choice import BLOCK_DIGITS

DIGITS = "0123456789"
MAX_DIGITS = len(str(VMID_MAX))


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
        TooComplex: the expression is beyond `patterns.automaton.MAX_POSITIONS` or `MAX_STEPS`.
    """
    unrolled = _Unrolled(_Numbers(tree))
    roots = {length: unrolled.numbers(length) for length in range(BLOCK_DIGITS, MAX_DIGITS + 1)}
    return {length: root for length, root in roots.items() if root is not None}


class _Numbers(Automaton):
    """An expression that is matched against digits.

    Attributes:
        start: what may be read first, after the anchors.
        viable: for 0 to MAX_DIGITS, the positions from which exactly so many digits lead to the end.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree, longest=MAX_DIGITS)
        self._reading = {digit: self.reading(digit) for digit in DIGITS}
        self.start = self.passing(self.first, self.anchored(START))
        self.viable = self._viable()

    def read(self, positions: int, digit: str) -> int:
        """Return what may be read after `digit` was read at any of `positions`."""
        reading = positions & self._reading[digit]
        self.spend(1 + reading.bit_count())
        return self.after(reading)

    def _viable(self) -> list[int]:
        at_end = added = self.end
        while added:
            added = self._leading_to(at_end, self.anchored(END)) & ~at_end
            at_end |= added
        any_digit = functools.reduce(operator.or_, self._reading.values())
        viable = [at_end]
        for _digit in range(MAX_DIGITS):
            viable.append(self._leading_to(viable[-1], any_digit))
        return viable

    def _leading_to(self, positions: int, reading: int) -> int:
        """Return those of the positions `reading` after which one of `positions` may come."""
        self.spend(reading.bit_count())
        return sum(1 << position for position in set_bits(reading) if self.follow[position] & positions)


class _Unrolled:
    """Follows an automaton for so many digits; equal sets of strings become one object."""

    def __init__(self, automaton: _Numbers) -> None:
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
