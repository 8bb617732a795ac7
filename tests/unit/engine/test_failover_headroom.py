# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""FailoverHeadroom: what it lets pass survives the loss of any one node, and what it refuses it names."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import lines_run
from support.looking import reasons
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.allocatable import CPULimit, MemoryLimit
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.evacuees import GuestSize, Limits, Room
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.headroom import Headroom
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.standing_rules import (
    StandingRule,
    StandingRules,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    HARule,
    Request,
    Selector,
    Snapshot,
    Taint,
)

ON = {"filters": {"FailoverHeadroom": {"enable": True}}}
LIMITS = Limits(CPULimit(4.0), MemoryLimit(1.0))


def refusals(state: ClusterState, request: Request) -> dict[str, str]:
    """The reason of each node that FailoverHeadroom rejects."""
    outcome = scheduler(state, ON).schedule(request)
    return {name: str(reason) for name, reason in reasons(outcome, "FailoverHeadroom").items()}


def test_reason__names_the_node_whose_loss_would_strand_which_vm() -> None:
    state = cluster(
        [node("pve1"), node("pve2"), node("pve3")],
        [guest(100, "pve1", gib=20, name="db"), guest(101, "pve2", gib=10), guest(102, "pve3", gib=13)],
    )
    refused = {v.node: v for v in scheduler(state, ON).schedule(vm(gib=10)).verdicts() if v.status is not None}
    # Only pve2 can take db: with the new VM on pve3 it still does.
    assert list(refused) == ["pve2"]
    assert refused["pve2"].rejected_by == "FailoverHeadroom"
    assert "(the loss of pve1 would strand VM db (100) of 20.0 GiB and 1 vCPU)" in str(refused["pve2"].reason)


def test_strict_ha_rule__keeps_a_guest_of_a_lost_node_on_its_nodes() -> None:
    """Node pve3 has room for db, but its HA rule keeps it on pve1 and pve2."""
    hosts = [node("pve1"), node("pve2"), node("pve3", gib=128)]
    guests = [guest(100, "pve1", gib=20, name="db"), guest(101, "pve2", gib=10)]
    rule = HARule("west", "node-affinity", frozenset({100}), nodes={"pve1": 0, "pve2": 0}, strict=True)
    for each in (rule, replace(rule, nodes={"pve3": 0}, positive=False)):
        refused = refusals(cluster(hosts, guests, ha_rules=[each]), vm(gib=10))
        assert "the loss of pve1 would strand VM db (100)" in refused["pve2"]
    assert scheduler(cluster(hosts, guests), ON).schedule(vm(gib=10, node="pve2")).decision is not None


def test_ha_rule_that_keeps_guests_apart__holds_when_a_node_is_lost() -> None:
    """If pve1 is lost, db-1 fits on pve2, but must be apart from db-2 there: it needs the room on pve3."""
    hosts = [node("pve1"), node("pve2"), node("pve3")]
    guests = [guest(100, "pve1", gib=12, name="db-1"), guest(101, "pve2", gib=4, name="db-2")]
    rule = HARule("apart", "resource-affinity", frozenset({100, 101}), positive=False)
    refused = refusals(cluster(hosts, guests, ha_rules=[rule]), vm(gib=22))
    assert "the loss of pve1 would strand VM db-1 (100)" in refused["pve3"]
    assert scheduler(cluster(hosts, guests), ON).schedule(vm(gib=22, node="pve3")).decision is not None


def test_ha_rule_that_keeps_guests_apart__follows_them() -> None:
    """db-2 moves from pve3 to pve2: of the nodes that db-1 needs when pve1 is lost, only pve3 is left then."""
    hosts = [node("pve1"), node("pve2"), node("pve3")]
    guests = [guest(100, "pve1", gib=12, name="db-1"), guest(101, "pve3", gib=4, name="db-2")]
    rule = HARule("apart", "resource-affinity", frozenset({100, 101}), positive=False)
    state = cluster(hosts, guests, ha_rules=[rule])
    plans = Headroom(state, LIMITS)
    new = GuestSize(Room(22 * GIB, 1), "the new VM")
    third = next(info for info in state.nodes if info.name == "pve3")
    assert plans.find_stranding(third, new) is None
    state.remove(101)
    state.restore(replace(guests[1], node="pve2"))
    stranded = plans.find_stranding(third, new)
    assert stranded is not None
    assert stranded.guest.label == "VM db-1 (100)"


RULE = Selector(name="db-.*")


@pytest.mark.parametrize(
    "rules",
    [
        StandingRules(),
        StandingRules(tags=False, rules=(StandingRule("rules[0]", RULE, AffinityTerm(False, RULE)),)),
    ],
    ids=["tags", "rules"],
)
@pytest.mark.parametrize("name", ["db-2", "payroll"])
def test_rule_that_keeps_guests_apart__holds_when_a_node_is_lost(rules: StandingRules, name: str) -> None:
    """As with the HA rule: db-1 needs the room on pve3, unless the guest on pve2 has no such rule."""
    hosts = [node("pve1"), node("pve2"), node("pve3")]
    tags = {
        "db-1": frozenset({"plb_anti_affinity_db"}),
        name: frozenset({f"plb_anti_affinity_{name.partition('-')[0]}"}),
    }
    guests = [guest(100, "pve1", gib=12, name="db-1"), guest(101, "pve2", gib=4, name=name)]
    guests = [replace(each, tags=tags[each.name or ""]) for each in guests]
    state = ClusterState(rules.add_to_guests(Snapshot(nodes=tuple(hosts), guests=tuple(guests))))
    refused = refusals(state, vm(gib=22))
    assert ("would strand VM db-1 (100)" in refused.get("pve3", "")) is (name == "db-2")


@pytest.mark.parametrize("kept", ["pin", "rule", "taint"])
def test_rule_about_nodes__keeps_a_guest_of_a_lost_node_on_its_nodes(kept: str) -> None:
    """Node pve3 has room for db, but it must stay on pve1 and pve2; bound to pve1 alone, no room would help it."""
    taints = (Taint("gpu"),) if kept == "taint" else ()
    hosts = [node("pve1"), node("pve2"), node("pve3", gib=128, taints=taints)]

    def refused(*allowed: str) -> dict[str, str]:
        tags = frozenset(f"plb_pin_{name}" for name in allowed) if kept == "pin" else frozenset()
        rule = StandingRule("rules[0]", Selector(name="db"), nodes=allowed)
        guests = (guest(100, "pve1", gib=20, name="db", tags=tags), guest(101, "pve2", gib=10))
        rules = StandingRules(rules=(rule,) if kept == "rule" else ())
        return refusals(ClusterState(rules.add_to_guests(Snapshot(nodes=tuple(hosts), guests=guests))), vm(gib=10))

    assert "the loss of pve1 would strand VM db (100)" in refused("pve1", "pve2")["pve2"]
    assert kept == "taint" or "pve2" not in refused("pve1")


def test_ha_rule_that_leaves_a_guest_no_other_node__does_not_count() -> None:
    hosts = [node("pve1"), node("pve2"), node("pve3")]
    guests = [guest(100 + number, each.name, gib=4) for number, each in enumerate(hosts)]
    rule = HARule("trio", "resource-affinity", frozenset({100, 101, 102}), positive=False)
    assert scheduler(cluster(hosts, guests, ha_rules=[rule]), ON).schedule(vm(gib=4)).decision is not None


def test_existing_vm__is_not_called_a_new_one() -> None:
    state = cluster([node("big", cores=64, gib=256), node("small"), node("tiny", gib=16)])
    assert "the loss of big would strand the VM of 100.0 GiB" in refusals(state, vm(gib=100, vmid=150))["big"]


def test_vm_that_would_itself_be_stranded__is_refused() -> None:
    state = cluster([node("big", cores=64, gib=256), node("small"), node("tiny", gib=16)])
    assert "the loss of big would strand the new VM of 100.0 GiB" in refusals(state, vm(gib=100))["big"]


def test_guest_that_moves__is_called_by_its_name() -> None:
    state = cluster([node("big", cores=64, gib=256), node("small"), node("tiny", gib=16)])
    moved = replace(vm("db", gib=100), vmid=107, existing=True)
    assert "the loss of big would strand VM db (107) of 100.0 GiB" in refusals(state, moved)["big"]


def test_reason__leaves_out_sizes_that_say_nothing() -> None:
    state = cluster([node("big", cores=64), node("small", cores=4), node("tiny", cores=4)])
    assert "the loss of big would strand the new VM of 60 vCPUs" in refusals(state, vm(cores=60, gib=0))["big"]


def test_cluster_that_cannot_bear_a_loss__takes_nothing() -> None:
    state = cluster([node("pve1"), node("pve2")], [guest(100, "pve1", gib=20), guest(101, "pve2", gib=20)])
    assert scheduler(state, ON).schedule(vm(gib=1)).decision is None
    assert scheduler(state).schedule(vm(gib=1)).decision is not None


def test_one_node_alone__can_never_be_lost() -> None:
    assert scheduler(cluster([node("pve1")]), ON).schedule(vm()).decision is None


def test_stopped_guests_and_templates__need_no_room() -> None:
    guests = [guest(100, "pve1", gib=30, status="stopped"), guest(101, "pve2", gib=30, template=True)]
    assert scheduler(cluster([node("pve1"), node("pve2")], guests), ON).schedule(vm(gib=8)).decision is not None


def test_nodes_in_maintenance_or_offline__take_no_guests() -> None:
    nodes = [node("pve1"), node("pve2", maintenance=True), node("pve3", online=False)]
    assert scheduler(cluster(nodes), ON).schedule(vm()).decision is None
    nodes[1] = node("pve2")
    assert scheduler(cluster(nodes), ON).schedule(vm()).decision is not None


def test_every_loss__counts_and_not_only_the_last_one() -> None:
    # c takes db when a is lost, and web when b is: beside db there is no room for the new VM, beside web there is.
    state = cluster(
        [node("a"), node("b", gib=16), node("c"), node("d", cores=2, gib=16)],
        [guest(100, "a", gib=20, name="db"), guest(101, "b", cores=10, gib=13, name="web")],
    )
    assert "the loss of a would strand VM db" in refusals(state, vm(gib=15))["c"]


def test_cpu__counts_as_memory_does() -> None:
    state = cluster([node("pve1", cores=16), node("pve2", cores=16)], [guest(100, "pve1", cores=52, gib=1)])
    assert scheduler(state, ON).schedule(vm(cores=14)).decision is None
    assert scheduler(state, ON).schedule(vm(cores=12)).decision is not None


def test_reserves_and_ratios__limit_what_the_others_take() -> None:
    state = cluster([node("pve1"), node("pve2")], [guest(100, "pve1", gib=20)])
    for config, fits in (({}, True), ({"memory_reserved": 4096}, False), ({"memory_ratio": 0.8}, False)):
        outcome = scheduler(state, {"filters": {"FailoverHeadroom": {"config": config}}}).schedule(vm(gib=10))
        assert (outcome.decision is not None) is fits
        if outcome.decision is not None:
            state.forget(outcome.decision.vmid)


def test_decisions_of_the_run__count() -> None:
    engine = scheduler(cluster([node("pve1"), node("pve2"), node("pve3")]), ON)
    outcomes = schedule_all(engine, [vm(f"vm-{i}", gib=10) for i in range(12)])
    # Of 3 x 3 VMs of 10 GiB per node a third must stay free.
    assert sum(outcome.decision is not None for outcome in outcomes) == 6


small = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(1, 12)), max_size=6)


@settings(max_examples=150)
@given(guests=small, sizes=st.lists(st.integers(8, 24), min_size=2, max_size=4), wanted=st.integers(1, 12))
def test_what_passes__survives_the_loss_of_any_node(
    guests: list[tuple[int, int, int]], sizes: list[int], wanted: int
) -> None:
    nodes = [node(f"n{index}", cores=2, gib=size) for index, size in enumerate(sizes)]
    running = [
        guest(100 + number, f"n{where % len(sizes)}", cores, gib) for number, (where, cores, gib) in enumerate(guests)
    ]
    for index in range(len(sizes)):
        state = cluster(nodes, running)
        headroom = Headroom(state, LIMITS)
        new = GuestSize(Room(wanted * GIB, 1), "the new VM")
        if headroom.find_stranding(state.nodes[index], new) is None:
            after = cluster(nodes, [*running, guest(999, f"n{index}", 1, wanted)])
            for lost in after.nodes:
                assert can_be_absorbed(after, lost.name)


def can_be_absorbed(state: ClusterState, lost: str) -> bool:
    """Whether any of all ways to place the lost node's guests on the others fits; room below zero counts as none."""
    loads = [(g.memory, g.cores) for g in state.guests.values() if g.node == lost]
    rooms = {info.name: LIMITS.room(info) for info in state.nodes if info.name != lost}
    for places in itertools.product(rooms, repeat=len(loads)):
        left = {name: list(room) for name, room in rooms.items()}
        for place, (memory, cores) in zip(places, loads, strict=True):
            left[place][0] -= memory
            left[place][1] -= cores
        if all(min(left[place]) >= 0 for place in places):
            return True
    return False


@settings(max_examples=300)
@given(guests=small, wanted=st.lists(st.integers(1, 6), min_size=1, max_size=9))
def test_keeping_up_with_the_run__answers_as_reading_again_does(
    guests: list[tuple[int, int, int]], wanted: list[int]
) -> None:
    nodes = [node(f"n{index}", cores=4, gib=24) for index in range(4)]
    state = cluster(nodes, [guest(100 + n, f"n{where}", c, gib) for n, (where, c, gib) in enumerate(guests)])
    kept = Headroom(state, LIMITS)
    for number, gib in enumerate(wanted):
        new = GuestSize(Room(gib * GIB, 1), "the new VM")
        anew = Headroom(state, LIMITS)
        for info in state.nodes:
            assert kept.find_stranding(info, new) == anew.find_stranding(info, new)
        if number % 3 == 2:
            state.forget(500 + number - 1)
        state.assume(guest(500 + number, f"n{(number * gib) % 4}", 1, gib, status="assumed"))


def test_node_that_becomes_tighter__takes_a_guest_that_another_took_before() -> None:
    """The VM makes n2 the tightest node for the first guest of n0; for the second one, n1 has too few vCPUs."""
    guests = [guest(100, "n0", gib=6), guest(101, "n0", cores=2, gib=5, name="db"), guest(102, "n1", cores=3, gib=0)]
    state = cluster([node("n0"), node("n1", cores=1, gib=8), node("n2", gib=12)], guests)
    kept, nothing = Headroom(state, LIMITS), GuestSize(Room(0, 0), "")
    assert kept.find_stranding(state.nodes[2], nothing) is None
    state.assume(guest(500, "n2", gib=5, status="assumed"))
    stranded = kept.find_stranding(state.nodes[2], nothing)
    assert stranded is not None
    assert (stranded.lost, stranded.guest.label) == ("n0", "VM db (101)")


def test_fifty_nodes_with_five_hundred_guests__take_little_work() -> None:
    nodes = [node(f"n{index:02}", cores=64, gib=256) for index in range(50)]
    running = [guest(100 + n, f"n{n % 50:02}", 2 + n % 7, 10 + n % 27) for n in range(500)]
    engine = scheduler(cluster(nodes, running), ON)
    engine.schedule(vm("warm-up"))
    for number in range(10):
        # 200,000 are usual; to try all guests on all nodes for every node that may be lost takes millions.
        lines_run(lambda name=f"vm-{number}": engine.schedule(vm(name, cores=4, gib=8)), at_most=250_000)
    assert engine.schedule(vm("last", cores=4, gib=8)).decision is not None
