# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMID ranges: what is read, what is refused, and which id is the lowest free one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import lines_run

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.vmids.choice import (
    AnyVMID,
    InvalidVMIDRange,
    TakenVMIDs,
    VMIDRange,
    parse_range,
)

SMALL_IDS = st.integers(100, 3300)
INTERVALS = st.tuples(SMALL_IDS, SMALL_IDS).map(lambda ends: (min(ends), max(ends)))


def test_both__ends_belong_to_the_range() -> None:
    allowed = parse_range("100-150")
    assert [vmid for vmid in range(90, 160) if vmid in allowed] == list(range(100, 151))
    assert allowed.count() == 51


@pytest.mark.parametrize(
    ("text", "intervals"),
    [
        (" 100 - 150 ", ((100, 150),)),
        ("100-100", ((100, 100),)),
        ("999999999", ((999_999_999, 999_999_999),)),
        ("100-150,200,300-310", ((100, 150), (200, 200), (300, 310))),
        ("300-310, 200 , 100-150", ((100, 150), (200, 200), (300, 310))),
        ("100-150,120-130,151-160", ((100, 160),)),
    ],
)
def test_ranges__are_read_with_spaces_in_lists_and_in_any_order(text: str, intervals: object) -> None:
    assert parse_range(text).intervals == intervals


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("abc", "'abc' is not a VMID or a range of VMIDs"),
        ("", "'' is not a VMID or a range of VMIDs"),
        ("  ", "'' is not a VMID or a range of VMIDs"),
        ("-", "'-' is not a VMID or a range of VMIDs"),
        ("-5", "'-5' is not a VMID or a range of VMIDs"),
        ("100-", "'100-' is not a VMID or a range of VMIDs"),
        ("100-150-200", "'100-150-200' is not a VMID or a range of VMIDs"),
        ("100-150,", "'' is not a VMID or a range of VMIDs"),
        ("100-150,x", "'x' is not a VMID or a range of VMIDs"),
        ("100 150", "'100 150' is not a VMID or a range of VMIDs"),
        ("1e3", "'1e3' is not a VMID or a range of VMIDs"),
        ("\u0661\u0660\u0660", "is not a VMID or a range of VMIDs"),  # 100 in Arabic digits
        ("150-100", "150 is greater than 100"),
        ("1-50", "1 is not a VMID"),
        ("99-150", "99 is not a VMID"),
        ("100-1000000000", "1000000000 is not a VMID"),
        ("9" * 5000, "9 is not a VMID"),
    ],
)
def test_what_is_no_range__is_refused_with_the_value_the_reason_and_an_example(text: str, reason: str) -> None:
    with pytest.raises(InvalidVMIDRange) as raised:
        parse_range(text)
    message = str(raised.value)
    assert repr(text) in message
    assert reason in message
    assert "expected ids from 100 to 999999999, lowest first, such as '100-150' or '100-150,200,300-310'" in message


def test_invalid_range__is_a_value_error() -> None:
    assert issubclass(InvalidVMIDRange, ValueError)


@settings(deadline=None)
@given(
    intervals=st.lists(INTERVALS, min_size=1, max_size=5),
    taken=st.lists(INTERVALS, max_size=5),
    bounds=st.tuples(st.integers(-3500, 3500), st.integers(-3500, 3500)),
)
def test_lowest_free_id_and_the_count__are_those_found_by_trying_each(
    intervals: list[tuple[int, int]], taken: list[tuple[int, int]], bounds: tuple[int, int]
) -> None:
    allowed = parse_range(",".join(f"{first}-{last}" for first, last in intervals))
    used = {vmid for first, last in taken for vmid in range(first, last + 1)}
    tried = [
        vmid for vmid in range(bounds[0], bounds[1] + 1) if any(first <= vmid <= last for first, last in intervals)
    ]
    free = [vmid for vmid in tried if vmid not in used]
    assert allowed.lowest_free(TakenVMIDs(used), *bounds) == (free[0] if free else None)
    assert allowed.count(*bounds) == len(tried)


def test_range_that_is_mostly_full__costs_little_once_it_was_passed_over() -> None:
    taken = TakenVMIDs(range(100, 100_000))
    allowed = parse_range("100-200000")
    assert allowed.lowest_free(taken) == 100_000
    taken.add(100_000)
    lines_run(lambda: allowed.lowest_free(taken), at_most=100)
    assert allowed.lowest_free(taken) == 100_001
    taken.discard(50_500)
    assert allowed.lowest_free(taken) == 50_500


def test_range_of_which_every_id_is_taken__has_no_free_id() -> None:
    assert parse_range("100-150").lowest_free(TakenVMIDs(range(100, 151))) is None


def test_no_rule__allows_every_vmid_of_proxmox_and_no_other() -> None:
    allowed = AnyVMID()
    assert allowed.count() == 999_999_900
    assert (99 in allowed, 100 in allowed, 999_999_999 in allowed, 1_000_000_000 in allowed) == (
        False,
        True,
        True,
        False,
    )
    assert allowed.lowest_free(TakenVMIDs(), lower=0) == 100
    assert allowed.lowest_free(TakenVMIDs(range(100, 50_000)), lower=200, upper=60_000) == 50_000
    assert allowed.lowest_free(TakenVMIDs([200]), lower=200, upper=200) is None


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (parse_range("300-310, 200,100-150"), "VMID range 100-150,200,300-310"),
        (VMIDRange(((100, 100),)), "VMID range 100"),
        (AnyVMID(), "100-999999999"),
    ],
)
def test_range__describes_itself_as_it_would_be_written(allowed: VMIDRange, words: str) -> None:
    assert allowed.describe() == words
