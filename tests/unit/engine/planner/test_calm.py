# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Balance by use: few moves that are worth their cost, within the limits, and none that is taken back."""

from __future__ import annotations

import random
import typing as t
from collections.abc import Callable
from dataclasses import replace

import pytest
from law.in_force import rules_in_force
from support.plan_walk import walk
from support.small_cluster import guest, node, profile

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import (
    CPU,
    MEASURED,
    PRESSURE,
    USED,
    Demand,
    Departure,
    Grid,
    Usage,
    as_placed,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.planner.planner import make_plan
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Guest, Node, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import (
    RESTART,
    Balance,
    Bounds,
    Goals,
    Mobility,
    Plan,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.balancing import DEFAULTS

SLOTS = 48
GRID = Grid(0, 1800, SLOTS)
CALM = Balance(by=USED, **DEFAULTS[USED])
Shape = float | Callable[[int], float]


def curve(shape: Shape, factor: float = 1.0) -> tuple[float, ...]:
    return tuple(factor * (shape(slot) if callable(shape) else shape) for slot in range(SLOTS))


def vms(place: dict[str, list[tuple[int, Shape]]]) -> tuple[list[Guest], dict[int, Shape]]:
    """Guests of four cores on nodes, with what they use of these."""
    found, shapes = [], {}
    for name, entries in place.items():
        for vmid, shape in entries:
            found.append(replace(guest(vmid, name), cores=4))
            shapes[vmid] = shape
    return found, shapes


def used_by(guests: list[Guest], shapes: dict[int, Shape], names: t.Iterable[str], cores: float = 8) -> Usage:
    """What these guests use, and the nodes with them: 2 % of the host itself."""
    demands = {each.vmid: {CPU: Demand(MEASURED, curve(shapes[each.vmid], each.cores))} for each in guests}
    nodes = {}
    for name in names:
        here = [demands[each.vmid][CPU].curve for each in guests if each.node == name]
        nodes[name] = {
            CPU: tuple(0.02 * cores + sum(v or 0 for v in slot) for slot in zip(curve(0.0), *here, strict=True))
        }
    return Usage(GRID, nodes, {name: {CPU: cores} for name in nodes}, demands)


def planned(
    place: dict[str, list[tuple[int, Shape]]],
    wanted: Balance = CALM,
    bounds: Bounds | None = None,
    hosts: tuple[Node, ...] | None = None,
    change: Callable[[Usage], Usage] = lambda usage: usage,
    mobility: t.Any = None,
    resting: frozenset[int] = frozenset(),
) -> Plan:
    guests, shapes = vms(place)
    hosts = hosts or tuple(replace(node(name, gib=64), cores=8) for name in place)
    snapshot = Snapshot(nodes=hosts, guests=tuple(guests))
    usage = change(used_by(guests, shapes, [each.name for each in hosts], hosts[0].cores))
    goals = Goals(balance=wanted, usage=usage, resting=resting)
    profiles = {"balanced": profile()}
    moves = mobility or {each.vmid: Mobility(cost=each.memory) for each in guests}
    plan = make_plan(ClusterState(snapshot), profiles, goals, moves, bounds or Bounds())
    assert walk(snapshot, plan, random.Random(0), rules_in_force(profiles["balanced"])).broken == []
    return plan


def moves(plan: Plan) -> list[tuple[int, str]]:
    return [(move.vmid, move.target) for move in plan.moves]


HOT: dict[str, list[tuple[int, Shape]]] = {"a": [(101, 0.9), (102, 0.88), (103, 0.02)], "b": [(201, 0.1)], "c": []}


def test_one_move__is_made_if_it_is_enough() -> None:
    plan = planned(HOT)

    assert len(plan.moves) == 1
    assert plan.moves[0].target == "c"
    assert plan.feasible


def test_guest_that_took_long__stays_where_another_one_helps() -> None:
    first = moves(planned(HOT))[0][0]
    (other,) = {101, 102} - {first}

    took_long = planned(HOT, change=lambda usage: replace(usage, moved=[Departure(0, first, "z", 1200)]))
    assert moves(took_long) == [(other, "c")]


def test_guest_that_has_left_a_node__goes_back_only_if_much_is_gained() -> None:
    place: dict[str, list[tuple[int, Shape]]] = {"a": [(103, 0.8)], "b": [(101, 1.0), (102, 0.3)]}

    def left(name: str) -> list[tuple[int, str]]:
        return moves(planned(place, change=lambda usage: replace(usage, moved=[Departure(0, 102, name)])))

    assert left("z") == [(102, "a")]
    assert left("a") == []


def test_the_cheapest__of_those_that_are_enough_moves() -> None:
    costs = {101: 8 * GIB, 102: GIB, 103: GIB, 201: GIB}

    plan = planned(HOT, mobility={vmid: Mobility(cost=cost) for vmid, cost in costs.items()})

    assert moves(plan) == [(102, "c")]
    why = "a used 92% CPU (p95 of 24 h); without vm102 48%; c goes from 2% to 46%"
    assert plan.moves[0].why.replace(plan.moves[0].name, "vm102") == why


def test_downtime__has_to_be_worth_more() -> None:
    place: dict[str, list[tuple[int, Shape]]] = {
        "a": [(101, 0.65), (102, 0.65), (103, 0.2)],
        "b": [(201, 0.75), (202, 0.3)],
    }
    live = {vmid: Mobility() for vmid in (101, 102, 103, 201, 202)}
    restart = {vmid: Mobility(how=RESTART) for vmid in live}

    assert moves(planned(place, mobility=live)) == [(103, "b")]
    assert moves(planned(place, mobility=restart)) == []


def test_nodes_with_little_load__are_left_alone() -> None:
    place: dict[str, list[tuple[int, Shape]]] = {"a": [(101, 0.4), (102, 0.4)], "b": []}

    assert moves(planned(place)) == []
    assert len(moves(planned(place, replace(CALM, above=0.0)))) == 1

    def peak(slot: int) -> float:
        return 0.7 if slot >= SLOTS - 2 else 0.3

    assert moves(planned({"a": [(101, peak), (102, peak)], "b": []})) == []


def test_small_guests__leave_a_node_in_need_only() -> None:
    hosts = tuple(replace(node(name, gib=64), cores=40) for name in "ab")
    unmoved, relieved = (
        planned({"a": [(101 + number, load) for number in range(10)], "b": []}, replace(CALM, margin=0.2), hosts=hosts)
        for load in (0.7, 0.92)
    )

    assert moves(unmoved) == []
    assert len(relieved.moves) == 2
    assert relieved.used["a"][CPU].after < 0.8


def test_limits_of_what_is_allocated__hold() -> None:
    hosts = tuple(replace(node(name, gib=gib), cores=8) for name, gib in (("a", 64), ("b", 64), ("c", 0.5)))

    assert {target for _vmid, target in moves(planned(HOT, hosts=hosts))} == {"b"}


def test_bounds_and_guests_that_rest__are_kept() -> None:
    place: dict[str, list[tuple[int, Shape]]] = {"a": [(101, 0.6), (102, 0.6), (103, 0.6)], "b": [], "c": []}

    assert len(moves(planned(place, bounds=Bounds(max_moves=1)))) == 1
    assert moves(planned(place, resting=frozenset({101, 102, 103}))) == []


def test_guest_of_the_night__does_not_go_to_the_node_of_the_night() -> None:
    def night(slot: int) -> float:
        return 0.9 if slot < 8 else 0.1

    def day(slot: int) -> float:
        return 0.1 if slot < 8 else 0.9

    place: dict[str, list[tuple[int, Shape]]] = {
        "a": [(101, day), (102, day), (103, 0.1)],
        "b": [(201, day), (202, 0.1)],
        "c": [(301, night), (302, 0.1)],
    }
    assert {target for _vmid, target in moves(planned(place))} == {"c"}


def test_unknown__is_not_zero() -> None:
    def without(usage: Usage) -> Usage:
        return replace(usage, nodes={name: curves for name, curves in usage.nodes.items() if name != "c"})

    plan = planned(HOT, change=without)

    assert {target for _vmid, target in moves(plan)} == {"b"}
    assert "is not known of c" in plan.notes[0]
    assert moves(planned(HOT, change=lambda usage: replace(usage, guests={}))) == []


def test_full_node_that_no_move_helps__is_told() -> None:
    plan = planned(
        {"a": [(101, 1.0), (102, 1.0)], "b": []},
        mobility={101: Mobility(stuck=("x", "y")), 102: Mobility(stuck=("x", "y"))},
    )

    assert plan.moves == ()
    assert "a stays at 102% CPU and b at 2%" in plan.notes[0]


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (
            lambda slot: 0.9 if 10 <= slot < 20 else 0.1,
            "a stays at 92% CPU and b at 2%, but not in the last 1 h (hold): 12% and 2%",
        ),
        (lambda slot: 0.9 if slot > SLOTS - 5 else 0.1, ""),
    ],
)
def test_load_that_is_over__is_told_as_the_cause_of_no_move(shape: Shape, told: str) -> None:
    plan = planned({"a": [(101, shape), (102, shape)], "b": []})

    assert (plan.waits, bool(plan.moves), plan.feasible) == ((told,) if told else (), not told, True)


def test_many_nodes_that_no_move_helps__are_told_in_a_few_words() -> None:
    place: dict[str, list[tuple[int, Shape]]] = {f"n{number}": [(100 + number, 1.0)] for number in range(9)}
    hosts = tuple(replace(node(name, gib=64), cores=4) for name in [*place, "z"])

    plan = planned({**place, "z": []}, hosts=hosts)

    assert plan.moves == ()
    assert len(plan.notes) == 6
    assert plan.notes[-1] == "4 more node(s) stay above the others"


def test_last_hour_that_is_not_known__is_not_idle() -> None:
    def without_the_last_hour(usage: Usage) -> Usage:
        nodes = {name: {CPU: (*each[CPU][:-2], None, None)} for name, each in usage.nodes.items()}
        return replace(usage, nodes={**usage.nodes, "b": nodes["b"]})

    plan = planned({"a": [(101, 0.9), (102, 0.9)], "b": []}, change=without_the_last_hour)

    assert plan.moves == ()
    assert plan.waits == ("a stays at 92% CPU and b at 2%, but not in the last 1 h (hold): 92% and unknown",)


def test_small_difference_that_no_move_is_worth__is_no_fault() -> None:
    plan = planned({"a": [(101, 0.65), (102, 0.65)], "b": [(201, 0.4)]}, replace(CALM, margin=0.5))

    assert (plan.moves, plan.feasible) == ((), True)
    assert "a stays at 67% CPU and b at 22%, as no move that is worth its cost" in plan.waits[0]


def test_pressure__is_attributed_to_those_that_use_the_resource() -> None:
    def pressed(usage: Usage) -> Usage:
        nodes = {
            name: {**curves, "cpu pressure": curve(0.4 if name == "a" else 0.0)} for name, curves in usage.nodes.items()
        }
        return replace(usage, nodes=nodes)

    plan = planned(HOT, replace(CALM, by=PRESSURE, above=0.1), change=pressed)

    (move,) = plan.moves
    assert move.vmid in (101, 102)
    assert move.why.startswith("a had 40% cpu pressure (p95 of 24 h)")
    assert plan.used["a"]["cpu pressure"].before == pytest.approx(0.4)


def wave(period: int, phase: int) -> Callable[[int], float]:
    return lambda slot: 0.9 if (slot + phase) % period < period / 2 else 0.05


def bursts(seed: int) -> Callable[[int], float]:
    return lambda slot: random.Random(f"{seed} {slot // 5}").choice((0.05, 0.05, 0.5, 1.0))


def backup(begin: int) -> Callable[[int], float]:
    return lambda slot: 0.9 if begin <= slot % SLOTS < begin + 4 else 0.3


def noisy(number: int) -> Callable[[int], float]:
    """Two guests of four are busy in turn, for three hours each."""
    return (lambda slot: float(slot // 6 % 2 == number % 2)) if number % 4 < 2 else (lambda slot: 0.2)


def born(number: int) -> Callable[[int], float | None]:
    """Every fourth guest was made in the second day, and is busy since."""
    return (lambda slot: None if slot < 1.5 * SLOTS else 0.9) if number % 4 == 0 else (lambda slot: 0.3)


LOADS: dict[str, Callable[[int], Callable[[int], float | None]]] = {
    **{
        f"wave of {period / 2:g} h": lambda number, period=period: wave(period, number * 7)
        for period in (2, 3, 7, 12, 48, 66)
    },
    "bursts": bursts,
    "backups": lambda number: backup(number % 4 * 4),
    "two in turn": noisy,
    "born in the window": born,
}

Raw = dict[str, list[float | None]]
SPOILT: dict[str, Callable[[Raw], Raw]] = {
    "as it is": lambda raw: raw,
    # It was off for two hours.
    "a node was rebooted": lambda raw: {**raw, "b": [None if 60 <= at < 64 else v for at, v in enumerate(raw["b"])]},
    # Its samples are about the half hour before.
    "the clock of a node is wrong": lambda raw: {**raw, "c": [*raw["c"][:1], *raw["c"][:-1]]},
}


@pytest.mark.parametrize(
    ("kind", "how"),
    [(kind, "as it is") for kind in LOADS]
    + [(kind, how) for kind in ("two in turn", "bursts") for how in [*SPOILT][1:]],
)
def test_days_of_changing_load__bring_no_guest_back_within_a_day(kind: str, how: str) -> None:
    """Every hour of three days, after a first one, without a cooldown."""
    guests = [replace(guest(100 + number, "abcd"[number * number % 4]), cores=4) for number in range(16)]
    cores = {}
    for each in guests:
        values = [LOADS[kind](each.vmid)(slot) for slot in range(4 * SLOTS)]
        cores[each.vmid] = tuple(None if value is None else 4 * value for value in values)
    hosts = tuple(replace(node(name, gib=128), cores=24) for name in "abcd")
    past: Raw = {name: [] for name in "abcd"}
    departures: list[Departure] = []
    left: dict[tuple[int, str], int] = {}
    count = 0

    def plan_now(slot: int) -> Plan:
        grid = Grid((slot - SLOTS) * 1800, 1800, SLOTS)
        demands = {vmid: {CPU: Demand(MEASURED, values[slot - SLOTS : slot])} for vmid, values in cores.items()}
        raw = {name: {CPU: tuple(values[-SLOTS:])} for name, values in SPOILT[how](past).items()}
        nodes = as_placed(raw, demands, {each.vmid: each.node for each in guests}, departures, grid)
        moved = [each for each in departures if each.time >= grid.start]
        usage = Usage(grid, nodes, {name: {CPU: 24} for name in nodes}, demands, moved)
        state = ClusterState(Snapshot(nodes=hosts, guests=tuple(guests)))
        mobility = {each.vmid: Mobility() for each in guests}
        return make_plan(state, {"balanced": profile()}, Goals(balance=CALM, usage=usage), mobility)

    for slot in range(4 * SLOTS):
        if slot >= SLOTS and slot % 2 == 0:
            planned_moves = plan_now(slot).moves
            for move in planned_moves:
                assert slot - left.get((move.vmid, move.target), -SLOTS) >= SLOTS
                left[move.vmid, move.source] = slot
                count += 1
                departures.append(Departure(slot * 1800, move.vmid, move.source))
                guests = [replace(g, node=move.target) if g.vmid == move.vmid else g for g in guests]
            assert not planned_moves or not plan_now(slot).moves, "right after it"
        for name, values in past.items():
            values.append(sum(cores[each.vmid][slot] or 0.0 for each in guests if each.node == name))
    assert count <= 16
