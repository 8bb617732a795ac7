# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documentation of the VM options says what the table of options does."""

from __future__ import annotations

import re
import typing as t

import yaml

from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.vm_options import ModuleDocFragment
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.table import (
    VM_ARGUMENT_SPEC,
    VM_OPTIONS,
)

TOP: dict[str, t.Any] = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
ENTRY: dict[str, t.Any] = yaml.safe_load(ModuleDocFragment.VMS)["options"]["vms"]["suboptions"]


def declared(documented: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the argument spec that a piece of documentation describes."""
    spec = {}
    for name, option in documented.items():
        spec[name] = {key: option[key] for key in ("type", "elements", "choices", "default") if key in option}
        if "suboptions" in option:
            spec[name]["options"] = declared(option["suboptions"])
    return spec


def test_every_option__is_documented_with_its_type_choices_and_default() -> None:
    spec = {name: {key: each[key] for key in each if key != "no_log"} for name, each in VM_ARGUMENT_SPEC.items()}
    assert declared(TOP) == spec


def test_entry_of_vms__has_the_options_of_the_top_level() -> None:
    assert declared(ENTRY) == declared(TOP)


def test_entry_of_vms__links_to_its_own_options() -> None:
    assert "O(vms[].scsi)" in " ".join(ENTRY["ide"]["description"])
    assert not re.search(r"\bO\((?!vms\[\]\.)", ModuleDocFragment.VMS)


def test_documented_keys_of_a_family__are_those_that_are_taken() -> None:
    for option in VM_OPTIONS:
        if option.count:
            text = " ".join(TOP[option.name]["description"])
            assert f"C({option.api}0)" in text, option.name
            assert option.count == 1 or f"C({option.api}{option.count - 1})" in text, option.name
