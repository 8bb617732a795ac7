# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Misspelt variables of roles are found, and the user's own variables are left alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.variables import (
    role_variables,
    stray_options,
    unknown_variables,
)

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
                "qemu_vms[0]: expected a mapping, such as {name: web-1, memory: 2048}, got a text; a space belongs "
                "behind the colon",
                "qemu_vms[1]: expected a mapping, such as {name: web-1, memory: 2048}, got nothing",
            ],
        ),
    ],
)
def test_list_of_vms__that_is_none_is_refused_with_what_is_expected(vms: object, told: list[str]) -> None:
    assert unknown_variables(KNOWN, KNOWN, "teardown_", lists={"qemu_vms": vms}) == told


def test_text__is_told_where_it_comes_from() -> None:
    (told,) = unknown_variables(KNOWN, KNOWN, "teardown_", lists={"qemu_vms": '[{"name": "a"}]'})
    assert told.endswith("got a text; -e NAME=VALUE gives a text, and -e @FILE what the file has")


def test_words_that_ansible_drops__are_told() -> None:
    """C(-e "nodes=pve1 pve2") sets nodes to pve1."""
    (told,) = unknown_variables([*KNOWN, "_raw_params"], KNOWN, "teardown_")
    assert told.startswith("-e has a word that is not NAME=VALUE")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("drain_state", ["unknown variable drain_state; did you mean node_drain_state?"]),
        ("state", []),
        ("drain", []),
        ("drain_window", []),
    ],
)
def test_variable_without_the_first_word_of_its_role__is_a_misspelling(name: str, told: list[str]) -> None:
    known = ["node_drain_nodes", "node_drain_state"]
    assert unknown_variables([*known, name], known, "node_drain_") == told


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


@pytest.mark.parametrize("name", ["only_pools", "Only_Pool", "only-pool", "onlypool", "only_tag", "pool_only"])
def test_misspelt_guard_beside_the_options__is_told(name: str) -> None:
    (told,) = stray_options([name, "lab_only_pool", "only"], [{"name": "a"}], {})
    assert told.startswith(f"variable {name} has no effect on the VMs; expected only_")
    assert stray_options([name], [{"name": "a"}], {"only_pool": "lab", "only_tags": ["lab"]}) == []
