# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is planned for a VM that exists when the HA manager is to keep it, or keeps it otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from support.small_cluster import guest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import DriftNotApplicable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.existing.comparison import (
    Comparison,
    ExistingPlan,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import build_entries

GROUPS = {"/cluster/ha/groups": [{"group": "g12", "nodes": "pve1,pve2"}, {"group": "g3", "nodes": "pve3"}]}
RULES = {
    "/cluster/ha/rules": [
        {"rule": "ha-group-g12", "type": "node-affinity", "nodes": "pve1,pve2", "resources": "vm:100"},
        {"rule": "ha-group-g3", "type": "node-affinity", "nodes": "pve3", "resources": "vm:7"},
        {"rule": "apart", "type": "resource-affinity", "affinity": "negative", "resources": "vm:7,vm:8"},
    ]
}
NODES = [{"type": "node", "node": name} for name in ("pve1", "pve2", "pve3")]


def plan(
    ha: dict[str, str],
    resources: list[dict[str, str]] | None,
    answers: Any = (),
    status: str = "running",
    **options: Any,
) -> ExistingPlan:
    """resources None: they may not be seen."""
    known = {} if resources is None else {"/cluster/ha/resources": resources}
    config = {"/cluster/resources": NODES, "/nodes/pve1/qemu/100/config": {"name": "web"}}
    reader = RecordedReader({**config, **known, **dict(answers)})
    (asked,) = build_entries({"name": "web", "ha": ha, **options}, ONE_VM_OPTIONS, 0.0)
    return Comparison(reader).plan(asked, guest(100, "pve1", name="web", status=status))


@pytest.mark.parametrize(
    ("resources", "joins"),
    [([], True), ([{"sid": "vm:100"}], False), ([{"sid": "vm:1"}], True), (None, True)],
)
def test_vm__joins_ha_unless_it_is_there_already(resources: list[dict[str, str]] | None, joins: bool) -> None:
    found = plan({"state": "started"}, resources, update=True)
    assert found.drift == ({"ha": {"old": None, "new": {"state": "started"}}} if joins else {})
    assert found.actions == (["update"] if joins else [])


@pytest.mark.parametrize(("given", "wanted"), [({"group": "g12"}, "g3"), ({}, "g3"), ({"group": "g3"}, None)])
def test_another_group__is_drift_that_an_update_applies(given: dict[str, str], wanted: str | None) -> None:
    resources = [{"sid": "vm:100", **given}]
    for update in (False, True):
        found = plan({"group": "g3"}, resources, GROUPS, update=update)
        expected = {"ha": {"old": {"group": given.get("group")}, "new": {"group": wanted}}} if wanted else {}
        assert found.drift == expected
        assert found.actions == (["update"] if update and wanted else [])
        assert bool(found.warnings({})) is bool(wanted and not update)


def test_rule_that_the_vm_is_not_in__is_drift() -> None:
    resources = [{"sid": "vm:100"}]
    assert plan({"rule": "ha-group-g12"}, resources, RULES).drift == {}
    found = plan({"rule": "apart"}, resources, RULES, update=True)
    assert (found.drift, found.actions) == ({"ha": {"old": {"rule": None}, "new": {"rule": "apart"}}}, ["update"])


@pytest.mark.parametrize("resources", [[{"sid": "vm:100"}], []])
@pytest.mark.parametrize(
    ("ha", "answers", "reason"),
    [
        ({"group": "nope"}, GROUPS, "unknown HA group 'nope'; known groups: g12, g3"),
        ({"group": "g12"}, RULES, "this cluster has HA rules, use ha.rule: apart, ha-group-g12, ha-group-g3"),
        ({"rule": "ha-group-g3"}, RULES, "the VM is in node-affinity rule 'ha-group-g12' already"),
    ],
)
def test_what_cannot_be_joined__is_said_before_anything_is_written(
    resources: list[dict[str, str]], ha: dict[str, str], answers: Any, reason: str
) -> None:
    told = plan(ha, resources, answers)
    assert told.drift["ha"]["new"] == ha
    (warning,) = told.warnings({})
    assert "It cannot be updated: " in warning
    assert reason in warning
    assert "update=true" not in warning
    with pytest.raises(DriftNotApplicable, match=reason):
        plan(ha, resources, answers, update=True)


@pytest.mark.parametrize(
    ("ha", "kept", "options", "old"),
    [
        ({"state": "started"}, "stopped", {}, "stopped"),
        ({"state": "started"}, "enabled", {}, None),
        ({"state": "disabled"}, "stopped", {}, "stopped"),
        ({"group": "g12"}, "stopped", {}, None),
        # To start and to stop it sets what HA makes of it.
        ({"state": "started"}, "stopped", {"state": "started", "status": "stopped"}, None),
        ({"state": "stopped"}, "started", {"state": "stopped", "status": "running"}, None),
        ({"state": "started"}, "ignored", {"state": "started", "status": "stopped"}, "ignored"),
        # HA would start it.
        ({"group": "g12"}, "started", {"state": "stopped", "status": "stopped"}, "started"),
        ({"group": "g12"}, "disabled", {"state": "stopped", "status": "stopped"}, None),
    ],
)
def test_state_that_ha_keeps_it_in__is_compared(
    ha: dict[str, str], kept: str, options: dict[str, str], old: str | None
) -> None:
    found = plan(ha, [{"sid": "vm:100", "state": kept, "group": "g12"}], GROUPS, **options)
    assert (found.drift["ha"]["old"] if found.drift else None) == (old and {"state": old})
