# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""LeastAllocated, NodeResource and Random, as the scheduler sees them."""

from __future__ import annotations

import pytest
from support.looking import normalized, went_to
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB


def test_node_with_the_most_left__wins() -> None:
    state = cluster([node("pve1"), node("pve2", cores=16, gib=64), node("pve3", cores=16, gib=32)])
    assert went_to(scheduler(state), vm()) == ["pve2"]


def test_what_is_left__is_judged_after_the_request() -> None:
    """8 cores x 4 give 32 vCPUs: 8 of them and 8 of 32 GiB leave three quarters."""
    outcome = scheduler(cluster([node("pve1")])).schedule(vm(cores=8, gib=8))
    assert normalized(outcome, "LeastAllocated") == {"pve1": 75.0}


def test_placing_a_vm__makes_its_node_less_attractive_for_the_next() -> None:
    where = scheduler(cluster([node("pve1"), node("pve2")]))
    assert went_to(where, vm("a"), vm("b"), vm("c"), vm("d")) == ["pve1", "pve2", "pve1", "pve2"]


def test_live__use_is_off_until_it_is_asked_for() -> None:
    state = cluster([node("pve1", cpu_used=0.9, memory_used=30 * GIB), node("pve2", cpu_used=0.1, memory_used=GIB)])
    assert normalized(scheduler(state).schedule(vm()), "NodeResource") == {}


def test_live__use_scores_by_the_product_of_both() -> None:
    nodes = [
        node("pve1", cpu_used=0.5, memory_used=16 * GIB),
        node("pve2", cpu_used=0.25, memory_used=16 * GIB),
        node("pve3", cpu_used=0.5, memory_used=32 * GIB),
    ]
    outcome = scheduler(cluster(nodes), {"scores": {"NodeResource": {}}}).schedule(vm())
    assert normalized(outcome, "NodeResource") == {"pve1": 50.0, "pve2": 100.0, "pve3": 25.0}


def test_idle_node__does_not_score_infinity() -> None:
    nodes = [node("pve1", cpu_used=0.0, memory_used=0), node("pve2", cpu_used=0.01, memory_used=0)]
    outcome = scheduler(cluster(nodes), {"scores": {"NodeResource": {}}}).schedule(vm())
    assert normalized(outcome, "NodeResource") == {"pve1": 100.0, "pve2": 100.0}


def test_chance__is_off_until_it_is_asked_for() -> None:
    assert normalized(scheduler(cluster([node("pve1")])).schedule(vm()), "Random") == {}


def by_chance(seed: int) -> list[str | None]:
    only_random = {"scores": {"Random": {"config": {"seed": seed}}, "LeastAllocated": {"enable": False}}}
    state = cluster([node(f"pve{n}", cores=100, gib=100) for n in range(4)])
    return went_to(scheduler(state, only_random), *[vm(f"vm-{n}") for n in range(40)])


def test_chance__is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert by_chance(1) == by_chance(1)
    assert by_chance(1) != by_chance(2)


def test_chance__leaves_no_node_out() -> None:
    assert set(by_chance(1)) == {"pve0", "pve1", "pve2", "pve3"}


@pytest.mark.parametrize("plugin", ["LeastAllocated", "NodeResource", "Random"])
def test_weight_of_nought__leaves_a_score_out(plugin: str) -> None:
    state = cluster([node("pve1")], [guest(100, "pve1")])
    outcome = scheduler(state, {"scores": {plugin: {"weight": 0}}}).schedule(vm())
    assert normalized(outcome, plugin) == {}
