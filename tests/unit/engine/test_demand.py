# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Curves of what is used: unknown is not zero, and what guests used moves with them."""

from __future__ import annotations

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import (
    CPU,
    MEASURED,
    Demand,
    Departure,
    Grid,
    Stated,
    as_placed,
    bridge_gaps,
    is_known,
    percentile,
    plus,
)

GRID = Grid(start=0, slot=1800, count=4)


def test_percentile__ignores_what_is_unknown() -> None:
    assert percentile([None, 1, 3, None, 2], 95) == 3
    assert percentile([1.0] * 95 + [9.0] * 5, 95) == 1.0
    assert percentile([None], 95) is None


def test_stated_demand__a_number_is_a_vmid_and_no_name() -> None:
    mine, theirs = {CPU: (0.5,)}, {CPU: (0.1,)}
    stated = Stated(guests={"105": mine, "web": theirs})
    assert stated.of_guest(105, "app") == mine
    assert stated.of_guest(300, "105") is None
    assert stated.of_guest(301, "web") == theirs
    assert stated.of_guest(302, None) is None


def test_half_a_curve__is_enough_to_know_it() -> None:
    assert is_known([None, 1])
    assert not is_known([None, None, 1])
    assert not is_known([])


def test_sum__is_unknown_where_the_first_is_and_never_below_zero() -> None:
    assert plus((None, 1.0, 1.0), (1.0, None, 2.0), -1) == (None, 1.0, 0.0)


def test_slots__are_means_of_their_samples() -> None:
    minutes = [(60.0 * number, float(number <= 15)) for number in range(1, 31)]

    assert GRID.bin_samples(minutes, 60) == (0.5, None, None, None)


def test_slots__of_longer_samples_have_their_value() -> None:
    assert GRID.bin_samples([(3600.0, 1.0), (5400.0, None), (16_200.0, 2.0)], 10_800) == (1.0, 1.0, None, 2.0)


def test_curve_that_is_given__is_spread_over_the_window() -> None:
    assert GRID.stretch([1.0]) == (1.0,) * 4
    assert GRID.stretch([1.0, 2.0]) == (1.0, 1.0, 2.0, 2.0)
    assert GRID.stretch([1.0, 3.0, None, 5.0, None, None, 0.0, 8.0]) == (2.0, 5.0, None, 4.0)


def test_latest_slots__are_at_least_one() -> None:
    assert GRID.latest(0) == slice(3, 4)
    assert GRID.latest(3600) == slice(2, 4)
    assert GRID.latest(1e9) == slice(0, 4)


@pytest.mark.parametrize(
    ("departures", "a", "b"),
    [
        ([], (4.0, 4.0, 4.0, 1.0), (0.0, 0.0, 0.0, 3.0)),
        # It left a at the end of the third slot: on b, it counts from the start.
        ([(5400, 7, "a")], (1.0, 1.0, 1.0, 1.0), (3.0, 3.0, 3.0, 3.0)),
        # It went to c and on to b.
        ([(1800, 7, "a"), (5400, 7, "c")], (1.0, 4.0, 4.0, 1.0), (3.0, 3.0, 3.0, 3.0)),
        # Nothing is known of that guest.
        ([(5400, 8, "a")], (4.0, 4.0, 4.0, 1.0), (0.0, 0.0, 0.0, 3.0)),
    ],
)
def test_nodes__are_as_if_their_guests_had_always_been_there(
    departures: list[tuple[float, int, str]], a: tuple[float, ...], b: tuple[float, ...]
) -> None:
    nodes = {"a": {CPU: (4.0, 4.0, 4.0, 1.0)}, "b": {CPU: (0.0, 0.0, 0.0, 3.0)}}
    guests = {7: {CPU: Demand(MEASURED, (3.0,) * 4)}}

    found = as_placed(nodes, guests, {7: "b", 8: "b"}, [Departure(*each) for each in departures], GRID)

    assert found == {"a": {CPU: a}, "b": {CPU: b}}


def test_gaps__are_bridged_if_they_are_short() -> None:
    assert bridge_gaps((None, 1.0, None, None, 2.0, None)) == (None, 1.0, 1.0, 1.0, 2.0, None)
    assert bridge_gaps((1.0, None, None, None, 2.0)) == (1.0, None, None, None, 2.0)


def test_demand_of_a_new_guest__is_its_highest_where_it_is_unknown() -> None:
    assert Demand(MEASURED, (None, 1.0, 3.0)).lasting == (3.0, 1.0, 3.0)
