# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results and plans are as their JSON Schemas say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.pages import CHECKOUT

# What Ansible adds to a result.
ADDED: dict[str, Any] = {"changed": {}, "failed": {}, "invocation": {}, "warnings": {}, "deprecations": {}}


def read_schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((CHECKOUT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    return schema


def closed(schema: Any) -> Any:
    """A schema that allows no key that it does not name: what a result has is documented."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if isinstance(schema.get("properties"), dict) else inner


def assert_valid(name: str, data: Any) -> None:
    schema = closed(read_schema(name))
    schema["properties"] |= ADDED if name == "fleet" else {}
    assert [f"{e.json_path}: {e.message}" for e in jsonschema.Draft7Validator(schema).iter_errors(data)] == []


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("decision", {"node": "pve1", "new": 1, "nodes": [{"node": "pve1", "new": 1}], "runner_up": {"new": 1}}),
        ("fleet", {"clean": True, "new": 1, "vms": [{"name": "web-1", "new": 1}]}),
    ],
)
def test_schemas_of_results__allow_the_keys_of_a_later_minor_release(name: str, result: dict[str, Any]) -> None:
    checked = jsonschema.Draft7Validator(read_schema(name))
    assert checked.is_valid(result)
    assert not checked.is_valid({**result, next(iter(result)): {}})


def test_results_and_plans__are_valid(cluster: SimulatedCluster, controller: Controller, tmp_path: Path) -> None:
    vms = [
        {"name": "made", "memory": 2048, "scsi": {"scsi0": {"size": 8}}, "pool": "web"},
        {"name": "cloned", "clone": "debian-13", "state": "started", "cipassword": "not to be seen"},
        {"name": "app-1", "cores": 8},
    ]
    planned = controller.run("qemu_schedule", check=True, vms=vms, plan_file=str(tmp_path / "plan.json"))
    assert_valid("plan-of-vms", planned["vm_plan"])
    assert_valid("plan-of-vms", json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")))
    failed = controller.run("qemu_schedule", vms=[*vms, {"name": "huge", "memory": 9_000_000}])
    for vm in (*planned["vms"], *failed["vms"]):
        assert_valid("decision", vm["decision"])
    assert any(vm["decision"] and vm["decision"]["rejections"] for vm in failed["vms"])
    assert_valid("fleet", controller.run("fleet_info", vms=vms, unmanaged=True))
    cluster.set_guest(101, config={"description": "x"})
    assert_valid("plan-of-moves", controller.run("node_drain", check=True, name=["pve2"])["plan"])
