# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template and its clones in one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

TEMPLATE: dict[str, Any] = {
    "name": "golden",
    "template": True,
    "memory": 1024,
    "cores": 2,
    "scsi": {"scsi0": "shared:0,import-from=local:import/debian-13.qcow2"},
    "ide": {"ide2": "shared:cloudinit"},
    "node": "pve1",
}
CLONES: list[dict[str, Any]] = [{"name": "web-1", "clone": "golden"}, {"name": "web-2", "clone": "golden"}]


def writes(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [request for request in cluster.requests() if request["method"] != "GET"]


def named(cluster: SimulatedCluster) -> dict[str, dict[str, Any]]:
    return {guest["name"]: guest for guest in cluster.state()["guests"].values()}


@both_versions
@pytest.mark.parametrize("options", [{}, {"full": False}, {"storage": "local-lvm"}])
def test_template_and_clones__are_made_in_one_task_in_this_order(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any]
) -> None:
    # The clones come first in the list.
    asked = {"vms": [*({**clone, **options, "ciuser": "admin"} for clone in CLONES), TEMPLATE]}
    planned = controller.schedule(**asked, check=True)
    assert writes(cluster) == []
    made = controller.schedule(**asked)
    assert [(vm["node"], vm["vmid"], vm["storages"]) for vm in made["vms"]] == [
        (vm["node"], vm["vmid"], vm["storages"]) for vm in planned["vms"]
    ]
    guests = named(cluster)
    assert guests["golden"]["template"] is True
    for vm in made["vms"][:2]:
        config = guests[vm["name"]]["config"]
        assert (int(config["memory"]), config["cores"], config["ciuser"]) == (1024, 2, "admin")
        assert {slot: config[slot].partition(":")[0] for slot in vm["storages"]} == vm["storages"]
    again = controller.schedule(**asked)
    assert (again["changed"], [vm["drift"] for vm in again["vms"]]) == (False, [{}] * 3)


@both_versions
def test_clones_of_a_template_that_is_not_made__are_not_made_either(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    before = cluster.state()["guests"].keys()
    cluster.fault(method="POST", path="/template$", task_error="no space left")
    failed = controller.fail("TaskFailed", vms=[TEMPLATE, *CLONES])
    assert "no space left" in failed["msg"]
    assert [r["path"] for r in writes(cluster) if r["path"].endswith("/clone")] == []
    assert cluster.state()["guests"].keys() - before == {failed["vms"][0]["vmid"]}, "it is kept, and finished later"
    cluster.clear_faults()
    finished = controller.schedule(vms=[*CLONES, TEMPLATE])
    assert [vm["actions"] for vm in finished["vms"]] == [["clone"], ["clone"], ["finish"]]
    assert {"golden", "web-1", "web-2"} <= named(cluster).keys()
    assert [named(cluster)[name]["config"].get("description") for name in ("golden", "web-1", "web-2")] == [None] * 3


@both_versions
def test_template_that_fits_nowhere__keeps_its_clones_from_being_made(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    large = {**TEMPLATE, "scsi": {"scsi0": "shared:9000"}}
    failed = controller.fail("NoStorageAvailable", vms=[large, *CLONES])
    assert "no VM 'golden' exists" in failed["msg"]
    assert writes(cluster) == []


def test_clone_of_the_task_that_contradicts_its_template__is_refused_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    failed = controller.fail("InvalidRequest", vms=[TEMPLATE, {**CLONES[0], "vcpus": 8}])
    assert "vcpus" in failed["msg"]
    assert writes(cluster) == []


def test_plan_with_a_template_and_its_clones__is_carried_out(
    controller: Controller, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    path = str(tmp_path / "plan")
    planned = controller.schedule(vms=[TEMPLATE, *CLONES], plan_file=path, check=True)
    made = controller.schedule(vms=[TEMPLATE, *CLONES], apply=path)
    assert [vm["vmid"] for vm in made["vms"]] == [vm["vmid"] for vm in planned["vms"]]


def test_template_that_exists__has_precedence(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(**TEMPLATE)
    made = controller.schedule(vms=[TEMPLATE, *CLONES])
    assert [vm["changed"] for vm in made["vms"]] == [False, True, True]
