# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Misspelt variables of roles are found, and the user's own variables are left alone."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path

import pytest
import yaml

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.variables import (
    role_variables,
    stray_options,
    unknown_variables,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import parse_networks

CHECKOUT = Path(__file__).parents[3]
KNOWN = ["qemu_options", "qemu_vms", "teardown_only_pool", "teardown_plan_only"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("qemu_option", "qemu_options"),
        ("qemu_opts", "qemu_options"),
        ("Qemu_options", "qemu_options"),
        ("qemuoptions", "qemu_options"),
        ("qemu_options_", "qemu_options"),
        ("qemu_vm", "qemu_vms"),
        ("quemu_vms", "qemu_vms"),
        ("teardown_only_pol", "teardown_only_pool"),
        ("tear_down_only_pool", "teardown_only_pool"),
        ("teardwon_only_pool", "teardown_only_pool"),
        ("QEMU_OPTIONS", "qemu_options"),
        ("qemuVms", "qemu_vms"),
        ("vms_qemu", "qemu_vms"),
        ("Teardown_Only_Pols", "teardown_only_pool"),
    ],
)
def test_misspelt_variable__is_named_with_the_one_that_is_meant(name: str, meant: str) -> None:
    assert unknown_variables([*KNOWN, name], KNOWN, "teardown_") == [f"unknown variable {name}; did you mean {meant}?"]


@pytest.mark.parametrize(
    "name", ["my_qemu_options", "qemu_options_lab", "qemu_vms_by_site", "vms", "provision_state", "ansible_host"]
)
def test_variable_of_the_user__is_no_misspelling(name: str) -> None:
    assert unknown_variables([*KNOWN, name], KNOWN, "teardown_") == []


def test_unknown_variable_with_the_prefix_of_the_role__is_refused_whatever_it_is() -> None:
    (sentence,) = unknown_variables(["teardown_wxyzwxyzwxyzwxyzwxyz"], KNOWN, "teardown_")
    known = ", ".join(KNOWN)
    assert sentence == f"unknown variable teardown_wxyzwxyzwxyzwxyzwxyz; known variables: {known}"


def test_options_that_are_text__are_refused_like_misspelt_variables() -> None:
    given = {"qemu_options": '{"timeout": 9}', "node_drain_options": {}}
    assert unknown_variables(KNOWN, KNOWN, "teardown_", given) == [
        "qemu_options: expected a mapping, such as {api_port: 8006}, got a text"
    ]


@pytest.mark.parametrize(
    ("vms", "told"),
    [
        ([{"name": "a"}], []),
        ((), []),
        (None, ["qemu_vms: expected a list of mappings, such as [{name: web-1, memory: 2048}], got nothing"]),
        (
            {"name": "a"},
            ["qemu_vms: expected a list of mappings, such as [{name: web-1, memory: 2048}], got a mapping"],
        ),
        ([{}, "a"], ["qemu_vms[1]: expected a mapping, such as {name: web-1, memory: 2048}, got a text"]),
        (
            ["name:a", None],
            [
                "qemu_vms[0]: expected a mapping, such as {name: web-1, memory: 2048}, got a text; put a space after "
                "the colon",
                "qemu_vms[1]: expected a mapping, such as {name: web-1, memory: 2048}, got nothing",
            ],
        ),
    ],
)
def test_list_of_vms__that_is_none_is_refused_with_what_is_expected(vms: object, told: list[str]) -> None:
    assert unknown_variables(KNOWN, KNOWN, "teardown_", lists={"qemu_vms": vms}) == told


def test_text__is_told_where_it_comes_from() -> None:
    (told,) = unknown_variables(KNOWN, KNOWN, "teardown_", lists={"qemu_vms": '[{"name": "a"}]'})
    assert told.endswith("got a text; -e NAME=VALUE always passes a string; use -e @FILE")


def test_words_that_ansible_drops__are_told() -> None:
    """C(-e "nodes=pve1 pve2") sets nodes to pve1."""
    (told,) = unknown_variables([*KNOWN, "_raw_params"], KNOWN, "teardown_")
    assert told.startswith("-e has a word that is not NAME=VALUE")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1.5, "a number"),
        (True, "a boolean"),
        ((), "a list"),
        (datetime.date(2026, 1, 2), "a date"),
        (b"x", "binary data"),
        ({1}, "a value of type set"),
    ],
)
def test_value_of_another_type__is_told_by_its_type(value: object, told: str) -> None:
    (sentence,) = unknown_variables(KNOWN, KNOWN, "teardown_", {"qemu_options": value})
    assert sentence.endswith(f", got {told}")


def test_option_that_the_role_sets_itself__is_refused_with_its_variable() -> None:
    given = {"qemu_options": {"vms": [], "clone": "debian-13"}, "none": {"vms": None}}
    assert unknown_variables(KNOWN, KNOWN, "teardown_", given, elsewhere={"vms": "qemu_vms", "name": "x"}) == [
        "qemu_options: vms has no effect there; use qemu_vms instead"
    ]


STATE = ("drained", "active")


@pytest.mark.parametrize(
    ("short", "values", "told"),
    [
        ("state", ("active", "drained", *STATE), True),
        ("state", ("active", None, *STATE), True),
        ("state", ("active", "active", *STATE), False),
        ("state", ("drained", "drained", *STATE), False),
        ("state", ("ready", "drained", *STATE), False),
        ("state", ({"changed": True}, "drained", *STATE), False),
        ("state", (None, "drained", *STATE), False),
        ("apply", ("plan.json", "", ""), True),
        ("apply", ("plan.json", "plan.json", ""), False),
        ("apply", ("plan.json", {"moves": []}, ""), False),
        ("apply", ({"changed": True}, "", ""), False),
        ("plan_only", ("yes", False, False), True),
        ("plan_only", (True, True, False), False),
        ("plan_only", ("no", False, False), False),
        ("plan_only", ([], False, False), False),
        ("nodes", (False, True, True), True),
        ("nodes", ("no", True, True), True),
        ("nodes", (False, False, True), False),
        ("nodes", (["pve1"], True, True), False),
        ("order", ([{"tags": ["db"]}], [], []), True),
        ("order", (["web", "db"], [], []), False),
        ("order", ("web,db", [], []), False),
        ("order", ([{"tags": ["db"]}], [{"tags": ["db"]}], []), False),
        ("order", (5, [], []), False),
        ("only_if", ("updates,kernel", [], [], "updates", "kernel"), True),
        ("only_if", (["kernel"], [], [], "updates", "kernel"), True),
        ("only_if", (["tuesday"], [], [], "updates", "kernel"), False),
    ],
)
def test_variable_without_the_first_word_of_its_role__is_refused_if_it_has_no_effect(
    short: str, values: tuple[object, ...], told: bool
) -> None:
    """Else C(drain_state=active) drains the node. A variable has one if that of the role is set from it."""
    sentences = unknown_variables([], [], "node_drain_", shortened={f"drain_{short}": values})
    assert sentences == ([f"unknown variable drain_{short}; did you mean node_drain_{short}?"] if told else [])


def test_variables_of_a_wrapper__are_no_misspellings() -> None:
    """It sets the variables of the role from variables of its own, which are called like them."""
    for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml"):
        role = path.parts[-3]
        known = role_variables(str(path.parents[1])) if role != "html_page" else []
        own = [name.partition("_")[2] for name in known if name.startswith(f"{role}_")]
        assert unknown_variables([*known, *own], known, f"{role}_") == [], role


def test_variables_of_one_role__are_no_misspellings_of_those_of_another() -> None:
    roles = {
        path.parts[-3]: list(yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"]["options"])
        for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml")
    }
    for here, there in itertools.permutations(roles, 2):
        assert unknown_variables(roles[there], roles[here], f"{here}_") == [], (here, there)


def test_variables_of_a_role__are_its_options_and_its_vars() -> None:
    names = role_variables(str(CHECKOUT / "roles" / "teardown"))
    assert {"qemu_vms", "teardown_only_pool", "teardown_known"}.issubset(names)
    assert "argument_specs" not in names


@pytest.mark.parametrize(
    ("vms", "options", "stray"),
    [
        ([{"name": "a"}], {}, ["clone", "memory"]),
        ([{"name": "a", "memory": 512}], {}, ["clone"]),
        ([{"name": "a"}], {"memory": 512, "clone": "debian-13"}, []),
        ([{"name": "a", "memory": 1, "clone": 9000}], {}, []),
        (["odd"], None, ["clone", "memory"]),
        ("odd", None, []),
    ],
)
def test_option_of_vms_beside_their_list__is_told_where_no_vm_has_it(
    vms: object, options: object, stray: list[str]
) -> None:
    assert stray_options(["memory", "clone", "name", "state", "qemu_vms"], vms, options) == [
        f"variable {name} has no effect on the VMs; expected it in qemu_options or in an entry of qemu_vms"
        for name in stray
    ]


@pytest.mark.parametrize(
    "name",
    [
        "only_pools",
        "Only_Pool",
        "only-pool",
        "onlypool",
        "only_tag",
        "pool_only",
        "qemu_only_pool",
        "provision_only_tags",
    ],
)
def test_misspelt_guard_beside_the_options__is_told(name: str) -> None:
    (told,) = stray_options([name, "lab_only_pool", "only"], [{"name": "a"}], {}, True)
    assert told.startswith(f"variable {name} has no effect on the VMs; expected only_")
    guarded = {"only_pool": "lab", "only_tags": ["lab"]}
    assert stray_options([name], [{"name": "a"}], guarded, True) == []
    assert stray_options([name], [{"name": "a", **guarded}], {}, True) == []


@pytest.mark.parametrize(
    ("vms", "options", "lost"),
    [
        ([{"name": "a", "only_pool": "lab"}, {"name": "b"}], {}, True),
        ([{"name": "a", "only_pool": "lab"}, {"name": "b"}], {"only_pool": "lab"}, False),
        ([{"name": "a", "only_pool": None}], {}, True),
        ([{"name": "a", "only_pool": None}], {"only_pool": "lab"}, False),
        ([{"name": "a"}], {"only_tags": ["lab"]}, True),
        (({"name": "a"},), {}, True),
    ],
)
def test_guard__is_lost_if_one_vm_that_is_removed_lacks_it(vms: object, options: object, lost: bool) -> None:
    assert bool(stray_options(["only_pool"], vms, options, True)) == lost


@pytest.mark.parametrize(
    ("vms", "options", "lost"),
    [
        ([{"name": "a"}], {}, False),
        ([{"name": "a", "state": "absent"}, {"name": "b"}], {}, True),
        ([{"name": "a", "state": "absent", "only_pool": "lab"}, {"name": "b"}], {}, False),
        ([{"name": "a"}], {"state": "absent"}, True),
        ([{"name": "a", "state": "started"}], {"state": "absent"}, False),
        ([{"name": "a-{n}", "count": 2, "surplus": "absent"}], {}, True),
    ],
)
def test_guard__matters_only_where_a_vm_is_removed(vms: object, options: object, lost: bool) -> None:
    assert bool(stray_options(["only_pool"], vms, options)) == lost


def test_variables_of_other_roles__are_left_alone() -> None:
    others = ["affinity", "bios", "net", "node_affinity", "tolerations"]
    assert stray_options(others, [{"name": "a"}], {}) == []
    assert stray_options(["memory", "clone", *others], [{"name": "a"}], {}, True) == []


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (["192.0.2.0/24", "10.0.0.0/33"], "10.0.0.0/33"),
        ("192.0.2.0/24, 10.0.0.0/33", "10.0.0.0/33"),
        ("192.0.2.0/24,", "an empty text"),
        (10, "10"),
        (True, "True"),
    ],
)
def test_item_that_is_no_network__is_named(value: object, told: str) -> None:
    sentences = unknown_variables([], [], "provision_", networks={"provision_address_networks": value})
    assert sentences == [f"provision_address_networks: expected networks, such as 192.0.2.0/24, got {told}"]


@pytest.mark.parametrize("value", [[], None, "", ["192.0.2.1/24", " 2001:db8::/32"], "192.0.2.0/24, 2001:db8::1"])
def test_networks__pass_as_they_pass_in_the_module(value: list[str] | str | None) -> None:
    assert unknown_variables([], [], "provision_", networks={"provision_address_networks": value}) == []
    parse_networks(value.split(",") if value and isinstance(value, str) else value or ())
