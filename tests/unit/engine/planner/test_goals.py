# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repair, balance, consolidate, undo and bounds, each on clusters small enough to see the only good answer."""

from __future__ import annotations

import random
import typing as t
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from law.in_force import rules_in_force
from support.plan_walk import walk
from support.small_cluster import guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import make_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    Constraints,
    Expression,
    Guest,
    HARule,
    Node,
    Selector,
    Snapshot,
    Taint,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import (
    Balance,
    Bounds,
    Goals,
    Mobility,
    Plan,
)

APART = Constraints((AffinityTerm(False, Selector(tags=frozenset({"db"}))),))
TOGETHER = Constraints((AffinityTerm(True, Selector(tags=frozenset({"app"}))),))


def nodes(*names: str, gib: float = 16) -> tuple[Node, ...]:
    return tuple(node(name, gib=gib) for name in names)


def planned(
    hosts: tuple[Node, ...], guests: list[Guest], goals: Goals, bounds: Bounds | None = None, **fields: t.Any
) -> Plan:
    """The plan for guests that can all be moved live; fields are those of the snapshot, and config of the profile."""
    profiles = {"balanced": profile(fields.pop("config", None))}
    mobility = fields.pop("mobility", {}) or {each.vmid: Mobility(cost=each.memory) for each in guests}
    snapshot = Snapshot(nodes=hosts, guests=tuple(guests), **fields)
    plan = make_plan(ClusterState(snapshot), profiles, goals, mobility, bounds or Bounds())
    for seed in range(3):
        assert walk(snapshot, plan, random.Random(seed), rules_in_force(profiles["balanced"])).broken == []
    return plan


def moves(plan: Plan) -> list[tuple[int, str, str]]:
    return [(move.vmid, move.source, move.target) for move in plan.moves]


# --- repair ---


def test_repair__leaves_a_legal_cluster_alone() -> None:
    guests = [guest(100, "a", gib=15), guest(101, "b", gib=1)]
    assert planned(nodes("a", "b"), guests, Goals(repair=True)).empty


def test_repair__moves_as_few_guests_as_cover_the_excess() -> None:
    guests = [guest(100, "a", gib=8), guest(101, "a", gib=6), guest(102, "a", gib=3)]
    plan = planned(nodes("a", "b"), guests, Goals(repair=True))
    assert moves(plan) == [(102, "a", "b")]
    assert plan.moves[0].why == "repairs: too much is allocated on a"


def test_repair__takes_guests_apart_and_moves_the_cheapest() -> None:
    guests = [guest(100 + n, "a", gib=3 - n, tags=frozenset({"db"}), constraints=APART) for n in range(3)]
    plan = planned(nodes("a", "b", "c"), guests, Goals(repair=True))
    assert sorted((vmid, source) for vmid, source, _target in moves(plan)) == [(101, "a"), (102, "a")]


def test_repair__moves_the_one_guest_that_all_others_must_be_apart_from() -> None:
    lone = guest(100, "a", gib=4, constraints=Constraints((AffinityTerm(False, Selector(tags=frozenset({"web"}))),)))
    web = [guest(101 + n, "a", tags=frozenset({"web"})) for n in range(3)]
    assert [move.vmid for move in planned(nodes("a", "b"), [lone, *web], Goals(repair=True)).moves] == [100]


def test_repair__follows_a_strict_ha_rule() -> None:
    rule = HARule("west", "node-affinity", frozenset({100}), nodes={"c": 1}, strict=True)
    guests = [guest(100, "a", ha_managed=True), guest(101, "a")]
    plan = planned(nodes("a", "b", "c"), guests, Goals(repair=True), ha_rules=(rule,))
    assert moves(plan) == [(100, "a", "c")]


def test_repair__brings_a_guest_to_the_nodes_that_it_must_be_on() -> None:
    pinned = Constraints(node_required=(Expression("node", "In", ("c",)),))
    guests = [guest(100, "a", constraints=pinned), guest(101, "a")]
    assert moves(planned(nodes("a", "b", "c"), guests, Goals(repair=True))) == [(100, "a", "c")]


@pytest.mark.parametrize("state", [{"drained": True}, {"maintenance": True}, {"taints": (Taint("gpu"),)}])
def test_repair__leaves_guests_on_a_node_that_takes_no_new_ones(state: dict[str, t.Any]) -> None:
    a, b = nodes("a", "b")
    assert planned((replace(a, **state), b), [guest(100, "a")], Goals(repair=True)).empty


def test_repair__keeps_the_limit_of_guests() -> None:
    guests = [guest(100 + n, "a") for n in range(4)]
    config = {"filters": {"GuestLimit": {"config": {"max_guests": 3}}}}
    assert len(planned(nodes("a", "b"), guests, Goals(repair=True), config=config).moves) == 1


def test_repair__names_what_cannot_be_mended() -> None:
    guests = [guest(100 + n, "a", tags=frozenset({"db"}), constraints=APART) for n in range(2)]
    plan = planned(nodes("a"), guests, Goals(repair=True))
    assert (plan.feasible, [each.vmid for each in plan.stuck]) == (False, [100, 101])


def test_repair__waits_for_the_place_that_another_guest_leaves() -> None:
    """Node b may hold two guests, has two, and takes one for each that leaves."""
    hosts = (node("a", gib=16), node("b", gib=16), node("c", gib=16))
    guests = [guest(100, "a", gib=1), guest(101, "b", gib=1), guest(102, "b", gib=1), guest(103, "c", gib=1)]
    config = {"filters": {"GuestLimit": {"config": {"max_guests": 2}}}}
    plan = planned(hosts, guests, Goals(undo={101: "c", 100: "b"}), config=config)
    assert moves(plan) == [(101, "b", "c"), (100, "a", "b")]
    assert plan.moves[1].after == (1,)


# --- bundles ---


def test_drain__moves_a_bundle_of_the_ha_manager_as_one() -> None:
    rule = HARule("pair", "resource-affinity", frozenset({100, 101}), positive=True)
    guests = [guest(100, "a", gib=5, ha_managed=True), guest(101, "a", gib=4, ha_managed=True), guest(102, "b", gib=8)]
    mobility = {
        100: Mobility(via="ha", together=frozenset({101})),
        101: Mobility(via="ha", together=frozenset({100})),
        102: Mobility(),
    }
    hosts = nodes("a", "b", "c")
    plan = planned(hosts, guests, Goals(drain=frozenset({"a"})), ha_rules=(rule,), mobility=mobility)
    assert [(m.vmid, m.together, m.target, m.memory, m.via) for m in plan.moves] == [(100, (101,), "c", 9 * GIB, "ha")]


def test_drain__keeps_guests_together_that_must_be() -> None:
    guests = [guest(100 + n, "a", gib=4, tags=frozenset({"app"}), constraints=TOGETHER) for n in range(2)]
    guests.append(guest(102, "b", gib=10))
    plan = planned(nodes("a", "b", "c"), guests, Goals(drain=frozenset({"a"})))
    assert {move.target for move in plan.moves} == {"c"}
    assert plan.moves[1].after == (1,)


# --- undo ---


def test_undo__breaks_a_cycle_by_a_parking_move() -> None:
    guests = [guest(100, "a", gib=10), guest(101, "b", gib=9)]
    plan = planned(nodes("a", "b", "c"), guests, Goals(undo={100: "b", 101: "a"}))
    assert moves(plan) == [(101, "b", "c"), (100, "a", "b"), (101, "c", "a")]
    assert [move.after for move in plan.moves] == [(), (1,), (2,)]


def test_undo__names_what_cannot_go_back() -> None:
    guests = [guest(100, "a", gib=10), guest(101, "b", gib=10)]
    plan = planned(nodes("a", "b"), guests, Goals(undo={100: "b"}))
    assert plan.empty
    assert "b would exceed the memory overcommit ratio" in plan.stuck[0].why


def test_undo__moves_no_guest_away_that_is_back() -> None:
    db = {"tags": frozenset({"db"}), "constraints": APART}
    guests = [guest(100, "b", **db), guest(101, "a", **db)]
    plan = planned(nodes("a", "b", "c"), guests, Goals(undo={100: "a", 101: "a"}))
    assert plan.empty
    assert [each.vmid for each in plan.stuck] == [100]
    assert plan.stuck[0].why == "a held VMs that the VM must be apart from (vm-101)"


def test_drain__of_the_only_node_does_not_ask_for_fewer() -> None:
    plan = planned(nodes("a"), [guest(100, "a")], Goals(drain=frozenset("a")))
    assert [(each.why, each.cure) for each in plan.stuck] == [("there is no other node", "stop it")]


@pytest.mark.parametrize(
    ("drained", "why", "cure"),
    [
        ("a", "no node takes it: 1 node(s) were offline", "bring the nodes back that are offline"),
        ("ab", "there is no other node", "drain fewer nodes at once"),
    ],
)
def test_drain__asks_for_nodes_where_none_is_open(drained: str, why: str, cure: str) -> None:
    state = tuple(replace(each, online=each.name == "a") for each in nodes("a", "b"))
    plan = planned(state, [guest(100, "a")], Goals(drain=frozenset(drained)))
    assert [(each.why, each.cure.startswith(cure)) for each in plan.stuck] == [(why, True)]


# --- balance ---


def test_balance__leaves_nodes_alone_that_are_even_enough() -> None:
    guests = [guest(100, "a", gib=4), guest(101, "b", gib=2)]
    assert planned(nodes("a", "b"), guests, Goals(balance=Balance(threshold=0.2))).empty


def test_balance__moves_what_gains_the_most_until_even_enough() -> None:
    guests = [guest(100 + n, "a", gib=4) for n in range(3)]
    plan = planned(nodes("a", "b"), guests, Goals(balance=Balance(threshold=0.3)))
    assert moves(plan) == [(100, "a", "b")]


def test_balance__makes_no_move_that_gains_too_little() -> None:
    guests = [guest(100, "a", gib=12), guest(101, "a", gib=0.5)]
    assert planned(nodes("a", "b"), guests, Goals(balance=Balance(threshold=0.1, margin=0.1))).empty


# --- consolidate ---


def test_consolidate__empties_the_nodes_with_the_least_to_move() -> None:
    guests = [guest(100, "a", gib=8), guest(101, "b", gib=2), guest(102, "c", gib=4)]
    plan = planned(nodes("a", "b", "c", "d"), guests, Goals(consolidate=True))
    assert sorted(moves(plan)) == [(101, "b", "a"), (102, "c", "a")]


def test_consolidate__keeps_nodes_with_guests_that_cannot_be_moved() -> None:
    guests = [guest(100, "a", gib=8), guest(101, "b", gib=2)]
    mobility = {100: Mobility(), 101: Mobility(stuck=("it has a passthrough device", "stop it"))}
    plan = planned(nodes("a", "b"), guests, Goals(consolidate=True), mobility=mobility)
    assert moves(plan) == [(100, "a", "b")]


def test_consolidate__places_new_vms_on_a_node_that_stays() -> None:
    guests = [guest(100, "a", 1, 12), guest(101, "b", 1, 2)]
    plan = planned(nodes("a", "b"), guests, Goals(place=(vm("new", gib=1),), consolidate=True))
    assert plan.feasible
    assert [(move.vmid, move.target) for move in plan.moves] == [(101, "a")]
    assert [creation.decision.node for creation in plan.creations] == ["a"]


def test_consolidate__moves_nothing_off_a_node_where_a_guest_has_to_stay() -> None:
    guests = [guest(100, "a"), guest(101, "a"), guest(102, "b", gib=12)]
    stuck = Mobility(stuck=("it has a passthrough device", "stop it"))
    mobility = {100: stuck, 101: Mobility(cost=1), 102: Mobility(cost=12)}
    plan = planned(nodes("a", "b"), guests, Goals(consolidate=True), mobility=mobility)
    assert moves(plan) == [(102, "b", "a")]


# --- bounds ---


def test_bounds__a_drain_moves_no_more_than_is_allowed() -> None:
    guests = [guest(100 + n, "a", gib=n + 1) for n in range(3)]
    plan = planned(nodes("a", "b"), guests, Goals(drain=frozenset({"a"})), Bounds(max_moves=2))
    assert (len(plan.moves), [each.why for each in plan.stuck]) == (2, ["the plan would exceed its bounds"])


def test_bounds__room_is_made_only_within_the_bytes() -> None:
    guests = [guest(100, "a", gib=8), guest(101, "b", gib=8), guest(102, "c", gib=4)]
    goals = Goals(place=(vm(gib=14),))
    assert planned(nodes("a", "b", "c"), guests, goals, Bounds(max_bytes=2 * GIB)).empty
    assert [m.vmid for m in planned(nodes("a", "b", "c"), guests, goals, Bounds(max_bytes=4 * GIB)).moves] == [102]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.booleans()), max_size=8),
    st.sampled_from([Goals(repair=True), Goals(consolidate=True), Goals(balance=Balance(0.1, 0.01))]),
)
@example(
    [("a", 3, False), ("a", 3, True), ("b", 1, True), ("c", 1, False), ("c", 1, True), ("c", 1, True), ("c", 4, True)],
    Goals(balance=Balance(0.1, 0.01)),
)  # the first move of a guest becomes worse than another one by a move of a larger guest
def test_goals__a_plan_that_was_carried_out_leaves_nothing_to_do(
    placed: list[tuple[str, int, bool]], goals: Goals
) -> None:
    guests = [
        guest(100 + number, name, gib=gib, tags=frozenset({"db"}) if apart else frozenset(),
              constraints=APART if apart else Constraints())
        for number, (name, gib, apart) in enumerate(placed)
    ]  # fmt: skip
    snapshot = Snapshot(nodes=nodes("a", "b", "c"), guests=tuple(guests))
    mobility = {each.vmid: Mobility(cost=each.memory) for each in guests}
    profiles = {"balanced": profile()}
    plan = make_plan(ClusterState(snapshot), profiles, goals, mobility)
    found = walk(snapshot, plan, random.Random(0))
    assert found.broken == []
    if plan.feasible:
        again = make_plan(ClusterState(found.snapshot), profiles, goals, mobility)
        assert again.empty
