# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the solver says of plans. The tests need the Python package highspy."""

from __future__ import annotations

import pytest
from support.small_cluster import cluster, guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import make_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Goals, Mobility, Plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.proof import add_proof

pytest.importorskip("highspy")


def proof(state: ClusterState, goals: Goals) -> Plan:
    mobility = {each.vmid: Mobility(cost=each.memory) for each in state.guests.values()}
    profiles = {"balanced": profile()}
    return add_proof(make_plan(state, profiles, goals, mobility), state, profiles, goals, mobility)


def test_proof__tells_the_fewest_moves() -> None:
    guests = [guest(100, "a", gib=8), guest(101, "b", gib=4), guest(102, "c", gib=6)]
    plan = proof(cluster([node(name, gib=10) for name in "abc"], guests), Goals(drain=frozenset({"a"})))
    assert (plan.optimal, plan.moves_lower_bound, plan.impossible) == (True, 2, False)


def test_proof__tells_that_there_is_no_plan() -> None:
    guests = [guest(100 + number, name, gib=9) for number, name in enumerate("abcd")]
    plan = proof(cluster([node(name, gib=10) for name in "abcd"], guests), Goals(place=(vm(gib=2),)))
    assert (plan.feasible, plan.impossible) == (False, True)


def test_proof__of_an_empty_plan() -> None:
    plan = proof(cluster([node("a"), node("b")], [guest(100, "a")]), Goals(drain=frozenset({"b"})))
    assert (plan.empty, plan.optimal, plan.moves_lower_bound) == (True, True, 0)
