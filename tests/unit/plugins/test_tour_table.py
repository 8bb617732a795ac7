# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of a tour."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.tours import tour_table

GIB = 1024**3


def step(node: str, **more: t.Any) -> dict[str, t.Any]:
    return {
        "node": node, "needs": [], "moves": [], "back": [], "shut_down": [], "stay": [], "votes": 2, "votes_needed": 2,
        "stranded": "", **more,
    }  # fmt: skip


def test_table__has_a_row_per_node_and_what_is_not_moved() -> None:
    move = {"vmid": 100, "together": [101], "memory": 2 * GIB, "copied": 0}
    steps = [step("pve1", moves=[move], shut_down=[104], needs=["3 package(s) have updates"]), step("pve2")]
    result = {
        "tour": {"goal": "maintain pve1 and pve2", "steps": steps, "skipped": {"pve3": "it needs no maintenance"},
                 "unfinished": ["pve4"]},
        "refused": [], "names": {"104": "gpu\x1b[31m"},
    }  # fmt: skip

    assert tour_table(result, 200) == [
        "maintain pve1 and pve2: 2 move(s)",
        "ID  NODE  MOVES  GIB  VOTES        NOT MOVED                       NOTES",
        " 1  pve1  2      2.0  2 (needs 2)  gpu\\x1b[31m (104) is shut down  3 package(s) have updates",
        " 2  pve2  0      0.0  2 (needs 2)  -                               -",
        "pve3 is not maintained: it needs no maintenance",
        "pve4 only becomes active again: an earlier run has begun its maintenance",
    ]


def test_table__has_the_nodes_that_share_a_turn_in_one_row() -> None:
    tour = {"goal": "maintain pve1 and pve2", "steps": [step("pve1", beside=["pve2"])], "skipped": {}, "unfinished": []}

    assert tour_table(tour, 200)[2] == " 1  pve1 and pve2  0      0.0  2 (needs 2)"


def test_table__has_the_reasons_of_a_refusal() -> None:
    refused = [{"node": "pve1", "name": "offline", "why": "it is offline", "cure": "correct that"}]
    tour = {"goal": "maintain pve1", "steps": [], "skipped": {}, "unfinished": []}

    assert tour_table({"tour": tour, "refused": refused}, 120) == [
        "maintain pve1: refused, for 1 reason(s)", "pve1: it is offline; correct that",
    ]  # fmt: skip
    assert tour_table({"tour": tour, "refused": refused}, 120, "tour_options")[-1] == (
        "Options that these lines name belong in tour_options, also with -e."
    )
    with pytest.raises(AnsibleFilterError, match="expected a tour"):
        tour_table({"msg": "x"})
