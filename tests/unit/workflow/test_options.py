# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults of a VM's options: in the argument spec and its documentation, and only where no entry is overruled."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.identity import ModuleDocFragment as Identity
from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.placement import ModuleDocFragment as Placement
from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.vms import ModuleDocFragment as VMs
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import number_text
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Bounds
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.move_options import MoveOptions
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import (
    DEFAULTS,
    ONE_VM_OPTIONS,
    SEARCH_OPTIONS,
    search_steps,
    vms_argument_spec,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import (
    Entry,
    build_entries,
)

ENTRY = ONE_VM_OPTIONS
MOVING = {
    "offline": "never", "containers": "stay", "vms_not_live": "skip", "local_disks": True, "tag_rules": True,
    "timeout": 60, "on_failure": "stop", "search_time": 1.0,
}  # fmt: skip
SPEC = vms_argument_spec()
TOP = {**yaml.safe_load(Identity.DOCUMENTATION)["options"], **yaml.safe_load(Placement.DOCUMENTATION)["options"]}


def entries(**options: Any) -> list[Entry]:
    """The entries of a task with these options, as Ansible validates them."""
    validated = ArgumentSpecValidator(SPEC).validate(options)
    assert validated.error_messages == []
    return build_entries(validated.validated_parameters, ENTRY, 0.0)


def test_defaults__are_documented_at_the_top_level_and_not_in_entries() -> None:
    assert {name: option["default"] for name, option in TOP.items() if "default" in option} == DEFAULTS
    suboptions = yaml.safe_load(VMs.DOCUMENTATION)["options"]["vms"]["suboptions"]
    assert not [name for name in DEFAULTS if "default" in suboptions[name] or "default" in ENTRY[name]]
    assert suboptions["affinity"]["suboptions"]["topology_key"]["default"] == "node"


@pytest.mark.parametrize(
    ("top", "own", "expected"),
    [
        ({}, {}, ("present", False, 0)),
        ({"state": "started", "update": True, "priority": 5}, {}, ("started", True, 5)),
        ({"state": "started", "update": True}, {"state": "present", "update": False}, ("present", False, 0)),
        ({}, {"state": "started", "priority": "7"}, ("started", False, 7)),
    ],
)
def test_defaults__give_way_to_the_top_level_and_that_to_the_entry(
    top: dict[str, Any], own: dict[str, Any], expected: tuple[str, bool, int]
) -> None:
    (entry,) = entries(vms=[{"name": "web-1", **own}], **top)
    assert (entry.state, entry.update, entry.request.priority) == expected


def test_affinity__has_its_defaults_in_entries_as_well() -> None:
    rule = {"type": "anti-affinity", "name": "web-.*"}
    for entry in (*entries(name="web-1", affinity=[rule]), *entries(vms=[{"name": "web-1", "affinity": [rule]}])):
        (term,) = entry.request.affinity
        assert (term.together, term.required, term.topology_key, term.weight) == (False, True, "node", 1)


@pytest.mark.parametrize(("seconds", "steps"), [(2.0, 200_000), (0.5, 50_000), (0.000001, 1), (60.0, 6_000_000)])
def test_search_time__stands_for_a_fixed_number_of_steps(seconds: float, steps: int) -> None:
    assert search_steps({"search_time": seconds}) == steps


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 2e9])
def test_search_time__must_be_a_positive_number(seconds: float) -> None:
    with pytest.raises(InvalidRequest) as error:
        search_steps({"search_time": seconds})
    assert error.value.message.startswith(f"search_time: {number_text(seconds)} is not possible, expected a number of")


def test_search_time__is_by_default_what_the_planner_takes() -> None:
    assert search_steps({"search_time": SEARCH_OPTIONS["search_time"]["default"]}) == Bounds().steps


@pytest.mark.parametrize(("gib", "most"), [(None, None), (1.0, GIB), (0.5, GIB // 2)])
def test_max_transfer__is_in_gib(gib: float | None, most: int | None) -> None:
    assert MoveOptions.of({**MOVING, "max_transfer": gib}).bounds.max_bytes == most
