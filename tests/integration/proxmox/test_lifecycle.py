# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs that exist are changed, switched and deleted: once, to the end, and no others."""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    NotTheSameGuest,
    PermissionDenied,
    TaskFailed,
    TaskTimeout,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, HAIntent, Identity
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import AnswerLost
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.binder import Binder
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.lifecycle import Lifecycle
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.making import Adjustment, Ending
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Poller, TaskFollower

from .conftest import calls, guest


def status(cluster, vmid: int) -> str:
    return str(cluster.state()["guests"][vmid]["status"])


def config(cluster, vmid: int) -> dict[str, str]:
    return dict(cluster.state()["guests"][vmid]["config"])


def manage(root, vmid: int, state: str = "stopped") -> None:
    root.post("/cluster/ha/resources", sid=f"vm:{vmid}", state=state)


def test_changes_and_sizes__are_applied(cluster, binder):
    binder.lifecycle.update(
        "pve1", guest(cluster, binder, 100), {"memory": "4096", "delete": "cores"}, {"scsi0": 10 * GIB}
    )

    assert config(cluster, 100)["memory"] == "4096"
    assert "cores" not in config(cluster, 100)
    assert "size=10G" in config(cluster, 100)["scsi0"]


def test_nothing_to_change__asks_nothing(cluster, binder):
    binder.lifecycle.update("pve1", guest(cluster, binder, 100), {})

    assert cluster.requests() == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_change_whose_answer_was_lost__is_in_force(cluster, binder, when):
    cluster.fault(method="PUT", path="/config$", count=1, drop=when)

    binder.lifecycle.update("pve1", guest(cluster, binder, 100), {"memory": "4096"})

    assert config(cluster, 100)["memory"] == "4096"


@pytest.mark.parametrize("when", ["before", "after"])
def test_disk__is_added_once_though_the_answer_was_lost(cluster, binder, when):
    cluster.fault(method="POST", path="/config$", count=1, drop=when)

    binder.lifecycle.update("pve1", guest(cluster, binder, 100), {"scsi1": "local-lvm:4", "memory": "4096"})

    assert config(cluster, 100)["memory"] == "4096"
    volumes = [volume for volume in cluster.state()["volumes"] if volume["vmid"] == 100]
    assert len(volumes) == 2
    assert [key for key in config(cluster, 100) if key.startswith("unused")] == []


def test_disk__is_added_by_a_task_as_it_may_take_long(cluster, binder):
    cluster.fault(method="POST", path="/config$", count=1, task_error="the storage is full")

    with pytest.raises(TaskFailed, match="the storage is full"):
        binder.lifecycle.update("pve1", guest(cluster, binder, 100), {"scsi1": "local-lvm:4"})

    binder.lifecycle.update("pve1", guest(cluster, binder, 100), {"scsi1": "local-lvm:4"})
    assert "size=4G" in config(cluster, 100)["scsi1"]


def test_change__waits_for_a_lock_that_was_busy(cluster, binder):
    cluster.fault(method="PUT", path="/config$", count=2, status=500, message="can't lock file '...' - got timeout")
    cluster.fault(method="PUT", path="/resize$", count=2, task_error="cfs-lock 'x' error: got lock request timeout")

    binder.lifecycle.update("pve1", guest(cluster, binder, 100), {"memory": "4096"}, {"scsi0": 10 * GIB})

    assert config(cluster, 100)["memory"] == "4096"
    assert "size=10G" in config(cluster, 100)["scsi0"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_disk__is_grown_though_the_answer_was_lost(cluster, binder, when):
    cluster.fault(method="PUT", path="/resize$", count=1, drop=when)

    binder.lifecycle.update("pve1", guest(cluster, binder, 100), {}, {"scsi0": 10 * GIB})

    assert "size=10G" in config(cluster, 100)["scsi0"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_disk__is_moved_once_though_the_answer_was_lost(cluster, binder, when):
    cluster.fault(method="POST", path="/move_disk$", count=1, drop=when)

    assert binder.lifecycle.update("pve1", guest(cluster, binder, 100), {}, {}, {"scsi0": "shared"}) == ()

    assert config(cluster, 100)["scsi0"].startswith("shared:")
    cluster.fault(method="POST", path="/move_disk$", task_error="WARNINGS: 1")
    assert binder.lifecycle.update("pve1", guest(cluster, binder, 100), {}, {}, {"scsi0": "shared"}) == ()


def test_disk_that_would_shrink__is_an_error(cluster, binder):
    with pytest.raises((ApiError, TaskFailed), match="shrink"):
        binder.lifecycle.update("pve1", guest(cluster, binder, 100), {}, {"scsi0": GIB})


def test_vm__is_started_and_stopped_and_doing_so_twice_is_fine(cluster, binder):
    assert binder.lifecycle.start("pve1", guest(cluster, binder, 100)) == "pve1"
    assert binder.lifecycle.start("pve1", guest(cluster, binder, 100)) == "pve1"
    assert status(cluster, 100) == "running"
    assert binder.lifecycle.stop("pve1", guest(cluster, binder, 100)) == "pve1"
    assert binder.lifecycle.stop("pve1", guest(cluster, binder, 100)) == "pve1"
    assert status(cluster, 100) == "stopped"


def test_task__waits_for_the_lock_of_its_vm(cluster, binder):
    """Proxmox cleans up after a VM that was stopped and started again, and holds its lock for up to 30 seconds."""
    busy = "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout"
    writes = {
        "start": lambda: binder.lifecycle.start("pve1", guest(cluster, binder, 100)),
        "suspend": lambda: binder.lifecycle.pause("pve1", guest(cluster, binder, 100)),
        "resume": lambda: binder.lifecycle.resume("pve1", guest(cluster, binder, 100)),
        "shutdown": lambda: binder.lifecycle.shutdown("pve1", guest(cluster, binder, 100), force=True, seconds=1),
        "stop": lambda: binder.lifecycle.stop("pve1", guest(cluster, binder, 100)),
    }
    for action, write in writes.items():
        if action == "stop":
            binder.lifecycle.start("pve1", guest(cluster, binder, 100))
        cluster.fault(method="POST", path=f"/status/{action}$", count=2, task_error=busy)
        assert write() == "pve1"
    cluster.fault(method="DELETE", path="/qemu/100$", count=2, task_error=busy)
    assert binder.lifecycle.delete("pve1", guest(cluster, binder, 100))


def test_guest_that_does_not_shut_down__is_asked_once(cluster, binder):
    binder.lifecycle.start("pve1", guest(cluster, binder, 100))
    cluster.set_guest(100, acpi=False)
    cluster.reset_requests()
    with pytest.raises(TaskFailed, match="powerdown failed"):
        binder.lifecycle.shutdown("pve1", guest(cluster, binder, 100), seconds=1)
    assert [request["path"] for request in cluster.requests() if request["method"] == "POST"] == [
        "/nodes/pve1/qemu/100/status/shutdown"
    ]


def test_guest__is_asked_to_shut_down(cluster, binder):
    binder.lifecycle.shutdown("pve2", guest(cluster, binder, 101))

    assert status(cluster, 101) == "stopped"
    assert "POST /nodes/pve2/qemu/101/status/shutdown" in calls(cluster)


@pytest.mark.parametrize("act", [Lifecycle.stop, Lifecycle.shutdown])
def test_vm_that_was_migrated_meanwhile__is_stopped_where_it_is_now(cluster, binder, act):
    assert act(binder.lifecycle, "pve1", guest(cluster, binder, 101)) == "pve2"

    assert status(cluster, 101) == "stopped"


def test_vm_that_was_migrated_meanwhile__is_started_where_it_is_now(cluster, binder):
    assert binder.lifecycle.start("pve2", guest(cluster, binder, 100)) == "pve1"

    assert status(cluster, 100) == "running"


@pytest.mark.parametrize("act", [Lifecycle.start, Lifecycle.stop, Lifecycle.shutdown])
def test_vm_of_another_that_has_the_vmid_on_another_node__is_left_alone(cluster, binder, act):
    writers = [guest(cluster, binder, vmid) for vmid in (100, 101)]
    for vmid, node in ((100, "pve1"), (101, "pve2")):
        cluster.remove_guest(vmid)
        cluster.add_guest(vmid=vmid, name="payroll", node=node, memory=512)
    cluster.set_guest(101, status="running")

    for writer in writers:
        with pytest.raises(NotTheSameGuest, match="payroll"):
            act(binder.lifecycle, "pve3", writer)
    assert (status(cluster, 100), status(cluster, 101)) == ("stopped", "running")


def test_last_steps__are_taken_where_the_vm_is_now_unless_another_one_has_its_vmid_there(cluster, binder):
    cluster.set_guest(100, config={"description": "what it is for"})
    another = binder.lifecycle.writer(100, Identity("another", "pve3", ctime=1))

    with pytest.raises(NotTheSameGuest, match="another"):
        binder.finish("pve3", another, Adjustment(), Ending(ha=HAIntent(state="stopped")))
    assert config(cluster, 100)["description"] == "what it is for"

    ending = Ending(ha=HAIntent(state="stopped"), description="finished")
    binder.finish("pve3", guest(cluster, binder, 100), Adjustment(), ending)
    assert config(cluster, 100)["description"] == "finished"


def test_vm_that_its_node_misses_for_a_moment__is_stopped(cluster, binder):
    text = "unable to find configuration file for VM 101 on node 'pve2'"
    cluster.fault(method="POST", path="/status/shutdown$", count=1, task_error=text)

    assert binder.lifecycle.shutdown("pve2", guest(cluster, binder, 101), force=True) == "pve2"

    assert status(cluster, 101) == "stopped"


def test_vm_that_is_gone__cannot_be_stopped(cluster, binder):
    with pytest.raises(ApiError, match="does not exist"):
        binder.lifecycle.stop("pve1", guest(cluster, binder, 777))


def test_guest_that_does_not_shut_down__is_stopped_only_by_force(cluster, binder):
    cluster.set_guest(101, acpi=False)

    with pytest.raises(TaskFailed):
        binder.lifecycle.shutdown("pve2", guest(cluster, binder, 101), seconds=5)
    assert status(cluster, 101) == "running"

    binder.lifecycle.shutdown("pve2", guest(cluster, binder, 101), seconds=5, force=True)
    assert status(cluster, 101) == "stopped"


@pytest.mark.parametrize("when", ["before", "after"])
def test_start_whose_answer_was_lost__is_done(cluster, binder, when):
    cluster.fault(method="POST", path="/start$", count=1, drop=when)

    binder.lifecycle.start("pve1", guest(cluster, binder, 100))

    assert status(cluster, 100) == "running"


def test_start_that_fails__is_told(cluster, binder):
    cluster.set_guest(100, config={"net0": "virtio,bridge=nosuch"})

    with pytest.raises(TaskFailed, match="nosuch"):
        binder.lifecycle.start("pve1", guest(cluster, binder, 100))


@pytest.mark.parametrize("when", ["before", "after"])
def test_start__a_vm_that_runs_for_a_moment_only_is_told_though_the_answer_was_lost(cluster, binder, when):
    cluster.set_guest(100, config={"net0": "virtio,bridge=nosuch"})
    cluster.fault(method="POST", path="/status/start$", count=1, drop=when)

    with pytest.raises(TaskFailed, match="nosuch"):
        binder.lifecycle.start("pve1", guest(cluster, binder, 100))
    assert status(cluster, 100) == "stopped"


def test_start__the_start_of_somebody_else_that_is_going_to_fail_is_no_success(cluster, binder, session):
    cluster.set_guest(100, config={"net0": "virtio,bridge=nosuch"})
    session.post("/nodes/pve1/qemu/100/status/start")

    with pytest.raises(TaskFailed, match="nosuch"):
        binder.lifecycle.start("pve1", guest(cluster, binder, 100))


def test_start__the_start_of_somebody_else_is_waited_for(cluster, binder, session):
    session.post("/nodes/pve1/qemu/100/status/start")

    assert binder.lifecycle.start("pve1", guest(cluster, binder, 100)) == "pve1"
    assert status(cluster, 100) == "running"
    assert cluster.state()["running_tasks"] == []


def test_start__ha_that_fails_to_start_a_vm_is_told(cluster, binder, root):
    cluster.set_guest(100, config={"net0": "virtio,bridge=nosuch"})
    manage(root, 100)

    with pytest.raises(TaskFailed, match="HA has given up on VM 100"):
        binder.lifecycle.start("pve1", guest(cluster, binder, 100))


def test_start__without_the_right_to_read_ha_the_status_of_the_vm_decides(cluster, blind, root, poller):
    manage(root, 100)

    binder = Binder(blind, TaskFollower(blind, timeout=30_000, poller=poller))
    binder.lifecycle.start("pve1", guest(cluster, binder, 100))

    assert status(cluster, 100) == "running"


def test_ha_managed_vm__is_started_and_stopped_to_the_end_and_not_to_the_end_of_the_task(cluster, binder, root):
    manage(root, 100)

    binder.lifecycle.start("pve1", guest(cluster, binder, 100))
    assert status(cluster, 100) == "running"
    binder.lifecycle.stop("pve1", guest(cluster, binder, 100))
    assert status(cluster, 100) == "stopped"


@pytest.mark.parametrize("cluster", [{"timing": {"ha_seconds": 90_000}}], indirect=True)
def test_ha_that_does_nothing__is_not_waited_for_without_end(cluster, session, root, poller):
    manage(root, 100)
    binder = Binder(session, TaskFollower(session, timeout=2, poller=poller))

    with pytest.raises(TaskTimeout, match="HA"):
        binder.lifecycle.start("pve1", guest(cluster, binder, 100))


def test_vm_that_ha_starts_on_another_node__is_found_there(cluster, binder, root):
    cluster.set_node("pve1", maintenance=True)
    manage(root, 100)

    node = binder.lifecycle.start("pve1", guest(cluster, binder, 100))

    assert node == cluster.state()["guests"][100]["node"] != "pve1"
    assert status(cluster, 100) == "running"


def prepare_rule(root, version: str) -> HAIntent:
    """Make a group (8.4) or a rule with one VM in it (9.2), and return the intent of joining it."""
    if version == "8.4":
        root.post("/cluster/ha/groups", group="g1", nodes="pve1,pve2")
        return HAIntent(group="g1", state="stopped")
    manage(root, 9000)
    root.post("/cluster/ha/rules", rule="g1", type="node-affinity", resources="vm:9000", nodes="pve1,pve2")
    return HAIntent(rule="g1", state="stopped")


def joined(cluster, version: str) -> set[str]:
    ha = cluster.state()["ha"]
    if version == "8.4":
        return {sid for sid, resource in ha["resources"].items() if resource.get("group") == "g1"}
    return set(str(ha["rules"]["g1"]["resources"]).split(",")) - {"vm:9000"}


def test_many_vms__join_one_rule_or_group_at_once(cluster, root, poller, version):
    intent = prepare_rule(root, version)
    for vmid in range(200, 212):
        cluster.add_guest(vmid=vmid, name=f"vm{vmid}", node="pve1")
    # No time is over, however busy this machine is.
    binder = Binder(root, TaskFollower(root, poller=Poller(lambda: 0.0, poller.sleep)))

    with ThreadPoolExecutor(max_workers=6) as threads:
        list(
            threads.map(
                lambda vmid: binder.lifecycle.join_ha("pve1", guest(cluster, binder, vmid), intent), range(200, 212)
            )
        )

    assert joined(cluster, version) == {f"vm:{vmid}" for vmid in range(200, 212)}


@pytest.mark.parametrize("when", ["before", "after"])
def test_vm__joins_its_rule_or_group_though_answers_were_lost(cluster, root, poller, version, when):
    intent = prepare_rule(root, version)
    cluster.fault(method="POST", path="/ha/resources$", count=1, drop=when)
    cluster.fault(method="PUT", path="/ha/rules", count=1, drop=when)

    binder = Binder(root, TaskFollower(root, poller=poller))
    binder.lifecycle.join_ha("pve1", guest(cluster, binder, 100), intent)

    assert joined(cluster, version) == {"vm:100"}


def test_vm__becomes_a_template_and_stays_one(cluster, binder):
    binder.lifecycle.convert_to_template("pve1", guest(cluster, binder, 100))
    binder.lifecycle.convert_to_template("pve1", guest(cluster, binder, 100))

    assert cluster.state()["guests"][100]["template"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_vm__is_moved_from_pool_to_pool_though_the_answer_was_lost(cluster, root, poller, when):
    for pool in ("old", "new"):
        root.post("/pools", poolid=pool)
    binder = Binder(root, TaskFollower(root, poller=poller))
    binder.lifecycle.move_to_pool("pve1", guest(cluster, binder, 100), "old")
    cluster.fault(method="PUT", path="/pools", count=1, drop=when)

    binder.lifecycle.move_to_pool("pve1", guest(cluster, binder, 100), "new")

    assert cluster.state()["guests"][100]["pool"] == "new"
    with pytest.raises(ApiError, match="pool 'nope' does not exist"):
        binder.lifecycle.move_to_pool("pve1", guest(cluster, binder, 100), "nope")


def test_template__is_made_though_the_answer_was_lost(cluster, binder):
    cluster.fault(method="POST", path="/template$", count=1, drop="after")

    binder.lifecycle.convert_to_template("pve1", guest(cluster, binder, 100))

    assert cluster.state()["guests"][100]["template"]


def test_running_vm__cannot_become_a_template(cluster, binder):
    with pytest.raises((ApiError, TaskFailed)):
        binder.lifecycle.convert_to_template("pve2", guest(cluster, binder, 101))


def test_vm__is_deleted_with_its_disks_and_deleting_it_again_does_nothing(cluster, binder):
    assert binder.lifecycle.delete("pve1", guest(cluster, binder, 100)) is True
    assert binder.lifecycle.delete("pve1", guest(cluster, binder, 100)) is False

    assert 100 not in cluster.state()["guests"]
    assert [volume for volume in cluster.state()["volumes"] if volume["vmid"] == 100] == []


def test_vm_that_was_migrated_meanwhile__is_deleted_where_it_is_now(cluster, binder):
    assert binder.lifecycle.delete("pve2", guest(cluster, binder, 100)) is True

    assert 100 not in cluster.state()["guests"]


def test_container_that_took_the_vmid_meanwhile__stays(cluster, binder):
    assert binder.lifecycle.delete("pve2", guest(cluster, binder, 110)) is False

    assert 110 in cluster.state()["guests"]


def test_running_vm__is_stopped_and_deleted(cluster, binder):
    assert binder.lifecycle.delete("pve2", guest(cluster, binder, 101))

    assert 101 not in cluster.state()["guests"]


def test_delete__a_user_who_may_not_see_the_quorum_deletes_all_the_same(cluster, blind, poller):
    binder = Binder(blind, TaskFollower(blind, timeout=30_000, poller=poller))
    assert binder.lifecycle.delete("pve1", guest(cluster, binder, 100))

    assert 100 not in cluster.state()["guests"]


def test_vm_of_another__is_not_deleted(cluster, binder):
    with pytest.raises(NotTheSameGuest, match="app"):
        binder.lifecycle.delete("pve1", binder.lifecycle.writer(100, Identity("web", "pve1", ctime=1)))
    assert 100 in cluster.state()["guests"]


def test_protected_vm__is_neither_stopped_nor_deleted(cluster, binder):
    cluster.set_guest(101, config={"protection": 1})

    with pytest.raises(ApiError, match="protected"):
        binder.lifecycle.delete("pve2", guest(cluster, binder, 101))
    assert status(cluster, 101) == "running"


def test_vm_that_ha_manages__is_taken_out_of_it_and_deleted(cluster, binder, root):
    manage(root, 100, "started")
    while status(cluster, 100) != "running":
        pass

    assert binder.lifecycle.delete("pve1", guest(cluster, binder, 100))
    assert 100 not in cluster.state()["guests"]
    assert cluster.state()["ha"]["resources"] == {}


@pytest.mark.parametrize("when", ["before", "after"])
def test_vm__is_deleted_though_the_answer_was_lost(cluster, binder, when):
    cluster.fault(method="DELETE", path="/qemu/100$", count=1, drop=when)

    assert binder.lifecycle.delete("pve1", guest(cluster, binder, 100))
    assert 100 not in cluster.state()["guests"]


def replaced_during(cluster, method: str, path: str, act: Callable[[], bool], **fault: t.Any) -> bool:
    """Act, and replace VM 100 or 101 by another one while the first request that fits is under way."""
    cluster.fault(method=method, path=path, count=1, held=True, **fault)
    with ThreadPoolExecutor() as pool:
        acting = pool.submit(act)
        until(lambda: any(call.startswith(method) and re.search(path, call) for call in calls(cluster)))
        vmid = int(re.findall(r"\d+", path)[0])
        node = cluster.state()["guests"][vmid]["node"]
        cluster.remove_guest(vmid)
        cluster.add_guest(vmid=vmid, name="payroll", node=node, memory=512)
        cluster.release()
        return acting.result()


@pytest.mark.parametrize(
    "fault", [{"drop": "before"}, {"task_error": "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout"}]
)
def test_delete_that_is_sent_again__leaves_a_vm_that_got_the_vmid_meanwhile(cluster, binder, fault):
    delete = functools.partial(binder.lifecycle.delete, "pve1", guest(cluster, binder, 100))

    assert replaced_during(cluster, "DELETE", "/qemu/100$", delete, **fault)
    assert config(cluster, 100)["name"] == "payroll"


def test_delete__leaves_a_vm_that_got_the_vmid_while_the_former_one_was_stopped(cluster, binder):
    delete = functools.partial(binder.lifecycle.delete, "pve2", guest(cluster, binder, 101))

    assert replaced_during(cluster, "POST", "/qemu/101/status/stop$", delete)
    assert config(cluster, 101)["name"] == "payroll"


def fail_to_find(cluster, vmid: int, count: int) -> None:
    message = f"Configuration file 'nodes/pve1/qemu-server/{vmid}.conf' does not exist"
    cluster.fault(method="GET", path=f"/qemu/{vmid}/config$", count=count, status=500, message=message)


def test_vm_that_its_node_does_not_find_for_a_moment__is_deleted(cluster, binder):
    fail_to_find(cluster, 100, 2)

    assert binder.lifecycle.delete("pve1", guest(cluster, binder, 100)) is True
    assert 100 not in cluster.state()["guests"]


def test_vm_that_its_node_does_not_find_for_long__is_not_called_absent(cluster, binder):
    fail_to_find(cluster, 100, 9)

    with pytest.raises(ApiError, match="the cluster shows VM 100 on node pve1, which does not find it: not deleted"):
        binder.lifecycle.delete("pve1", guest(cluster, binder, 100))


def test_template_with_linked_clones__is_not_deleted(cluster, binder, session):
    binder._tasks.wait(session.post("/nodes/pve1/qemu/9000/clone", newid=300))

    with pytest.raises((ApiError, TaskFailed), match="clone"):
        binder.lifecycle.delete("pve1", guest(cluster, binder, 9000))
    assert 9000 in cluster.state()["guests"]


def test_missing_privilege__is_told(cluster, operator, poller):
    binder = Binder(operator, TaskFollower(operator, poller=poller))

    with pytest.raises(PermissionDenied):
        binder.lifecycle.start("pve1", guest(cluster, binder, 100))


def test_write_that_never_gets_an_answer__ends_in_an_error(cluster, binder):
    cluster.fault(method="POST", path="/start$", drop="before")

    with pytest.raises(AnswerLost):
        binder.lifecycle.start("pve1", guest(cluster, binder, 100))
    assert len([call for call in calls(cluster) if call.endswith("/start")]) == 3
