# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which VM is meant: by VMID or name, in spite of what the cluster shows late, and never another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller, RunningModule
from support.versions import both_versions
from support.waiting import until

LAGGING = {**yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8")), "tick": 25}
"""The three nodes, whose statistics come so seldom that new VMs stay without name and sizes in the list for a while."""

both_ledgers = pytest.mark.parametrize("reservations", ["default", "none"])


@pytest.fixture
def lagging(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    return start(LAGGING, time_scale=1)


def names(cluster: SimulatedCluster) -> list[str]:
    return sorted(guest["name"] for guest in cluster.state()["guests"].values())


@both_ledgers
@both_versions
def test_vm_whose_name_the_list_does_not_show_yet__is_found(
    control: Callable[..., Controller], lagging: SimulatedCluster, reservations: str
) -> None:
    controller = control(lagging)
    first = controller.schedule(name="web-1", memory=1024, reservations=reservations)
    for _run in range(2):
        lagging.reset_requests()
        again = controller.schedule(name="web-1", memory=1024, reservations=reservations)
        assert (again["changed"], again["vmid"]) == (False, first["vmid"])
        if reservations == "default":
            assert len(lagging.requests()) == 2 + 1, "the cluster's resources and tasks, and the config of each VM"
    assert names(lagging).count("web-1") == 1


@both_ledgers
def test_vm_that_the_list_does_not_show_whole_yet__is_removed_by_its_vmid(
    control: Callable[..., Controller], lagging: SimulatedCluster, reservations: str
) -> None:
    controller = control(lagging)
    made = controller.schedule(name="web-1", memory=1024, reservations=reservations)
    found = controller.schedule(vmid=made["vmid"], reservations=reservations)
    assert (found["changed"], found["node"]) == (False, made["node"])
    gone = controller.schedule(vmid=made["vmid"], state="absent", reservations=reservations)
    assert gone["changed"] is True
    assert made["vmid"] not in lagging.state()["guests"]


@both_ledgers
@both_versions
def test_recycled_vmid__is_never_taken_for_the_vm_that_had_it_before(
    control: Callable[..., Controller], lagging: SimulatedCluster, reservations: str
) -> None:
    controller = control(lagging)
    old = controller.schedule(name="db-1", memory=1024, reservations=reservations)
    lagging.advance(1200)
    controller.schedule(name="db-1", state="absent", reservations=reservations)
    new = controller.schedule(name="web-1", memory=2048, reservations=reservations)
    assert new["vmid"] == old["vmid"]
    rows = controller.run("vmid_pick", reservations=reservations)
    assert rows["vmid"] != new["vmid"]
    again = controller.schedule(name="web-1", memory=2048, reservations=reservations)
    assert (again["changed"], again["vmid"], again["vms"][0]["drift"]) == (False, new["vmid"], {})


@both_ledgers
@pytest.mark.parametrize("state", ["absent", "present"])
def test_former_name_of_a_recycled_vmid__finds_nothing(
    control: Callable[..., Controller], lagging: SimulatedCluster, reservations: str, state: str
) -> None:
    controller = control(lagging)
    old = controller.schedule(name="db-1", memory=1024, reservations=reservations)
    lagging.advance(1200)
    controller.schedule(name="db-1", state="absent", reservations=reservations)
    new = controller.schedule(name="web-1", memory=2048, reservations=reservations)
    assert new["vmid"] == old["vmid"]
    asked = controller.schedule(name="db-1", memory=1024, state=state, reservations=reservations)
    assert asked["vms"][0]["action"] == ("none" if state == "absent" else "create")
    assert asked["vmid"] != new["vmid"]
    assert lagging.state()["guests"][new["vmid"]]["name"] == "web-1"


@both_ledgers
def test_vm_deleted_by_hand_right_after_its_creation__is_created_again(
    control: Callable[..., Controller], lagging: SimulatedCluster, reservations: str
) -> None:
    controller = control(lagging)
    first = controller.schedule(name="web-1", memory=1024, reservations=reservations)
    lagging.remove_guest(first["vmid"])
    second = controller.schedule(name="web-1", memory=1024, reservations=reservations)
    assert second["vms"][0]["action"] == "create"
    assert lagging.state()["guests"][second["vmid"]]["name"] == "web-1"


@both_versions
def test_match__a_vmid_of_ours_that_another_vm_has_by_now_is_that_vm(
    control: Callable[..., Controller], lagging: SimulatedCluster
) -> None:
    controller = control(lagging)
    vmid = controller.schedule(name="rq-old", memory=1024)["vmid"]
    controller.schedule(name="rq-old", state="absent", reservations="none")
    controller.schedule(name="rq-new", vmid=vmid, memory=1024, reservations="none")

    found = controller.schedule(name="rq-new", memory=1024)

    assert (found["changed"], found["vmid"]) == (False, vmid)
    assert names(lagging).count("rq-new") == 1


def test_match__a_vm_of_ours_that_was_removed_by_hand_gives_back_its_vmid_and_its_memory(
    control: Callable[..., Controller], start: Callable[..., SimulatedCluster]
) -> None:
    cluster = start({"nodes": [{"name": "pve1", "cores": 8, "memory": 4096}]}, time_scale=1)
    controller = control(cluster)
    options = {"memory": 3000, "state": "started", "vmid_range": "200-200"}
    vmid = controller.schedule(name="rq-old", **options)["vmid"]
    controller.schedule(name="rq-old", state="absent", reservations="none")

    made = controller.schedule(name="rq-new", **options)

    assert (made["changed"], made["vmid"]) == (True, vmid)


def create_slowly(controller: Controller, cluster: SimulatedCluster, seconds: float) -> RunningModule:
    """Begin to create slow-1, which takes this long, and return when the cluster has begun."""
    cluster.fault(method="POST", path="/nodes/[^/]+/qemu$", task_seconds=seconds, count=1)
    somebody = controller.start("qemu_schedule", name="slow-1", memory=1024, reservations="none")
    until(lambda: any(guest["config"].get("lock") for guest in cluster.state()["guests"].values()))
    return somebody


def test_match__a_vm_that_somebody_else_is_creating_is_waited_for(
    control: Callable[..., Controller], lagging: SimulatedCluster
) -> None:
    controller = control(lagging)
    somebody = create_slowly(controller, lagging, seconds=3)

    found = controller.schedule(name="slow-1", memory=1024)

    assert (found["changed"], found["vmid"]) == (False, somebody.result()["vmid"])
    assert names(lagging).count("slow-1") == 1


def test_match__a_vm_that_somebody_else_creates_for_too_long_fails_the_run(
    control: Callable[..., Controller], lagging: SimulatedCluster
) -> None:
    controller = control(lagging)
    somebody = create_slowly(controller, lagging, seconds=600)

    failed = controller.fail("TaskTimeout", name="web-1", memory=1024, timeout=1)
    somebody.kill()

    assert "has no name yet" in failed["msg"]
    assert "web-1" not in names(lagging)


def test_match__a_creation_that_was_broken_off_keeps_nobody_from_creating(
    control: Callable[..., Controller], lagging: SimulatedCluster
) -> None:
    lagging.add_guest(vmid=300, node="pve1")
    lagging.set_guest(300, config={"lock": "create", "name": None})

    result = control(lagging).schedule(name="web-1", memory=1024)

    assert result["changed"] is True
    assert "VM 300 on pve1 is locked by its creation, and no task is working on it" in result["warnings"][0]


def test_match__a_broken_off_creation_is_noticed_without_rights_on_the_whole_cluster(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    granted = [("/vms", "PVEVMAdmin"), ("/nodes", "PVEAuditor"), ("/storage", "PVEAuditor")]
    acl = [{"path": path, "user": "ops@pve", "role": role} for path, role in granted]
    secret = "12345678-1234-4234-8234-123456789abc"
    tokens = [{"id": "ops@pve!tok", "secret": secret, "privsep": False}]
    cluster = start({**LAGGING, "users": [{"name": "ops@pve"}], "tokens": tokens, "acl": acl}, time_scale=1)
    cluster.add_guest(vmid=300, node="pve1")
    cluster.set_guest(300, config={"lock": "create", "name": None})
    ops = {"PROXMOX_USER": "ops@pve", "PROXMOX_TOKEN_ID": "tok", "PROXMOX_TOKEN_SECRET": secret}

    result = control(cluster).schedule(name="web-1", memory=1024, timeout=600, env=ops)

    assert result["changed"] is True
    assert "no task is working on it" in result["warnings"][0]


def test_match__the_other_vms_of_a_task_do_not_wait_for_one_that_somebody_else_is_creating(
    control: Callable[..., Controller], lagging: SimulatedCluster
) -> None:
    controller = control(lagging)
    lagging.fault(method="POST", path="/nodes/[^/]+/qemu$", task_held=True, count=1)
    somebody = controller.start("qemu_schedule", name="slow-1", vmid=300, memory=1024, reservations="none")
    until(lambda: 300 in lagging.state()["guests"])
    vms = [{"name": "slow-1"}, {"name": "web-2", "vmid": 400}, {"vmid": 300, "cores": 2, "update": True}]

    planned = controller.start("qemu_schedule", check=True, name="web-9", reservations="none")
    ours = controller.start("qemu_schedule", vms=vms[:2], memory=1024, reservations="none")
    theirs = controller.start("qemu_schedule", vms=[vms[2], {"name": "app-1", "state": "absent"}], reservations="none")
    until(lambda: 400 in lagging.state()["guests"] and 100 not in lagging.state()["guests"])

    warning = planned.result()["warnings"][0]
    assert somebody.is_running
    lagging.release()
    assert 'web-9": may be the VM that others are creating and that has no name yet (' in warning
    assert "300 on " in warning
    assert [(vm["action"], vm["vmid"]) for vm in ours.result()["vms"]] == [("none", 300), ("create", 400)]
    assert [vm["action"] for vm in theirs.result()["vms"]] == ["update", "delete"]
    assert lagging.state()["guests"][300]["config"]["cores"] == 2


def test_match__a_vm_that_is_to_be_absent_does_not_wait_for_those_that_others_are_creating(
    control: Callable[..., Controller], lagging: SimulatedCluster
) -> None:
    lagging.add_guest(vmid=300, node="pve1")
    lagging.set_guest(300, config={"lock": "create", "name": None})
    lagging.reset_requests()

    assert control(lagging).schedule(name="web-1", state="absent")["changed"] is False

    assert [request["path"] for request in lagging.requests()].count("/nodes/pve1/qemu") == 1


@both_ledgers
def test_vm_renamed_by_hand__is_not_taken_for_the_one_that_is_asked_for(
    control: Callable[..., Controller], lagging: SimulatedCluster, reservations: str
) -> None:
    controller = control(lagging)
    first = controller.schedule(name="web-1", memory=1024, reservations=reservations)
    lagging.set_guest(first["vmid"], config={"name": "precious"})
    second = controller.schedule(name="web-1", memory=1024, reservations=reservations)
    assert second["vmid"] != first["vmid"]
    controller.schedule(name="web-1", state="absent", reservations=reservations)
    assert "precious" in names(lagging)


def test_two_vms_of_one_name__are_an_error_that_lists_them(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.add_guest(vmid=120, name="app-1", node="pve3", memory=512)
    cluster.advance(60)
    for state in ("present", "absent"):
        failed = controller.fail("AmbiguousName", name="app-1", state=state)
        expected = "2 guests have this name: app-1 (100 on pve1), app-1 (120 on pve3); set vmid"
        assert failed["msg"] == f'VM "app-1": {expected}'
    assert controller.schedule(name="app-1", vmid=120)["node"] == "pve3"
    assert names(cluster).count("app-1") == 2


def test_container_of_the_same_name__is_another_guest(controller: Controller, cluster: SimulatedCluster) -> None:
    result = controller.schedule(name="proxy", memory=512)
    assert result["vms"][0]["action"] == "create"
    assert result["vmid"] != 110


def test_vmid_of_another__name_is_an_error(controller: Controller) -> None:
    failed = controller.fail("VMIDConflict", name="web-1", vmid=100)
    expected = 'VM "web-1": VMID 100 belongs to app-1 (100 on pve1); set rename=true if it is to have this name'
    assert failed["msg"] == expected


def test_vmid_of_a_container__is_an_error_even_without_a_name(controller: Controller) -> None:
    assert "container proxy (110 on pve3)" in controller.fail("VMIDConflict", name="proxy", vmid=110)["msg"]
    assert "container proxy (110 on pve3)" in controller.fail("VMIDConflict", vmid=110, state="absent")["msg"]


def test_name_that_has_another_vmid__is_an_error(controller: Controller) -> None:
    failed = controller.fail("VMIDConflict", name="app-1", vmid=444)
    assert "expected VMID 444, but the name belongs to app-1 (100 on pve1)" in failed["msg"]


def test_vm__is_found_by_its_vmid_alone_and_not_created_without_a_name(controller: Controller) -> None:
    found = controller.schedule(vmid=100)
    assert (found["changed"], found["name"], found["node"], found["vmid"]) == (False, "app-1", "pve1", 100)
    assert "set name" in controller.fail("InvalidRequest", vmid=444)["msg"]
    assert controller.schedule(vmid=444, state="absent")["changed"] is False


def test_existing_vm__keeps_its_node_and_its_vmid_whatever_placement_says(controller: Controller) -> None:
    found = controller.schedule(name="app-1", node="pve3", vmid_range="500-600", memory=8192)
    assert (found["changed"], found["node"], found["vmid"]) == (False, "pve1", 100)


def test_one_vm_asked_for_twice_in_a_task__is_an_error(controller: Controller, cluster: SimulatedCluster) -> None:
    failed = controller.fail("InvalidRequest", vms=[{"name": "a"}, {"name": "a"}])
    assert failed["msg"] == "name: 'a' is set in 2 entries of vms, expected different values"
    controller.fail("InvalidRequest", vms=[{"name": "a", "vmid": 300}, {"name": "b", "vmid": 300}])
    assert cluster.requests() == []
    failed = controller.fail("InvalidRequest", vms=[{"name": "app-1"}, {"vmid": 100, "state": "absent"}])
    assert failed["msg"].startswith('VM "app-1": is the same VM as VM 100, 100; expected one entry of vms for it; ')
    assert "app-1" in names(cluster)


def test_what_tells_vms_apart__cannot_be_a_default(controller: Controller) -> None:
    assert controller.fail("InvalidRequest", name="web", vms=[{"memory": 512}])["msg"].startswith("name: cannot be")
    assert controller.fail("InvalidRequest", vmid=300, vms=[{"name": "a"}])["msg"].startswith("vmid: cannot be")
