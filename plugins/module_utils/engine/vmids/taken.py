# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VMIDs that are in use, kept so that a free one is found without looking at each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet

from ..bits import set_bits

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
        for block in sorted(self._blocks):
            for offset in set_bits(self._blocks[block]):
                yield block * BLOCK_SIZE + offset

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
