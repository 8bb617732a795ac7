# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Integers as sets of small numbers: bit i stands for i."""

from __future__ import annotations

from collections.abc import Iterator


def lowest_bit(bits: int) -> int:
    """Return the index of the lowest bit of `bits` that is set; `bits` is not 0."""
    return (bits & -bits).bit_length() - 1


def set_bits(bits: int) -> Iterator[int]:
    """Yield the indices of the bits of `bits` that are set, lowest first."""
    while bits:
        yield lowest_bit(bits)
        bits &= bits - 1
