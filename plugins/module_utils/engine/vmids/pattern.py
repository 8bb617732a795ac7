# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMIDs by regular expression: `(12[0-9]|130)`, matched in full against the decimal number."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...model import VMID_MAX, VMID_MIN
from ..patterns import InvalidPattern
from ..patterns.syntax import parse
from .automaton import Digits, matching_numbers
from .choice import BLOCK_DIGITS, BLOCK_SIZE, InvalidVMIDChoice, VMIDChoice, window


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

    def blocks(self, lower: int, upper: int) -> Iterator[tuple[int, int]]:
        """See `VMIDChoice.blocks`."""
        for length, numbers in self._numbers.items():
            for block, allowed in _blocks(numbers, length - BLOCK_DIGITS, 0, lower // BLOCK_SIZE, upper // BLOCK_SIZE):
                yield block, allowed & window(block, lower, upper)

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


def _blocks(numbers: Digits, digits: int, prefix: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks that are `prefix` and `digits` digits more, lowest first; left out: those outside the bounds."""
    if digits == 0:
        yield prefix, numbers.block
        return
    size: int = 10 ** (digits - 1)
    for child_prefix, child in enumerate(numbers.children, start=prefix * 10):
        if child and child_prefix * size <= last and first < (child_prefix + 1) * size:
            yield from _blocks(child, digits - 1, child_prefix, first, last)


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
