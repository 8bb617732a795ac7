# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMIDs by range: `100-150`, or a list of ranges and single ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...model import VMID_MAX, VMID_MIN
from .choice import InvalidVMIDChoice, VMIDChoice
from .taken import BLOCK_SIZE, window

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
