# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests that selectors select, kept up to date while guests come and leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import lines_run
from support.small_cluster import cluster, guest, node

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine import guest_index
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.guest_index import GuestIndex
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.selectors import selects
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Selector

SELECTORS = [
    *(Selector(name=f"{app}-.*") for app in "abc"),
    Selector(name="a-1"),
    *(Selector(tags=frozenset({tag})) for tag in "xy"),
    Selector(pool="p"),
    Selector(pool="p", name="b-.*"),
]

GUESTS = [
    guest(100 + at, f"n{at % 3}", name=f"{'abc'[at % 3]}-{at % 4}", tags=frozenset("xyz"[at % 2 :]), pool="pq"[at % 2])
    for at in range(12)
]


@pytest.mark.parametrize("changes_kept", [3, 10_000])
@given(steps=st.lists(st.tuples(st.sampled_from(SELECTORS), st.integers(0, 11)), max_size=40))
def test_selected_guests__are_those_that_are_there(steps: list[tuple[Selector, int]], changes_kept: int) -> None:
    there: dict[int, Guest] = {}
    index = GuestIndex(there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guest_index, "CHANGES_KEPT", changes_kept)
        patch.setattr(guest_index, "SELECTORS_KEPT", 5)
        for selector, number in steps:
            changed = GUESTS[number]
            sign = -1 if changed.vmid in there else 1
            if sign > 0:
                there[changed.vmid] = changed
            else:
                del there[changed.vmid]
            index.count(changed, sign)
            found = {name: [*of] for name, of in index.select(selector).items() if of}
            expected: dict[str, list[int]] = {}
            for each in there.values():
                if selects(selector, each):
                    expected.setdefault(each.node, []).append(each.vmid)
            assert found == expected


def test_many_patterns_in_turn__are_not_compared_with_all_guests_again() -> None:
    state = cluster([node("n0")], [guest(100 + at, "n0", name=f"app{at % 40}-{at}") for at in range(2_000)])
    patterns = [Selector(name=f"app{at}-.*") for at in range(40)]
    for pattern in patterns:
        assert len(state.select(pattern)["n0"]) == 50

    def turn() -> None:
        for at, pattern in enumerate(patterns):
            state.assume(guest(5_000 + at, "n0", name=f"app{at}-new"))
            assert len(state.select(pattern)["n0"]) == 51

    # 22,000; with every guest compared with most of the patterns again, it takes 265,000.
    lines_run(turn, at_most=50_000)
