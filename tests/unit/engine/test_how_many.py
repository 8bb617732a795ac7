# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many more VMs fit, and what ends it."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import lines_run
from support.small_cluster import cluster, guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.how_many import (
    CapacityReport,
    More,
    NodeCapacity,
    how_many,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile, build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Disk,
    GangRef,
    HARule,
    Request,
    Selector,
    Storage,
)

PROFILES = {"balanced": profile()}


def count(state: ClusterState, *shapes: Request) -> CapacityReport:
    return how_many(state, PROFILES, shapes)


def test_memory__ends_it_where_memory_is_short() -> None:
    report = count(cluster([node("pve1"), node("pve2", gib=16)], [guest(100, "pve1", gib=9)]), vm(gib=5))
    assert (report.total, report.limited_by) == (7, "memory")
    assert [(n.node, n.fit, n.limited_by) for n in report.nodes] == [("pve1", 4, "memory"), ("pve2", 3, "memory")]
    assert report.nodes[0].reason == (
        "would exceed the memory overcommit ratio 1.0 (34.0 GiB against a limit of 32.0 GiB)"
    )
    assert report.reason is not None
    assert report.reason.startswith("0/2 nodes are available")


def test_each_node__has_its_own_limit_and_the_most_common_one_is_told() -> None:
    state = cluster([node("a", cores=1), node("b", cores=1), node("c", gib=2), node("d", online=False)])
    report = count(state, vm(gib=1))
    assert [(n.fit, n.limited_by) for n in report.nodes] == [(4, "cpu"), (4, "cpu"), (2, "memory"), (0, "NodeReady")]
    assert (report.total, report.limited_by) == (10, "cpu")


def test_nodes_that_were_never_meant__do_not_vote() -> None:
    report = count(cluster([node("a"), node("b"), node("c")]), vm(gib=16, node="b"))
    assert (report.total, report.limited_by) == (2, "memory")


def test_storage__runs_out_too() -> None:
    storages = (Storage("local", "pve1", total=100 * GIB, used=10 * GIB),)
    report = count(cluster([node("pve1")], storages=storages), vm(disks=(Disk("scsi0", size=40 * GIB),)))
    assert (report.total, report.limited_by) == (2, "storage")


def test_vmids__run_out_too_and_that_is_no_nodes_fault() -> None:
    report = count(cluster([node("pve1")], [guest(101, "pve1")]), vm(vmid_range="100-103"))
    assert (report.total, report.limited_by) == (3, "NoVMIDAvailable")
    assert report.nodes == (NodeCapacity("pve1", 3),)


def test_several_shapes__take_turns_until_one_finds_no_place() -> None:
    report = count(cluster([node("pve1")]), vm("small", gib=1), vm("large", gib=10))
    assert (report.total, report.shapes) == (5, (3, 2))


def test_shapes_that_still_fit__are_counted_alone_after_the_others() -> None:
    """Three VMs that keep apart fill three nodes at once, and many others still fit."""
    state = cluster([node("pve1"), node("pve2", gib=16), node("pve3")])
    apart = vm("web", gib=1, affinity=(AffinityTerm(False, Selector(name="web")),))
    free = [info.memory for info in state.nodes]
    report = how_many(state, PROFILES, [apart, vm("db", gib=4), apart], alone=[0, 1])
    assert (report.total, report.shapes, report.limited_by) == (5, (2, 2, 1), "VMAffinity")
    assert (report.more[0].fit, report.more[0].limited_by) == (0, "VMAffinity")
    assert (report.more[1].fit, report.more[1].limited_by) == (7 + 3 + 7 - 2, "memory")
    assert report.more[1].reason is not None
    assert report.more[1].reason.startswith("0/3 nodes are available")
    assert [info.memory for info in state.nodes] == free
    bounded = how_many(state, PROFILES, [apart, vm("db", gib=0, cores=0)], most=10, alone=[1])
    assert (bounded.total, bounded.more[1]) == (6, More(4)), "counting stops at its bound"


def test_fixed_vmid_a_group_and_a_delay__do_not_stand_in_the_way() -> None:
    shape = vm(gib=16, vmid=100, gang=GangRef("g", 9), context={"delay": "60"}, scheduling_gates=("x",))
    assert count(cluster([node("pve1")], [guest(100, "pve1", gib=0)]), shape).total == 2


N_PLUS_ONE = {"filters": {"FailoverHeadroom": {"enable": True}}}


def with_headroom(config: t.Any = None) -> dict[str, Profile]:
    return build_profiles(builtin_registry(), config, N_PLUS_ONE)


def test_headroom__keeps_a_nodes_worth_free() -> None:
    state = cluster([node("pve1"), node("pve2"), node("pve3")])
    assert count(state, vm(gib=8)).total == 12
    report = how_many(state, with_headroom(), [vm(gib=8)])
    assert (report.total, report.limited_by) == (8, "FailoverHeadroom")


def test_headroom__keeps_to_the_limits_that_the_profile_has() -> None:
    state = cluster([node("pve1"), node("pve2"), node("pve3")])
    generous = with_headroom({"filters": {"MemoryOvercommit": {"config": {"ratio": 2}}}})
    assert how_many(state, generous, [vm(gib=8)]).total == 16
    unlimited = with_headroom({"filters": {"MemoryOvercommit": {"enable": False}}})
    assert how_many(state, unlimited, [vm(gib=8)]).total == 64
    reserved = with_headroom({"filters": {"MemoryOvercommit": {"config": {"reserved": 8192}}}})
    assert how_many(state, reserved, [vm(gib=8)]).total == 6


def test_headroom__has_limits_of_its_own_where_they_are_given() -> None:
    config = {"filters": {"FailoverHeadroom": {"config": {"memory_reserved": 16384}}}}
    state = cluster([node("pve1"), node("pve2"), node("pve3")])
    assert how_many(state, with_headroom(config), [vm(gib=8)]).total == 4


SIZES = st.integers(1, 12)
HOSTS = st.tuples(st.sampled_from([2, 8, 16]), st.sampled_from([16, 24, 48]), st.sampled_from([True] * 9 + [False]))
GUESTS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), SIZES), max_size=14)
SHAPES = st.builds(
    Request,
    name=st.just("web"),
    cores=st.integers(1, 4),
    memory=SIZES.map(lambda gib: gib * GIB),
    disks=st.sampled_from([(), (Disk("scsi0", 8 * GIB),)]),
    # Scores that are normalized.
    affinity=st.sampled_from([()] * 3 + [(AffinityTerm(False, Selector(name="web"), required=False),)]),
)


@settings(max_examples=150)
@given(
    hosts=st.lists(HOSTS, min_size=2, max_size=6),
    used=GUESTS,
    shapes=st.lists(SHAPES, min_size=1, max_size=2),
    bound=st.booleans(),
    default=st.sampled_from(["balanced", "balanced", "pack", "spread"]),
)
def test_headroom__is_asked_less_often_and_changes_the_same(
    hosts: list[tuple[int, int, bool]],
    used: list[tuple[int, int, int]],
    shapes: list[Request],
    bound: bool,
    default: str,
) -> None:
    nodes = [node(f"n{at}", cores=cores, gib=gib, online=online) for at, (cores, gib, online) in enumerate(hosts)]
    there = [guest(100 + n, f"n{at % len(hosts)}", cores, gib) for n, (at, cores, gib) in enumerate(used)]
    rules = (HARule("two", "node-affinity", frozenset({100, 103}), {"n0": 1, "n1": 1}, strict=True),) if bound else ()
    disks = tuple(Storage("local", each.name, total=200 * GIB) for each in nodes)
    state = cluster(nodes, there, storages=disks, ha_rules=rules)
    report = how_many(state, with_headroom(), shapes, default_profile=default)

    engine = Scheduler(state, with_headroom(), default)
    placed: list[str] = []
    while (outcome := engine.schedule(shapes[len(placed) % len(shapes)])).decision is not None:
        placed.append(outcome.decision.node)
    assert outcome.looked is not None
    reasons = [None if status is None else status.text for status in outcome.looked.rejections()]
    expected = [(info.name, placed.count(info.name), reason) for info, reason in zip(state.nodes, reasons, strict=True)]
    assert [(each.node, each.fit, each.reason) for each in report.nodes] == expected
    assert report.reason == outcome.message


def test_headroom_of_like_nodes__costs_little_more_than_the_count() -> None:
    state = cluster([node(f"n{at:02}", cores=64, gib=128) for at in range(12)])
    # 540,000 without it; asked about every node for every VM, it takes 2,600,000.
    lines_run(lambda: how_many(state, with_headroom(), [vm(gib=4)]), at_most=1_000_000)


def test_headroom_for_guests_of_many_shapes__costs_little_more_than_the_count() -> None:
    """Short of vCPUs, of which no node alone has enough for all guests of another one."""
    hosts = [node(f"n{at:02}", cores=16, gib=256) for at in range(12)]
    there = [guest(100 + at, f"n{at % 12:02}", 1 + at % 3, 1 + at / 100) for at in range(240)]
    state = cluster(hosts, there)
    # 600,000; with plans made anew from their start, it takes 2,300,000.
    lines_run(lambda: how_many(state, with_headroom(), [vm(gib=4)]), at_most=1_000_000)


def test_shape_that_takes_nothing__ends_at_the_limit() -> None:
    report = how_many(cluster([node("pve1")]), PROFILES, [vm(cores=0, gib=0)], most=50)
    assert report == CapacityReport(50, (NodeCapacity("pve1", 50),), (50,))


def test_shape_that_makes_no_sense__is_an_error_and_leaves_nothing_behind() -> None:
    state = cluster([node("pve1")])
    with pytest.raises(InvalidRequest):
        count(state, vm(), vm(node_regex="("))
    assert not state.guests


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    used=st.lists(st.integers(0, 3), max_size=6),
    gib=st.integers(1, 6),
)
def test_count__is_what_fits_and_the_cluster_is_left_as_it_was(sizes: list[int], used: list[int], gib: int) -> None:
    nodes = [node(f"n{index}", cores=64, gib=size) for index, size in enumerate(sizes)]
    state = cluster(nodes, [guest(100 + n, f"n{n % len(sizes)}", 1, amount) for n, amount in enumerate(used)])
    before = [(info.memory, info.cores, sorted(info.by_vmid)) for info in state.nodes]
    report = count(state, vm(gib=gib))
    assert [(info.memory, info.cores, sorted(info.by_vmid)) for info in state.nodes] == before
    free = [max(info.node.memory - info.memory, 0) for info in state.nodes]
    assert [n.fit for n in report.nodes] == [room // (gib * GIB) for room in free]
    assert report.total == sum(n.fit for n in report.nodes) == sum(report.shapes)
