# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that somebody began to make: the next run finishes them, and starts none that is not what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller, Result
from support.identities import use_again
from support.versions import both_versions
from support.waiting import until

THREE_NODES: dict[str, Any] = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text())
MARK = "qemu_scheduler.proxmox: not finished"
TEMPLATE = {"cipassword": "of-the-template", "ciuser": "tmpl", "description": "Debian 13\n\nbuilt on Monday"}
CLONE = {
    "name": "web-1",
    "clone": "debian-13",
    "cores": 4,
    "memory": 4096,
    "scsi": {"scsi0": {"size": 20}},
    "ciuser": "admin",
    "cipassword": "wanted-by-me",
    "ipconfig": {"ipconfig0": "ip=dhcp"},
    "tags": ["web"],
}
IMPORT = {
    "name": "web-1",
    "memory": 512,
    "scsi": {"scsi0": {"storage": "shared", "import_from": "local:import/debian-13.qcow2", "size": 30}},
}
HA = {"name": "web-1", "memory": 512, "ha": {"state": "started"}}


@pytest.fixture
def cluster(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    """Three quiet nodes, and a template that has a password and a description."""
    guests = [
        {**guest, "config": {**guest["config"], **TEMPLATE}} if guest["vmid"] == 9000 else guest
        for guest in THREE_NODES["guests"]
    ]
    return start({**THREE_NODES, "guests": guests})


def guest_of(cluster: SimulatedCluster, name: str = "web-1") -> dict[str, Any]:
    """The one guest of this name."""
    (guest,) = [guest for guest in cluster.state()["guests"].values() if guest["name"] == name]
    return dict(guest)


def is_marked(cluster: SimulatedCluster, name: str = "web-1") -> bool:
    return str(guest_of(cluster, name)["config"].get("description")).startswith(MARK)


def sent(cluster: SimulatedCluster, method: str, end: str) -> list[dict[str, Any]]:
    return [r["params"] for r in cluster.requests() if r["method"] == method and r["path"].endswith(end)]


def killed(controller: Controller, cluster: SimulatedCluster, end: str, **options: Any) -> None:
    """Run a task that is killed while the task of its POST is running."""
    cluster.fault(method="POST", path=f"{end}$", task_held=True, count=1)
    module = controller.start("qemu_schedule", **options)
    until(lambda: sent(cluster, "POST", end))
    until(lambda: any("/tasks/UPID" in r["path"] for r in cluster.requests()))
    module.kill()
    cluster.release()


def is_adjusted(cluster: SimulatedCluster, description: str | None = TEMPLATE["description"]) -> None:
    """The clone is what CLONE asks for, and has the description."""
    config = guest_of(cluster)["config"]
    assert (config["cores"], config["memory"], config["ciuser"]) == (4, "4096", "admin")
    assert config["cipassword"] not in (TEMPLATE["cipassword"], None)
    assert config["ipconfig0"] == "ip=dhcp"
    assert "size=20G" in config["scsi0"]
    assert config.get("description") == description


def unchanged(controller: Controller, **options: Any) -> Result:
    again = controller.schedule(**options)
    assert (again["changed"], again["vms"][0]["drift"], again["warnings"]) == (False, {}, [])
    return again


# --- whole runs ---


@both_versions
def test_clone__has_its_templates_description_and_costs_no_further_call(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    controller.schedule(state="started", **CLONE)
    is_adjusted(cluster)
    assert sent(cluster, "POST", "/clone")[0]["description"].startswith(MARK)
    assert len(sent(cluster, "PUT", "/config")) == 1
    unchanged(controller, state="started", **CLONE)


@both_versions
def test_clone__has_the_description_that_is_asked_for(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(description="mine", **CLONE)
    is_adjusted(cluster, "mine")
    unchanged(controller, description="mine", **CLONE)


def test_clone_that_is_to_have_no_description__has_none(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(description="", **CLONE)
    is_adjusted(cluster, None)
    unchanged(controller, description="", **CLONE)


def test_clone_that_nothing_is_asked_of__is_written_once(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="web-1", clone="debian-13")
    assert guest_of(cluster)["config"]["description"] == TEMPLATE["description"]
    assert [r["path"] for r in cluster.requests() if r["method"] != "GET"] == ["/nodes/pve1/qemu/9000/clone"]


def test_create_of_one_step__is_not_marked(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="web-1", memory=512, description="mine", state="started")
    assert sent(cluster, "POST", "/qemu")[0]["description"] == "mine"
    assert sent(cluster, "PUT", "/config") == []


@both_versions
@pytest.mark.parametrize("options", [IMPORT, HA, {"name": "web-1", "memory": 512, "template": True}])
@pytest.mark.parametrize("description", [{}, {"description": "mine"}])
def test_create_of_several_steps__ends_with_the_description_that_is_asked_for(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any], description: dict[str, str]
) -> None:
    controller.schedule(**options, **description)
    assert sent(cluster, "POST", "/qemu")[0]["description"].startswith(MARK)
    assert guest_of(cluster)["config"].get("description") == description.get("description")
    unchanged(controller, **options, **description)


# --- runs that were killed ---


@both_versions
@pytest.mark.parametrize("update", [False, True])
def test_clone_whose_run_was_killed__is_finished_before_it_is_started(
    controller: Controller, cluster: SimulatedCluster, update: bool
) -> None:
    options = {**CLONE, "state": "started", "update": update}
    killed(controller, cluster, "/clone", **options)
    result = controller.schedule(**options)
    assert result["vms"][0]["actions"] == ["finish", "start"]
    is_adjusted(cluster)
    assert guest_of(cluster)["status"] == "running"
    order = [r["path"].rpartition("/")[2] for r in cluster.requests() if r["method"] in ("PUT", "POST")]
    assert order == ["clone", "resize", "config", "start"]
    unchanged(controller, **options)


def test_clone_for_another_node__is_found_where_it_is_by_then(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    killed(controller, cluster, "/clone", node="pve2", **CLONE)
    result = controller.schedule(node="pve2", **CLONE)
    assert (result["node"], guest_of(cluster)["node"]) == ("pve2", "pve2")
    is_adjusted(cluster)


@both_versions
def test_clone_that_outlasted_its_time__is_finished_by_the_next_run(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="POST", path="/clone$", task_held=True, count=1)
    failed = controller.fail("TaskTimeout", timeout=1, state="started", **CLONE)
    assert "UPID:" in failed["msg"]
    cluster.release()
    assert controller.schedule(state="started", **CLONE)["vms"][0]["actions"] == ["finish", "start"]
    is_adjusted(cluster)
    unchanged(controller, state="started", **CLONE)


@both_versions
def test_imported_disk__is_grown_by_the_next_run(controller: Controller, cluster: SimulatedCluster) -> None:
    options = {**IMPORT, "state": "started"}
    killed(controller, cluster, "/qemu", **options)
    result = controller.schedule(**options)
    assert (result["vms"][0]["actions"], result["warnings"]) == (["finish", "start"], [])
    config = guest_of(cluster)["config"]
    assert "size=30G" in config["scsi0"]
    assert "description" not in config
    unchanged(controller, **options)


def writes_to(cluster: SimulatedCluster, vmid: int) -> list[str]:
    """The writes that have reached the guest that has the VMID now."""
    birth = cluster.state()["guests"][vmid]["birth"]
    requests = [each for each in cluster.requests() if each["method"] != "GET"]
    return [f"{each['method']} {each['path']}" for each in requests if each["guests"].get(vmid) == birth]


def reused(cluster: SimulatedCluster) -> int:
    """Use the VMID of a VM that a killed run has created for one of the same name, which seems to be unfinished."""
    until(lambda: any(guest["name"] == "web-1" for guest in cluster.state()["guests"].values()))
    vmid = int(guest_of(cluster)["vmid"])
    cluster.advance(30)
    use_again(cluster, vmid, "web-1", status="stopped", config={"description": MARK})
    cluster.advance(30)
    return vmid


@both_versions
@pytest.mark.parametrize("options", [{**IMPORT, "state": "started"}, {**IMPORT, "state": "absent"}])
def test_vm_that_has_the_vmid_of_one_whose_run_was_killed__is_not_finished(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any]
) -> None:
    """The killed run knew the task of its create only."""
    killed(controller, cluster, "/qemu", **{**options, "state": "started"})
    vmid = reused(cluster)

    for _time in range(2):
        controller.fail("NotTheSameGuest", **options)
    assert writes_to(cluster, vmid) == []

    controller.schedule(adopt=True, **options)


@pytest.mark.parametrize("state", ["present", "started", "absent"])
def test_vm_that_has_the_vmid_of_one_that_was_just_created__is_not_taken_for_it(
    controller: Controller, cluster: SimulatedCluster, state: str
) -> None:
    task = {"name": "web-1", "memory": 512}
    vmid = int(controller.schedule(**task)["vmid"])
    cluster.advance(10)
    use_again(cluster, vmid, "web-1", status="stopped")
    cluster.advance(20)

    for _time in range(2):
        controller.fail("NotTheSameGuest", **task, state=state)
    assert writes_to(cluster, vmid) == []

    controller.schedule(adopt=True, **task, state=state)


@pytest.mark.parametrize("copied", [("meta",), ("meta", "smbios1")])
def test_vm_that_has_the_vmid_of_an_unfinished_clone__is_not_finished(
    controller: Controller, cluster: SimulatedCluster, copied: tuple[str, ...]
) -> None:
    """All clones of a template share their time of creation, and the owner of one may give it another UUID: the killed
    run has noted the identity of its own.
    """
    cluster.fault(method="PUT", path="/resize$", task_held=True, count=1)
    module = controller.start("qemu_schedule", state="started", **CLONE)
    until(lambda: sent(cluster, "PUT", "/resize"))
    module.kill()
    cluster.release()
    config = guest_of(cluster)["config"]
    cluster.advance(30)
    use_again(cluster, int(guest_of(cluster)["vmid"]), "web-1", status="stopped", config={
        **{key: config[key] for key in copied}, "description": MARK,
    })  # fmt: skip
    cluster.advance(30)

    controller.fail("NotTheSameGuest", state="started", **CLONE)

    assert writes_to(cluster, int(guest_of(cluster)["vmid"])) == []


@pytest.mark.parametrize("state", ["started", "absent"])
def test_vm_that_has_the_vmid_of_a_clone_of_which_only_the_task_is_known__is_not_taken_for_it(
    controller: Controller, control: Callable[..., Controller], cluster: SimulatedCluster, state: str
) -> None:
    """The time of a clone is that of its template, but the tasks tell that the clone was removed."""
    killed(controller, cluster, "/clone", **CLONE)
    until(lambda: any(guest["name"] == "web-1" for guest in cluster.state()["guests"].values()))
    vmid = int(guest_of(cluster)["vmid"])
    cluster.advance(30)
    control(cluster).schedule(name="web-1", state="absent", reservations="none")
    cluster.add_guest(vmid=vmid, name="web-1", node="pve1", config={"description": MARK})

    for _time in range(2):
        controller.fail("NotTheSameGuest", **{**CLONE, "state": state})
    assert writes_to(cluster, vmid) == []


@both_versions
def test_new_vm_whose_marks_were_all_set_again__is_still_the_same(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    """The killed run has noted its identity. No other VM was made under its VMID at its time."""
    options = {**IMPORT, "state": "started"}
    cluster.fault(method="PUT", path="/resize$", task_held=True, count=1)
    module = controller.start("qemu_schedule", **options)
    until(lambda: sent(cluster, "PUT", "/resize"))
    module.kill()
    cluster.release()
    other = "22222222-2222-4333-8444-555555555555"
    cluster.set_guest(int(guest_of(cluster)["vmid"]), config={"smbios1": f"uuid={other}", "vmgenid": other})
    cluster.advance(30)

    assert controller.schedule(**options)["vms"][0]["actions"] == ["finish", "start"]


def test_what_was_decided_for_a_clone__outlives_its_run(controller: Controller, cluster: SimulatedCluster) -> None:
    options = {**CLONE, "scsi": {"scsi0": {"size": 20}, "scsi1": {"size": 8}}}
    killed(controller, cluster, "/clone", **options)
    decided = controller.run("qemu_schedule", **options)
    assert not decided.get("failed"), decided["msg"]
    config = guest_of(cluster)["config"]
    assert "size=8G" in config["scsi1"]
    assert config["description"] == TEMPLATE["description"]
    unchanged(controller, **options)


@both_versions
def test_device_that_was_allocated_to_a_clone__is_attached_by_the_next_run(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    card = {"id": "0000:41:00.0", "vendor": "0x10de", "device": "0x2236", "iommugroup": 41}
    nodes = [{**node, "pci": [card] if node["name"] == "pve1" else []} for node in THREE_NODES["nodes"]]
    entry = "node=pve1,path=0000:41:00.0,id=10de:2236,iommugroup=41"
    cluster = start({**THREE_NODES, "nodes": nodes, "mappings": {"pci": [{"id": "gpu", "map": [entry]}]}})
    controller = control(cluster)
    options = {"name": "web-1", "clone": "debian-13", "devices": [{"name": "gpu", "mapping": "gpu"}]}
    killed(controller, cluster, "/clone", **options)
    assert controller.schedule(**options)["vms"][0]["actions"] == ["finish"]
    assert "mapping=gpu" in guest_of(cluster)["config"]["hostpci0"]
    unchanged(controller, **options)


def test_check_mode_and_the_diff__tell_what_is_left_to_do(controller: Controller, cluster: SimulatedCluster) -> None:
    killed(controller, cluster, "/clone", **CLONE)
    planned = controller.schedule(check=True, diff=True, state="started", **CLONE)
    vm = planned["vms"][0]
    assert (planned["changed"], vm["actions"]) == (True, ["finish", "start"])
    assert vm["drift"]["cores"]["new"] == 4
    assert "description" not in vm["drift"]
    assert MARK in planned["diff"][0]["before"]
    assert MARK not in planned["diff"][0]["after"]
    assert "wanted-by-me" not in str(planned)
    assert is_marked(cluster)


def test_vm_that_is_not_finished__is_removed_like_any_other(controller: Controller, cluster: SimulatedCluster) -> None:
    killed(controller, cluster, "/clone", **CLONE)
    until(lambda: any(guest["name"] == "web-1" for guest in cluster.state()["guests"].values()))
    assert controller.schedule(name="web-1", state="absent")["changed"] is True
    assert all(guest["name"] != "web-1" for guest in cluster.state()["guests"].values())


def test_vm_that_stays_locked__is_left_alone(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.add_guest(vmid=300, name="web-1", node="pve1")
    cluster.set_guest(300, config={"lock": "clone", "description": f"{MARK}; run the task again"})
    cluster.reset_requests()
    failed = controller.fail("TaskTimeout", timeout=1, **CLONE)
    assert "still being created" in failed["msg"]
    assert {r["method"] for r in cluster.requests()} == {"GET"}


def test_vm_whose_creation_by_others_fails_meanwhile__is_created(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    # It is not known whether a task creates it, so that the run waits.
    cluster.fault(method="GET", path="/nodes/[^/]+/tasks$", status=500, message="not now")
    cluster.add_guest(vmid=300, name="web-1", node="pve1")
    cluster.set_guest(300, config={"lock": "clone"})
    cluster.reset_requests()
    running = controller.start("qemu_schedule", name="web-1", memory=512)
    until(lambda: sum(r["path"].endswith("/300/config") for r in cluster.requests()) > 1)
    cluster.remove_guest(300)

    result = running.result()

    assert result["vms"][0]["actions"] == ["create"], result.get("msg")
    assert result["vmid"] == guest_of(cluster)["vmid"]


def test_plan__a_vm_that_is_locked_for_good_is_told_at_once_and_others_are_made(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.add_guest(vmid=300, name="web-1", node="pve1")
    cluster.set_guest(300, config={"lock": "clone"})

    failed = controller.fail(
        "GuestLocked", vms=[{"name": "web-1"}, {"name": "web-2"}], memory=512, all_or_nothing=False
    )

    assert "qm unlock 300" in failed["msg"]
    assert [vm["action"] for vm in failed["vms"]] == ["none", "create"]


# --- steps that failed ---


@both_versions
def test_vm_that_ha_did_not_take__is_given_to_it_by_the_next_run(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="POST", path="/cluster/ha/resources$", status=403, message="Permission check failed")
    failed = controller.fail("PermissionDenied", state="started", **HA)
    assert failed["vms"][0]["error"]["created"]["vmid"] == guest_of(cluster)["vmid"]
    again = controller.fail("PermissionDenied", state="started", **HA)
    assert again["vms"][0]["changed"] is False
    cluster.clear_faults()
    assert controller.schedule(state="started", **HA)["vms"][0]["actions"] == ["finish"]
    assert f"vm:{guest_of(cluster)['vmid']}" in str(cluster.state()["ha"])
    assert "description" not in guest_of(cluster)["config"]
    unchanged(controller, state="started", **HA)


@both_versions
def test_vm_that_could_not_be_made_a_template__is_made_one_by_the_next_run(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    options = {"name": "golden", "memory": 512, "template": True, "scsi": {"scsi0": {"storage": "shared", "size": 4}}}
    cluster.fault(method="POST", path="/template$", status=500, message="no templates today")
    controller.fail("ApiError", **options)
    cluster.clear_faults()
    assert controller.schedule(**options)["vms"][0]["actions"] == ["finish"]
    config = guest_of(cluster, "golden")["config"]
    assert ("base-" in config["scsi0"], "description" in config) == (True, False)
    unchanged(controller, **options)


@both_versions
def test_clone_whose_config_cannot_be_read__is_told_of_and_finished_later(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="GET", path=r"/nodes/[^/]+/qemu/1\d+/config$", status=500, message="out of order")
    failed = controller.fail("ApiError", state="started", **CLONE)
    vmid = guest_of(cluster)["vmid"]
    assert failed["vms"][0]["error"]["left_behind"]["vmid"] == vmid
    assert f"VM {vmid} was left behind on node" in failed["msg"]
    cluster.clear_faults()
    assert controller.schedule(state="started", **CLONE)["vms"][0]["actions"] == ["finish", "start"]
    is_adjusted(cluster)


@pytest.mark.parametrize("status", [401, 500])
def test_task_status_that_is_refused_for_a_moment__does_no_harm(
    controller: Controller, cluster: SimulatedCluster, status: int
) -> None:
    cluster.fault(method="GET", path="/tasks/[^/]+/status$", status=status, message="not now", count=2)
    assert controller.schedule(**CLONE)["changed"] is True
    is_adjusted(cluster)


def test_create_that_cannot_be_followed__keeps_its_reservation_and_is_found(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="GET", path="/tasks/[^/]+/status$", status=500, message="not now")
    failed = controller.fail("TaskTimeout", name="web-1", memory=512)
    assert "UPID:" in failed["msg"]
    cluster.clear_faults()
    assert controller.schedule(name="web-1", memory=512)["vmid"] == guest_of(cluster)["vmid"]
