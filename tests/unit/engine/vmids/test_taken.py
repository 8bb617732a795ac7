# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The set of taken VMIDs behaves as any other set of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.vmids.choice import TakenVMIDs, window

IDS = st.one_of(st.integers(100, 130), st.integers(995, 1005), st.integers(100, 999_999_999))


@given(st.lists(st.tuples(st.booleans(), IDS)), st.sets(IDS))
def test_adding_and_freeing_ids__does_what_a_set_does(changes: list[tuple[bool, int]], start: set[int]) -> None:
    taken, expected = TakenVMIDs(start), set(start)
    for take, vmid in changes:
        if take:
            taken.add(vmid)
            expected.add(vmid)
        else:
            taken.discard(vmid)
            expected.discard(vmid)
        assert (vmid in taken) is take
    assert list(taken) == sorted(expected)
    assert len(taken) == len(expected)
    assert taken == TakenVMIDs(expected)


def test_what_is_no_integer__is_not_taken() -> None:
    name: object = "100"
    assert name not in TakenVMIDs([100])


@given(block=st.integers(0, 3), lower=st.integers(0, 4000), upper=st.integers(0, 4000))
def test_window__holds_the_ids_of_a_block_that_lie_within_bounds(block: int, lower: int, upper: int) -> None:
    expected = {vmid for vmid in range(block * 1000, block * 1000 + 1000) if lower <= vmid <= upper}
    bits = window(block, lower, upper)
    assert {block * 1000 + offset for offset in range(1000) if bits >> offset & 1} == expected
    assert bits < 1 << 1000


BLOCKS = st.integers(0, 6)


@given(st.lists(st.tuples(st.sampled_from(["fill", "free", "look"]), BLOCKS)))
def test_first_block_with_a_free_id__is_that_found_by_looking_at_each(steps: list[tuple[str, int]]) -> None:
    taken, full = TakenVMIDs(), set[int]()
    for step, block in steps:
        if step == "fill":
            taken |= set(range(block * 1000, block * 1000 + 1000))
            full.add(block)
        elif step == "free":
            taken.discard(block * 1000 + 7)
            full.discard(block)
        else:
            assert taken.first_open(block) == next(each for each in range(block, 8) if each not in full)
