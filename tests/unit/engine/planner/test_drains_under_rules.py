# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains under rules of all kinds: a plan is found where one exists. All moves that the law allows are tried."""

from __future__ import annotations

import random
import typing as t
from collections import Counter, deque

import pytest
from law.in_force import rules_in_force
from law.law import InForce
from law.steps import broken_step
from support.plan_walk import done, walk
from support.small_cluster import guest, node, profile

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import make_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    AffinityTerm,
    Constraints,
    Guest,
    HARule,
    Selector,
    Snapshot,
    SpreadConstraint,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Goals, Mobility, Move, Plan

PROFILES = {"balanced": profile()}
FEW_GUESTS = {"balanced": profile({"filters": {"GuestLimit": {"config": {"max_guests": 3}}}})}
WEB, DB = Selector(name="web-.*"), Selector(name="db-.*")


def drained(snapshot: Snapshot, profiles: dict[str, Profile] = PROFILES) -> Plan:
    mobility = {each.vmid: Mobility(cost=each.memory) for each in snapshot.guests}
    return make_plan(ClusterState(snapshot), profiles, Goals(drain=frozenset({"a"})), mobility)


def moves(plan: Plan) -> list[tuple[int, str, str]]:
    return [(move.vmid, move.source, move.target) for move in plan.moves]


def apart(selector: Selector, key: str = "node") -> Constraints:
    return Constraints((AffinityTerm(False, selector, topology_key=key),))


# --- against all sequences of moves ---


def cluster_of(seed: int) -> Snapshot:
    """Three or four small nodes with up to six guests, many of which have rules."""
    chance = random.Random(seed)
    names = "abcd"[: chance.choice([3, 4, 4])]
    nodes = tuple(node(n, gib=chance.choice([4, 4, 6]), labels={"zone": chance.choice("xy")}) for n in names)
    guests: list[Guest] = []
    used: Counter[str] = Counter()
    for number in range(chance.randint(3, 6)):
        where, gib = chance.choice(names), chance.randint(1, 3)
        name, selector = f"{chance.choice(['web', 'db', 'app'])}-{number}", chance.choice([WEB, DB])
        spread = Constraints(topology_spread=(SpreadConstraint("node", selector, max_skew=1),))
        rules = [apart(selector), apart(selector, "zone"), spread, Constraints()]
        constraints = chance.choices(rules, [5, 2, 2, 11])[0]
        if used[where] + gib <= 4:
            used[where] += gib
            guests.append(guest(100 + number, where, gib=gib, name=name, constraints=constraints))
    return Snapshot(nodes, tuple(guests), ha_rules=tuple(ha_rules(chance, names, guests)))


def ha_rules(chance: random.Random, names: str, guests: list[Guest]) -> t.Iterator[HARule]:
    at = {each.vmid: each.node for each in guests}
    if len(at) < 3:
        return
    pair, few = chance.sample([*at], 2), chance.sample([*at], chance.randint(2, 3))
    kind = chance.random()
    if kind < 0.4:
        yield HARule("apart", "resource-affinity", frozenset(few), positive=False)
    elif kind < 0.5 and at[pair[0]] == at[pair[1]]:
        yield HARule("together", "resource-affinity", frozenset(pair))
    if chance.random() < 0.3:
        allowed = dict.fromkeys(chance.sample(names, 2), 1)
        yield HARule("west", "node-affinity", frozenset(few[:1]), nodes=allowed, strict=True)


def fewest_moves(snapshot: Snapshot, in_force: InForce) -> int | None:
    """Try all moves to other nodes than a that the law allows, one after the other; None if a is never empty."""
    targets = [each.name for each in snapshot.nodes if each.name != "a"]
    open_now = deque([(snapshot, 0)])
    seen = {tuple(each.node for each in snapshot.guests)}
    while open_now:
        state, count = open_now.popleft()
        if all(each.node != "a" for each in state.guests):
            return count
        for each in state.guests:
            with_it = (rule.vmids for rule in state.ha_rules if rule.name == "together" and each.vmid in rule.vmids)
            others = tuple(frozenset().union(*with_it) - {each.vmid})
            for target in targets:
                move = Move(1, each.vmid, "", each.node, target, "", together=others)
                after = done(state, move)
                key = tuple(guest.node for guest in after.guests)
                if target != each.node and key not in seen and not broken_step(state, (), move, in_force):
                    seen.add(key)
                    open_now.append((after, count + 1))
    return None


def test_drain__finds_a_plan_where_one_exists() -> None:
    possible, missed = 0, []
    for seed in range(150):
        snapshot, profiles = cluster_of(seed), FEW_GUESTS if seed % 5 == 0 else PROFILES
        plan, in_force = drained(snapshot, profiles), rules_in_force(profiles["balanced"])
        fewest = fewest_moves(snapshot, in_force)
        assert walk(snapshot, plan, random.Random(seed), in_force).broken == []
        assert fewest is not None or not plan.feasible, f"seed {seed}"
        possible += fewest is not None
        if fewest is not None and not plan.feasible:
            missed.append(seed)
        elif fewest is not None:
            assert len(plan.moves) <= fewest + 1, f"seed {seed}: {moves(plan)}, not {fewest}"
    assert 100 < possible < 150
    assert len(missed) <= possible / 100, missed


# --- what each rule needs ---

NODES = (node("a", gib=10), node("b", gib=10), node("c", gib=10), node("d", gib=10))


def test_drain__moves_a_larger_guest_where_a_rule_leaves_no_other_node() -> None:
    nodes = NODES[:3]
    guests = (guest(100, "a", gib=2), guest(101, "b", gib=3), guest(102, "c", gib=4), guest(103, "c", gib=5))
    rules = (HARule("apart", "resource-affinity", frozenset({100, 101}), positive=False),)
    assert moves(drained(Snapshot(nodes, guests, ha_rules=rules))) == [(102, "c", "b"), (100, "a", "c")]


@pytest.mark.parametrize("keeper", [100, 101])
def test_drain__moves_the_guest_that_the_other_must_be_apart_from(keeper: int) -> None:
    one, other = (apart(WEB), Constraints()) if keeper == 100 else (Constraints(), apart(Selector(name="db-1")))
    guests = (
        guest(100, "a", gib=6, name="db-1", constraints=one), guest(101, "b", gib=3, name="web-1", constraints=other),
        guest(102, "c", gib=6), guest(103, "d", gib=5),
    )  # fmt: skip
    plan = drained(Snapshot(NODES, guests))
    assert moves(plan) == [(101, "b", "c"), (100, "a", "b")]
    assert plan.moves[0].why == "lets db-1 onto b"
    assert plan.moves[1].after == (1,)


def test_drain__moves_the_guest_whose_ha_rule_refuses() -> None:
    guests = (guest(100, "a", gib=6), guest(101, "b", gib=3), guest(102, "c", gib=6), guest(103, "d", gib=5))
    rules = (HARule("apart", "resource-affinity", frozenset({100, 101}), positive=False),)
    assert moves(drained(Snapshot(NODES, guests, ha_rules=rules))) == [(101, "b", "c"), (100, "a", "b")]


def test_drain__moves_the_smallest_guest_off_a_node_that_has_its_most_guests() -> None:
    guests = (
        guest(100, "a", gib=4), *(guest(101 + n, "b", gib=1 + n) for n in range(3)), guest(104, "c", gib=8)
    )  # fmt: skip
    assert moves(drained(Snapshot(NODES[:3], guests), FEW_GUESTS)) == [(101, "b", "c"), (100, "a", "b")]
