# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMIDs by regular expression: `(12[0-9]|130)`, matched in full against the decimal number.

All numbers that an expression matches are known without a list of them. Following its automaton for a fixed number of
digits, from every set of positions that can be reached, gives a graph without cycles: each node knows how many numbers
lie below it, and matching never tries twice.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...model import VMID_MAX, VMID_MIN
from ..patterns import InvalidPattern
from ..patterns.automaton import Automaton, set_bits
from ..patterns.syntax import END, START, Tree, parse
from .choice import InvalidVMIDChoice, VMIDChoice

DIGITS = "0123456789"
MIN_DIGITS, MAX_DIGITS = len(str(VMID_MIN)), len(str(VMID_MAX))


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """A set of digit strings of one length, as the root of a graph.

    Attributes:
        children: for each first digit, 0 to 9, what may follow it; None where nothing does. Empty for length 0.
        count: how many strings there are; never 0.
    """

    children: tuple[Digits | None, ...]
    count: int


def matching_numbers(tree: Tree) -> dict[int, Digits]:
    """Return, by number of digits, the numbers without leading zeros that `tree` matches in full.

    A number of digits that no match has is left out. Numbers have MIN_DIGITS to MAX_DIGITS digits.

    Raises:
        TooComplex: the expression is beyond `patterns.automaton.MAX_POSITIONS` or `MAX_STEPS`.
    """
    automaton = _Numbers(tree)
    roots = {length: automaton.numbers(length) for length in range(MIN_DIGITS, MAX_DIGITS + 1)}
    return {length: root for length, root in roots.items() if root is not None}


class _Numbers(Automaton):
    """An expression that is matched against digits."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree, longest=MAX_DIGITS)
        self._reading = {digit: self.positions_reading(digit) for digit in DIGITS}
        # What may be read first, after the anchors.
        self._start = self.pass_anchors(self.first, self.anchor_positions(START))
        # For 0 to MAX_DIGITS, the positions from which exactly so many digits lead to the end.
        self._viable = self._find_viable()
        self._known: dict[tuple[int, int], Digits | None] = {}

    def numbers(self, length: int) -> Digits | None:
        """Return the strings of `length` digits that are matched and begin with no zero, or None."""
        strings = self._strings(self._start, length)
        return _join((None, *strings.children[1:])) if strings else None

    def _strings(self, positions: int, length: int) -> Digits | None:
        """Return the strings of `length` digits that lead from `positions` to the end, or None."""
        positions &= self._viable[length]
        if not positions:
            return None
        if length == 0:
            return Digits((), count=1)
        key = (positions, length)
        if key not in self._known:
            following = (self._strings(self._read(positions, digit), length - 1) for digit in DIGITS)
            self._known[key] = _join(tuple(following))
        return self._known[key]

    def _read(self, positions: int, digit: str) -> int:
        """Return what may be read after `digit` was read at any of `positions`."""
        reading = positions & self._reading[digit]
        self.spend(1 + reading.bit_count())
        return self.positions_after(reading)

    def _find_viable(self) -> list[int]:
        """Return the positions from which a match can still end, for each number of digits that are left."""
        at_end = added = self.end
        while added:
            added = self._leading_to(at_end, self.anchor_positions(END)) & ~at_end
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


def _join(children: tuple[Digits | None, ...]) -> Digits | None:
    count = sum(child.count for child in children if child)
    return Digits(children, count) if count else None


class InvalidVMIDPattern(InvalidVMIDChoice):
    """A VMID regex has a mistake, uses what is not supported, is too complex, or can match no VMID."""

    def __init__(self, text: str, reason: str) -> None:
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        super().__init__(f"invalid VMID regex {shown!r}: {reason}")


@dataclass(frozen=True, slots=True)
class VMIDPattern(VMIDChoice):
    """Allows the ids that a regular expression matches in full; made by `compile_pattern`.

    Attributes:
        text: the expression as the user wrote it.
    """

    text: str
    _numbers: dict[int, Digits] = field(repr=False, compare=False)

    def ids(self, lower: int, upper: int) -> Iterator[int]:
        """See `VMIDChoice.ids`."""
        for length, numbers in self._numbers.items():
            yield from _ids(numbers, length, 0, lower, upper)

    def count(self, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int:
        """See `VMIDChoice.count`."""
        return max(self._count_below(upper + 1) - self._count_below(lower), 0)

    def _count_below(self, bound: int) -> int:
        digits = str(max(bound, 0))
        shorter = sum(numbers.count for length, numbers in self._numbers.items() if length < len(digits))
        numbers = self._numbers.get(len(digits))
        return shorter + (_strings_below(numbers, digits) if numbers else 0)

    def describe(self) -> str:
        """See `VMIDChoice.describe`."""
        return f"VMID regex {self.text!r}"


@functools.lru_cache(maxsize=128)  # many VMs of a run share one expression
def compile_pattern(text: str) -> VMIDPattern:
    """Read a regular expression that a VMID's decimal number has to match in full.

    See `patterns.syntax` for what is understood. Whatever the expression, this takes less than about a second
    (`9\\d{8}`: well under a millisecond), and finding ids afterwards does not depend on how it is written.

    Raises:
        InvalidVMIDPattern: the expression has a mistake, uses something that is not regular or not supported, is more
            complex than `patterns.automaton` allows, or matches none of 100..999999999.
    """
    try:
        numbers = matching_numbers(parse(text))
    except InvalidPattern as error:
        raise InvalidVMIDPattern(text, str(error)) from None
    if not numbers:
        raise InvalidVMIDPattern(
            text, f"it matches no VMID; all digits of a number from {VMID_MIN} to {VMID_MAX} have to match"
        )
    return VMIDPattern(text, numbers)


def _ids(numbers: Digits, digits: int, prefix: int, first: int, last: int) -> Iterator[int]:
    """Yield the numbers that are `prefix` and `digits` digits more, from `first` to `last`, lowest first."""
    if digits == 0:
        yield prefix
        return
    size: int = 10 ** (digits - 1)
    for child_prefix, child in enumerate(numbers.children, start=prefix * 10):
        if child and child_prefix * size <= last and first < (child_prefix + 1) * size:
            yield from _ids(child, digits - 1, child_prefix, first, last)


def _strings_below(numbers: Digits, bound: str) -> int:
    """Count the strings that are less than `bound`, which is as long as they."""
    count = 0
    for digit in map(int, bound):
        count += sum(child.count for child in numbers.children[:digit] if child)
        following = numbers.children[digit]
        if following is None:
            break
        numbers = following
    return count
