# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the allocation scores give, by kube-scheduler's formulas."""

from __future__ import annotations

import typing as t
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.looking import went_to
from support.small_cluster import cluster, guest, made, node, scheduler, score, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.allocation import (
    BalancedAllocation,
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Disk, Guest, Request, Storage

ALLOCATION_SCORES = [LeastAllocated, MostAllocated, BalancedAllocation, RequestedToCapacityRatio]

# 8 CPUs may give out 32 vCPUs, of 32 GiB all: with the VM 8 of 32 vCPUs (25 %) and 24 of 32 GiB (75 %) are given out.
STATE = cluster([node("pve1")], [guest(100, "pve1", cores=4, gib=20)])
VM = vm(cores=4, gib=4)


def on(plugin: t.Any, request: Request = VM) -> float:
    return score(plugin, request, STATE.nodes[0])


def test_least_allocated__is_the_mean_of_what_is_left() -> None:
    assert on(made(LeastAllocated)) == pytest.approx((75 + 25) / 2)


def test_most_allocated__is_the_mean_of_what_is_given_out() -> None:
    assert on(made(MostAllocated)) == pytest.approx((25 + 75) / 2)


def test_weights_shift_the__mean() -> None:
    assert on(made(LeastAllocated, cpu_weight=3.0)) == pytest.approx((3 * 75 + 25) / 4)
    assert on(made(MostAllocated, memory_weight=3.0)) == pytest.approx((25 + 3 * 75) / 4)


def test_resource_that_would_be_exceeded__counts_zero_in_both() -> None:
    wide = vm(cores=4, gib=40)
    assert on(made(LeastAllocated), wide) == pytest.approx(75 / 2)
    assert on(made(MostAllocated), wide) == pytest.approx(25 / 2)


def test_nodes_own_ratio__is_its_capacity() -> None:
    state = cluster([node("pve1", cpu_ratio=1.0, memory_ratio=2.0)])
    assert score(made(MostAllocated), vm(cores=4, gib=16), state.nodes[0]) == pytest.approx((50 + 25) / 2)


def test_allocatable__is_what_is_left_after_the_reserve_for_the_host() -> None:
    state = cluster([node("pve1", reserved_cores=4, reserved_memory=16 * GIB)])
    assert score(made(MostAllocated), vm(cores=4, gib=4), state.nodes[0]) == pytest.approx((25 + 25) / 2)


@pytest.mark.parametrize("config", [{}, {"filters": {"MemoryOvercommit": {"config": {"reserved": 1024}}}}])
def test_scores__prefer_the_node_with_room_to_one_that_is_reserved_for_its_host(config: dict[str, t.Any]) -> None:
    state = cluster([node("a", reserved_memory=31 * GIB), node("b")], [guest(100, "b", gib=2)])
    assert went_to(scheduler(state, config), vm(gib=1)) == ["b"]


def test_scores__measure_by_the_ratio_of_the_vms_pool() -> None:
    state = cluster([node("a"), node("b")], [guest(100, "a", gib=61), guest(101, "b", gib=33)])
    config = {"filters": {"MemoryOvercommit": {"config": {"pools": {"lab": 2.0}}}}}
    assert went_to(scheduler(state, config), vm(gib=1, pool="lab")) == ["b"]


def test_scores__count_guests_that_are_stopped_and_leave_templates_out() -> None:
    stopped = guest(100, "pve1", cores=4, gib=20, status="stopped")
    template = guest(101, "pve1", cores=9, gib=9, status="stopped", template=True)
    info = cluster([node("pve1")], [stopped, template]).nodes[0]
    assert score(made(MostAllocated), VM, info) == on(made(MostAllocated))


@pytest.mark.parametrize("by", ["balanced", "spread"])
def test_creations__of_many_runs_spread_though_nothing_is_started(by: str) -> None:
    guests: list[Guest] = []
    for number in range(9):
        state = cluster([node("a"), node("b"), node("c")], guests)
        outcome = Scheduler(state, build_profiles(builtin_registry())).schedule(vm(f"vm-{number}", profile=by))
        assert outcome.decision is not None
        guests.append(guest(outcome.decision.vmid, outcome.decision.node, status="stopped"))
    assert Counter(each.node for each in guests) == {"a": 3, "b": 3, "c": 3}


def test_balanced_allocation__is_full_marks_less_half_the_distance() -> None:
    assert on(made(BalancedAllocation)) == pytest.approx(100 - (75 - 25) / 2)


def test_balanced_allocation__does_not_care_how_full_a_node_is() -> None:
    empty, full = cluster([node("pve1")]), cluster([node("pve1")], [guest(100, "pve1", cores=24, gib=24)])
    plugin = made(BalancedAllocation)
    assert score(plugin, vm(cores=4, gib=4), empty.nodes[0]) == 100
    assert score(plugin, vm(cores=4, gib=4), full.nodes[0]) == 100


def test_balanced_allocation__caps_what_is_exceeded_at_full() -> None:
    assert on(made(BalancedAllocation), vm(cores=28, gib=100)) == 100


def test_shape__is_read_off_its_broken_line() -> None:
    shape = [{"utilization": 20, "score": 0}, {"utilization": 50, "score": 10}, {"utilization": 100, "score": 2}]
    plugin = made(RequestedToCapacityRatio, shape=shape)
    # CPU at 25 % lies a sixth up the first slope, memory at 75 % half down the second.
    assert on(plugin) == pytest.approx((100 / 6 + 60) / 2)


def test_shape__is_level_beyond_its_ends() -> None:
    shape = [{"utilization": 30, "score": 4}, {"utilization": 60, "score": 8}]
    assert on(made(RequestedToCapacityRatio, shape=shape)) == pytest.approx((40 + 80) / 2)


def test_what_is_exceeded__counts_as_full_in_a_shape() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    assert on(made(RequestedToCapacityRatio, shape=shape), vm(cores=4, gib=100)) == pytest.approx((25 + 100) / 2)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ([], "at least one point"),
        ([{"utilization": 110, "score": 1}], r"\[0\].utilization: expected 0..100"),
        ([{"utilization": 10, "score": 11}], r"\[0\].score: expected 0..10"),
        ([{"utilization": 10}], r"\[0\].score: expected 0..10, got None"),
        (
            [{"utilization": 10, "score": 1}, {"utilization": 10, "score": 2}],
            r"\[1\].utilization: expected more than 10",
        ),
        ([{"use": 10}], "unknown key 'use'"),
        (["steep"], "expected a mapping"),
    ],
)
def test_shape_that_is_none__is_refused_by_name(shape: list[t.Any], told: str) -> None:
    with pytest.raises(InvalidPluginConfig, match=told):
        made(RequestedToCapacityRatio, shape=shape)


def with_storage(used: int) -> t.Any:
    storage = Storage("local", "pve1", total=100 * GIB, used=used * GIB)
    return cluster([node("pve1")], storages=(storage,)).nodes[0]


DISK_VM = vm(cores=8, gib=8, disks=(Disk("scsi0", size=10 * GIB),))


def test_storage__counts_only_where_it_has_a_weight() -> None:
    # CPU and memory at 25 %, storage at 50 % with the new disk.
    assert score(made(MostAllocated), DISK_VM, with_storage(40)) == pytest.approx(25)
    assert score(made(MostAllocated, storage_weight=2.0), DISK_VM, with_storage(40)) == pytest.approx(
        (25 + 25 + 100) / 4
    )
    assert score(made(LeastAllocated, storage_weight=2.0), DISK_VM, with_storage(40)) == pytest.approx(250 / 4)


def test_storage_share__counts_what_decided_vms_will_take() -> None:
    """Proxmox does not show it as used yet."""
    storage = Storage("local", "pve1", total=100 * GIB, used=30 * GIB)
    deciding = guest(100, "pve1", cores=0, gib=0, storage_pending={("local", "pve1"): 10 * GIB})
    info = cluster([node("pve1")], [deciding], storages=(storage,)).nodes[0]
    plugin = made(MostAllocated, storage_weight=2.0)
    assert score(plugin, DISK_VM, info) == pytest.approx(score(plugin, DISK_VM, with_storage(40)))
    assert score(plugin, DISK_VM, info) > score(plugin, DISK_VM, with_storage(30))


def test_storage__does_not_count_for_a_vm_that_takes_none() -> None:
    assert score(made(MostAllocated, storage_weight=9.0), vm(cores=8, gib=8), with_storage(40)) == pytest.approx(25)


def test_balance_over_three_resources__is_the_standard_deviation() -> None:
    # 25, 25 and 85 %: mean 45, variance (400 + 400 + 1600) / 3 = 800.
    plugin = made(BalancedAllocation, storage_weight=1.0)
    assert score(plugin, DISK_VM, with_storage(75)) == pytest.approx(100 - 800**0.5)


@given(
    cores=st.integers(0, 16),
    gib=st.integers(0, 64),
    used_cores=st.integers(0, 100),
    used_gib=st.integers(0, 64),
    wanted_cores=st.integers(1, 64),
    wanted_gib=st.integers(1, 64),
)
def test_allocation_scores__promise_0_to_100_on_every_node(
    cores: int, gib: int, used_cores: int, used_gib: int, wanted_cores: int, wanted_gib: int
) -> None:
    info = cluster([node("a", cores, gib)], [guest(100, "a", used_cores, used_gib)]).nodes[0]
    for kind in ALLOCATION_SCORES:
        plugin = made(kind)
        assert plugin.bounded
        assert 0 <= score(plugin, vm(cores=wanted_cores, gib=wanted_gib), info) <= 100 + 1e-9


@given(cores=st.integers(1, 30), gib=st.integers(1, 30))
def test_least_and_most_allocated__are_each_others_mirror_while_nothing_is_exceeded(cores: int, gib: int) -> None:
    info = cluster([node("a")]).nodes[0]
    request = vm(cores=cores, gib=gib)
    assert score(made(LeastAllocated), request, info) + score(made(MostAllocated), request, info) == pytest.approx(100)
