# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VMs that a task asks for, from its options."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, MIB
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import (
    Entry,
    build_entries,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.plugin_config import (
    profiles_in_use,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.source_options import Clone

PER_VM = list(ONE_VM_OPTIONS)


def entries(**params: Any) -> list[Entry]:
    return build_entries(params, PER_VM, 1000.0)


def test_options_at_the_top__are_one_vm_without_vms() -> None:
    (entry,) = entries(name="web", cores=2, sockets=2, memory=1024, state="started")
    assert (entry.position, entry.state, entry.label) == (0, "started", 'VM "web"')
    assert (entry.request.cores, entry.request.memory, entry.request.running) == (4, GIB, True)
    assert entry.request.created == 1000.0


def test_entry__replaces_a_default_as_a_whole_and_keeps_the_others() -> None:
    plain, own = entries(
        memory=2048,
        tags=["a", "b"],
        update=True,
        scsi={"scsi0": {"size": 8}, "scsi1": {"size": 9}},
        vms=[{"name": "plain"}, {"name": "own", "tags": ["c"], "scsi": {"scsi0": {"size": 4}}, "update": False}],
    )
    assert (plain.request.tags, own.request.tags) == (frozenset("ab"), frozenset("c"))
    assert [disk.slot for disk in plain.request.disks] == ["scsi0", "scsi1"]
    assert [(disk.slot, disk.size) for disk in own.request.disks] == [("scsi0", 4 * GIB)]
    assert plain.request.memory == own.request.memory == 2048 * MIB
    assert (plain.update, own.update) == (True, False)
    assert [entry.position for entry in (plain, own)] == [0, 1]


def test_empty_list_of_vms__is_none() -> None:
    assert entries(memory=512, vms=[]) == []


def test_vm_without_a_name__is_called_by_its_vmid() -> None:
    (entry,) = entries(vmid=100)
    assert entry.label == "VM 100"


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"name": "web", "vms": [{"memory": 512}]}, "name: cannot be a default"),
        ({"vmid": 100, "vms": [{"name": "a"}]}, "vmid: cannot be a default"),
        ({"vms": [{"name": "a"}, {"name": "a"}]}, "name: 'a' is set in 2 entries"),
        ({"vms": [{"vmid": 100}, {"vmid": 100}, {"vmid": 101}]}, "vmid: 100 is set in 2 entries"),
        ({"name": "a", "clone": "t", "full": False, "storage": "local"}, "storage: 'local' is for full clones only"),
        ({"name": "a", "clone": "t", "full": False, "format": "raw"}, "format: 'raw' is for full clones only"),
        ({"vms": [{"name": "a", "template": True}], "state": "started"}, "state: 'started' contradicts"),
        ({"name": "a", "storage": "fast"}, "storage: 'fast' requires clone or archive, which is not set; set it in"),
        ({"name": "a", "full": False}, "full: False requires clone"),
        ({"name": "a", "snapname": "x", "state": "started"}, "snapname: 'x' requires clone"),
        ({"name": "a", "clone": 9000, "snapname": "x" * 41}, "expected at most 40 characters, and it has 41"),
        ({"name": "a", "archive": "nas:backup/" + "x" * 245}, "expected at most 255 characters, and it has 256"),
        ({"vms": [{"name": "a", "clone": "t"}, {"name": "b", "format": "raw"}]}, "vms[1].format: 'raw' requires clone"),
        ({"vms": [{"name": "a"}, {"name": "b"}], "storage": "fast"}, "storage: 'fast' requires clone or archive"),
        (
            {"name": "a", "ha": {"state": "stopped"}, "state": "started"},
            "ha.state: 'stopped' contradicts state: 'started'",
        ),
        ({"name": "a", "ha": {"state": "disabled"}, "state": "started"}, "ha.state: 'disabled' contradicts"),
        ({"name": "a", "ha": {"state": "started"}, "state": "stopped"}, "ha.state: 'started' contradicts"),
        (
            {"vms": [{"name": "a", "ha": {"state": "started"}, "template": True}]},
            "vms[0].ha.state: 'started' contradicts template",
        ),
        ({"vms": [{"name": "a"}, {"name": "b", "affinity": [{"type": "near"}]}]}, "vms[1].affinity[0].type"),
        (
            {"group": {"name": "g"}, "vms": [{"name": "a"}, {"name": "b", "group": {"name": "g", "min_available": 2}}]},
            'group.min_available: 2 for VM "b" and not given for VM "a", both in group \'g\'',
        ),
    ],
)
def test_mistake__is_named(params: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        entries(**params)
    assert told in error.value.message


def test_options_for_clones__may_be_defaults_where_some_vms_are_none() -> None:
    clone, plain, gone = entries(
        storage="fast", vms=[{"name": "a", "clone": "t"}, {"name": "b"}, {"name": "c", "state": "absent"}]
    )
    assert clone.clone == Clone("t", storage="fast")
    assert plain.clone is gone.clone is None
    entries(name="gone", state="absent", storage="fast")
    entries(name="plain", format="unspecified")
    entries(vms=[], storage="fast")


def test_groups_of_other__names_and_vms_that_are_to_go_have_no_say_in_a_group() -> None:
    two = {"name": "g", "min_available": 2}
    entries(group=two, vms=[{"name": "a"}, {"name": "b", "group": {"name": "h"}}, {"name": "c", "state": "absent"}])
    entries(group=two, vms=[{"name": "a"}, {"name": "c", "state": "absent", "group": {"name": "g"}}])


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({}, None),
        ({"state": "started"}, None),
        ({"state": "stopped"}, "stopped"),
        ({"template": True}, "stopped"),
        ({"state": "stopped", "ha": {"state": "ignored"}}, "ignored"),
        ({"state": "absent", "ha": {"state": "started"}, "template": True}, "started"),
    ],
)
def test_ha__is_not_left_to_start_what_is_not_to_run(options: dict[str, Any], state: str | None) -> None:
    (entry,) = entries(**{"name": "web", "ha": {"rule": "apart"}, **options})
    assert entry.request.ha is not None
    assert entry.request.ha.state == state


@pytest.mark.parametrize(
    ("given", "clone"),
    [
        ({}, None),
        ({"clone": "golden"}, Clone("golden")),
        ({"clone": 9000, "full": False, "snapname": "clean"}, Clone(vmid=9000, full=False, snapname="clean")),
        ({"clone": "g", "storage": "ceph", "format": "unspecified"}, Clone("g", storage="ceph")),
        ({"clone": "g", "full": False, "format": "unspecified"}, Clone("g", full=False)),
    ],
)
def test_clone__is_full_unless_it_is_said_otherwise(given: dict[str, Any], clone: Clone | None) -> None:
    (entry,) = entries(name="web", **given)
    assert entry.clone == clone


def test_given__are_the_options_that_were_set_anywhere() -> None:
    (entry,) = entries(memory=512, vms=[{"name": "web", "cores": 2}])
    assert entry.given.keys() == {"memory", "name", "cores"}


def test_profiles_in_use__are_the_default_one_and_those_that_entries_name() -> None:
    known = build_profiles(builtin_registry())
    named = entries(vms=[{"name": "a", "profile": "pack"}, {"name": "b"}, {"name": "c", "profile": "pack"}])
    gone = entries(name="d", profile="removed", state="absent")
    assert profiles_in_use(named, known, "balanced") == {"balanced": known["balanced"], "pack": known["pack"]}
    assert set(profiles_in_use(gone, known, "balanced")) == {"balanced"}
