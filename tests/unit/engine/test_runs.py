# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs: delays, gates, groups, and what happens between two passes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import lines_run
from support.small_cluster import cluster, guest, node, profile, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    PermitPlugin,
    Requests,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import WAIT, Status
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    GangRef,
    Request,
    Selector,
    SpreadConstraint,
)


def placed(outcomes: list[Outcome]) -> list[str]:
    return [outcome.request.name for outcome in outcomes if outcome.decision is not None]


def member(name: str, group: str, gib: float, least: int = 0, **fields: object) -> Request:
    return vm(name, gib=gib, gang=GangRef(group, least), **fields)


def used_gib(state: ClusterState) -> float:
    return sum(info.memory for info in state.nodes) / GIB


# --- delays and gates ---


def test_delayed_vm__is_placed_when_its_time_has_come() -> None:
    requests = [vm("late", context={"delay": "15"}, created=100.0), vm("now")]
    late, now = schedule_all(scheduler(cluster([node("pve1")])), requests, now=114.9)
    assert late.message == (
        '0/1 nodes are available for VM "late": 1 node(s) had to wait for the delay of 15 s (pve1); '
        "without Delay, pve1 would fit"
    )
    assert (late.until, now.decision is not None) == (115.0, True)
    assert placed(schedule_all(scheduler(cluster([node("pve1")])), requests, now=115.0)) == ["late", "now"]


def test_delay_that_is_over__says_nothing_of_another_one() -> None:
    engine = scheduler(cluster([node("pve1")]))
    outcomes = schedule_all(engine, [vm("a", context={"delay": "1"}), vm("b", context={"delay": "15"})], now=5.0)
    assert placed(outcomes) == ["a"]


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_delay_that_is_no_time__is_refused(text: str) -> None:
    outcome = scheduler(cluster([node("pve1")])).schedule(vm(context={"delay": text}))
    assert isinstance(outcome.error, InvalidRequest)
    assert f"expected a number of seconds, got {text!r}" in outcome.message


def test_gated_vm__is_told_what_holds_it_and_is_never_due() -> None:
    [outcome] = schedule_all(scheduler(cluster([node("pve1")])), [vm("gated", scheduling_gates=("licence",))])
    assert outcome.error is not None
    assert outcome.error.code == "SchedulingGated"
    assert outcome.message == ('VM "gated" is held back: SchedulingGates: waits for scheduling gate(s) licence')
    assert not outcome.resolvable


def test_what_no_change_can_help__is_not_waited_for() -> None:
    [outcome] = schedule_all(scheduler(cluster([node("pve1")])), [vm("new", node="pve9")])
    assert (outcome.decision, outcome.resolvable) == (None, False)


def test_vm_without_a_free_vmid__waits_for_guests_to_change() -> None:
    engine = scheduler(cluster([node("pve1")], [guest(100, "pve1")]))
    [outcome] = schedule_all(engine, [vm("new", vmid_range="100-100")])
    assert outcome.resolvable
    assert outcome.rejected_by == {"Range", "Regex"}


def test_vm__may_come_before_the_one_that_it_must_be_with() -> None:
    beside = [AffinityTerm(True, Selector(name=name)) for name in ("app", "db")]
    requests = [vm("cache", affinity=(beside[0],)), vm("app", affinity=(beside[1],)), vm("db"), vm("huge", gib=40)]
    outcomes = schedule_all(scheduler(cluster([node("pve1"), node("pve2")])), requests)
    assert [outcome.decision and outcome.decision.node for outcome in outcomes] == ["pve1", "pve1", "pve1", None]
    assert [outcome.decision.vmid for outcome in outcomes if outcome.decision] == [102, 101, 100]


def test_vm_that_would_break_a_spread__is_placed_when_others_have_evened_it_out() -> None:
    spread = (SpreadConstraint("node", Selector(name="web-.*")),)
    requests = [vm(name, gib=gib, topology_spread=spread) for name, gib in (("web-0", 20), ("web-1", 20), ("web-2", 1))]
    outcomes = schedule_all(scheduler(cluster([node("large", gib=64), node("small", gib=16)])), requests)
    assert [outcome.decision and outcome.decision.node for outcome in outcomes] == ["large", "large", "small"]


# --- groups ---


def test_group__is_placed_whole() -> None:
    engine = scheduler(cluster([node("pve1"), node("pve2")]))
    outcomes = schedule_all(engine, [member(name, "g", 20) for name in ("a", "b")])
    assert placed(outcomes) == ["a", "b"]


def test_group_that_does_not_fit_whole__leaves_nothing_behind() -> None:
    state = cluster([node("pve1"), node("pve2")])
    outcomes = schedule_all(scheduler(state), [member(name, "g", 20) for name in ("a", "b", "c")])
    assert placed(outcomes) == []
    assert used_gib(state) == 0
    assert not [g for g in state.guests.values() if g.status == "assumed"]


def test_every_member__is_told_why() -> None:
    outcomes = schedule_all(scheduler(cluster([node("pve1")])), [member(name, "g", 20) for name in ("a", "b")])
    assert outcomes[0].message == (
        "VM \"a\" was not placed: Gang: group 'g' could not be placed together "
        "(it needs 2 VMs, and only 1 could be placed)"
    )
    assert outcomes[1].message.startswith('0/1 nodes are available for VM "b": 1 node(s) would exceed the memory')
    assert all(outcome.resolvable for outcome in outcomes)


def test_enough_members__are_enough() -> None:
    outcomes = schedule_all(
        scheduler(cluster([node("pve1"), node("pve2")])), [member(name, "g", 20, least=2) for name in ("a", "b", "c")]
    )
    assert placed(outcomes) == ["a", "b"]


def test_group_that_asks_for_more_than_there_are__is_not_placed() -> None:
    assert placed(schedule_all(scheduler(cluster([node("pve1")])), [member("a", "g", 1, least=2)])) == []


def test_members_that_exist_already__count() -> None:
    engine = scheduler(cluster([node("pve1")]))
    outcomes = schedule_all(engine, [member("c", "g", 1, least=3)], present=[member(n, "g", 1, least=3) for n in "ab"])
    assert placed(outcomes) == ["c"]


def test_gated_member__keeps_the_whole_group_back() -> None:
    engine = scheduler(cluster([node("pve1")]))
    outcomes = schedule_all(engine, [member("a", "g", 1), member("b", "g", 1, scheduling_gates=("x",))])
    assert placed(outcomes) == []


def test_room_that_a_group_gave_back__is_offered_to_the_others_that_failed() -> None:
    state = cluster([node("pve1"), node("pve2")])
    requests = [
        member("a1", "g", 20, priority=2),
        member("a2", "g", 20, priority=2),
        vm("single", gib=20, priority=1),
        member("a3", "g", 20),
    ]
    outcomes = schedule_all(scheduler(state), requests)
    assert placed(outcomes) == ["single"]
    assert used_gib(state) == 20


@pytest.mark.parametrize("least", [0, 2])
def test_two_groups_that_block_each_other__have_the_first_placed(least: int) -> None:
    state = cluster([node("pve1"), node("pve2")])
    requests = [
        member("a1", "a", 20, least, priority=9),
        member("b1", "b", 20, least, priority=8),
        member("a2", "a", 20, least),
        member("b2", "b", 20, least),
    ]
    assert placed(schedule_all(scheduler(state), requests)) == ["a1", "a2"]


def test_first_group_that_fits_nowhere__leaves_the_second_placed() -> None:
    state = cluster([node("pve1"), node("pve2")])
    requests = [
        member("a1", "a", 20, priority=9),
        member("b1", "b", 20, priority=8),
        member("a2", "a", 20),
        member("a3", "a", 20),
        member("b2", "b", 20),
    ]
    assert placed(schedule_all(scheduler(state), requests)) == ["b1", "b2"]
    assert used_gib(state) == 40


def test_groups__that_were_barred_get_another_chance_one_by_one() -> None:
    """The first group fits nowhere, and kept the second from being placed."""
    requests = [
        member("a1", "a", 20),
        member("b1", "b", 20),
        *(member(f"a{n}", "a", 20) for n in (2, 3)),
        member("b2", "b", 20),
    ]
    state = cluster([node("pve1"), node("pve2")])
    outcomes = schedule_all(scheduler(state), requests)
    assert placed(outcomes) == ["b1", "b2"]
    assert [guest_.name for guest_ in state.guests.values() if guest_.status == "assumed"] == ["b1", "b2"]
    assert all(outcome.error is not None for outcome in outcomes if outcome.decision is None)


@settings(max_examples=200)
@given(
    nodes=st.integers(1, 3),
    members=st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(1, 30), st.integers(-1, 1)), max_size=10
    ),
    least=st.integers(0, 4),
)
def test_group__is_never_placed_in_part_and_memory_is_never_exceeded(
    nodes: int, members: list[tuple[str | None, int, int]], least: int
) -> None:
    requests = [
        vm(str(number), gib=gib, priority=priority, gang=GangRef(group, least) if group else None)
        for number, (group, gib, priority) in enumerate(members)
    ]
    state = cluster([node(f"pve{index}") for index in range(nodes)])
    outcomes = schedule_all(scheduler(state), requests)
    assert [outcome.request for outcome in outcomes] == requests
    done = Counter(o.request.gang.name for o in outcomes if o.decision and o.request.gang)
    every = Counter(request.gang.name for request in requests if request.gang)
    for group, count in done.items():
        assert count >= (least or every[group])
    assert all(info.memory <= info.node.memory for info in state.nodes)
    assert used_gib(state) == sum(o.request.memory for o in outcomes if o.decision) / GIB
    again = schedule_all(scheduler(cluster([node(f"pve{index}") for index in range(nodes)])), requests)
    assert [o.decision for o in again] == [o.decision for o in outcomes]


WITH_DB = (AffinityTerm(True, Selector(name="db-.*")),)


def test_vm_that_must_be_with_a_group_that_is_taken_back__is_not_left_alone() -> None:
    requests = [
        member("db-1", "db", 8),
        vm("app", affinity=WITH_DB),
        vm("proxy", affinity=(AffinityTerm(True, Selector(name="app")),)),
        vm("other"),
        member("db-2", "db", 40),
    ]
    outcomes = schedule_all(scheduler(cluster([node("pve1"), node("pve2")])), requests)
    assert placed(outcomes) == ["other"]
    assert outcomes[1].rejected_by == {"VMAffinity"}


@settings(max_examples=200)
@given(
    nodes=st.integers(1, 3),
    vms=st.lists(st.tuples(st.sampled_from(["app", "a", "b", None]), st.integers(1, 30)), max_size=10),
)
def test_rules__hold_without_what_was_taken_back(nodes: int, vms: list[tuple[str | None, int]]) -> None:
    requests = [
        vm(f"app-{number}", gib=gib, affinity=WITH_DB)
        if group == "app"
        else vm(f"db-{number}", gib=gib, gang=GangRef(group, 0) if group else None)
        for number, (group, gib) in enumerate(vms)
    ]
    state = cluster([node(f"pve{index}") for index in range(nodes)])
    outcomes = schedule_all(scheduler(state), requests)
    where = {outcome.request.name: outcome.decision.node for outcome in outcomes if outcome.decision}
    databases = {at for name, at in where.items() if name.startswith("db-")}
    assert {at for name, at in where.items() if name.startswith("app-")} <= databases
    assert used_gib(state) == sum(outcome.request.memory for outcome in outcomes if outcome.decision) / GIB


def test_chain_of_affine_vms__tries_each_again_only_after_the_next_one() -> None:
    """The last one, which may be anywhere, comes last."""

    def effort(length: int) -> int:
        chain = [
            vm(f"v-{n}", gib=0.1, affinity=(AffinityTerm(True, Selector(name=f"v-{n + 1}")),) if n + 1 < length else ())
            for n in range(length)
        ]
        where = scheduler(cluster([node("a", cores=64), node("b", cores=64)]))
        outcomes: list[Outcome] = []
        lines = lines_run(lambda: outcomes.extend(schedule_all(where, chain)), at_most=10**7)
        assert len(placed(outcomes)) == length
        return lines

    effort(60)  # patterns are compiled once
    assert effort(60) < 3 * effort(30)


def test_groups_without_room__take_work_in_proportion() -> None:
    def effort(groups: int) -> int:
        state = cluster([node(f"n{n}", cores=64, gib=10) for n in range(groups // 4)])
        members = [member(f"{group}-{n}", f"g{group}", 5) for n in range(2) for group in range(groups)]
        outcomes: list[Outcome] = []
        lines = lines_run(lambda: outcomes.extend(schedule_all(scheduler(state), members)), at_most=10**8)
        assert len(placed(outcomes)) == groups // 4 * 2
        return lines

    # The nodes double as well.
    assert effort(32) < 5 * effort(16)


# --- Permit plugins of one's own ---


class Stubborn(PermitPlugin):
    """Waits for others for ever."""

    name = "Stubborn"

    def permit(
        self,
        request: Request,
        placed: Requests,
        waiting: Requests,
        failed: Requests,
    ) -> Status | None:
        return WAIT


class Broken(Stubborn):
    """Raises."""

    name = "Broken"

    def permit(
        self,
        request: Request,
        placed: Requests,
        waiting: Requests,
        failed: Requests,
    ) -> Status | None:
        if request.name == "a":
            raise KeyError("oops")
        return None


def test_who_waits_for_nobody__is_taken_back() -> None:
    state = cluster([node("pve1")])
    outcomes = schedule_all(scheduler(state, own=[Stubborn]), [vm("a"), vm("b")])
    assert [o.message for o in outcomes] == [
        f'VM "{name}" was not placed: Stubborn: it waited for other VMs of the run, which were not placed'
        for name in ("a", "b")
    ]
    assert used_gib(state) == 0


def test_permit_plugin_that_raises__fails_its_vm_and_leaves_nothing_behind() -> None:
    state = cluster([node("pve1")])
    outcomes = schedule_all(scheduler(state, own=[Broken]), [vm("a"), vm("b")])
    assert placed(outcomes) == ["b"]
    assert outcomes[0].message.startswith("plugin Broken failed: KeyError: 'oops' (test_runs.py, line ")
    assert outcomes[0].error is not None
    assert outcomes[0].error.code == "PluginFailed"
    assert used_gib(state) == 1


def test_unknown_profile__fails_its_vm_only() -> None:
    engine = Scheduler(cluster([node("pve1")]), {"balanced": profile()})
    outcomes = schedule_all(engine, [vm("a", profile="nope"), vm("b")])
    assert placed(outcomes) == ["b"]
    assert "unknown profile 'nope'" in outcomes[0].message
