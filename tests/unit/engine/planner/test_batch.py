# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches of new VMs that fit only when they are placed together."""

from __future__ import annotations

from support.small_cluster import cluster, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch import place_batch
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    PermitPlugin,
    Requests,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import (
    Status,
    unschedulable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import NoNodesAvailable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    AffinityTerm,
    GangRef,
    Request,
    Selector,
)

PAIR = AffinityTerm(True, Selector(tags=frozenset({"pair"})))


def placed(sizes: list[float]) -> list[tuple[str, int] | None]:
    """Where VMs of these sizes in GiB go on two nodes of 10 GiB, with their VMIDs."""
    state = cluster([node("a", gib=10), node("b", gib=10)])
    outcomes = place_batch(scheduler(state), [vm(f"vm-{n}", gib=gib) for n, gib in enumerate(sizes)])
    return [None if o.decision is None else (o.decision.node, o.decision.vmid) for o in outcomes]


def test_place_batch__is_as_given_where_that_fits() -> None:
    assert placed([1, 1]) == [("a", 100), ("b", 101)]


def test_place_batch__takes_the_largest_first_and_keeps_the_order_of_vmids() -> None:
    assert placed([1, 2, 6, 3, 5]) == [("a", 100), ("a", 101), ("a", 102), ("b", 103), ("b", 104)]


def test_place_batch__takes_a_higher_priority_first_whatever_its_size() -> None:
    batch = [Request("large", memory=6 * GIB), Request("small", memory=GIB, priority=5), Request("mid", memory=3 * GIB)]
    outcomes = place_batch(scheduler(cluster([node("a", gib=10), node("b", gib=10)])), batch)
    assert [(o.turn, o.decision and o.decision.vmid) for o in outcomes] == [(2, 100), (1, 101), (3, 102)]


def test_place_batch__keeps_the_order_of_the_task_where_that_is_configured() -> None:
    config = {"queue": {"PrioritySort": {"config": {"order": "as_given"}}}}
    given = scheduler(cluster([node("a", gib=10), node("b", gib=10)]), config)
    outcomes = place_batch(given, [vm(f"vm-{n}", gib=gib) for n, gib in enumerate([1, 2, 6])])
    assert [(o.turn, o.decision and o.decision.node) for o in outcomes] == [(1, "a"), (2, "b"), (3, "a")]


def test_place_batch__lets_the_order_of_the_task_decide_who_is_left_out() -> None:
    assert placed([4, 4, 4, 4, 9]) == [("a", 100), ("b", 101), ("a", 102), ("b", 103), None]


def test_place_batch__keeps_vmids_that_only_the_order_of_size_gives_to_all() -> None:
    batch = [
        Request("small", memory=GIB, vmid_range="100-101"),
        Request("large", memory=6 * GIB, vmid_range="100-100"),
    ]
    outcomes = place_batch(scheduler(cluster([node("a", gib=10), node("b", gib=10)])), batch)
    assert [o.decision and o.decision.vmid for o in outcomes] == [101, 100]


def test_place_batch__searches_where_one_after_the_other_does_not_fit() -> None:
    found = placed([3, 3, 4, 4, 3, 3])
    assert [each and each[1] for each in found] == [100, 101, 102, 103, 104, 105]
    assert {each and each[0] for each in (found[2], found[3])} == {"a", "b"}


def test_place_batch__tells_that_its_search_reached_the_limit() -> None:
    batch = [vm(f"vm-{n}", gib=gib) for n, gib in enumerate([6, 3, 3, 4, 4, 4])]
    nodes = [node("a", gib=12), node("b", gib=12)]
    short = place_batch(scheduler(cluster(nodes)), batch, steps=1)
    assert [outcome.exhausted for outcome in short] == [outcome.decision is None for outcome in short]
    assert any(outcome.exhausted for outcome in short)
    assert all(outcome.decision for outcome in place_batch(scheduler(cluster(nodes)), batch))


def test_place_batch__leaves_what_fits_when_not_all_do() -> None:
    assert placed([6, 6, 6]) == [("a", 100), ("b", 101), None]


def test_place_batch__puts_a_group_where_all_of_it_has_room() -> None:
    state = cluster([node("a", gib=12), node("b", gib=8)])
    batch = [vm("x", gib=5)] + [
        Request(f"p{n}", memory=4 * 2**30, tags=frozenset({"pair"}), affinity=(PAIR,)) for n in range(2)
    ]
    outcomes = place_batch(scheduler(state), batch)
    assert [o.decision and o.decision.node for o in outcomes] == ["b", "a", "a"]
    assert [o.decision and o.decision.vmid for o in outcomes] == [100, 101, 102]
    assert [o.turn for o in outcomes] == [3, 1, 2]


def test_place_batch__takes_vms_of_a_gang_one_by_one_by_their_size() -> None:
    state = cluster([node("a", gib=12), node("b", gib=12)])
    gang = [Request(f"g{n}", memory=3 * GIB, gang=GangRef("g")) for n in range(4)]
    outcomes = place_batch(scheduler(state), [*gang, vm("x", gib=4)])
    assert [o.turn for o in outcomes] == [2, 3, 4, 5, 1]


def test_place_batch__keeps_the_message_of_a_vm_that_never_fits() -> None:
    state = cluster([node("a", gib=10)])
    outcomes = place_batch(scheduler(state), [vm("x", gib=4), vm("y", gib=40)])
    assert outcomes[0].decision is not None
    assert isinstance(outcomes[1].error, NoNodesAvailable)
    assert [each.vmid for each in state.guests.values()] == [100]


def test_place_batch__finds_the_one_order_in_which_rules_between_the_vms_let_all_of_them_be_placed() -> None:
    """db may be the first of the blue VMs, but with web there it would have to share a node with it."""
    blue = Selector(tags=frozenset({"blue"}))
    web = Request("web", memory=GIB, tags=frozenset({"blue"}), pool="prod")
    rules = (AffinityTerm(True, blue), AffinityTerm(False, Selector(pool="prod")))
    db = Request("db", memory=GIB, tags=frozenset({"blue"}), affinity=rules)
    outcomes = place_batch(scheduler(cluster([node("a"), node("b")])), [web, db, vm("x", gib=2)])
    places = [outcome.decision for outcome in outcomes if outcome.decision is not None]
    assert [each.vmid for each in places] == [100, 101, 102]
    assert places[0].node != places[1].node
    assert (outcomes[0].turn or 0) > (outcomes[1].turn or 9)


class NotMoreThanFive(PermitPlugin):
    """Lets at most five VMs stand at once."""

    name = "NotMoreThanFive"

    def permit(self, request: Request, placed: Requests, waiting: Requests, failed: Requests) -> Status | None:
        return unschedulable("too many", "five are enough") if len(placed) > 5 else None


def test_place_batch__asks_permit_plugins_about_what_it_finds() -> None:
    state = cluster([node("a", gib=10), node("b", gib=10)])
    own = scheduler(state, own=[NotMoreThanFive])
    outcomes = place_batch(own, [vm(f"vm-{n}", gib=gib) for n, gib in enumerate([3, 3, 4, 4, 3, 3])])
    assert sum(o.decision is not None for o in outcomes) == len(state.guests) == 5
