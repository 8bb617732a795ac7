# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeAffinity, TaintToleration, NetworkBridge, CPUModel and GuestLimit: what a node must be or have."""

from __future__ import annotations

import typing as t

import pytest
from support.looking import allowed, normalized, reasons, went_to
from support.small_cluster import cluster, guest, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.node_selection import (
    is_tolerated,
    matches,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig, InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Expression,
    Node,
    Taint,
    Toleration,
)

LABELLED = node("pve1", labels={"rack": "a", "cpus": "32", "odd": "many"})


# --- NodeAffinity ---


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("rack", "In", ("a", "b"), True),
        ("rack", "In", ("b",), False),
        ("row", "In", ("a",), False),
        ("rack", "NotIn", ("b",), True),
        ("rack", "NotIn", ("a", "b"), False),
        ("row", "NotIn", ("a",), True),
        ("rack", "Exists", (), True),
        ("row", "Exists", (), False),
        ("rack", "DoesNotExist", (), False),
        ("row", "DoesNotExist", (), True),
        ("cpus", "Gt", ("31",), True),
        ("cpus", "Gt", ("32",), False),
        ("cpus", "Gt", ("4",), True),
        ("cpus", "Lt", ("33",), True),
        ("cpus", "Lt", ("32",), False),
        ("odd", "Gt", ("1",), False),
        ("odd", "Lt", ("1",), False),
        ("row", "Lt", ("1",), False),
        ("cpus", "Gt", (), False),
        ("node", "In", ("pve1",), True),
        ("node", "In", ("pve2",), False),
    ],
)
def test_expressions__hold_as_in_kubernetes(key: str, operator: str, values: tuple[str, ...], holds: bool) -> None:
    assert matches(Expression(key, operator, values), LABELLED) is holds


def test_operator_that_does_not_exist__is_named() -> None:
    with pytest.raises(InvalidRequest, match="unknown operator 'Near'"):
        matches(Expression("rack", "Near"), LABELLED)


RACKS = [node("pve1", labels={"rack": "a"}), node("pve2", labels={"rack": "b", "disk": "nvme"}), node("pve3")]


def test_every_required_expression__must_hold() -> None:
    wanted = (Expression("rack", "Exists"), Expression("rack", "NotIn", ("a",)))
    outcome = scheduler(cluster(RACKS)).schedule(vm(node_required=wanted))
    assert allowed(outcome) == {"pve2"}
    assert reasons(outcome, "NodeAffinity") == dict.fromkeys(["pve1", "pve3"], "didn't match the VM's node affinity")


def test_preferred_expressions__add_up_by_weight() -> None:
    wanted = (
        Expression("rack", "Exists", weight=10),
        Expression("disk", "In", ("nvme",), weight=30),
    )
    outcome = scheduler(cluster(RACKS)).schedule(vm(node_preferred=wanted))
    assert normalized(outcome, "NodeAffinity") == {"pve1": 25.0, "pve2": 100.0, "pve3": 0.0}


def test_no_preference_that_holds_anywhere__has_no_such_score() -> None:
    where = scheduler(cluster(RACKS))
    assert normalized(where.schedule(vm()), "NodeAffinity") == {}
    assert normalized(where.schedule(vm(node_preferred=(Expression("row", "Exists"),))), "NodeAffinity") == {}


# --- TaintToleration ---

GPU = Taint("gpu", "yes")
SLOW, OLD = Taint("slow", effect="PreferNoSchedule"), Taint("old", effect="PreferNoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration("gpu", value="yes"), True),
        (Toleration("gpu", value="no"), False),
        (Toleration("gpu"), False),
        (Toleration("gpu", "Exists"), True),
        (Toleration("cpu", "Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration("gpu", "Exists", effect="NoSchedule"), True),
        (Toleration("gpu", "Exists", effect="PreferNoSchedule"), False),
    ],
    ids=str,
)
def test_toleration__covers_its_key_value_and_effect(toleration: Toleration, covers: bool) -> None:
    assert is_tolerated([toleration], GPU) is covers


def test_taint__keeps_away_those_that_do_not_tolerate_it() -> None:
    where = scheduler(cluster([node("pve1", taints=(GPU,)), node("pve2", taints=(Taint("spare"),)), node("pve3")]))
    outcome = where.schedule(vm())
    assert reasons(outcome, "TaintToleration") == {
        "pve1": "had untolerated taint {gpu: yes}",
        "pve2": "had untolerated taint {spare}",
    }
    assert allowed(where.schedule(vm(tolerations=(Toleration("gpu", "Exists"),)))) == {"pve1", "pve3"}


def test_soft_taint__refuses_nobody_and_is_avoided() -> None:
    nodes = [node("pve1", taints=(SLOW, OLD)), node("pve2", taints=(SLOW,)), node("pve3")]
    outcome = scheduler(cluster(nodes)).schedule(vm())
    assert normalized(outcome, "TaintToleration") == {"pve1": 0.0, "pve2": 50.0, "pve3": 100.0}
    outcome = scheduler(cluster(nodes)).schedule(vm(tolerations=(Toleration("slow", "Exists"),)))
    assert normalized(outcome, "TaintToleration") == {"pve1": 0.0, "pve2": 100.0, "pve3": 100.0}


def test_no_soft_taints__has_no_such_score() -> None:
    nodes = [node("pve1", taints=(GPU,)), node("pve2")]
    assert normalized(scheduler(cluster(nodes)).schedule(vm()), "TaintToleration") == {}


# --- NetworkBridge ---


def test_node_without_the_bridge__is_refused_and_one_that_was_not_read_is_not() -> None:
    nodes = [
        node("pve1", bridges=frozenset({"vmbr0"})),
        node("pve2", bridges=frozenset({"vmbr0", "lan"})),
        node("pve3"),
    ]
    wanted = vm(bridges=frozenset({"vmbr0", "lan", "wan"}))
    outcome = scheduler(cluster(nodes)).schedule(wanted)
    assert reasons(outcome, "NetworkBridge") == {"pve1": "didn't have bridge 'lan'", "pve2": "didn't have bridge 'wan'"}
    assert allowed(outcome) == {"pve3"}
    off = {"filters": {"NetworkBridge": {"enable": False}}}
    assert allowed(scheduler(cluster(nodes), off).schedule(wanted)) == {"pve1", "pve2", "pve3"}
    assert allowed(scheduler(cluster(nodes)).schedule(vm())) == {"pve1", "pve2", "pve3"}


# --- NamedResources ---


def test_node_that_lacks_what_options_name__is_refused_and_one_about_which_nothing_is_known_is_not() -> None:
    shared, script = ("dir", "data"), ("snippet", "local:snippets/hook.sh")
    nodes = [
        node("pve1", has={shared: True, script: True}),
        node("pve2", has={shared: False, script: False}),
        node("pve3", has={shared: True, script: False}),
        node("pve4"),
    ]
    outcome = scheduler(cluster(nodes)).schedule(vm(named=frozenset({shared, script})))
    assert reasons(outcome, "NamedResources") == {
        "pve2": "didn't have directory mapping 'data'",
        "pve3": "didn't have snippet 'local:snippets/hook.sh'",
    }
    assert allowed(outcome) == {"pve1", "pve4"}


# --- CPUModel ---


def with_cpu(**fields: t.Any) -> set[str]:
    nodes = [
        node("pve1", cpu_models=frozenset({"EPYC"}), cpu_flags=frozenset({"aes"})),
        node("pve2", cpu_models=frozenset({"EPYC", "EPYC-Milan"}), cpu_flags=frozenset({"aes", "avx2"})),
        node("pve3"),
    ]
    return allowed(scheduler(cluster(nodes)).schedule(vm(**fields)))


@pytest.mark.parametrize("cpu_type", [None, "host", "max", "kvm32", "kvm64", "qemu32", "qemu64", "EPYC"])
def test_some_cpu_types__run_everywhere(cpu_type: str | None) -> None:
    assert with_cpu(cpu_type=cpu_type) == {"pve1", "pve2", "pve3"}


def test_cpu_type_that_a_node_does_not_know__is_refused_there() -> None:
    assert with_cpu(cpu_type="EPYC-Milan") == {"pve2", "pve3"}
    assert with_cpu(cpu_type="custom-mine") == {"pve3"}


def test_flags_that_are_turned_on__must_be_supported_whatever_the_type() -> None:
    for cpu_type in (None, "host", "EPYC"):
        assert with_cpu(cpu_type=cpu_type, cpu_flags=frozenset({"aes", "avx2"})) == {"pve2", "pve3"}


def test_flags_that_proxmox_tells_of_no_node__are_not_looked_at() -> None:
    assert with_cpu(cpu_type="host", cpu_flags=frozenset({"hv-tlbflush"})) == {"pve1", "pve2", "pve3"}
    assert with_cpu(cpu_type="host", cpu_flags=frozenset({"hv-tlbflush", "avx2"})) == {"pve2", "pve3"}


def test_reason__names_the_type_or_the_flag() -> None:
    host = node("pve1", cpu_models=frozenset(), cpu_flags=frozenset())
    outcome = scheduler(cluster([host])).schedule(vm(cpu_type="EPYC"))
    assert reasons(outcome, "CPUModel") == {"pve1": "couldn't run CPU type 'EPYC'"}
    outcome = scheduler(cluster([host])).schedule(vm(cpu_flags=frozenset({"pcid", "aes"})))
    assert reasons(outcome, "CPUModel") == {"pve1": "didn't support CPU flag 'aes'"}


# --- GuestLimit ---

FOUR = [
    guest(100, "pve1", tags=frozenset({"db"})),
    guest(101, "pve1", status="stopped"),
    guest(102, "pve1", kind="lxc", tags=frozenset({"db", "web"})),
    guest(103, "pve1", template=True, tags=frozenset({"db"})),
]


def limited(nodes: list[Node], **config: t.Any) -> t.Any:
    return scheduler(cluster(nodes, FOUR), {"filters": {"GuestLimit": {"config": config}}})


def test_there__is_no_limit_until_one_is_set() -> None:
    assert allowed(limited([node("pve1")]).schedule(vm())) == {"pve1"}


def test_node_that_holds_as_many_as_allowed__is_refused() -> None:
    outcome = limited([node("pve1"), node("pve2")], max_guests=3).schedule(vm())
    assert reasons(outcome, "GuestLimit") == {"pve1": "reached max_guests 3 (it holds 3)"}
    assert allowed(limited([node("pve1")], max_guests=4).schedule(vm())) == {"pve1"}


def test_limit_per_tag__holds_for_those_that_bear_it() -> None:
    where = limited([node("pve1")], tags={"db": 2, "web": 2})
    assert allowed(where.schedule(vm("plain"))) == {"pve1"}
    assert reasons(where.schedule(vm(tags=frozenset({"db"}))), "GuestLimit") == {
        "pve1": "reached the limit 2 of guests with tag 'db' (it holds 2)"
    }
    assert allowed(where.schedule(vm("web", tags=frozenset({"web"})))) == {"pve1"}


def test_node_that_holds_more_than_the_limit__is_told_with_how_many_it_holds() -> None:
    outcome = limited([node("pve1")], max_guests=2).schedule(vm())
    assert reasons(outcome, "GuestLimit") == {"pve1": "reached max_guests 2 (it holds 3)"}


def test_what_this_run_places__counts_towards_the_limit() -> None:
    where = scheduler(cluster([node("pve1")]), {"filters": {"GuestLimit": {"config": {"max_guests": 2}}}})
    assert went_to(where, vm("a"), vm("b"), vm("c")) == ["pve1", "pve1", None]


def test_limit_that_is_no_number__is_named() -> None:
    with pytest.raises(InvalidPluginConfig, match=r"GuestLimit\.config\.tags\.db: expected at least 1, got 0"):
        limited([], tags={"db": 0})
