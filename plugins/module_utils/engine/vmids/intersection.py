# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMIDs that a range and another choice allow both: what a request means that gives a range and a regex."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...model import VMID_MAX, VMID_MIN
from .choice import InvalidVMIDChoice, VMIDChoice
from .ranges import VMIDRange


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
