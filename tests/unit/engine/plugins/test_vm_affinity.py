# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMAffinity: with some VMs, apart from others."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from support.looking import allowed, normalized, reasons, went_to
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    AffinityTerm,
    Constraints,
    GangRef,
    Guest,
    Node,
    Request,
    Selector,
)

WEB, DB = Selector(name="web-.*"), Selector(name="db-.*")
NODES = [
    node("pve1", labels={"rack": "a"}),
    node("pve2", labels={"rack": "a"}),
    node("pve3", labels={"rack": "b"}),
    node("pve4"),
]


def apart(selector: Selector = WEB, **fields: t.Any) -> AffinityTerm:
    return AffinityTerm(False, selector, **fields)


def near(selector: Selector = WEB, **fields: t.Any) -> AffinityTerm:
    return AffinityTerm(True, selector, **fields)


def over(*guests: Guest, nodes: list[Node] = NODES) -> Scheduler:
    return scheduler(cluster(nodes, guests))


def with_terms(*terms: AffinityTerm, name: str = "new", **fields: t.Any) -> Request:
    return vm(name, affinity=terms, **fields)


def test_apart__leaves_out_the_nodes_of_the_selected_vms() -> None:
    outcome = over(guest(100, "pve1", name="web-1"), guest(101, "pve2", name="db-1")).schedule(with_terms(apart()))
    assert reasons(outcome, "VMAffinity") == {"pve1": "held VMs that the VM must be apart from (web-1)"}
    assert over(guest(100, "pve1", name="web-1"), nodes=NODES[:1]).schedule(with_terms(apart())).resolvable


def test_apart_by_a_label__leaves_out_the_whole_domain() -> None:
    outcome = over(guest(100, "pve1", name="web-1")).schedule(with_terms(apart(topology_key="rack")))
    assert allowed(outcome) == {"pve3", "pve4"}


def test_vm_on_a_node_without_the_label__is_in_no_domain() -> None:
    outcome = over(guest(100, "pve4", name="web-1")).schedule(with_terms(apart(topology_key="rack")))
    assert allowed(outcome) == {"pve1", "pve2", "pve3", "pve4"}


def test_affinity__keeps_the_nodes_of_the_selected_vms() -> None:
    outcome = over(guest(100, "pve2", name="web-1")).schedule(with_terms(near()))
    assert allowed(outcome) == {"pve2"}
    assert reasons(outcome, "VMAffinity")["pve1"] == "didn't hold the VMs that the VM must be with"


def test_affinity_by_a_label__keeps_the_domain_and_says_which_nodes_have_no_label() -> None:
    outcome = over(guest(100, "pve2", name="web-1")).schedule(with_terms(near(topology_key="rack")))
    assert allowed(outcome) == {"pve1", "pve2"}
    assert reasons(outcome, "VMAffinity")["pve4"] == "didn't have label 'rack' of an affinity rule"


def test_affinity_with_vms_that_are_not_there__finds_no_node() -> None:
    assert over().schedule(with_terms(near())).decision is None


def test_first_of_a_group_that_keeps_together__may_go_anywhere_and_the_others_follow() -> None:
    where = over()
    first = where.schedule(with_terms(near(), name="web-1"))
    assert len(allowed(first)) == 4
    assert first.decision is not None
    assert (
        went_to(where, with_terms(near(), name="web-2"), with_terms(near(), name="web-3")) == [first.decision.node] * 2
    )


def test_first_of_a_group__must_be_in_all_of_its_groups() -> None:
    assert over().schedule(with_terms(near(), near(DB), name="web-1")).decision is None


def test_first_of_a_group__must_be_a_member() -> None:
    """The two ask for the same and are looked at one after the other."""
    where = over()
    assert went_to(where, with_terms(near(), name="app-1"), with_terms(near(), name="web-1")) == [None, "pve1"]
    assert went_to(where, with_terms(near(), name="app-2")) == ["pve1"]


def test_first_of_a_group__needs_the_label() -> None:
    outcome = over().schedule(with_terms(near(topology_key="rack"), name="web-1"))
    assert allowed(outcome) == {"pve1", "pve2", "pve3"}


def test_vms_of_a_run_that_keep_apart__fill_one_node_after_the_other() -> None:
    wanted = [with_terms(apart(), name=f"web-{n}") for n in range(5)]
    assert went_to(over(), *wanted) == ["pve1", "pve2", "pve3", "pve4", None]


def test_decided_vm__keeps_away_those_that_it_must_be_apart_from() -> None:
    where = over()
    shy = with_terms(apart(DB, topology_key="rack"), name="web-1")
    assert went_to(where, shy) == ["pve1"]
    outcome = where.schedule(vm("db-1"))
    assert reasons(outcome, "VMAffinity") == {
        "pve1": "held VMs that must be apart from the VM (web-1)",
        "pve2": "held VMs that must be apart from the VM (web-1)",
    }
    assert len(allowed(where.schedule(vm("app-1")))) == 4


def test_decided_vm_that_is_taken_back__keeps_nobody_away() -> None:
    where = over()
    decision = where.schedule(with_terms(apart(DB), name="web-1")).decision
    assert decision is not None
    assert "pve1" not in allowed(where.schedule(vm("db-1")))
    where.undo(decision)
    assert "pve1" in allowed(where.schedule(vm("db-2")))


def test_apart__names_a_vm_in_the_way_until_it_leaves() -> None:
    """Also on nodes of the domain where nothing changed."""
    where = over(guest(100, "pve1", name=None, tags=frozenset({"web"})), nodes=NODES[:2])
    web = Selector(tags=frozenset({"web"}))
    request = with_terms(apart(web, topology_key="rack"))

    def named() -> set[str]:
        return {reason.partition("(")[2] for reason in reasons(where.schedule(request), "VMAffinity").values()}

    assert named() == {"VM 100)"}
    decision = where.schedule(vm("web-1", tags=frozenset({"web"}))).decision
    assert decision is not None
    assert named() == {"VM 100)"}
    where.cluster.remove(100)
    assert named() == {"web-1)"}


def test_apart__groups_nodes_in_the_message_whichever_vm_is_in_the_way() -> None:
    where = over(guest(100, "pve1", name="web-1"), guest(101, "pve2", name="web-2"), nodes=NODES[:2])
    message = where.schedule(with_terms(apart())).message
    assert "2 node(s) held VMs that the VM must be apart from (pve1, pve2)" in message


def test_mere_wish__keeps_nobody_away() -> None:
    where = over()
    where.schedule(with_terms(apart(DB, required=False), name="web-1"))
    assert len(allowed(where.schedule(vm("db-1")))) == 4


def test_reprieve__reaches_every_node_of_the_domain() -> None:
    """A shared evaluation looks again at nodes where nothing changed but the domain."""
    where = over()
    decision = where.schedule(with_terms(apart(topology_key="rack"), name="web-1", node="pve1")).decision
    assert decision is not None
    request = with_terms(apart(topology_key="rack"))
    assert allowed(where.schedule(replace(request, name="x-1"))) == {"pve3", "pve4"}
    where.undo(decision)
    assert allowed(where.schedule(replace(request, name="x-2"))) == {"pve1", "pve2", "pve3", "pve4"}


@pytest.mark.parametrize(
    ("selector", "fields", "selected"),
    [
        (Selector(name="web-.*"), {"name": "web-1"}, True),
        (Selector(name="web"), {"name": "web-1"}, False),
        (Selector(name=".*"), {"name": None}, False),
        (Selector(tags=frozenset({"a", "b"})), {"tags": frozenset({"a", "b", "c"})}, True),
        (Selector(tags=frozenset({"a", "b"})), {"tags": frozenset({"a"})}, False),
        (Selector(tags=frozenset({"Blue"})), {"tags": frozenset({"blue"})}, True),
        (Selector(pool="prod"), {"pool": "prod"}, True),
        (Selector(pool="prod"), {"pool": None}, False),
        (Selector(group="g"), {"constraints": Constraints(gang=GangRef("g"))}, True),
        (Selector(group="g"), {}, False),
        (Selector(name="web-.*", pool="prod"), {"name": "web-1", "pool": "test"}, False),
        (Selector(name="web-.*"), {"name": "web-1", "kind": "lxc"}, True),
        (Selector(name="web-.*"), {"name": "web-1", "status": "stopped"}, True),
        (Selector(name="web-.*"), {"name": "web-1", "template": True}, False),
    ],
)
def test_every_part_of_a_selector_that_is_given__must_hold(
    selector: Selector, fields: dict[str, t.Any], selected: bool
) -> None:
    outcome = over(guest(100, "pve1", **fields)).schedule(with_terms(apart(selector)))
    assert ("pve1" not in allowed(outcome)) is selected


def test_vms__are_selected_by_their_group_of_the_run() -> None:
    where = over()
    wanted = [with_terms(apart(Selector(group="g")), name=f"vm-{n}", gang=GangRef("g")) for n in range(3)]
    assert went_to(where, *wanted) == ["pve1", "pve2", "pve3"]


def test_broken_pattern__is_named() -> None:
    error = over(guest(100, "pve1")).schedule(with_terms(apart(Selector(name="a[")))).error
    assert isinstance(error, InvalidRequest)
    assert "'a['" in error.message


def test_wishes__are_scored_by_weight_and_number_of_vms() -> None:
    guests = [guest(100, "pve1", name="web-1"), guest(101, "pve1", name="web-2"), guest(102, "pve3", name="db-1")]
    wishes = (near(required=False, weight=10), apart(DB, required=False, weight=20))
    outcome = over(*guests).schedule(with_terms(*wishes))
    # 2 x 10, 0, -20, 0 brought to 100..0
    assert normalized(outcome, "VMAffinity") == {"pve1": 100.0, "pve2": 50.0, "pve3": 0.0, "pve4": 50.0}


def test_wishes_by_a_label__count_the_domain() -> None:
    outcome = over(guest(100, "pve1", name="web-1")).schedule(with_terms(apart(required=False, topology_key="rack")))
    assert normalized(outcome, "VMAffinity") == {"pve1": 0.0, "pve2": 0.0, "pve3": 100.0, "pve4": 100.0}


def test_preference_that_makes_no_difference__scores_nobody() -> None:
    outcome = over().schedule(with_terms(apart(required=False)))
    assert set(normalized(outcome, "VMAffinity").values()) == {100.0}


def test_no_preferences__has_no_such_score() -> None:
    assert normalized(over().schedule(with_terms(apart())), "VMAffinity") == {}
    assert normalized(over().schedule(vm()), "VMAffinity") == {}
