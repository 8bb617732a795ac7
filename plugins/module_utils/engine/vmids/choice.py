# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every way of choosing a VMID has in common: a set of allowed ids, of which the lowest free one is taken."""

from __future__ import annotations

import abc
from collections.abc import Iterator

from ...model import VMID_MAX, VMID_MIN
from ..bits import lowest_bit
from .taken import BLOCK_SIZE, TakenVMIDs


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
                    return block * BLOCK_SIZE + lowest_bit(free)
                following = taken.first_open(block)
                if following > block + 1:
                    lower = following * BLOCK_SIZE
                    break
            else:
                return None

    def __contains__(self, vmid: int) -> bool:
        return any(bits for _block, bits in self.blocks(vmid, vmid))
