# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ProxmoxStatic ranks as Proxmox's own static scheduler does: the sequences are those of its published tests."""

from __future__ import annotations

import math

import pytest
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.proxmox_scores import (
    static_scores,
    topsis,
)

GB = 10**9
ONLY_STATIC = {"scores": {"ProxmoxStatic": {"enable": True}, "LeastAllocated": {"enable": False}}}

Load = tuple[str, float, float]


def ranking(
    nodes: dict[str, tuple[float, float]], loads: list[Load], service: tuple[float, float], times: int
) -> list[str]:
    """Start the service so many times, each on the best node; return the nodes' order before each start."""
    cpu = {name: [0.0, cores] for name, (cores, _memory) in nodes.items()}
    memory = {name: [0.0, size] for name, (_cores, size) in nodes.items()}
    orders = []
    for step in range(times + len(loads)):
        if step < len(loads):
            chosen, cores, size = loads[step]
        else:
            cores, size = service
            found = static_scores(
                [(used, total) for used, total in cpu.values()],
                [(used, total) for used, total in memory.values()],
                cores,
                size,
            )
            order = sorted(zip(nodes, found, strict=True), key=lambda pair: (-pair[1], pair[0]))
            orders.append("".join(name for name, _score in order))
            chosen = order[0][0]
        cpu[chosen][0] += cores
        memory[chosen][0] += size
    return orders


def test_node_of_twice_the_size__gets_twice_the_services() -> None:
    nodes = {"A": (10.0, 100.0 * GB), "B": (20.0, 200.0 * GB)}
    assert ranking(nodes, [], (4, 20 * GB), 15) == ["BA", "BA", "AB"] * 5


@pytest.mark.parametrize("loads", [[], [("A", 4, GB), ("B", 2, GB), ("C", 2, GB)]])
def test_cpu__decides_where_memory_hardly_differs(loads: list[Load]) -> None:
    nodes = {"A": (8.0, 10.0 * GB), "B": (4.0, 9.0 * GB), "C": (4.0, 8.0 * GB)}
    assert ranking(nodes, loads, (3, 16 * 10**6), 20) == ["ABC", "ABC", "BCA", "CAB"] * 5


def test_overcommitted_node__comes_last() -> None:
    nodes = {
        "A": (4.0, 4_102_062_080.0),
        "B": (4.0, 4_102_062_080.0),
        "C": (4.0, 4_102_053_888.0),
        "D": (4.0, 4_102_053_888.0),
    }
    service = (1.0, 536_870_912.0)
    assert ranking(nodes, [("A", *service)] * 4 + [("B", *service)], service, 1) == ["CDBA"]


def test_sizes_of_nodes__are_three() -> None:
    nodes = {"A": (10.0, 100.0 * GB), "B": (20.0, 200.0 * GB), "C": (30.0, 300.0 * GB)}
    service = (4.0, 20.0 * GB)
    loads = [(name, *service) for name in "AABBC"]
    assert ranking(nodes, loads, service, 1) == ["CBA"]
    assert ranking(nodes, [(name, *service) for name in "AAC"], service, 1) == ["BCA"]


def test_score__is_the_one_worked_out_by_hand() -> None:
    # The columns' norms are 5 and 3, the weights 1/4 and 3/4.
    # Weighted: (0.15, 0.25), (0.20, 0.50), (0.00, 0.50); best (0.00, 0.25), worst (0.20, 0.50)
    found = topsis([(3, 1), (4, 2), (0, 2)], (1, 3))
    to_worst = math.hypot(0.05, 0.25)
    assert found == pytest.approx([to_worst / (to_worst + 0.15), 0.0, 0.20 / (0.20 + 0.25)])


def test_nothing_to_tell__apart_scores_nothing() -> None:
    assert topsis([(1, 2), (1, 2)], (1, 1)) == [0.0, 0.0]
    assert topsis([(0, 0)], (1, 1)) == [0.0]


def test_memory__weighs_five_times_as_much_as_cpu() -> None:
    # As much CPU is free on the one as memory on the other: the distances are as the weights, 1 and 2 to 5 and 10.
    found = static_scores(cpu=[(0, 8), (4, 8)], memory=[(4, 8), (0, 8)], added_cpu=1, added_memory=1)
    assert found == pytest.approx([1 / 6, 5 / 6])


def test_service_without_cpu__limit_counts_as_all_cpus_of_the_node() -> None:
    memory = [(0.0, 1.0 * GB), (0.0, 1.0 * GB)]
    assert static_scores([(0.0, 4.0), (4.0, 8.0)], memory, 0, 0) == [1.0, 0.0]


@pytest.mark.parametrize(("added", "cpu"), [(2, [(2, 24), (11, 48), (38, 8)]), (1, [(3, 20), (13.5, 40), (29, 8)])])
def test_rounding__does_not_break_ties(added: float, cpu: list[tuple[float, float]]) -> None:
    # The new VM adds the same to the average on the first two: (2 x used + added) / capacity^2 is equal.
    assert static_scores(cpu, [(0, 1)] * 3, added, 0) == [1.0, 1.0, 0.0]


def test_vm__goes_where_the_ha_manager_would_have_put_it() -> None:
    state = cluster(
        [node("pve1", 10, 100), node("pve2", 20, 200)],
        [guest(100, "pve2", 4, 20), guest(101, "pve2", 4, 20)],
    )
    assert scheduler(state, ONLY_STATIC).schedule(vm(cores=4, gib=20)).decision.node == "pve1"


def test_ties__go_to_the_name_that_sorts_first() -> None:
    state = cluster([node("pve3"), node("pve2"), node("pve1")])
    assert scheduler(state, ONLY_STATIC).schedule(vm()).decision.node == "pve1"


def test_ha_only__leaves_other_guests_out() -> None:
    state = cluster(
        [node("pve1"), node("pve2")],
        [guest(100, "pve1", 4, 16), guest(101, "pve2", 1, 1, ha_managed=True)],
    )
    ha_only = {"scores": {**ONLY_STATIC["scores"], "ProxmoxStatic": {"config": {"ha_only": True}}}}
    assert scheduler(state, ONLY_STATIC).schedule(vm("a")).decision.node == "pve2"
    state.forget(102)
    assert scheduler(state, ha_only).schedule(vm("b")).decision.node == "pve1"
