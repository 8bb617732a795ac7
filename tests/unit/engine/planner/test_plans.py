# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans: every step is lawful in any order that a plan allows, and nothing moves without need."""

from __future__ import annotations

import random
import typing as t
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law.in_force import rules_in_force
from support.plan_walk import walk
from support.random_clusters import requests, snapshots
from support.small_cluster import cluster, guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import make_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Constraints,
    HARule,
    Request,
    Selector,
    Snapshot,
    SpreadConstraint,
    Storage,
    Taint,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Goals, LocalDisk, Mobility, Plan

PROFILES = {"balanced": profile()}
DRAIN_A = Goals(drain=frozenset({"a"}))
FEW_GUESTS = {"GuestLimit": {"config": {"max_guests": 3}}}
STOPPED_TOO = {name: {"config": {"include_stopped": True}} for name in ("CPUOvercommit", "MemoryOvercommit")}


def movable(snapshot: Snapshot) -> dict[int, Mobility]:
    return {each.vmid: Mobility(cost=each.memory * each.running) for each in snapshot.guests}


def planned(snapshot: Snapshot, goals: Goals) -> Plan:
    return make_plan(ClusterState(snapshot), PROFILES, goals, movable(snapshot))


def moves(plan: Plan) -> list[tuple[int, str, str]]:
    return [(move.vmid, move.source, move.target) for move in plan.moves]


# --- properties ---

APART = AffinityTerm(False, Selector(name="web-.*"))
CONSTRAINTS = st.sampled_from(
    [
        Constraints(),
        Constraints(),
        Constraints((APART,)),
        Constraints((AffinityTerm(False, Selector(tags=frozenset({"blue"})), topology_key="zone"),)),
        Constraints(topology_spread=(SpreadConstraint("node", Selector(name="web-.*"), max_skew=2),)),
    ]
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Random clusters with more guests, some of which have rules or are members of HA rules."""
    snapshot = draw(snapshots())
    names = [each.name for each in snapshot.nodes]
    guests = [replace(each, constraints=draw(CONSTRAINTS)) for each in snapshot.guests]
    for number in range(draw(st.integers(0, 6))):
        guests.append(
            guest(200 + number, draw(st.sampled_from(names)), draw(st.integers(1, 3)), draw(st.integers(1, 3)),
                  name=draw(st.sampled_from(["web-1", "db-1"])), constraints=draw(CONSTRAINTS),
                  status=draw(st.sampled_from(["running", "running", "stopped"])))
        )  # fmt: skip
    vmids = sorted(each.vmid for each in guests)
    members = st.frozensets(st.sampled_from(vmids), min_size=2, max_size=3) if len(vmids) > 1 else st.just(frozenset())
    rules = draw(
        st.sampled_from(
            [
                (),
                (HARule("apart", "resource-affinity", draw(members), positive=False),),
                (HARule("west", "node-affinity", draw(members), nodes={names[0]: 1}, strict=True),),
            ]
        )
    )
    return replace(snapshot, guests=tuple(guests), ha_rules=rules)


@settings(max_examples=150, deadline=None)
@given(
    clusters(),
    st.integers(0, 2),
    st.lists(requests(), max_size=3),
    st.sampled_from([{}, {}, FEW_GUESTS, STOPPED_TOO]),
    st.integers(0, 2**32),
)
def test_plan__every_step_is_lawful_in_any_order(
    snapshot: Snapshot, drained: int, new: list[Request], filters: dict[str, t.Any], seed: int
) -> None:
    names = sorted(each.name for each in snapshot.nodes)
    place = tuple(replace(each, name=f"new-{number}") for number, each in enumerate(new))
    profiles = {"balanced": profile({"filters": filters})}
    goals = Goals(place=place, drain=frozenset(names[:drained]))
    plan = make_plan(ClusterState(snapshot), profiles, goals, movable(snapshot))
    chance = random.Random(seed)
    for _order in range(3):
        found = walk(snapshot, plan, chance, rules_in_force(profiles["balanced"]))
        assert found.broken == []
        for name, course in plan.nodes.items():
            assert found.peak.get(name, 0) <= course.peak.memory
    left = {each.vmid for each in found.snapshot.guests if each.node in names[:drained]}
    assert left == {each.vmid for each in plan.stuck}
    assert {each.decision.request.name for each in plan.creations} | plan.unplaced.keys() == {r.name for r in place}


@settings(max_examples=40, deadline=None)
@given(clusters(), st.integers(1, 2), st.randoms(use_true_random=False))
def test_plan__does_not_depend_on_the_order_of_nodes_and_guests(
    snapshot: Snapshot, drained: int, chance: random.Random
) -> None:
    goals = Goals(drain=frozenset(sorted(each.name for each in snapshot.nodes)[:drained]))
    nodes, guests = list(snapshot.nodes), list(snapshot.guests)
    chance.shuffle(nodes)
    chance.shuffle(guests)
    assert planned(snapshot, goals) == planned(replace(snapshot, nodes=tuple(nodes), guests=tuple(guests)), goals)


# --- small cases ---


def test_drain__in_a_cluster_that_cannot_lose_a_node_names_the_filter_that_refuses() -> None:
    """All moves together would help, but none of them can be the first."""
    snapshot = Snapshot(
        nodes=(node("a", gib=16), node("b", gib=16), node("c", gib=16)),
        guests=(*(guest(vmid, "a", gib=3) for vmid in range(1, 5)), guest(201, "b", gib=10), guest(301, "c", gib=10)),
    )
    profiles = {"balanced": profile({"filters": {"FailoverHeadroom": {"enable": True}}})}
    plan = make_plan(ClusterState(snapshot), profiles, DRAIN_A, movable(snapshot))
    assert len(plan.stuck) == 4
    assert "no headroom in CPU and memory for the loss of a node" in plan.stuck[0].why
    assert plan.stuck[0].cure == "free room on the other nodes, or stop it"


def test_plan__without_goals_is_empty() -> None:
    state = cluster([node("a"), node("b")], [guest(100, "a")])
    assert make_plan(state, PROFILES, Goals(), {100: Mobility()}).empty


def test_drain__leaves_an_empty_node_alone() -> None:
    state = cluster([node("a"), node("b")], [guest(100, "a")])
    plan = make_plan(state, PROFILES, Goals(drain=frozenset({"b"})), {100: Mobility()})
    assert (plan.empty, plan.feasible) == (True, True)


def test_make_room__moves_the_fewest_guests() -> None:
    snapshot = Snapshot(
        nodes=(node("a", gib=10), node("b", gib=10), node("c", gib=10)),
        guests=(guest(100, "a", gib=4), guest(101, "a", gib=2), guest(102, "b", gib=3), guest(103, "b", gib=3),
                guest(104, "c", gib=7)),
    )  # fmt: skip
    plan = planned(snapshot, Goals(place=(vm("new", gib=6),)))
    assert moves(plan) == [(101, "a", "c")]
    assert plan.moves[0].why == "makes room on a for new"
    assert [(c.decision.node, c.after) for c in plan.creations] == [("a", (1,))]


def test_make_room__moves_guests_that_are_smaller_in_what_is_short() -> None:
    nodes = (node("a", gib=10), node("b", gib=10), node("far", gib=500, taints=(Taint("no", "", "NoSchedule"),)))
    guests = (guest(100, "a", gib=5), guest(101, "a", gib=3), guest(102, "b", gib=6))
    plan = planned(Snapshot(nodes, guests), Goals(place=(vm("new", gib=5),)))
    # Of a mean node, all take less memory than CPU, and all the same CPU.
    assert moves(plan) == [(101, "a", "b")]


def test_drain__waits_for_the_room_that_another_move_frees() -> None:
    snapshot = Snapshot(
        nodes=(node("a", gib=10), node("b", gib=10), node("c", gib=10)),
        guests=(guest(100, "a", gib=8), guest(101, "b", gib=4), guest(102, "c", gib=6)),
    )
    plan = planned(snapshot, Goals(drain=frozenset({"a"})))
    assert moves(plan) == [(101, "b", "c"), (100, "a", "b")]
    assert plan.moves[1].after == (1,)
    assert plan.nodes["b"].peak.memory == plan.nodes["b"].after.memory


def test_undo__no_two_steps_take_the_room_that_one_step_frees() -> None:
    snapshot = Snapshot(
        nodes=(node("a", gib=10), node("b", gib=8), node("c", gib=10)),
        guests=(guest(100, "a", gib=4), guest(101, "a", gib=4), guest(102, "b", gib=4), guest(103, "b", gib=4)),
    )
    plan = planned(snapshot, Goals(undo={100: "b", 101: "b", 102: "c", 103: "c"}))
    after = {move.vmid: move.after for move in plan.moves}
    assert after.keys() == {100, 101, 102, 103}
    assert {*after[100], *after[101]} == {move.id for move in plan.moves if move.source == "b"}


def test_undo__waits_until_the_guest_has_left_the_zone_that_another_must_be_apart_from() -> None:
    apart = AffinityTerm(False, Selector(name="web-.*"), topology_key="zone")
    zones = {"a": "x", "b": "y", "c": "y", "d": "z"}
    snapshot = Snapshot(
        nodes=tuple(node(name, labels={"zone": zone}) for name, zone in zones.items()),
        guests=(guest(100, "a", name="web-1", constraints=Constraints((apart,))), guest(101, "b", name="web-2")),
    )
    plan = planned(snapshot, Goals(undo={100: "c", 101: "d"}))
    assert [(move.vmid, move.after) for move in plan.moves] == [(101, ()), (100, (1,))]


def test_drain__a_template_keeps_apart_from_nobody_in_any_order() -> None:
    snapshot = Snapshot(
        nodes=(node("a"), node("b")),
        guests=(guest(100, "a", name="web-tpl", template=True), guest(101, "a", name="web-1", template=True),
                guest(200, "a", name="web-1", constraints=Constraints((APART,)))),
    )  # fmt: skip
    plan = planned(snapshot, Goals(drain=frozenset({"a"})))
    assert sorted(moves(plan)) == [(100, "a", "b"), (101, "a", "b"), (200, "a", "b")]
    assert [walk(snapshot, plan, random.Random(seed)).broken for seed in range(8)] == [[]] * 8


def test_place__the_higher_priority_gets_the_room() -> None:
    state = cluster([node("a", gib=10)], [guest(100, "a", gib=2)])
    plan = make_plan(state, PROFILES, Goals(place=(vm("large", gib=8), vm("small", gib=4, priority=1))), {})
    assert ([each.decision.request.name for each in plan.creations], [*plan.unplaced]) == (["small"], ["large"])


@pytest.mark.parametrize("known", [True, False])
def test_drain__names_what_stays_with_a_cure(known: bool) -> None:
    state = cluster([node("a"), node("b")], [guest(100, "a")])
    mobility = {100: Mobility(stuck=("it has a local CD-ROM image", "eject ide2"))} if known else {}
    plan = make_plan(state, PROFILES, Goals(drain=frozenset({"a"})), mobility)
    assert not plan.feasible
    assert plan.stuck[0].vmid == 100
    assert (plan.stuck[0].cure == "eject ide2") is known


def test_move__takes_the_disks_of_one_storage_to_one_storage() -> None:
    storages = (
        Storage("local", "a", total=99 * GIB),
        Storage("hdd1", "b", total=8 * GIB),
        Storage("hdd2", "b", total=8 * GIB),
    )
    disks = tuple(LocalDisk(slot, "local", 6 * GIB) for slot in ("scsi0", "scsi1"))
    there = {"guests": [guest(100, "a")], "storages": storages}
    split = make_plan(cluster([node("a"), node("b")], **there), PROFILES, DRAIN_A, {100: Mobility(disks=disks)})
    assert [(stuck.vmid, "storage" in stuck.cure) for stuck in split.stuck] == [(100, True)]

    there["storages"] = (*storages, Storage("big", "c", total=20 * GIB))
    whole = make_plan(cluster([node("a"), *map(node, "bc")], **there), PROFILES, DRAIN_A, {100: Mobility(disks=disks)})
    assert [(move.target, dict(move.storages)) for move in whole.moves] == [("c", {"scsi0": "big", "scsi1": "big"})]


# --- steps ---


def test_plan__takes_few_steps_to_see_that_a_batch_does_not_fit() -> None:
    # Each fits and all of them have the size of both nodes, but no node takes a half of one.
    state = cluster([node("a", gib=10), node("b", gib=10)])
    plan = make_plan(state, PROFILES, Goals(place=tuple(vm(f"new-{n}", gib=4) for n in range(5))), {})
    assert len(plan.unplaced) == 1
    assert plan.steps < 100


def test_plan__does_not_look_for_more_moves_where_fewer_have_shown_all_ways() -> None:
    full = [guest(101 + n, "bcd"[n // 3], gib=3) for n in range(9)]
    snapshot = cluster([node(name, gib=10) for name in "abcd"], [guest(100, "a", gib=6), *full]).snapshot
    plan = planned(snapshot, DRAIN_A)
    assert [each.vmid for each in plan.stuck] == [100]
    assert plan.steps < 100
