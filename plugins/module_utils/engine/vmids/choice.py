# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which VMIDs a request may have: a set of allowed ids, of which the lowest free one is chosen; and the taken ids.

Any VMID, those of ranges, and those that two choices both allow; C(pattern) has those that match an expression.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Iterator, MutableSet
from dataclasses import dataclass

from ...model import VMID_MAX, VMID_MIN


class InvalidVMIDChoice(ValueError):
    """What a user gave to choose VMIDs by has a mistake, or allows no VMID at all."""


class VMIDChoice(abc.ABC):
    """A set of allowed VMIDs. Bounds are always inclusive; ids outside 100..999999999 are never allowed."""

    @abc.abstractmethod
    def blocks(self, lower: int, upper: int) -> Iterator[tuple[int, int]]:
        """Yield the allowed ids from `lower` to `upper`, lowest first, as `(block, bits)`; see `taken.BLOCK_SIZE`.

        Blocks without an allowed id are left out as far as that is cheap; one block may come in several parts.
        """

    @abc.abstractmethod
    def count(self, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int:
        """Return how many ids from `lower` to `upper` are allowed, without going through them."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Return what is allowed in words that fit behind "no free VMID in", such as `VMID range 100-150`."""

    def lowest_free(self, taken: TakenVMIDs, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int | None:
        """Return the lowest allowed id from `lower` to `upper` that is not taken, or None.

        Time grows with the number of blocks (thousands of ids) that are skipped because every allowed id in them is
        taken: about a microsecond for each. Of blocks without any free id a row counts as one.
        """
        while True:
            for block, allowed in self.blocks(lower, upper):
                if free := allowed & ~taken.in_block(block):
                    return block * BLOCK_SIZE + (free & -free).bit_length() - 1
                following = taken.first_open(block)
                if following > block + 1:
                    lower = following * BLOCK_SIZE
                    break
            else:
                return None

    def __contains__(self, vmid: int) -> bool:
        return any(bits for _block, bits in self.blocks(vmid, vmid))


_ID_OR_RANGE = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")
_DIGITS_AT_MOST = len(str(VMID_MAX))


class InvalidVMIDRange(InvalidVMIDChoice):
    """A VMID range is not written as one, runs backwards, or leaves 100..999999999."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(
            f"invalid VMID range {text!r}: {reason}; expected ids from {VMID_MIN} to {VMID_MAX}, lowest first, "
            f"such as '100-150' or '100-150,200,300-310'"
        )


@dataclass(frozen=True, slots=True)
class VMIDRange(VMIDChoice):
    """Allows the ids of some intervals.

    Attributes:
        intervals: `(first, last)`, both included, in ascending order, neither overlapping nor touching.
    """

    intervals: tuple[tuple[int, int], ...]

    def clipped(self, lower: int, upper: int) -> Iterator[tuple[int, int]]:
        """Yield what lies between `lower` and `upper` of each interval."""
        for first, last in self.intervals:
            clipped = max(first, lower), min(last, upper)
            if clipped[0] <= clipped[1]:
                yield clipped

    def blocks(self, lower: int, upper: int) -> Iterator[tuple[int, int]]:
        """See `VMIDChoice.blocks`."""
        for first, last in self.clipped(lower, upper):
            for block in range(first // BLOCK_SIZE, last // BLOCK_SIZE + 1):
                yield block, window(block, first, last)

    def count(self, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int:
        """See `VMIDChoice.count`."""
        return sum(last - first + 1 for first, last in self.clipped(lower, upper))

    def describe(self) -> str:
        """See `VMIDChoice.describe`."""
        parts = (str(first) if first == last else f"{first}-{last}" for first, last in self.intervals)
        return f"VMID range {','.join(parts)}"


class AnyVMID(VMIDRange):
    """Allows every VMID that Proxmox knows."""

    def __init__(self) -> None:
        super().__init__(((VMID_MIN, VMID_MAX),))

    def describe(self) -> str:
        """See `VMIDChoice.describe`."""
        return f"{VMID_MIN}-{VMID_MAX}"


def parse_range(text: str) -> VMIDRange:
    """Read `100-150` (both ends included), `200`, or several of these with commas between, with spaces anywhere.

    The list is an extension of ours: qemu-scheduler knows one range only. Its order has no meaning; parts may overlap.

    Raises:
        InvalidVMIDRange: a part is no range or no id, runs backwards, or leaves 100..999999999.
    """
    return VMIDRange(tuple(_merged(_interval(part, text) for part in text.split(","))))


def _interval(part: str, text: str) -> tuple[int, int]:
    match = _ID_OR_RANGE.fullmatch(part)
    if match is None:
        raise InvalidVMIDRange(text, f"{part.strip()!r} is neither an id nor a range")
    first, last = (_vmid(digits, text) for digits in (match[1], match[2] or match[1]))
    if first > last:
        raise InvalidVMIDRange(text, f"{first} is greater than {last}")
    return first, last


def _vmid(digits: str, text: str) -> int:
    if len(digits) > _DIGITS_AT_MOST or not VMID_MIN <= int(digits) <= VMID_MAX:
        raise InvalidVMIDRange(text, f"{digits} is not a VMID")
    return int(digits)


def _merged(intervals: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


@dataclass(frozen=True, slots=True)
class Intersection(VMIDChoice):
    """Allows the ids of `choice` that lie in `within`.

    Raises:
        InvalidVMIDChoice: no VMID is allowed by both.
    """

    choice: VMIDChoice
    within: VMIDRange

    def __post_init__(self) -> None:
        if self.count() == 0:
            raise InvalidVMIDChoice(f"no VMID is in both {self.within.describe()} and {self.choice.describe()}")

    def blocks(self, lower: int, upper: int) -> Iterator[tuple[int, int]]:
        """See `VMIDChoice.blocks`."""
        for first, last in self.within.clipped(lower, upper):
            yield from self.choice.blocks(first, last)

    def count(self, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int:
        """See `VMIDChoice.count`."""
        return sum(self.choice.count(first, last) for first, last in self.within.clipped(lower, upper))

    def describe(self) -> str:
        """See `VMIDChoice.describe`."""
        return f"{self.within.describe()} and {self.choice.describe()}"


def intersection(first: VMIDChoice, second: VMIDChoice) -> VMIDChoice:
    """Return what both allow; one of them must be a range. Raises InvalidVMIDChoice when nothing is left."""
    if isinstance(second, VMIDRange):
        return Intersection(first, second)
    if isinstance(first, VMIDRange):
        return Intersection(second, first)
    raise InvalidVMIDChoice(f"{first.describe()} and {second.describe()} cannot be combined")


# A block is the thousand ids that share all but their last three digits. The ids of one block are handled together, as
# the bits of one integer: bit i stands for the id BLOCK_SIZE * block + i.
BLOCK_DIGITS = 3
BLOCK_SIZE: int = 10**BLOCK_DIGITS

_FULL = (1 << BLOCK_SIZE) - 1
_BITS = tuple(1 << offset for offset in range(BLOCK_SIZE))


def window(block: int, lower: int, upper: int) -> int:
    """Return the ids of `block` from `lower` to `upper`, both included, as bits."""
    start = max(lower - block * BLOCK_SIZE, 0)
    stop = min(upper + 1 - block * BLOCK_SIZE, BLOCK_SIZE)
    return (1 << stop) - (1 << start) if start < stop else 0


class TakenVMIDs(MutableSet[int]):
    """A set of VMIDs that are not free.

    Membership, `add` and `discard` take constant time.
    """

    def __init__(self, vmids: Iterable[int] = ()) -> None:
        self._blocks: dict[int, int] = {}
        # For some full blocks a later one; all between are full as well.
        self._skips: dict[int, int] = {}
        for vmid in vmids:
            self.add(vmid)

    def add(self, value: int) -> None:
        """Take a VMID; taking one twice is no error."""
        block, offset = divmod(value, BLOCK_SIZE)
        self._blocks[block] = self._blocks.get(block, 0) | _BITS[offset]

    def discard(self, value: int) -> None:
        """Free a VMID; freeing one that is free is no error."""
        block, offset = divmod(value, BLOCK_SIZE)
        bits = self._blocks.get(block, 0)
        if bits == _FULL:
            self._skips.clear()
        self._blocks[block] = bits & ~_BITS[offset]

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int):
            return False
        block, offset = divmod(value, BLOCK_SIZE)
        return bool(self._blocks.get(block, 0) & _BITS[offset])

    def __iter__(self) -> Iterator[int]:
        """Yield the ids, lowest first."""
        for block, taken in sorted(self._blocks.items()):
            yield from (block * BLOCK_SIZE + offset for offset, bit in enumerate(_BITS) if taken & bit)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._blocks.values())

    def in_block(self, block: int) -> int:
        """Return the taken ids of `block` as bits."""
        return self._blocks.get(block, 0)

    def first_open(self, block: int) -> int:
        """Return the first block from `block` on that has a free id.

        Full blocks that were passed once are passed at once the next time.
        """
        passed = []
        while self._blocks.get(block, 0) == _FULL:
            passed.append(block)
            block = self._skips.get(block, block + 1)
        for full in passed:
            self._skips[full] = block
        return block
