# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which VMIDs a request may have: a set of allowed ids, of which the lowest free one is chosen; and the taken ids.

Any VMID, those of ranges, and those that two choices both allow; C(pattern) has those that match an expression.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...model import VMID_MAX, VMID_MIN


class InvalidVMIDChoice(ValueError):
    """What a user gave to choose VMIDs by has a mistake, or allows no VMID at all."""


class VMIDChoice(abc.ABC):
    """A set of allowed VMIDs. Bounds are always inclusive; ids outside 100..999999999 are never allowed."""

    @abc.abstractmethod
    def ids(self, lower: int, upper: int) -> Iterator[int]:
        """Yield the allowed ids from `lower` to `upper`, lowest first."""

    @abc.abstractmethod
    def count(self, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int:
        """Return how many ids from `lower` to `upper` are allowed, without going through them."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Return what is allowed in words that fit behind "no free VMID in", such as `VMID range 100-150`."""

    def lowest_free(self, taken: TakenVMIDs, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int | None:
        """Return the lowest allowed id from `lower` to `upper` that is not taken, or None.

        Taken ids that were skipped once are not looked at again, unless one of them becomes free.
        """
        start = taken.starts.get((self, lower), lower)
        found = next((vmid for vmid in self.ids(start, upper) if vmid not in taken), None)
        taken.starts[self, lower] = max(start, upper + 1) if found is None else found
        return found

    def __contains__(self, vmid: int) -> bool:
        return next(self.ids(vmid, vmid), None) is not None


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

    def clip(self, lower: int, upper: int) -> Iterator[tuple[int, int]]:
        """Yield what lies between `lower` and `upper` of each interval."""
        for first, last in self.intervals:
            clipped = max(first, lower), min(last, upper)
            if clipped[0] <= clipped[1]:
                yield clipped

    def ids(self, lower: int, upper: int) -> Iterator[int]:
        """See `VMIDChoice.ids`."""
        for first, last in self.clip(lower, upper):
            yield from range(first, last + 1)

    def count(self, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int:
        """See `VMIDChoice.count`."""
        return sum(last - first + 1 for first, last in self.clip(lower, upper))

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


ANY_VMID = AnyVMID()


def parse_range(text: str) -> VMIDRange:
    """Read `100-150` (both ends included), `200`, or several of these with commas between, with spaces anywhere.

    The list is an extension of ours: qemu-scheduler knows one range only. Its order has no meaning; parts may overlap.

    Raises:
        InvalidVMIDRange: a part is no range or no id, runs backwards, or leaves 100..999999999.
    """
    return VMIDRange(tuple(_merge(_interval(part, text) for part in text.split(","))))


def _interval(part: str, text: str) -> tuple[int, int]:
    """Return the first and the last VMID of one part of a range. Raises InvalidVMIDRange."""
    match = _ID_OR_RANGE.fullmatch(part)
    if match is None:
        raise InvalidVMIDRange(text, f"{part.strip()!r} is not a VMID or a range of VMIDs")
    first, last = (_vmid(digits, text) for digits in (match[1], match[2] or match[1]))
    if first > last:
        raise InvalidVMIDRange(text, f"{first} is greater than {last}")
    return first, last


def _vmid(digits: str, text: str) -> int:
    if len(digits) > _DIGITS_AT_MOST or not VMID_MIN <= int(digits) <= VMID_MAX:
        raise InvalidVMIDRange(text, f"{digits} is not a VMID")
    return int(digits)


def _merge(intervals: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join intervals that overlap or touch. Returns them in order."""
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

    def ids(self, lower: int, upper: int) -> Iterator[int]:
        """See `VMIDChoice.ids`."""
        for first, last in self.within.clip(lower, upper):
            yield from self.choice.ids(first, last)

    def count(self, lower: int = VMID_MIN, upper: int = VMID_MAX) -> int:
        """See `VMIDChoice.count`."""
        return sum(self.choice.count(first, last) for first, last in self.within.clip(lower, upper))

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


class TakenVMIDs(set[int]):
    """A set of VMIDs that are not free. It remembers how far each choice has looked for a free one.

    Attributes:
        starts: for a choice and a lower bound an id such that all ids of the choice from the bound up to it are taken.
    """

    def __init__(self, vmids: Iterable[int] = ()) -> None:
        super().__init__(vmids)
        self.starts: dict[tuple[VMIDChoice, int], int] = {}

    def discard(self, value: int) -> None:  # type: ignore[override]
        """Free a VMID; freeing one that is free is no error."""
        super().discard(value)
        for (choice, lower), start in self.starts.items():
            self.starts[choice, lower] = max(lower, min(start, value))
