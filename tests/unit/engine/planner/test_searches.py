# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches that need many moves: a budget ends them, not the number of guests that have to leave a node."""

from __future__ import annotations

import random
import typing as t

import pytest
from law.in_force import rules_in_force
from support.plan_walk import walk
from support.small_cluster import guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import make_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, HARule, Node, Snapshot, Taint
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Balance, Bounds, Goals, Mobility, Plan

REPAIR = Goals(repair=True)
BALANCE = Goals(balance=Balance())


def planned(hosts: t.Iterable[Node], guests: t.Sequence[Guest], goals: Goals, **fields: t.Any) -> Plan:
    """Plan for guests that can all be moved live, but for those of which mobility says otherwise."""
    profiles = {"balanced": profile()}
    mobility = {each.vmid: Mobility(cost=each.memory) for each in guests} | fields.pop("mobility", {})
    snapshot = Snapshot(nodes=tuple(hosts), guests=tuple(guests), **fields)
    plan = make_plan(ClusterState(snapshot), profiles, goals, mobility, Bounds())
    assert walk(snapshot, plan, random.Random(1), rules_in_force(profiles["balanced"])).broken == []
    return plan


def moves(plan: Plan) -> list[tuple[int, str, str]]:
    return [(move.vmid, move.source, move.target) for move in plan.moves]


# --- repair ---


@pytest.mark.parametrize("over", [1, 4, 5, 8, 12])
def test_repair__moves_as_many_guests_as_the_node_has_too_many(over: int) -> None:
    guests = [guest(100 + n, "a", gib=1) for n in range(32 + over)]
    plan = planned([node("a", gib=32, cores=64), node("b", gib=64, cores=64)], guests, REPAIR)
    assert (plan.feasible, len(plan.moves)) == (True, over)


def test_repair__handles_a_node_with_guests_of_many_sizes() -> None:
    sizes = [2.0 + n / 16 for n in range(20)]
    guests = [guest(100 + n, "a", gib=size) for n, size in enumerate(sizes)]
    plan = planned([node("a", gib=sum(sizes) - 12.5, cores=64), node("b", gib=64, cores=64)], guests, REPAIR)
    assert plan.feasible
    assert len(plan.moves) <= 5


def test_repair__mends_what_can_be_mended() -> None:
    """Node a is above its limit by more than any other node can take, node b by little."""
    guests = [guest(100 + n, "a", gib=4) for n in range(16)]
    guests += [guest(200 + n, "b", gib=1) for n in range(18)]
    hosts = [node("a", gib=16, cores=64), node("b", gib=16, cores=64), node("c", gib=14, cores=64)]
    plan = planned(hosts, guests, REPAIR)
    assert not plan.feasible
    assert [source for _vmid, source, _target in moves(plan)].count("b") >= 2
    assert "a" in [source for _vmid, source, _target in moves(plan)]


def test_repair__tells_what_stays_with_the_cure_that_helps() -> None:
    guests = [guest(100 + n, "a", gib=4) for n in range(8)]
    plan = planned([node("a", gib=16), node("b", gib=16)], [*guests, guest(200, "b", gib=13)], REPAIR)
    assert {stuck.node for stuck in plan.stuck} == {"a"}
    assert len(plan.stuck) == 4
    assert all(stuck.cure == "free room on the other nodes, or stop it" for stuck in plan.stuck)


# --- make room, drain ---


@pytest.mark.parametrize(("gib", "most"), [(16, 16), (48, 32), (64, 48)])
def test_make_room__moves_as_many_small_guests_as_a_large_vm_needs(gib: int, most: int) -> None:
    hosts = [node(f"n{number}", gib=128, cores=64) for number in range(8)]
    chance = random.Random(4)
    guests: list[Guest] = []
    for host in hosts:
        free = 112.0
        while free > 0:
            size = min(float(chance.randint(1, 4)), free)
            guests.append(guest(100 + len(guests), host.name, gib=size, cores=0.25))
            free -= size
    plan = planned(hosts, guests, Goals(place=(vm("new", gib=gib, cores=1),)))
    assert plan.feasible, plan.unplaced
    assert len(plan.moves) <= most


def test_drain__moves_a_large_guest_to_where_many_small_ones_have_to_leave() -> None:
    hosts = [node(f"n{number}", gib=64, cores=64) for number in range(5)]
    guests = [guest(100, "n0", gib=40)]
    guests += [guest(200 + 20 * n + m, f"n{n}", gib=3, cores=0.25) for n in range(1, 5) for m in range(17)]
    plan = planned(hosts, guests, Goals(drain=frozenset({"n0"})))
    assert plan.feasible, plan.stuck


# --- balance ---


FULL = [guest(100 + n, "a", gib=5) for n in range(10)]
BOUND = HARule("ab", "node-affinity", frozenset(range(100, 110)), {"a": 0, "b": 0}, strict=True)


def test_balance__goes_on_where_the_emptiest_node_takes_nothing_that_helps() -> None:
    hosts = [node("a", gib=64, cores=64), node("b", gib=64, cores=64), node("c", gib=64, cores=64)]
    guests = [*FULL, guest(200, "b", gib=6), guest(300, "c", gib=1)]
    plan = planned(hosts, guests, BALANCE, ha_rules=(BOUND,))
    assert [(source, target) for _vmid, source, target in moves(plan)].count(("a", "b")) >= 3


def test_balance__goes_on_where_the_emptiest_node_is_tainted() -> None:
    hosts = [node("a", gib=64, cores=64), node("b", gib=64, cores=64)]
    hosts.append(node("c", gib=64, cores=2, taints=(Taint("gpu"),)))
    plan = planned(hosts, [*FULL, guest(200, "b", gib=6)], BALANCE)
    assert {target for _vmid, _source, target in moves(plan)} == {"b"}


def test_balance__that_cannot_be_reached_says_why_and_what_would_help() -> None:
    hosts = [node("a", gib=64, cores=64), node("b", gib=64, cores=64)]
    held = {each.vmid: Mobility(stuck=("ide2 holds an image", "eject it")) for each in FULL}
    plan = planned(hosts, FULL, BALANCE, mobility=held)
    assert (plan.moves, plan.feasible) == ((), False)
    assert plan.notes == (
        "a with a load of 78% and b with 0% stay further apart than the threshold of 15%, as no move from a helps: "
        "10 guest(s): ide2 holds an image (cure: eject it)",
    )


def test_balance__that_is_reached_has_nothing_to_say() -> None:
    hosts = [node("a", gib=64, cores=64), node("b", gib=64, cores=64)]
    plan = planned(hosts, FULL, BALANCE)
    assert (plan.feasible, plan.notes) == (True, ())


# --- consolidate ---


def test_consolidate__names_the_node_that_each_guest_empties() -> None:
    """The guest of a would fit b best, which is emptied next."""
    guests = [guest(100, "a", gib=1), guest(101, "b", gib=2), guest(102, "c", gib=8)]
    plan = planned([node("a", gib=16), node("b", gib=4), node("c", gib=64)], guests, Goals(consolidate=True))
    assert sorted((move.source, move.target, move.why) for move in plan.moves) == [
        ("a", "c", "empties a"),
        ("b", "c", "empties b"),
    ]
