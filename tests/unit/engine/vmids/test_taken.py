# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The set of taken VMIDs behaves as any other set of integers, and what it remembers is never outdated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.vmids.choice import (
    AnyVMID,
    TakenVMIDs,
    VMIDChoice,
    parse_range,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.vmids.pattern import compile_pattern

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
    assert sorted(taken) == sorted(expected)
    assert len(taken) == len(expected)
    assert taken == TakenVMIDs(expected)


def test_what_is_no_integer__is_not_taken() -> None:
    name: object = "100"
    assert name not in TakenVMIDs([100])


CHOICES = st.sampled_from([AnyVMID(), parse_range("102-104,107"), parse_range("100-108"), compile_pattern("10[13579]")])
BOUNDS = st.tuples(st.integers(98, 110), st.integers(98, 110))


@given(st.lists(st.tuples(st.sampled_from(["take", "free", "look"]), st.integers(100, 108), CHOICES, BOUNDS)))
def test_lowest_free_id__is_found_whatever_was_taken_and_freed_since_the_last_look(
    steps: list[tuple[str, int, VMIDChoice, tuple[int, int]]],
) -> None:
    taken = TakenVMIDs()
    for step, vmid, choice, (lower, upper) in steps:
        if step == "take":
            taken.add(vmid)
        elif step == "free":
            taken.discard(vmid)
        else:
            free = [each for each in range(lower, upper + 1) if each in choice and each not in taken]
            assert choice.lowest_free(taken, lower, upper) == (free[0] if free else None)
