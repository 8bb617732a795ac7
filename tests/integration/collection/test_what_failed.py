# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of VMs that failed: what was done and what there is, not what was planned."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.postgres import postgres_server
from support.waiting import until

VM: dict[str, Any] = {"memory": 1024, "scsi": {"scsi0": {"storage": "shared", "size": 4}}}
MOODY = """from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plugin_api import FilterPlugin


class Moody(FilterPlugin):
    name = "Moody"

    def filter(self, state, request, node):
        if request.name.startswith("web"):
            raise ArithmeticError(f"not {request.name}")
"""
KEYS = ("changed", "actions", "not_done", "status")


def told(result: dict[str, Any]) -> tuple[Any, ...]:
    """The task's changed, and what became of its only VM."""
    (vm,) = result["vms"]
    return (result["changed"], *(vm[key] for key in KEYS[1:]))


def test_plugin_that_fails__is_told_once_with_all_vms_that_it_failed_for(
    controller: Controller, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "moody.py"
    file.write_text(MOODY, encoding="utf-8")
    vms = [{"name": name} for name in ("web-1", "db-1", "web-2")]
    options = {"vms": vms, "all_or_nothing": False, "plugin_paths": [str(file)]}
    failed = controller.fail("PluginFailed", **options, plugin_config={"filters": {"Moody": {}}})
    assert failed["msg"] == 'VM "web-1", VM "web-2": plugin Moody failed: ArithmeticError: not web-1 (moody.py, line 9)'
    assert [vm["action"] for vm in failed["vms"]] == ["none", "create", "none"]


# --- new VMs ---


@pytest.mark.parametrize("refusal", [{"status": 500, "message": "no creating today"}, {"task_error": "no space"}])
def test_refused_create__leaves_nothing(
    controller: Controller, cluster: SimulatedCluster, refusal: dict[str, Any]
) -> None:
    cluster.fault(method="POST", path="/qemu$", **refusal)
    failed = controller.run("qemu_schedule", name="web-1", state="started", diff=True, **VM)
    assert told(failed) == (False, [], ["create", "start"], "absent")
    (vm,) = failed["vms"]
    assert (vm["node"], vm["vmid"], vm["storages"]) == (None, None, {})
    assert (failed["node"], failed["vmid"]) == (None, None)
    assert vm["decision"]["node"] is not None
    assert "diff" not in failed


def test_vm_that_does_not_start__is_known_to_other_runs_before_the_cluster_shows_its_name(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    """The node may be lost in that moment: then the cluster never learns the name, and the VM would be made again."""
    cluster.fault(method="POST", path="/status/start$", task_error="no bridge")
    failed = controller.fail("TaskFailed", name="web-1", state="started", **VM)
    with closing(sqlite3.connect(controller.folder / "state/qemu_scheduler/reservations.db")) as ledger:
        known = ledger.execute("SELECT vmid, name, phase FROM qemu_scheduler_reservations").fetchall()
    assert known == [(failed["vms"][0]["vmid"], "web-1", "created")]


def test_vm_that_does_not_start__is_there_and_stopped(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/status/start$", task_error="no bridge")
    failed = controller.fail("TaskFailed", name="web-1", clone="debian-13", cores=4, state="started", diff=True)
    assert told(failed) == (True, ["clone"], ["start"], "stopped")
    assert "status: stopped" in failed["diff"][0]["after"]
    assert cluster.state()["guests"][failed["vmid"]]["node"] == failed["node"]


def test_vm_that_runs_and_does_not_join_ha__is_there_and_runs(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="POST", path="/cluster/ha/resources$", status=500, message="no HA today")
    failed = controller.fail("ApiError", name="web-1", state="started", ha={"state": "started"}, **VM)
    assert told(failed) == (True, ["create", "start"], [], "running")


def test_what_cannot_be_removed_again__is_told_as_there(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="PUT", path="/config$", status=500, message="no adjusting today")
    cluster.fault(method="DELETE", path="/qemu/", status=500, message="no removing today")
    failed = controller.fail("ApiError", name="web-1", clone="debian-13", cores=4)
    assert told(failed) == (True, ["clone"], [], "stopped")
    assert failed["vms"][0]["error"]["left_behind"]["vmid"] == failed["vmid"]


def test_vm_that_is_still_being_made__has_no_known_status(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/qemu$", task_seconds=100_000)
    failed = controller.fail("TaskTimeout", name="web-1", state="started", timeout=1, **VM)
    assert told(failed) == (True, ["create"], ["start"], None)
    assert failed["vmid"] == 103


# --- VMs that exist ---


def test_update_that_failed_half_way__is_a_change(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="PUT", path="/100/config$", status=500, message="no changing today")
    asked = {"name": "app-1", "cores": 8, "scsi": {"scsi0": {"size": 40}}, "update": True}
    failed = controller.fail("ApiError", **asked, diff=True)
    assert told(failed) == (True, ["update"], [], "running")
    (diff,) = failed["diff"]
    assert "size=40G" in diff["after"]
    assert "cores: 4" in diff["after"]
    failed = controller.fail("ApiError", **asked, diff=True)
    assert told(failed) == (False, [], ["update"], "running")
    assert "diff" not in failed


@pytest.mark.parametrize(
    ("state", "before", "after"), [("started", "stopped", "started"), ("stopped", "started", "stopped")]
)
def test_update_that_was_refused__is_no_change_of_a_vm_that_ha_was_to_switch(
    controller: Controller, cluster: SimulatedCluster, state: str, before: str, after: str
) -> None:
    kept = {**VM, "name": "web-1", "state": before}
    controller.schedule(**kept, ha={"state": before})
    cluster.advance(60)
    cluster.fault(method="PUT", path="/config$", status=500, message="no changing today")
    cluster.fault(method="PUT", path="/cluster/ha/resources/", status=500, message="no switching today")
    cluster.fault(method="POST", path="/status/", status=500, message="no switching today")

    failed = controller.fail("ApiError", **{**kept, "state": state}, ha={"state": after}, cores=2, update=True)

    assert (failed["changed"], failed["vms"][0]["actions"]) == (False, [])


def test_vm_that_was_changed_and_is_no_template__is_a_change(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/102/template$", status=500, message="no templates today")
    failed = controller.fail("ApiError", name="spare", cores=7, template=True, update=True, diff=True)
    assert told(failed) == (True, ["update"], [], "stopped")
    assert "cores: 7" in failed["diff"][0]["after"]
    assert "template" not in failed["diff"][0]["after"]


def test_vm_that_was_not_removed__is_there(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="DELETE", path="/qemu/102$", status=500, message="no removing today")
    failed = controller.fail("ApiError", name="spare", state="absent", diff=True)
    assert told(failed) == (False, [], ["delete"], "stopped")
    assert failed["node"] == cluster.state()["guests"][102]["node"]
    assert "diff" not in failed


def test_vm_that_was_stopped_and_not_removed__says_so(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="DELETE", path="/qemu/100$", status=500, message="no removing today")
    failed = controller.fail("ApiError", name="app-1", state="absent", diff=True)
    assert told(failed) == (True, ["stop"], ["delete"], "stopped")
    (diff,) = failed["diff"]
    assert (diff["before"], diff["after"]) == ("status: running\n", "status: stopped\n")


def test_vm_that_cannot_be_looked_at__has_no_known_status(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/102/status/start$", status=595)
    failed = controller.fail("ConnectionFailed", name="spare", state="started")
    assert told(failed) == (False, [], ["start"], None)


@pytest.mark.parametrize("check", [False, True])
def test_vms_that_are_held_back__are_told_as_they_are(controller: Controller, check: bool) -> None:
    vms = [
        {"name": "new", "memory": 1024, "state": "started"},
        {"name": "huge", "memory": 10**7},
        {"name": "spare", "state": "absent"},
        {"name": "app-1", "cores": 8, "update": True},
    ]
    failed = controller.fail("NoNodesAvailable", vms=vms, check=check, diff=True)
    assert [tuple(vm[key] for key in KEYS) for vm in failed["vms"]] == [
        (False, [], ["create", "start"], "absent"),
        (False, [], [], "absent"),
        (False, [], ["delete"], "stopped"),
        (False, [], ["update"], "running"),
    ]
    assert "diff" not in failed


# --- the ledger ---


def test_vm_that_was_removed__is_a_success_although_the_ledger_went_down(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="GET", path="/tasks/UPID[^/]+/status$", status=596)
    with postgres_server() as url:
        running = controller.start("qemu_schedule", name="spare", state="absent", reservations=url)
        until(lambda: any(request["method"] == "DELETE" for request in cluster.requests()))
    cluster.clear_faults()
    result = running.result()
    assert told(result) == (True, ["delete"], [], "absent")
    assert any('VM "spare": The ledger of reservations' in warning for warning in result["warnings"])
