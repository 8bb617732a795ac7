# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs while the cluster fails: what was asked for is there once or not at all, and the next run finds its way."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

CREATE = {"method": "POST", "path": "/nodes/[^/]+/qemu$"}
VM: dict[str, Any] = {"memory": 1024, "scsi": {"scsi0": {"storage": "shared", "size": 4}}}


def named(cluster: SimulatedCluster, name: str) -> list[int]:
    return [vmid for vmid, guest in cluster.state()["guests"].items() if guest["name"] == name]


def sent(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [r for r in cluster.requests() if r["method"] == "POST" and r["path"].endswith("/qemu")]


def free_again(controller: Controller, vmid: int) -> None:
    """Nothing is reserved: the VMID is given to whoever asks next, and the name is nobody's."""
    assert controller.run("vmid_pick")["vmid"] == vmid


# --- answers that never come ---


@both_versions
def test_create_whose_answer_was_lost__is_not_sent_again(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(**CREATE, drop="after", count=3)
    vms = [{"name": f"web-{number}"} for number in range(5)]
    result = controller.schedule(vms=vms, state="started", **VM)
    assert [vm["action"] for vm in result["vms"]] == ["create"] * 5
    guests = cluster.state()["guests"]
    assert [guests[vm["vmid"]]["name"] for vm in result["vms"]] == [vm["name"] for vm in vms]
    assert [guests[vm["vmid"]]["status"] for vm in result["vms"]] == ["running"] * 5
    assert len(guests) == 10
    assert len(sent(cluster)) == 5
    assert controller.schedule(vms=vms, state="started", **VM)["changed"] is False


def test_create_that_never_arrived__is_sent_again(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(**CREATE, drop="before", count=1)
    result = controller.schedule(name="web-1", **VM)
    assert named(cluster, "web-1") == [result["vmid"]]


def test_clone_whose_answer_was_lost__is_not_sent_again(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/9000/clone$", drop="after", count=1)
    result = controller.schedule(name="web-1", clone="debian-13", cores=4)
    assert named(cluster, "web-1") == [result["vmid"]]
    assert cluster.state()["guests"][result["vmid"]]["config"]["cores"] == 4


def test_start_and_a_delete_whose_answers_were_lost__are_done(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="POST", path="/102/status/start$", drop="after", count=1)
    assert controller.schedule(name="spare", state="started")["changed"] is True
    assert cluster.state()["guests"][102]["status"] == "running"
    cluster.fault(method="DELETE", path="/qemu/102$", drop="after", count=1)
    assert controller.schedule(name="spare", state="absent")["changed"] is True
    assert 102 not in cluster.state()["guests"]


def test_reads_that_fail_for_a_moment__are_repeated(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="GET", path="/cluster/resources$", status=503, message="Service Unavailable", count=1)
    cluster.fault(method="GET", path="/cluster/tasks$", drop="before", count=1)
    cluster.fault(method="GET", path="/tasks/UPID[^/]+/status$", status=596, count=1)
    assert controller.schedule(name="web-1", **VM)["changed"] is True


def test_limits_that_cannot_be_checked_afterwards__are_a_warning(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="GET", path="/cluster/resources$", status=500, message="out of order", after=1)
    result = controller.schedule(name="web-1", reservations="none", **VM)
    assert (result["changed"], result["vms"][0]["limit_broken"]) == (True, None)
    assert any("could not be checked" in warning for warning in result["warnings"])


def test_what_was_made_before_a_wait__is_told_when_the_cluster_is_gone_after_it(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="GET", path="/cluster/tasks$", status=500, message="out of order", after=1)
    vms = [{"name": "web-1", "memory": 512}, {"name": "late", "memory": 60_000, "node": "pve1"}]
    running = controller.start("qemu_schedule", vms=vms, all_or_nothing=False, wait_for_capacity=600)
    until(lambda: named(cluster, "web-1"))
    for vmid in [vmid for vmid, guest in cluster.state()["guests"].items() if guest["node"] == "pve1"]:
        cluster.remove_guest(vmid)
    cluster.advance(30)

    failed = running.result()

    assert failed["error_code"] == "ApiError"
    assert [vm["changed"] for vm in failed["vms"]] == [True, False]
    assert named(cluster, "web-1") == [failed["vms"][0]["vmid"]]


def test_what_was_made_before_a_wait__is_told_when_the_wait_is_refused(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    wanted = [{"name": "web-1", "memory": 512}, {"name": "late", "context": {"delay": "300"}}]
    running = controller.start("qemu_schedule", vms=wanted, all_or_nothing=False, wait_for_capacity=600)
    until(lambda: named(cluster, "web-1"))
    cluster.fault(method="GET", path="/cluster/resources$", status=403, message="no reading today")

    failed = running.result()

    assert failed["error_code"] == "PermissionDenied"
    assert [vm["changed"] for vm in failed["vms"]] == [True, False]
    assert failed["vms"][1]["error"]["message"].startswith("GET /cluster/resources: no reading today")


# --- others who are faster ---


@both_versions
def test_vmid_taken_between_decision_and_create__is_replaced_where_it_is_free_to_choose(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, vmid_taken=True, count=2)
    result = controller.schedule(name="web-1", **VM)
    assert named(cluster, "web-1") == [result["vmid"]]
    others = [vmid for vmid, guest in cluster.state()["guests"].items() if str(guest["name"]).startswith("other-")]
    assert len(others) == 2
    assert result["vmid"] not in others
    assert controller.schedule(name="web-1", **VM)["vmid"] == result["vmid"]


def test_many_vms__each_get_a_vmid_of_their_own_when_theirs_are_taken(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, vmid_taken=True, count=4)
    vms = [{"name": f"web-{number}"} for number in range(6)]
    result = controller.schedule(vms=vms, **VM)
    vmids = [vm["vmid"] for vm in result["vms"]]
    assert len(set(vmids)) == 6
    assert [named(cluster, vm["name"]) for vm in result["vms"]] == [[vmid] for vmid in vmids]


@both_versions
def test_fixed_vmid_that_is_taken_meanwhile__fails_and_touches_nothing(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, vmid_taken=True, count=1)
    failed = controller.fail("VMIDConflict", name="web-1", vmid=300, **VM)
    assert "VMID 300 is taken" in failed["msg"]
    assert failed["changed"] is False
    assert named(cluster, "web-1") == []
    assert cluster.state()["guests"][300]["name"] == "other-300"


@both_versions
def test_clones_vmid_that_is_taken_meanwhile__is_replaced(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/9000/clone$", vmid_taken=True, count=1)
    result = controller.schedule(name="web-1", clone="debian-13")
    assert named(cluster, "web-1") == [result["vmid"]]


# --- creates that fail ---


@both_versions
def test_create_task_that_fails__leaves_no_half_vm_and_frees_its_vmid(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, task_error="unable to create image: out of luck", count=1)
    failed = controller.fail("TaskFailed", name="web-1", **VM)
    assert "out of luck" in failed["msg"]
    vm = failed["vms"][0]
    assert (vm["changed"], vm["error"]["code"]) == (False, "TaskFailed")
    assert named(cluster, "web-1") == []
    free_again(controller, vm["decision"]["vmid"])
    again = controller.schedule(name="web-1", **VM)
    assert again["vmid"] == vm["decision"]["vmid"]


def test_one_of_many_that_fails__does_not_keep_the_others_from_being_made(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, task_error="no", count=1)
    failed = controller.fail("TaskFailed", vms=[{"name": f"web-{n}"} for n in range(4)], parallel_creates=1, **VM)
    assert [vm["changed"] for vm in failed["vms"]] == [False, True, True, True]
    assert failed["changed"] is True
    again = controller.schedule(vms=[{"name": f"web-{n}"} for n in range(4)], **VM)
    assert [vm["action"] for vm in again["vms"]] == ["create", "none", "none", "none"]


def test_clone_whose_adjustment_fails__is_removed(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="PUT", path="/config$", status=500, message="no adjusting today", count=10)
    failed = controller.fail("ApiError", name="web-1", clone="debian-13", cores=4)
    assert "no adjusting today" in failed["msg"]
    assert named(cluster, "web-1") == []
    free_again(controller, failed["vms"][0]["decision"]["vmid"])


def test_vm_that_cannot_be_made_a_template__is_there_and_told_of(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="POST", path="/template$", status=500, message="no templates today")
    failed = controller.fail("ApiError", name="golden", template=True, **VM)
    vm = failed["vms"][0]
    assert (vm["changed"], vm["error"]["created"]) == (True, {"vmid": vm["vmid"], "node": vm["node"]})
    assert named(cluster, "golden") == [vm["vmid"]]


def test_create_that_warns__is_a_success_that_says_so(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(**CREATE, task_error="WARNINGS: 1", count=1)
    result = controller.schedule(name="web-1", **VM)
    assert result["changed"] is True
    assert any('VM "web-1"' in warning for warning in result["warnings"])


def test_full_storage__fails_the_create_and_leaves_nothing(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(**CREATE, held=True)
    running = controller.start("qemu_schedule", name="web-1", **VM)
    until(lambda: sent(cluster))
    # There was room when it was decided.
    cluster.fault(storage_full="shared")
    cluster.release()
    failed = running.result()
    assert failed["error_code"] == "TaskFailed", failed["msg"]
    assert named(cluster, "web-1") == []
    free_again(controller, failed["vms"][0]["decision"]["vmid"])


@both_versions
def test_no_quorum__is_reported_and_leaves_nothing(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_quorum(False)
    failed = controller.fail("NoQuorum", name="web-1", **VM)
    assert "the cluster has no quorum, so nothing can be changed: " in failed["msg"]
    cluster.set_quorum(True)
    free_again(controller, failed["vms"][0]["decision"]["vmid"])
    assert controller.schedule(name="web-1", **VM)["changed"] is True


@both_versions
def test_without_quorum__a_running_vm_is_neither_stopped_nor_deleted(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    before = cluster.state()
    cluster.set_quorum(False)
    failed = controller.fail("NoQuorum", name="app-1", state="absent", force=True)
    assert "the cluster has no quorum: VM 100 was neither stopped nor deleted" in failed["msg"]
    assert cluster.state()["guests"][100] == before["guests"][100]
    assert cluster.state()["volumes"] == before["volumes"]
    assert {request["method"] for request in cluster.requests()} == {"GET"}


@both_versions
@pytest.mark.parametrize(
    ("request_", "what"),
    [
        ({"state": "stopped"}, "VM 100 was not stopped"),
        ({"state": "stopped", "force": True}, "VM 100 was not stopped"),
        ({"scsi": {"scsi0": {"size": 40}}, "update": True}, "VM 100 was not changed"),
        ({"scsi": {"scsi1": {"storage": "shared", "size": 1}}, "update": True}, "VM 100 was not changed"),
        ({"cores": 3, "update": True, "apply_pending": "reboot"}, None),
    ],
)
def test_without_quorum__a_running_vm_is_left_as_it_is(
    controller: Controller, cluster: SimulatedCluster, request_: dict[str, Any], what: str | None
) -> None:
    before = cluster.state()
    cluster.set_quorum(False)
    failed = controller.fail("NoQuorum", name="app-1", **request_)
    assert "the cluster has no quorum" in failed["msg"]
    assert cluster.state()["guests"][100] == before["guests"][100]
    assert cluster.state()["volumes"] == before["volumes"]
    if what is not None:
        assert f"the cluster has no quorum: {what}" in failed["msg"]
        assert {request["method"] for request in cluster.requests()} == {"GET"}


@both_versions
def test_without_quorum__a_stopped_vm_is_not_started(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="app-1", state="stopped", force=True)
    cluster.set_quorum(False)
    failed = controller.fail("NoQuorum", name="app-1", state="started")
    assert "POST /nodes/pve1/qemu/100/status/start: cluster not ready - no quorum?" in failed["msg"]


@both_versions
def test_without_quorum__an_update_says_so(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_quorum(False)
    failed = controller.fail("NoQuorum", name="app-1", cores=8, update=True)
    assert "the cluster has no quorum, so nothing can be changed: PUT /nodes/pve1/qemu/100/config" in failed["msg"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("args", "-no-shutdown"),
        ("hookscript", "local:snippets/hook.pl"),
        ("parallel", {"parallel0": "/dev/parport0"}),
        ("serial", {"serial0": "/dev/ttyS0"}),
    ],
)
def test_what_only_root_may_set__is_refused_before_anything_is_sent(
    controller: Controller, cluster: SimulatedCluster, option: str, value: object
) -> None:
    failed = controller.fail("PermissionDenied", name="web-1", memory=1024, **{option: value})
    assert f'VM "web-1": {option}' in failed["msg"]
    assert sent(cluster) == []


# --- nodes that go down ---


def test_node_that_dies_after_the_decision__fails_its_vm_only(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="POST", path="/nodes/pve2/", status=595)
    failed = controller.fail(
        "ConnectionFailed", vms=[{"name": "a", "node": "pve2"}, {"name": "b", "node": "pve3"}], **VM
    )
    assert [vm["changed"] for vm in failed["vms"]] == [False, True]
    cluster.clear_faults()
    again = controller.schedule(vms=[{"name": "a", "node": "pve2"}, {"name": "b", "node": "pve3"}], **VM)
    assert [vm["action"] for vm in again["vms"]] == ["create", "none"]


@pytest.mark.parametrize("known", [False, True])
def test_bind__a_vm_whose_node_has_died_a_moment_ago_is_placed_elsewhere(
    controller: Controller, cluster: SimulatedCluster, known: bool
) -> None:
    (dead,) = {vm["node"] for vm in controller.schedule(name="a", check=True, **VM)["vms"]}
    status = 595 if known else 596
    cluster.fault(method="POST", path=f"/nodes/{dead}/", status=status)

    result = controller.schedule(name="a", **VM)

    assert result["changed"] is True
    assert result["node"] != dead
    assert named(cluster, "a") == [result["vmid"]]


def test_bind__a_vm_that_its_silent_node_makes_after_all_is_made_once(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    (dead,) = {vm["node"] for vm in controller.schedule(name="a", check=True, **VM)["vms"]}
    cluster.fault(method="POST", path=f"/nodes/{dead}/", status=596)
    planned = controller.schedule(name="a", check=True, **VM)["vmid"]
    cluster.fault(method="POST", path="/nodes/(?!" + dead + ")[^/]+/qemu$", vmid_taken=True, count=1)

    result = controller.schedule(name="a", **VM)

    assert result["vmid"] == planned + 1, "it was asked for with the same VMID, which somebody else had by then"


def test_bind__a_task_that_proxmox_cannot_start_is_tried_with_another_vmid(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, no_worker=True, count=1)

    result = controller.schedule(name="a", **VM)

    (stub,) = [vmid for vmid, guest in cluster.state()["guests"].items() if guest["config"].get("lock") == "create"]
    assert result["vmid"] != stub
    assert named(cluster, "a") == [result["vmid"]]
    assert f"the empty VM {stub} was left behind" in result["warnings"][0]
    assert f"qm destroy {stub} --skiplock" in result["warnings"][0]


def test_bind__a_vm_of_a_fixed_vmid_whose_task_cannot_be_started_is_told(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, no_worker=True, count=1)

    failed = controller.fail("VMIDConflict", name="a", vmid=300, **VM)

    assert "the empty VM 300 was left behind" in failed["msg"]


def test_node_that_died_a_moment_ago__does_not_fail_the_reading(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    controller.schedule(name="first", node="pve2", **VM)
    cluster.set_node("pve2", online=False, known=False)
    result = controller.schedule(name="second", node_regex="pve[13]", **VM)
    assert result["changed"] is True


def test_vms_of_a_dead_node__are_found_and_not_created_again(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_node("pve2", online=False)
    cluster.advance(60)
    result = controller.fail("ConnectionFailed", name="app-2", memory=4096)
    assert result["vms"][0]["vmid"] == 101
    assert named(cluster, "app-2") == [101]


# --- slow tasks ---


@both_versions
def test_task_that_outlasts_its_time__is_an_error_and_its_vm_is_not_lost_sight_of(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, task_held=True, count=1)
    failed = controller.fail("TaskTimeout", name="web-1", timeout=1, **VM)
    vm = failed["vms"][0]
    assert vm["error"]["upid"].startswith(f"UPID:{vm['decision']['node']}:")
    assert vm["error"]["upid"] in failed["msg"]
    running = controller.start("qemu_schedule", name="web-2", **VM)
    cluster.release()
    other = running.result()
    assert other["vmid"] != vm["decision"]["vmid"]
    again = controller.schedule(name="web-1", **VM)
    assert (again["changed"], again["vmid"]) == (False, vm["decision"]["vmid"])
    assert named(cluster, "web-1") == [again["vmid"]]
    assert len(sent(cluster)) == 2
