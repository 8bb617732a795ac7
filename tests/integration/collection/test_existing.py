# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that exist: drift, updates, power, removal."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until


def config_of(cluster: SimulatedCluster, vmid: int) -> dict[str, Any]:
    """The config as it will be after the next start."""
    guest = cluster.state()["guests"][vmid]
    return {**guest["config"], **guest["pending"]}


def volumes_of(cluster: SimulatedCluster) -> set[str]:
    return {volume["volid"] for volume in cluster.state()["volumes"]}


def puts(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [r["params"] for r in cluster.requests() if r["method"] == "PUT"]


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


# --- drift ---


@both_versions
def test_drift__is_returned_and_warned_of_and_nothing_is_changed(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    result = controller.schedule(name="app-1", cores=8, memory=8192, description="the shop")
    assert result["changed"] is False
    assert result["vms"][0]["drift"]["cores"] == {"old": 4, "new": 8}
    assert set(result["vms"][0]["drift"]) == {"cores", "description"}
    (warning,) = result["warnings"]
    assert warning.startswith('VM "app-1" has drifted: cores is 4, requested 8')
    assert warning.endswith("Set update=true to apply.")
    assert writes(cluster) == []


def test_same_drift_of_several_vms__is_warned_of_once(controller: Controller) -> None:
    result = controller.schedule(vms=[{"name": name, "cores": 8} for name in ("app-1", "spare", "app-2")])
    assert [vm["drift"]["cores"]["old"] for vm in result["vms"]] == [4, 2, 2]
    assert result["warnings"] == [
        'VM "app-1" has drifted: cores is 4, requested 8. Set update=true to apply.',
        'VM "spare" has drifted: cores is 2, requested 8. Set update=true to apply. The same applies to VM "app-2".',
    ]


@both_versions
def test_update__sends_only_what_differs(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {"name": "app-1", "cores": 8, "memory": 8192, "scsi": {"scsi0": {"size": 40}}, "onboot": True}
    planned = controller.schedule(**asked, update=True, check=True, diff=True)
    assert writes(cluster) == []
    result = controller.schedule(**asked, update=True, diff=True)
    assert result["vms"][0]["actions"] == planned["vms"][0]["actions"] == ["update"]
    assert result["vms"][0]["pending"] == {"cores": {"old": 4, "new": 8}}
    assert result["warnings"] == [
        'VM "app-1" runs with pending changes: cores from 4 to 8. They take effect when it is stopped and started. '
        "Set apply_pending=reboot to do so."
    ]
    assert result["diff"] == planned["diff"]
    assert "cores: 4" in result["diff"][0]["before"]
    assert "cores: 8" in result["diff"][0]["after"]
    config = config_of(cluster, 100)
    assert (config["cores"], config["onboot"]) == (8, 1)
    assert "size=40G" in config["scsi0"]
    resize, change = puts(cluster)
    assert resize["disk"] == "scsi0"
    assert {"cores", "onboot"} == set(change) - {"node", "vmid", "digest"}
    again = controller.schedule(**asked, update=True)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})
    assert (again["vms"][0]["pending"], again["warnings"]) == (result["vms"][0]["pending"], result["warnings"])


@both_versions
def test_apply_pending__stops_and_starts_a_vm_once(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {"name": "app-1", "cores": 8, "update": True, "apply_pending": "reboot"}
    planned = controller.schedule(**asked, check=True, diff=True)
    assert writes(cluster) == []
    result = controller.schedule(**asked, diff=True)
    assert planned["vms"] == result["vms"]
    assert planned["diff"] == result["diff"]
    assert (result["vms"][0]["actions"], result["vms"][0]["status"]) == (["update", "reboot"], "running")
    assert (result["vms"][0]["pending"], result["warnings"]) == ({}, [])
    guest = cluster.state()["guests"][100]
    assert (guest["config"]["cores"], guest["pending"], guest["status"]) == (8, {}, "running")
    assert controller.schedule(**asked)["changed"] is False


def test_apply_pending__applies_what_was_pending_before(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="app-1", cores=8, update=True)
    assert controller.schedule(name="app-1")["vms"][0]["pending"] == {"cores": {"old": 4, "new": 8}}
    result = controller.schedule(name="app-1", apply_pending="reboot", diff=True)
    assert result["vms"][0]["actions"] == ["reboot"]
    assert "pending: cores from 4 to 8" in result["diff"][0]["before"]
    assert "pending" not in result["diff"][0]["after"]
    assert cluster.state()["guests"][100]["config"]["cores"] == 8


def test_apply_pending__does_not_reboot_where_nothing_is_pending(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {"name": "app-1", "net": {"net0": "virtio,bridge=vmbr1"}, "update": True, "apply_pending": "reboot"}
    assert controller.schedule(**asked)["vms"][0]["actions"] == ["update"]
    assert [call for call in writes(cluster) if "/status/" in call] == []


def test_apply_pending__that_does_not_start_again_is_told(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/100/status/start$", task_error="no KVM today")
    failed = controller.fail("TaskFailed", name="app-1", cores=8, update=True, apply_pending="reboot")
    vm = failed["vms"][0]
    assert (vm["actions"], vm["status"], vm["not_done"]) == (["update", "stop"], "stopped", ["reboot"])


@both_versions
def test_same_said_otherwise__is_no_drift(controller: Controller, cluster: SimulatedCluster) -> None:
    made = {
        "name": "web-1",
        "memory": 1024,
        "net": {"net0": "virtio,bridge=vmbr0,firewall=1"},
        "tags": ["b", "A"],
        "agent": True,
        "scsi": {"scsi0": {"storage": "shared", "size": 8, "ssd": 1, "discard": "on"}},
        "boot": "order=scsi0;net0",
    }
    first = controller.schedule(**made)
    assert "BC:24:11" in config_of(cluster, first["vmid"])["net0"].upper(), "Proxmox has made up a MAC address"
    said_otherwise = {
        **made,
        "net": {"net0": {"model": "virtio", "firewall": True, "bridge": "vmbr0"}},
        "tags": ["a", "b"],
        "agent": "enabled=1",
        "scsi": {"scsi0": "shared:8,discard=on,ssd=yes"},
    }
    result = controller.schedule(**said_otherwise)
    assert result["vms"][0]["drift"] == {}


@both_versions
@pytest.mark.parametrize("boot", ["order=scsi0", "order=net0;scsi0"], ids=["as it was", "another"])
def test_cd_that_an_update_adds__leaves_the_boot_order_as_asked_for(
    controller: Controller, cluster: SimulatedCluster, boot: str
) -> None:
    """Proxmox appends a drive that gets a medium to the boot order."""
    made = {"name": "web-1", "memory": 1024, "scsi": {"scsi0": {"storage": "shared", "size": 8}}}
    vmid = controller.schedule(**made, net={"net0": "virtio,bridge=vmbr0"}, boot="order=scsi0")["vmid"]
    asked = {**made, "ide": {"ide0": "none,media=cdrom"}, "boot": boot, "update": True}
    result = controller.schedule(**asked)
    assert set(result["vms"][0]["drift"]) == {"ide0"} | ({"boot"} if boot != "order=scsi0" else set())
    assert config_of(cluster, vmid)["boot"] == boot
    assert controller.schedule(**asked)["changed"] is False


@both_versions
def test_imported_disk_that_an_update_adds__is_grown_to_its_size_once(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    image = "local:import/debian-13.qcow2"
    asked = {
        "name": "app-1",
        "scsi": {f"scsi{n}": {"import_from": image, "size": size} for n, size in enumerate((None, 30, "1M"), 4)},
        "update": True,
    }
    result = controller.schedule(**{**asked, "scsi": {k: {**v, "storage": "shared"} for k, v in asked["scsi"].items()}})
    assert result["vms"][0]["actions"] == ["update"]
    config = config_of(cluster, 100)
    assert config["scsi4"].rpartition("size=")[2] == config["scsi6"].rpartition("size=")[2]
    assert "size=30G" in config["scsi5"]
    assert [put["disk"] for put in puts(cluster) if "disk" in put] == ["scsi5"]
    del asked["scsi"]["scsi6"]
    again = controller.schedule(**asked)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


@pytest.mark.parametrize("asked", [{"scsi": {"scsi0": {"size": 8}}}, {"scsi": {"scsi0": "local-lvm:vm-101-disk-0"}}])
def test_what_cannot_be_changed__is_said_and_nothing_is(
    controller: Controller, cluster: SimulatedCluster, asked: dict[str, Any]
) -> None:
    failed = controller.fail("DriftNotApplicable", name="app-1", cores=8, update=True, **asked)
    assert 'VM "app-1" cannot be updated: scsi0: ' in failed["msg"]
    assert failed["vms"][0]["vmid"] == 100
    assert failed["vms"][0]["changed"] is False
    assert writes(cluster) == []
    drifted = controller.schedule(name="app-1", **asked)
    assert list(drifted["vms"][0]["drift"]) == ["scsi0"]


def test_existing_vm_that_was_locked_meanwhile__fails_alone(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="PUT", path="/nodes/pve1/qemu/100/config$", status=500, message="VM is locked (backup)")
    failed = controller.fail("GuestLocked", vms=[{"name": "app-1", "cores": 8, "update": True}, {"name": "new"}])
    assert 'VM "app-1" (100 on pve1) is locked (backup), so it is impossible to update it: wait' in failed["msg"]
    assert [vm["changed"] for vm in failed["vms"]] == [False, True]


def test_locked_vm__fails_in_both_modes_where_proxmox_refuses(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    for name, vmid, lock, action, asked in (
        ("app-1", 100, "backup", "update", {"cores": 8, "update": True}),
        ("app-1", 100, "snapshot", "stop", {"state": "stopped"}),
        ("app-1", 100, "backup", "restart", {"state": "restarted"}),
        ("app-1", 100, "backup", "delete", {"state": "absent"}),
        ("app-1", 100, "backup", "suspend", {"state": "suspended"}),
        ("spare", 102, "backup", "start", {"state": "started"}),
        ("spare", 102, "suspended", "update", {"cores": 8, "update": True}),
    ):
        cluster.set_guest(vmid, config={"lock": lock})
        for check in (True, False):
            failed = controller.fail("GuestLocked", name=name, check=check, **asked)
            assert f"is locked ({lock}), so it is impossible to {action} it: " in failed["msg"]
            assert failed["vms"][0]["changed"] is False
    assert writes(cluster) == []


def test_locked_vm__is_no_obstacle_where_proxmox_does_not_refuse(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(100, config={"lock": "backup"})
    assert controller.schedule(name="app-1", state="started", cores=8)["changed"] is False
    for state, action in (("paused", "pause"), ("started", "resume")):
        for check in (True, False):
            assert controller.schedule(name="app-1", state=state, check=check)["vms"][0]["actions"] == [action]
    cluster.set_guest(102, config={"lock": "suspended"})
    for check in (True, False):
        assert controller.schedule(name="spare", state="started", check=check)["vms"][0]["actions"] == ["start"]


def test_running_vm__is_stopped_and_made_a_template(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {"name": "app-1", "template": True, "cores": 2, "update": True}
    failed = controller.fail("DriftNotApplicable", **asked)
    assert "state=stopped" in failed["msg"]
    assert writes(cluster) == []
    result = controller.schedule(**asked, state="stopped")
    assert (result["vms"][0]["actions"], result["vms"][0]["status"]) == (["stop", "update"], "stopped")
    config = config_of(cluster, 100)
    assert (config["template"], config["cores"]) == (1, 2)
    assert controller.schedule(**asked, state="stopped")["changed"] is False


# --- power ---


@both_versions
def test_power__is_brought_to_the_state_that_is_asked_for_once(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    for state, action, status in (("started", "start", "running"), ("stopped", "stop", "stopped")):
        planned = controller.schedule(name="spare", state=state, check=True)
        result = controller.schedule(name="spare", state=state)
        assert (result["vms"][0]["actions"], result["vms"][0]["status"]) == ([action], status)
        assert planned["vms"] == result["vms"]
        assert cluster.state()["guests"][102]["status"] == status
        for _run in range(2):
            again = controller.schedule(name="spare", state=state)
            assert (again["changed"], again["vms"][0]["status"]) == (False, status)


def test_present__leaves_power_alone(controller: Controller) -> None:
    for name, status in (("app-1", "running"), ("spare", "stopped")):
        result = controller.schedule(name=name)
        assert (result["changed"], result["vms"][0]["status"]) == (False, status)


def test_vm_that_does_not_shut_down__is_stopped_only_with_force(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start(time_scale=0.002)
    cluster.set_guest(101, acpi=False)
    controller = control(cluster)
    failed = controller.fail("TaskFailed", name="app-2", state="stopped")
    assert "set force=true to stop it" in failed["msg"]
    assert cluster.state()["guests"][101]["status"] == "running"
    controller.schedule(name="app-2", state="stopped", force=True)
    assert cluster.state()["guests"][101]["status"] == "stopped"


def test_paused_vm__is_stopped_only_with_force(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(101, status="paused")
    failed = controller.fail("ApiError", name="app-2", state="stopped")
    assert 'VM "app-2" is paused; set force=true to stop it: ' in failed["msg"]
    controller.schedule(name="app-2", state="stopped", force=True)
    assert cluster.state()["guests"][101]["status"] == "stopped"


def test_update_and_start__go_together(controller: Controller, cluster: SimulatedCluster) -> None:
    result = controller.schedule(name="spare", memory=2048, update=True, state="started")
    assert result["vms"][0]["actions"] == ["update", "start"]
    guest = cluster.state()["guests"][102]
    assert (guest["config"]["memory"], guest["status"]) == ("2048", "running")


def test_what_was_done_before_a_failure__is_told(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/102/status/start$", task_error="no KVM today")
    failed = controller.fail("TaskFailed", name="spare", memory=2048, update=True, state="started")
    vm = failed["vms"][0]
    assert (vm["actions"], vm["changed"], vm["error"]["applied"]) == (["update"], True, ["update"])
    assert config_of(cluster, 102)["memory"] == "2048"


def test_new_vm_that_does_not_start__is_there_and_told_of(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/status/start$", task_error="no KVM today")
    failed = controller.fail("TaskFailed", name="web-1", clone="debian-13", state="started")
    vm = failed["vms"][0]
    assert vm["changed"] is True
    assert vm["error"]["created"] == {"vmid": vm["vmid"], "node": vm["node"]}
    cluster.clear_faults()
    again = controller.schedule(name="web-1", clone="debian-13", state="started")
    assert (again["vmid"], again["vms"][0]["actions"]) == (vm["vmid"], ["start"])


# --- removal ---


@both_versions
def test_running_vm__is_removed_with_its_disks_and_stays_away(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    planned = controller.schedule(name="app-1", state="absent", check=True, diff=True)
    assert cluster.state()["guests"][100]["status"] == "running"
    result = controller.schedule(name="app-1", state="absent", diff=True)
    vm = result["vms"][0]
    assert (vm["action"], vm["status"], vm["node"], vm["changed"]) == ("delete", "absent", None, True)
    assert planned["vms"] == result["vms"]
    assert result["diff"][0]["after"] == ""
    assert (result["diff"][0]["before_header"], result["diff"][0]["after_header"]) == (
        'VM "app-1" (100)',
        'VM "app-1" (100), absent',
    )
    assert 100 not in cluster.state()["guests"]
    again = controller.schedule(name="app-1", state="absent")
    assert (again["changed"], again["vms"][0]["status"], again["vmid"]) == (False, "absent", None)


def test_removing__needs_neither_room_nor_a_name(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(vms=[{"vmid": 102}, {"name": "never-there", "memory": 10**7}], state="absent")
    assert 102 not in cluster.state()["guests"]


@both_versions
@pytest.mark.parametrize(("name", "vmid"), [("spare", 102), ("app-2", 101)])
def test_drive__is_removed_by_a_word_and_its_volume_kept(
    controller: Controller, cluster: SimulatedCluster, name: str, vmid: int
) -> None:
    controller.schedule(name=name, scsi={"scsi1": "shared:4"}, update=True)
    volume = config_of(cluster, vmid)["scsi1"].partition(",")[0]
    asked: dict[str, Any] = {"name": name, "scsi": {"scsi1": {"remove": "unused"}}}
    told = controller.schedule(**asked)
    assert (told["changed"], told["vms"][0]["drift"]["scsi1"]["new"]) == (False, None)
    assert config_of(cluster, vmid)["scsi1"].startswith(volume)
    for wrong in ({"remove": "destroyed"}, {"remove": "destroy", "size": 4}, {"remove": True}, {"remove": ["unused"]}):
        failed = controller.fail("InvalidRequest", name=name, scsi={"scsi1": wrong}, update=True)
        assert "scsi1: " in failed["msg"]
        assert "remove: unused" in failed["msg"]
    assert controller.schedule(**asked, update=True)["vms"][0]["actions"] == ["update"]
    config = config_of(cluster, vmid)
    assert ("scsi1" in config, config["unused0"], "scsi0" in config) == (False, volume, True)
    assert controller.schedule(**asked, update=True)["changed"] is False


@both_versions
@pytest.mark.parametrize(("name", "vmid"), [("spare", 102), ("app-2", 101)])
def test_drive__is_destroyed_with_its_volume_only_by_the_word_for_that(
    controller: Controller, cluster: SimulatedCluster, name: str, vmid: int
) -> None:
    drives = {"scsi1": "shared:4", "scsi2": "shared:5", "virtio3": "shared:6"}
    controller.schedule(
        name=name, scsi={k: v for k, v in drives.items() if "scsi" in k}, virtio={"virtio3": "shared:6"}, update=True
    )
    made = {slot: config_of(cluster, vmid)[slot].partition(",")[0] for slot in drives}
    asked: dict[str, Any] = {
        "name": name,
        "scsi": {"scsi1": {"remove": "destroy"}, "scsi2": {"remove": "unused"}},
        "virtio": {"virtio3": {"remove": "destroy"}},
    }
    told = controller.schedule(**asked, diff=True)
    assert (told["changed"], told["vms"][0]["drift"]["scsi1"]["new"]) == (False, "destroyed with its volume")
    assert controller.schedule(**asked, update=True)["vms"][0]["actions"] == ["update"]
    config, volumes = config_of(cluster, vmid), volumes_of(cluster)
    assert [slot for slot in drives if slot in config] == []
    assert {made[slot] for slot in drives if made[slot] in volumes} == {made["scsi2"]}
    assert [value for key, value in config.items() if key.startswith("unused")] == [made["scsi2"]]
    assert controller.schedule(**asked, update=True)["changed"] is False


def test_drive_that_cannot_be_destroyed__stays(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="spare", scsi={"scsi1": "shared:4"}, protection=True, update=True)
    cluster.reset_requests()
    for word in ("unused", "destroy"):
        failed = controller.fail("DriftNotApplicable", name="spare", scsi={"scsi1": {"remove": word}}, update=True)
        assert "scsi1: the VM is protected, which keeps its drives; set protection to false first" in failed["msg"]
    assert writes(cluster) == []
    assert "scsi1" in config_of(cluster, 102)


@both_versions
def test_drive_of_a_template__is_destroyed_in_its_clone_only(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="debian-13", vmid=9000, scsi={"scsi1": "shared:4"}, update=True)
    asked = {"name": "web-1", "clone": "debian-13", "scsi": {"scsi1": {"remove": "destroy"}}}
    vmid = controller.schedule(**asked)["vmid"]
    config = config_of(cluster, vmid)
    assert [key for key in config if key == "scsi1" or key.startswith("unused")] == []
    assert config.get("description", "") == config_of(cluster, 9000).get("description", "")
    assert {volume for volume in volumes_of(cluster) if f"-{vmid}-" in volume} <= {
        str(value).partition(",")[0] for value in config.values()
    }
    assert "scsi1" in config_of(cluster, 9000)
    assert controller.schedule(**asked, update=True)["changed"] is False


@both_versions
def test_drive_of_a_template__is_removed_from_its_clone(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="debian-13", vmid=9000, scsi={"scsi1": "shared:4"}, update=True)
    asked = {"name": "web-1", "clone": "debian-13", "scsi": {"scsi1": {"remove": "unused"}, "scsi2": {"size": 1}}}
    vmid = controller.schedule(**asked)["vmid"]
    config = config_of(cluster, vmid)
    assert ("scsi1" in config, "scsi2" in config, config["unused0"].startswith("shared:")) == (False, True, True)
    assert "scsi1" in config_of(cluster, 9000)
    assert controller.schedule(**asked, update=True)["changed"] is False


def test_new_vm__does_not_get_a_drive_that_it_shall_not_have(controller: Controller, cluster: SimulatedCluster) -> None:
    drives = {"virtio": {"virtio0": {"remove": "unused"}}, "scsi": {"scsi0": {"size": 1}}}
    vmid = controller.schedule(name="web-1", **drives)["vmid"]
    assert [key for key in config_of(cluster, vmid) if key.startswith(("virtio", "unused"))] == []


# --- names ---


@both_versions
@pytest.mark.parametrize("state", ["present", "restarted", "started"])
def test_vm__is_renamed_by_its_vmid_where_that_is_asked_for(
    controller: Controller, cluster: SimulatedCluster, state: str
) -> None:
    asked: dict[str, Any] = {"vmid": 102, "name": "cache", "cores": 3, "state": state, "update": True}
    failed = controller.fail("VMIDConflict", **asked)
    assert "VMID 102 belongs to spare (102 on pve2); set rename=true if it is to have this name" in failed["msg"]
    asked["rename"] = True
    told = controller.schedule(**{**asked, "update": False, "state": "present"})
    assert told["vms"][0]["drift"]["name"] == {"old": "spare", "new": "cache"}
    assert controller.schedule(**asked)["vms"][0]["actions"][0] == "update"
    assert (config_of(cluster, 102)["name"], config_of(cluster, 102)["cores"]) == ("cache", 3)
    if state != "restarted":
        assert controller.schedule(**asked)["changed"] is False
    assert controller.schedule(name="cache", cores=3)["changed"] is False


def test_vm__gets_no_name_that_another_one_has(controller: Controller, cluster: SimulatedCluster) -> None:
    failed = controller.fail("VMIDConflict", vmid=102, name="app-1", rename=True, update=True)
    assert "cannot be renamed: the name belongs to app-1 (100 on pve1)" in failed["msg"]
    for wrong in ({"name": "x"}, {"vmid": 102}, {"name": "x", "vmid": 102, "state": "absent"}):
        assert controller.fail("InvalidRequest", **wrong, rename=True)["msg"].startswith(
            "rename: requires name and vmid"
        )
    assert writes(cluster) == []


# --- cloud-init data of a running VM ---


@both_versions
def test_cloud_init_data_of_a_running_vm__is_written_to_its_drive_and_told(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    created = {"name": "web-1", "ciuser": "admin", "ide": {"ide2": "shared:cloudinit"}, "net": {"net0": "virtio"}}
    vmid = controller.schedule(**created, state="started")["vmid"]
    assert cluster.state()["guests"][vmid]["cloud_init"] == {"ciuser": "admin"}
    asked: dict[str, Any] = {**created, "ciuser": "shop", "nameservers": ["192.0.2.1"], "update": True}
    told = ['VM "web-1" runs: the guest reads ciuser, nameserver when it boots the next time']
    for check in (True, False):
        result = controller.schedule(**asked, check=check)
        assert result["warnings"] == told
        assert result["vms"][0]["host"]["vars"]["ansible_user"] == "admin", "the guest does not have the new one yet"
    assert cluster.state()["guests"][vmid]["cloud_init"] == {"ciuser": "shop", "nameserver": "192.0.2.1"}
    again = controller.schedule(**asked)
    assert (again["changed"], again["warnings"]) == (False, [])


@both_versions
def test_cloud_init_data__are_applied_by_a_reboot_where_that_is_asked_for(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    created = {"name": "web-1", "ciuser": "admin", "ide": {"ide2": "shared:cloudinit"}, "net": {"net0": "virtio"}}
    vmid = controller.schedule(**created, state="started")["vmid"]
    asked = {**created, "ciuser": "shop", "update": True, "apply_pending": "reboot"}
    result = controller.schedule(**asked)
    assert (result["vms"][0]["actions"], result["warnings"]) == (["update", "reboot"], [])
    assert result["vms"][0]["host"]["vars"]["ansible_user"] == "shop"
    assert cluster.state()["guests"][vmid]["cloud_init"]["ciuser"] == "shop"
    assert controller.schedule(**asked)["changed"] is False


def test_cloud_init_drive_that_is_not_regenerated__is_told(controller: Controller, cluster: SimulatedCluster) -> None:
    created = {"name": "web-1", "ide": {"ide2": "shared:cloudinit"}}
    controller.schedule(**created, state="started")
    cluster.fault(method="PUT", path="/qemu/[0-9]+/cloudinit", status=500, message="genisoimage failed")
    warnings = controller.schedule(**created, ciuser="shop", update=True)["warnings"]
    (warning,) = warnings
    assert "was not regenerated; the guest gets the new data when the VM is stopped and started: " in warning


@pytest.mark.parametrize("state", ["present", "stopped", "restarted"])
def test_cloud_init_drive__is_not_regenerated_where_a_start_does_it(
    controller: Controller, cluster: SimulatedCluster, state: str
) -> None:
    created = {"name": "web-1", "ide": {"ide2": "shared:cloudinit"}}
    controller.schedule(**created, state="present" if state == "present" else "started")
    controller.schedule(**created, ciuser="shop", update=True, state=state)
    assert [each for each in writes(cluster) if "/cloudinit" in each] == []


EFI = "shared:vm-102-disk-1,efitype=4m,pre-enrolled-keys=1,size=528K"


@both_versions
def test_certificates__are_enrolled_into_an_existing_efi_disk(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(102, config={"bios": "ovmf", "efidisk0": EFI})
    asked = {"name": "spare", "efidisk0": {"ms_cert": "2023"}, "update": True}
    told = controller.schedule(**asked, check=True)
    assert "ms-cert=2023" in told["vms"][0]["drift"]["efidisk0"]["new"]
    controller.schedule(**asked)
    stored = dict(part.partition("=")[::2] for part in config_of(cluster, 102)["efidisk0"].split(","))
    assert (stored["ms-cert"], stored["pre-enrolled-keys"], stored["efitype"]) == ("2023k", "1", "4m")
    assert "shared:vm-102-disk-1" in stored
    assert controller.schedule(**asked)["changed"] is False
    cluster.set_guest(102, config={"efidisk0": EFI.replace("pre-enrolled-keys=1,", "")})
    failed = controller.fail("DriftNotApplicable", **asked)
    assert "pre_enrolled_keys" in failed["msg"]
    assert "ms-cert" not in config_of(cluster, 102)["efidisk0"]


@both_versions
def test_certificates_of_a_running_vm__are_pending(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(100, config={"bios": "ovmf", "efidisk0": EFI.replace("102", "100")})
    asked = {"name": "app-1", "efidisk0": {"ms_cert": "2023k"}, "update": True}
    assert set(controller.schedule(**asked)["vms"][0]["pending"]) == {"efidisk0"}
    assert controller.schedule(**asked)["changed"] is False
    controller.schedule(**asked, apply_pending="reboot")
    assert "ms-cert=2023k" in cluster.state()["guests"][100]["config"]["efidisk0"]
    assert controller.schedule(**asked)["changed"] is False


def test_protected_vm__is_not_removed(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(102, config={"protection": 1})
    failed = controller.fail("ApiError", name="spare", state="absent")
    assert "protect" in failed["msg"]
    assert failed["vms"][0]["changed"] is False
    assert 102 in cluster.state()["guests"]
    controller.schedule(name="spare", protection=False, update=True)
    assert controller.schedule(name="spare", state="absent")["changed"] is True


@both_versions
def test_protected_vm__fails_check_mode_and_keeps_the_others_of_its_task(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(102, config={"protection": 1})
    asked: dict[str, Any] = {"vms": [{"name": "app-1"}, {"name": "spare"}], "state": "absent"}
    planned = controller.fail("ApiError", **asked, check=True)
    failed = controller.fail("ApiError", **asked)
    assert planned["msg"] == failed["msg"]
    assert 'VM "spare": VM 102 is protected against deletion' in failed["msg"]
    assert {100, 102} <= set(cluster.state()["guests"])
    assert cluster.state()["guests"][100]["status"] == "running"
    controller.fail("ApiError", **asked, all_or_nothing=False)
    assert {100, 102} & set(cluster.state()["guests"]) == {102}


def test_vm_removed_and_created_in_two_runs__is_a_new_one(controller: Controller, cluster: SimulatedCluster) -> None:
    first = controller.schedule(name="web-1", memory=1024, scsi={"scsi0": {"size": 4}})
    controller.schedule(name="web-1", state="absent")
    second = controller.schedule(name="web-1", memory=2048, scsi={"scsi0": {"size": 4}})
    assert second["vms"][0]["action"] == "create"
    assert config_of(cluster, second["vmid"])["memory"] == "2048"
    assert first["vmid"] == second["vmid"], "the lowest free one"


def test_vm_that_was_removed_after_the_inventory_was_read__is_no_change(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    read = "/qemu/102/config$"
    cluster.fault(method="GET", path=read, count=1, held=True)
    with ThreadPoolExecutor() as pool:
        absent = pool.submit(controller.schedule, name="spare", state="absent")
        until(lambda: any(re.search(read, request["path"]) for request in cluster.requests()))
        cluster.remove_guest(102)
        cluster.release()
        result = absent.result()
    assert (result["changed"], result["vms"][0]["status"]) == (False, "absent")
