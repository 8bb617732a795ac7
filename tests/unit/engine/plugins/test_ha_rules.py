# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HARules: where the HA manager would leave a VM, and what Proxmox would refuse."""

from __future__ import annotations

import typing as t

import pytest
from support.looking import allowed, normalized, reasons, went_to
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.ha_rules import enforce, refusal
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import HAIntent, HARule, Request

NODES = [node(f"pve{n}") for n in (1, 2, 3)]
GUESTS = [guest(101, "pve1"), guest(102, "pve2"), guest(103, "pve2")]


def by_nodes(name: str = "here", *vmids: int, nodes: dict[str, int], **fields: t.Any) -> HARule:
    return HARule(name, "node-affinity", frozenset(vmids), nodes, **fields)


def together(name: str = "together", *vmids: int, **fields: t.Any) -> HARule:
    return HARule(name, "resource-affinity", frozenset(vmids), positive=True, **fields)


def apart(name: str = "apart", *vmids: int, **fields: t.Any) -> HARule:
    return HARule(name, "resource-affinity", frozenset(vmids), positive=False, **fields)


def under(*rules: HARule) -> Scheduler:
    return scheduler(cluster(NODES, GUESTS, ha_rules=rules))


def joining(rule: str, name: str = "new", **fields: t.Any) -> Request:
    return vm(name, ha=HAIntent(rule=rule), **fields)


# --- where the HA manager would run it ---


def test_strict_node_rule__leaves_only_its_nodes() -> None:
    outcome = under(by_nodes(nodes={"pve2": 0, "pve3": 0}, strict=True)).schedule(joining("here"))
    assert allowed(outcome) == {"pve2", "pve3"}
    assert reasons(outcome, "HARules") == {"pve1": "weren't among the nodes of HA rule 'here'"}


def test_negative_node_rule__leaves_out_its_nodes() -> None:
    outcome = under(by_nodes(nodes={"pve2": 0}, strict=True, positive=False)).schedule(joining("here"))
    assert allowed(outcome) == {"pve1", "pve3"}
    assert reasons(outcome, "HARules") == {"pve2": "were avoided by HA rule 'here'"}


def test_negative_node_rule_that_is_not_strict__prefers_all_other_nodes() -> None:
    outcome = under(by_nodes(nodes={"pve3": 0}, positive=False)).schedule(joining("here"))
    assert normalized(outcome, "HARules") == {"pve1": 100.0, "pve2": 100.0, "pve3": 0.0}


def test_rule_of_which_not_all_is_known__is_an_error_for_those_that_join_it() -> None:
    error = under(by_nodes(nodes={"pve3": 0}, unknown="the key 'moon'")).schedule(joining("here")).error
    assert isinstance(error, InvalidRequest)
    assert "'here' has the key 'moon'" in error.message


def test_node_rule_that_is_not_strict__prefers_its_nodes() -> None:
    outcome = under(by_nodes(nodes={"pve3": 0})).schedule(joining("here"))
    assert normalized(outcome, "HARules") == {"pve1": 0.0, "pve2": 0.0, "pve3": 100.0}
    assert outcome.decision is not None
    assert outcome.decision.node == "pve3"


def test_higher_priority__is_preferred() -> None:
    outcome = under(by_nodes(nodes={"pve1": 1, "pve2": 5}, strict=True)).schedule(joining("here"))
    assert normalized(outcome, "HARules") == {"pve1": 50.0, "pve2": 100.0}


def test_positive_rule__sends_the_vm_to_the_node_of_its_members() -> None:
    outcome = under(together("pair", 102)).schedule(joining("pair"))
    assert allowed(outcome) == {"pve2"}
    assert reasons(outcome, "HARules")["pve1"] == "didn't hold the VMs of HA rule 'pair'"


def test_members_on_several_nodes__will_be_brought_to_where_most_of_them_are() -> None:
    assert allowed(under(together("all", 101, 102, 103)).schedule(joining("all"))) == {"pve2"}
    assert allowed(under(together("all", 101, 102)).schedule(joining("all"))) == {"pve1"}


def test_negative_rule__leaves_out_the_nodes_of_its_members() -> None:
    outcome = under(apart("apart", 101, 102)).schedule(joining("apart"))
    assert allowed(outcome) == {"pve3"}
    assert reasons(outcome, "HARules") == dict.fromkeys(["pve1", "pve2"], "held a VM of HA rule 'apart'")


def test_vms_that_are_kept_together__share_their_rules() -> None:
    rules = [together("pair", 101), apart("apart", 101, 102)]
    assert "pve2" not in allowed(under(*rules).schedule(joining("pair")))
    rules = [together("pair", 109, 108), by_nodes("here", 109, nodes={"pve3": 0}, strict=True)]
    assert allowed(under(*rules).schedule(joining("pair"))) == {"pve3"}


def test_vms_own_node_rule__goes_before_that_of_its_companions() -> None:
    rules = [by_nodes("a", 101, nodes={"pve1": 0}), by_nodes("b", 120, nodes={"pve2": 0}), together("c", 101, 120)]
    found = enforce(rules, 120, {101: "pve1"})
    assert found.by_nodes == rules[1]
    assert found.together == ("pve1", "c")


def test_vms_of_this__run_that_joined_are_members_already() -> None:
    where = under(apart("apart", 101))
    assert went_to(where, joining("apart", "a"), joining("apart", "b")) == ["pve3", "pve2"]
    where = under(together("pair", 999))
    assert went_to(where, joining("pair", "a", node="pve3"), joining("pair", "b")) == ["pve3", "pve3"]


@pytest.mark.parametrize(
    "rule",
    [by_nodes("off", nodes={"pve1": 0}, strict=True, disabled=True), apart("off", 101, 102, 103, disabled=True)],
    ids=str,
)
def test_disabled_rules__do_not_count(rule: HARule) -> None:
    assert allowed(under(rule).schedule(joining("off"))) == {"pve1", "pve2", "pve3"}


def test_rules_that_the_vm_does_not_join__do_not_hold_for_it() -> None:
    where = under(by_nodes(nodes={"pve1": 0}, strict=True), apart("apart", 101))
    assert allowed(where.schedule(vm())) == {"pve1", "pve2", "pve3"}
    assert allowed(where.schedule(vm(ha=HAIntent(state="started")))) == {"pve1", "pve2", "pve3"}


def test_fixed_vmid__may_be_in_a_rule_already() -> None:
    where = under(by_nodes("here", 400, nodes={"pve1": 0}, strict=True))
    assert allowed(where.schedule(vm(vmid=400, ha=HAIntent(state="started")))) == {"pve1"}
    assert allowed(where.schedule(vm("other", vmid=401, ha=HAIntent(state="started")))) == {"pve1", "pve2", "pve3"}


def test_group__is_a_node_rule() -> None:
    where = under(by_nodes("g12", nodes={"pve1": 2, "pve2": 1}, strict=True, from_group=True))
    outcome = where.schedule(vm(ha=HAIntent(group="g12")))
    assert normalized(outcome, "HARules") == {"pve1": 100.0, "pve2": 50.0}


# --- what does not exist ---


@pytest.mark.parametrize(
    ("intent", "from_group", "message"),
    [
        (HAIntent(rule="nosuch"), False, "ha.rule: unknown HA rule 'nosuch'; known rules: here"),
        (HAIntent(group="nosuch"), True, "ha.group: unknown HA group 'nosuch'; known groups: here"),
        (
            HAIntent(rule="here"),
            True,
            "ha.rule: unknown HA rule 'here'; known rules: none; this cluster has HA groups, use ha.group: here",
        ),
        (
            HAIntent(group="here"),
            False,
            "ha.group: unknown HA group 'here'; known groups: none; this cluster has HA rules, use ha.rule: here",
        ),
    ],
    ids=str,
)
def test_unknown_rule_or_group__is_named_with_those_that_there_are(
    intent: HAIntent, from_group: bool, message: str
) -> None:
    error = under(by_nodes(nodes={"pve1": 0}, from_group=from_group)).schedule(vm(ha=intent)).error
    assert isinstance(error, InvalidRequest)
    assert error.message == message


# --- what Proxmox refuses; VM 120 is the one that joins ---


PRIORITIES = by_nodes("prefer", 101, nodes={"pve1": 2, "pve2": 1})
FLAT = by_nodes("flat", 101, nodes={"pve1": 0, "pve2": 0})


@pytest.mark.parametrize(
    ("name", "rules", "expected"),
    [
        ("second", [by_nodes("first", 120, nodes={"pve1": 0}), by_nodes("second", 120, nodes={"pve2": 0})], "first"),
        ("alone", [apart("alone", 120)], "one VM only"),
        ("alone", [together("alone", 120)], "one VM only"),
        ("x", [apart("x", 101, 120), PRIORITIES], "several priorities"),
        ("x", [together("x", 101, 120), PRIORITIES], "several priorities"),
        (
            "x",
            [together("x", 101, 113, 120), FLAT, by_nodes("two", 113, nodes={"pve2": 0})],
            "in several node-affinity rules: 'flat' and 'two'",
        ),
        ("x", [together("x", 105, 120), apart("away", 105, 120)], "rule 'away', which keeps them apart"),
        ("x", [together("x", 111, 120), together("y", 104, 111), apart("away", 104, 120)], "rule 'away'"),
        ("x", [apart("x", 104, 120), together("pair", 104, 120)], "rule 'pair', which keeps them together"),
        ("x", [apart("x", 104, 120), together("y", 104, 111), together("z", 111, 120)], "keeps them together"),
        ("x", [apart("x", 104, 105, 113, 120)], "keep 4 VMs apart on 3 nodes"),
        (
            "x",
            [apart("x", 105, 120), by_nodes("only3", 105, 120, nodes={"pve3": 0}, strict=True)],
            "2 of its VMs are bound to 1 node(s)",
        ),
    ],
)
def test_ha_rules__proxmox_would_refuse(name: str, rules: list[HARule], expected: str) -> None:
    found = refusal(rules, name, 120, node_count=3)
    assert found is not None
    assert expected in found


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("x", [together("x", 101, 120), FLAT]),
        ("x", [apart("x", 101, 113, 120), FLAT, by_nodes("two", 113, nodes={"pve2": 0})]),
        ("x", [together("x", 104, 120), together("y", 104, 111)]),
        ("x", [together("x", 104, 120), apart("away", 104, 105)]),
        ("x", [apart("x", 105, 120), by_nodes("soft", 105, 120, nodes={"pve3": 0})]),
        ("x", [apart("x", 105, 120), by_nodes("two", 105, 120, nodes={"pve2": 0, "pve3": 0}, strict=True)]),
        ("x", [apart("x", 104, 105, 120)]),
        ("x", [apart("x", 101, 120), by_nodes("prefer", 101, nodes={"pve1": 2, "pve2": 1}, disabled=True)]),
        ("off", [apart("off", 120, disabled=True)]),
        ("g", [by_nodes("f", 120, nodes={}, from_group=True), by_nodes("g", 120, nodes={}, from_group=True)]),
    ],
)
def test_ha_rules__proxmox_takes(name: str, rules: list[HARule]) -> None:
    assert refusal(rules, name, 120, node_count=3) is None


def test_rule_that_proxmox_would_refuse__fails_the_vm_before_anything_is_written() -> None:
    error = under(apart("apart", 101, 102, 103)).schedule(joining("apart")).error
    assert isinstance(error, InvalidRequest)
    assert error.message == (
        "ha: Proxmox would refuse rule 'apart' with VM \"new\": it would keep 4 VMs apart on 3 nodes"
    )


def test_each_vm_of_a_run__is_checked_with_those_that_joined_before() -> None:
    where = under(apart("apart", 101))
    outcomes = [where.schedule(joining("apart", f"vm-{n}")) for n in range(3)]
    assert [outcome.decision is not None for outcome in outcomes] == [True, True, False]
    assert isinstance(outcomes[2].error, InvalidRequest)
