# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tours: each ends with every node maintained, or is refused before its first move, with all reasons."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from law.in_force import rules_in_force
from support.code_seeds import code_digest, new_seeds
from support.small_cluster import cluster, guest, node, profile
from support.tours import PINNED, Case, case_of, has_lawful_tour, sail

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner import tour as code
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.tour import plan_tour
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Guest, HARule, Storage
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Bounds, LocalDisk, Mobility
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.tours import SHUT_DOWN, STAY, Tour, TourGoals

PROFILES = {"balanced": profile()}
IN_FORCE = rules_in_force(PROFILES["balanced"])
SEEDS = [*range(25), *new_seeds(code_digest([Path(code.__file__).parent]), range(25))]
THREE = TourGoals(("a", "b", "c"))


def planned(state: ClusterState, goals: TourGoals, mobility: Mapping[int, Mobility] | None = None) -> Tour:
    movable = {each.vmid: Mobility(cost=each.memory) for each in state.guests.values()}
    return plan_tour(state, PROFILES, goals, {**movable, **(mobility or {})})


def moves(tour: Tour) -> list[list[tuple[int, str, str]]]:
    return [[(move.vmid, move.source, move.target) for move in step.out.moves] for step in tour.steps]


def three_nodes(*guests: Guest) -> ClusterState:
    return cluster([node("a", 8, 8), node("b", 8, 8), node("c", 8, 8)], guests)


# --- seeded clusters ---


@pytest.mark.parametrize("seed", SEEDS)
def test_tour__ends_with_every_node_done_or_is_refused_for_a_reason_that_the_law_confirms(seed: int) -> None:
    case = case_of(seed)
    case = replace(case, goals=replace(case.goals, parallel=1 + seed % 3))

    tour = plan_tour(ClusterState(case.snapshot), PROFILES, case.goals, case.mobility, Bounds(steps=30_000))

    if tour.feasible:
        found = sail(case, tour, random.Random(seed), IN_FORCE)
        assert found.broken == []
        assert sorted(name for step in tour.steps for name in step.nodes) == sorted(case.goals.nodes)
        assert all(len(step.nodes) <= case.goals.parallel for step in tour.steps)
        for step in tour.steps:
            for name, course in step.out.nodes.items():
                assert course.peak.memory <= course.allocatable.memory, name
    else:
        assert tour.steps == ()
        held = [stuck for stuck in tour.stuck if case.mobility[stuck.vmid].stuck[0]]
        assert held or not has_lawful_tour(case, IN_FORCE, random.Random(seed), 2)


# --- few moves ---


def test_guests__go_straight_to_nodes_that_are_done() -> None:
    state = three_nodes(guest(100, "a"), guest(101, "b"), guest(102, "b"), guest(103, "c"), guest(104, "c"))

    tour = planned(state, THREE)

    assert tour.steps[0].node == "a"
    first, second, third = moves(tour)
    assert [(vmid, source) for vmid, source, _target in first] == [(100, "a")]
    assert {target for _vmid, _source, target in second} == {"a"}
    assert tour.steps[2].node not in {target for _vmid, _source, target in third}
    assert tour.moves == 6


def test_guests__return_to_their_homes_before_the_next_node_where_that_is_wanted() -> None:
    state = three_nodes(guest(100, "a"), guest(101, "b"), guest(102, "c"))

    tour = planned(state, replace(THREE, homes=True))

    backs = [step.back.moves if step.back else () for step in tour.steps]
    assert [[(move.vmid, move.target) for move in back] for back in backs] == [[(100, "a")], [(101, "b")], [(102, "c")]]


def test_nodes_outside_of_the_tour__take_guests_first_and_are_not_emptied() -> None:
    state = three_nodes(guest(100, "a"), guest(101, "b"))

    tour = planned(state, TourGoals(("a", "b")))

    assert moves(tour) == [[(100, "a", "c")], [(101, "b", tour.steps[1].out.moves[0].target)]]
    assert tour.moves == 2


def test_order__is_the_given_one_where_that_is_wanted_and_begins_with_what_was_begun() -> None:
    state = three_nodes(guest(100, "a"), guest(101, "a"), guest(102, "c"))

    assert planned(state, THREE).steps[0].node == "b"
    assert [step.node for step in planned(state, replace(THREE, keep_order=True)).steps] == ["a", "b", "c"]
    assert planned(state, replace(THREE, first=frozenset({"a"}))).steps[0].node == "a"


def test_order__changes_where_the_cheapest_one_leads_nowhere() -> None:
    # Only a takes the large guest of b, and only as long as a is empty: b has to come right after a.
    nodes = [node("a", 8, 8), node("b", 8, 8), node("c", 8, 4)]
    state = cluster(nodes, [guest(100, "b", 1, 6), guest(101, "c", 1, 1), guest(102, "c", 1, 1), guest(103, "c", 1, 1)])

    tour = planned(state, THREE)

    assert tour.feasible
    assert sail(Case(state.snapshot, {}, THREE), tour, random.Random(0), IN_FORCE).broken == []


# --- several nodes in a turn ---


def four_nodes(*guests: Guest, memory: int = 8) -> ClusterState:
    return cluster([node(name, 8, memory) for name in "abcd"], guests)


FOUR = TourGoals(("a", "b", "c", "d"), parallel=2)


def turns(tour: Tour) -> list[tuple[str, ...]]:
    return [step.nodes for step in tour.steps]


def test_turn__has_as_many_nodes_as_it_may_all_empty_at_once() -> None:
    state = four_nodes(*(guest(100 + number, name, 1, 1) for number, name in enumerate("aabbccdd")))

    tour = planned(state, FOUR)

    assert turns(tour) == [("a", "b"), ("c", "d")]
    assert sail(Case(state.snapshot, {}, FOUR), tour, random.Random(0), IN_FORCE).broken == []
    # Those of a and b come back to the nodes that are done, and need not move again.
    assert [{target for _vmid, _source, target in found} for found in moves(tour)] == [{"c", "d"}, {"a", "b"}]
    assert set(map(len, turns(planned(state, replace(FOUR, parallel=1))))) == {1}
    assert turns(planned(state, replace(FOUR, parallel=3))) == [("a", "b", "c"), ("d",)]
    homes = planned(state, replace(FOUR, homes=True))
    ended = sail(Case(state.snapshot, {}, FOUR), homes, random.Random(0), IN_FORCE)
    assert (turns(homes), ended.broken) == ([("a", "b"), ("c", "d")], [])
    assert {each.vmid: each.node for each in ended.snapshot.guests} == {g.vmid: g.node for g in state.guests.values()}


def test_turn__has_fewer_nodes_where_they_must_not_be_away_at_once() -> None:
    state, with_ceph = four_nodes(guest(100, "a")), {"a", "b", "c"}

    alone = planned(state, replace(FOUR, may_be_away=lambda names: len(names) == 1))
    mixed = planned(state, replace(FOUR, may_be_away=lambda names: len(with_ceph & names) <= 1))

    assert sorted(turns(alone)) == [("a",), ("b",), ("c",), ("d",)]
    assert sorted(map(len, turns(mixed))) == [1, 1, 2]
    assert all(len(with_ceph & set(names)) <= 1 for names in turns(mixed))


def test_turn__has_fewer_nodes_where_guests_find_no_room_or_rules_forbid_it() -> None:
    # Three of four nodes are just enough for all guests.
    full = four_nodes(*(guest(100 + number, name, 1, 2) for number, name in enumerate("aaabbbcccddd")), memory=9)
    apart = HARule("apart", "resource-affinity", frozenset({100, 101, 102}), positive=False)
    ruled = four_nodes(guest(100, "a"), guest(101, "b"), guest(102, "c"))
    ruled = ClusterState(replace(ruled.snapshot, ha_rules=(apart,)))

    assert sorted(turns(planned(full, FOUR))) == [("a",), ("b",), ("c",), ("d",)]
    for names in turns(planned(ruled, FOUR)):
        assert len(names) == 1 or len(set(names) & {"a", "b", "c"}) <= 2
    assert planned(ruled, FOUR).feasible
    # With room for the loss of one more node at any time, a turn of two would leave one too few.
    n_plus_one = profile({"filters": {"FailoverHeadroom": {"enable": True}}})
    state = four_nodes(*(guest(100 + number, name, 1, 3) for number, name in enumerate("abcd")))
    movable = {each.vmid: Mobility(cost=each.memory) for each in state.guests.values()}
    careful = plan_tour(state, {"balanced": n_plus_one}, FOUR, movable)
    assert set(map(len, turns(planned(state, FOUR)))) == {2}
    assert careful.feasible
    assert set(map(len, turns(careful))) == {1}


def test_turn__is_no_reason_to_shut_down_a_guest() -> None:
    state = four_nodes(*(guest(100 + number, name, 1, 2) for number, name in enumerate("aaabbbcccddd")), memory=9)

    tour = planned(state, replace(FOUR, if_stuck=dict.fromkeys(range(100, 112), SHUT_DOWN)))

    assert [step.shut_down for step in tour.steps] == [()] * 4


def test_nodes_that_an_earlier_run_has_begun__share_a_turn_with_each_other_only() -> None:
    state = four_nodes(guest(100, "a"))

    assert turns(planned(state, replace(FOUR, first=frozenset({"b", "c"}))))[0] == ("b", "c")
    assert turns(planned(state, replace(FOUR, first=frozenset({"c"})))) == [("c",), ("b", "d"), ("a",)]
    assert turns(planned(state, replace(FOUR, keep_order=True))) == [("a", "b"), ("c", "d")]


# --- what is in the way ---


def test_refusal__names_the_guests_of_all_nodes_with_their_cures() -> None:
    state = three_nodes(guest(100, "a"), guest(101, "b"), guest(102, "c", 1, 7), guest(103, "b", 1, 7))

    tour = planned(state, THREE, {101: Mobility(stuck=PINNED), 100: Mobility(stuck=PINNED)})

    assert tour.steps == ()
    assert {stuck.vmid: (stuck.why, stuck.cure) for stuck in tour.stuck if stuck.vmid in (100, 101)} == {
        100: PINNED, 101: PINNED,
    }  # fmt: skip
    assert [stuck.node for stuck in tour.stuck] == sorted(stuck.node for stuck in tour.stuck)


def test_refusal__names_what_lacks_room_on_the_nodes_that_cannot_be_emptied() -> None:
    # The guest of c fits neither beside the guest of a nor beside that of b.
    nodes = [node("a", 8, 5), node("b", 8, 5), node("c", 8, 8)]
    state = cluster(nodes, [guest(100, "a", 1, 4), guest(101, "b", 1, 4), guest(102, "c", 1, 3)])

    tour = planned(state, THREE)

    assert not tour.feasible
    assert [(stuck.vmid, stuck.node) for stuck in tour.stuck] == [(102, "c")]
    assert "memory" in tour.stuck[0].why


def test_guests_that_cannot_move__are_shut_down_or_stay_as_the_task_says() -> None:
    state = three_nodes(guest(100, "a"), guest(101, "a"), guest(102, "b"), guest(103, "b", status="stopped"))
    held = {100: Mobility(stuck=PINNED)}
    goals = replace(THREE, stays={103: SHUT_DOWN, 102: STAY}, if_stuck={100: SHUT_DOWN, 101: SHUT_DOWN})

    tour = planned(state, goals, held)

    steps = {step.node: step for step in tour.steps}
    assert (steps["a"].shut_down, steps["a"].stay) == ((100,), ())
    assert (steps["b"].shut_down, steps["b"].stay) == ((), (102, 103))
    assert {vmid for found in moves(tour) for vmid, _source, _target in found} == {101}


def test_guest_without_a_place__is_shut_down_if_the_task_says_so() -> None:
    state = cluster([node("a", 8, 8), node("b", 8, 2)], [guest(100, "a", 1, 6)])

    assert not planned(state, TourGoals(("a",))).feasible
    tour = planned(state, TourGoals(("a",), if_stuck={100: SHUT_DOWN}))
    assert tour.steps[0].shut_down == (100,)


def test_local_disks__free_their_space_where_they_left() -> None:
    storages = tuple(Storage("local", name, total=10 * GIB, used=used * GIB) for name, used in (("a", 7), ("b", 7)))
    state = cluster([node("a"), node("b")], [guest(100, "a"), guest(101, "b")], storages=storages)
    disk = {vmid: Mobility(disks=(LocalDisk("scsi0", "local", 3 * GIB),)) for vmid in (100, 101)}

    tour = planned(state, TourGoals(("a", "b")), disk)

    # Both disks fit on b only because the one of a leaves, and then on a only because its space there is free again.
    assert tour.feasible
    assert moves(tour) == [[(100, "a", "b")], [(101, "b", "a"), (100, "b", "a")]] or tour.moves == 3


def test_step__says_whether_the_others_could_lose_another_node_meanwhile() -> None:
    roomy = three_nodes(guest(100, "a"), guest(101, "b"), guest(102, "c"))
    full = three_nodes(guest(100, "a", 1, 4), guest(101, "b", 1, 4), guest(102, "c", 1, 4))

    assert [step.stranded for step in planned(roomy, THREE).steps] == ["", "", ""]
    assert all("would strand VM" in step.stranded for step in planned(full, THREE).steps)
