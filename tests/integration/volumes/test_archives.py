# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that are restored from backups: which backup, where to, and what the task changes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.vm_plan import as_document, read_plan

from .conftest import CLUSTER, Lab

OLD = "nas:backup/vzdump-qemu-170-2026_11_01-00_00_00.vma.zst"
LATEST = "nas:backup/vzdump-qemu-170-2026_11_21-00_00_00.vma.zst"
ON_PBS = "pbs:backup/vm/171/2026-11-20T00:00:00Z"
LOCAL = "dumps:backup/vzdump-qemu-172-2026_11_20-00_00_00.vma"
CONFIG: dict[str, Any] = {
    "name": "web",
    "cores": 4,
    "memory": "8192",
    "cpu": "x86-64-v2-AES",
    "onboot": 1,
    "tags": "web",
    "description": "the shop\nof 100%",
    "net0": "virtio=BC:24:11:AA:BB:01,bridge=vmbr0",
    "smbios1": "uuid=11111111-2222-3333-4444-555555555555",
    "boot": "order=scsi0",
    "scsi0": "gone:vm-170-disk-0,size=32G,ssd=1",
    "scsi1": "gone:vm-170-disk-1,size=8G",
    "scsi2": "gone:vm-170-disk-2,backup=0,size=500G",
    "ide2": "gone:vm-170-cloudinit,media=cdrom,size=4M",
}


def backup(volume: str, vmid: int, **more: Any) -> dict[str, Any]:
    storage, file = volume.split(":backup/")
    return {"storage": storage, "file": file, "vmid": vmid, "size": 2, "config": CONFIG, **more}


PARTS: dict[str, Any] = {
    "storages": [
        *CLUSTER["storages"],
        {"name": "nas", "type": "nfs", "content": ["backup"], "size": 900},
        {"name": "pbs", "type": "pbs", "content": ["backup"], "size": 900, "nodes": ["pve2", "pve3"]},
        {"name": "dumps", "type": "dir", "content": ["backup"], "size": 900},
    ],
    "backups": [
        backup(OLD, 170, ctime=1000, config={**CONFIG, "memory": "1024"}),
        backup(LATEST, 170, ctime=2000),
        backup(ON_PBS, 171),
        backup(LOCAL, 172, nodes=["pve1"]),
    ],
}


@pytest.fixture
def lab(control: Callable[..., Lab]) -> Lab:
    return control(**PARTS)


def restored(cluster: SimulatedCluster, result: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = cluster.state()["guests"][result["vmid"]]["config"]
    return config


def posts(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [r for r in cluster.requests() if r["method"] == "POST" and r["path"].endswith("/qemu")]


def test_capacity__counts_the_disks_of_a_backup(controller: Controller) -> None:
    asked = {"cores": 1, "memory": 64}
    most, least = (
        controller.run("capacity_info", scsi={"scsi0": {"size": size}}, **asked)["total"] for size in (40, 41)
    )
    held = controller.run("capacity_info", archive="170", **asked)
    # Two disks and a small one for cloud-init.
    assert least <= held["total"] <= most
    assert held["limited_by"] == "storage"
    local = controller.run("capacity_info", archive=LOCAL, **asked)
    assert [node["node"] for node in local["nodes"] if node["fit"]] == ["pve1"]


@both_versions
def test_latest_backup__is_restored_once_with_what_the_task_changes(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {
        "name": "web-2",
        "archive": "170",
        "memory": 4096,
        "net": {"net0": "virtio,bridge=vmbr0,firewall=1"},
        "description": "restored",
        "state": "started",
    }
    planned = controller.schedule(**asked, check=True, diff=True)
    assert posts(cluster) == []
    assert f"archive: {LATEST}" in planned["diff"][0]["after"]
    assert planned["vm_plan"]["vms"][0]["archive"] == LATEST
    applied = controller.schedule(**asked, apply=planned["vm_plan"], check=True)
    assert applied["vms"][0]["storages"] == planned["vms"][0]["storages"]
    result = controller.schedule(**asked)
    assert (result["vms"][0]["actions"], result["vms"][0]["status"]) == (["restore", "start"], "running")
    assert (
        result["vms"][0]["storages"]
        == planned["vms"][0]["storages"]
        == dict.fromkeys(["ide2", "scsi0", "scsi1"], result["vms"][0]["storages"]["scsi0"])
    )
    config = restored(cluster, result)
    shown = {key: config[key] for key in ("name", "memory", "cores", "description")}
    assert shown == {"name": "web-2", "memory": "4096", "cores": 4, "description": "restored"}
    assert config["net0"].endswith("bridge=vmbr0,firewall=1")
    assert "BC:24:11:AA:BB:01" not in config["net0"]
    assert "11111111" not in config["smbios1"]
    assert config["scsi0"].endswith("size=32G,ssd=1")
    assert "scsi2" not in config
    assert len(posts(cluster)) == 1
    assert controller.schedule(**asked, apply=planned["vm_plan"])["changed"] is False
    again = controller.schedule(**asked, update=True)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


PAYROLL = {**CONFIG, "name": "payroll", "smbios1": "uuid=99999999-2222-3333-4444-555555555555"}
BORN = "creation-qemu=10.0.2,ctime=1700000000"


@pytest.mark.parametrize(
    ("name", "latest", "refused"),
    [
        ("web", PAYROLL, True),
        ("web-copy", PAYROLL, True),
        ("payroll", PAYROLL, False),
        ("web-copy", {**CONFIG, "name": "renamed"}, False),
        ("web-copy", {**CONFIG, "name": "clone", "meta": BORN}, True),
        ("web-copy", {**CONFIG, "smbios1": PAYROLL["smbios1"], "meta": BORN}, False),
    ],
    ids=["another", "of-another", "named", "renamed", "prepared", "rebuilt"],
)
def test_latest_backup_of_a_vmid_that_was_used_again__is_not_guessed(
    control: Callable[..., Lab], name: str, latest: dict[str, Any], refused: bool
) -> None:
    used = [backup(OLD, 170, ctime=1000), backup(LATEST, 170, ctime=2000, config=latest)]
    cluster, controller = control(**{**PARTS, "backups": used})

    if refused:
        failed = controller.fail("AmbiguousName", name=name, archive="170")
        assert f'from "web" ({OLD}) to "{latest["name"]}" ({LATEST}); name the volume' in failed["msg"]
        assert posts(cluster) == []
        controller.schedule(name=name, archive=OLD, check=True)
    else:
        result = controller.schedule(name=name, archive="170", check=True, diff=True)
        assert f"archive: {LATEST}" in result["diff"][0]["after"]


def test_plan_with_the_latest_backup__restores_the_backup_that_it_was_made_with(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {"name": "web-2", "archive": "nas:170"}
    plan = read_plan(controller.schedule(**asked, check=True)["vm_plan"], "apply")

    def made_with(volume: str) -> dict[str, Any]:
        return as_document(replace(plan, vms=(replace(plan.vms[0], archive=volume),)))

    gone = controller.fail("PlanStale", **asked, apply=made_with(OLD.replace("11_01", "10_01")))
    assert 'VM "web-2" is not as planned: archive: there is no nas:backup/vzdump-qemu-170-2026_10_01' in gone["msg"]
    assert gone["msg"].endswith(f"did you mean {OLD}?")
    assert posts(cluster) == []
    result = controller.schedule(**asked, apply=made_with(OLD))
    assert restored(cluster, result)["memory"] == "1024", "the memory of the older backup"


def test_named_backup__grows_gains_a_drive_and_keeps_its_identity(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {
        "name": "web-3",
        "archive": OLD,
        "unique": False,
        "scsi": {"scsi0": {"size": 40, "discard": "on"}, "scsi3": ":5"},
        "tags": [],
        "net": {"net0": "virtio,bridge=vmbr0"},
        "storage": "ceph",
    }
    result = controller.schedule(**asked)
    config = restored(cluster, result)
    assert result["vms"][0]["storages"]["scsi1"] == "ceph"
    assert config["scsi0"].startswith("ceph:")
    assert config["scsi0"].endswith("discard=on,size=40G,ssd=1")
    assert config["scsi3"].endswith("size=5G")
    assert (config["memory"], config["net0"]) == ("1024", CONFIG["net0"])
    assert config["smbios1"] == CONFIG["smbios1"]
    assert "tags" not in config
    assert config["description"].startswith("the shop\nof 100%")
    assert "not finished" not in config["description"]
    again = controller.schedule(**asked, update=True)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


def test_backup__is_restored_where_it_can_be_read_and_fits(controller: Controller) -> None:
    on_pbs = controller.schedule(name="a", archive=ON_PBS, node_regex="pve[12]", check=True)
    assert on_pbs["node"] == "pve2"
    (rejection,) = [r for r in on_pbs["vms"][0]["decision"]["rejections"] if r["rejected_by"] == "VolumeBinding"]
    assert (rejection["nodes"], rejection["reason"]) == (["pve1"], "didn't have storage 'pbs'")
    local = controller.schedule(name="a", archive="dumps:172", check=True)
    assert local["node"] == "pve1"
    assert not local["warnings"]
    failed = controller.fail("NoStorageAvailable", name="a", archive="172", node="pve2", check=True)
    assert f"didn't have '{LOCAL}'" in failed["msg"]
    failed = controller.fail("NoStorageAvailable", name="a", archive="170", scsi={"scsi0": {"size": 250}}, check=True)
    assert "ide2 with scsi0, scsi1 needs 258 GiB" in failed["msg"]


@pytest.mark.parametrize(
    ("asked", "code", "reason"),
    [
        ({"archive": "999"}, "ArchiveNotFound", "no backup of VM 999 on any storage that this user may restore"),
        ({"archive": "pbs:170"}, "ArchiveNotFound", "there is no backup of VM 170 on storage pbs"),
        ({"archive": "nsf:170"}, "ArchiveNotFound", "; storages with backups: "),
        ({"archive": OLD.replace("_01-", "_02-")}, "ArchiveNotFound", f"known backups: {OLD}, {LATEST}"),
        ({"archive": "nas"}, "InvalidRequest", "archive: 'nas' is not valid, expected a backup such as"),
        ({"archive": "170", "clone": "plain"}, "InvalidRequest", "archive: '170' contradicts clone: 'plain'"),
        ({"unique": True}, "InvalidRequest", "unique: True requires archive"),
        ({"archive": "170", "scsi": {"scsi0": {"size": 20}}}, "InvalidRequest", "it has 32G and cannot shrink to 20G"),
        (
            {"archive": "170", "storage": "ceph", "scsi": {"scsi0": {"storage": "thick"}}},
            "InvalidRequest",
            "restores all disks of a backup to one storage, but the task names ceph for storage and thick for scsi0",
        ),
    ],
)
def test_what_cannot_be_restored__is_told_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster, asked: dict[str, Any], code: str, reason: str
) -> None:
    assert reason in controller.fail(code, name="a", **asked)["msg"]
    assert posts(cluster) == []


def test_backup_that_the_user_may_not_restore__is_not_found(control: Callable[..., Lab]) -> None:
    rights = ["VM.Allocate", "VM.Audit", "Datastore.Audit", "Datastore.AllocateSpace", "Sys.Audit", "SDN.Use"]
    _cluster, controller = control(**PARTS, roles={"Automation": rights})
    failed = controller.fail("ArchiveNotFound", name="a", archive="170")
    assert "there is no backup of VM 170 on any storage that this user may restore" in failed["msg"]


def test_latest_backup__may_be_on_a_storage_that_cannot_be_read(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_node("pve3", online=False)
    cluster.fault(method="GET", path="/storage/pbs/content$", status=500, message="pbs: connection refused")
    (warning,) = controller.schedule(name="a", archive="170", check=True)["warnings"]
    assert warning == (
        f'VM "a": {LATEST} may not be the latest backup; backups on dumps on pve3 cannot be read: it is not available; '
        "backups on pbs cannot be read: GET /nodes/pve2/storage/pbs/content: pbs: connection refused"
    )


def test_restore_that_fails__leaves_nothing(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/qemu$", count=1, task_error="command 'vma extract' failed: exit code 28")
    failed = controller.fail("TaskFailed", name="a", vmid=700, archive="170")
    assert failed["vms"][0]["status"] == "absent"
    assert 700 not in cluster.state()["guests"]


@pytest.mark.parametrize("shared", [True, False])
def test_restore_of_a_run_that_was_killed__is_waited_for_and_finished(
    controller: Controller, cluster: SimulatedCluster, shared: bool
) -> None:
    asked = {"name": "a", "archive": "170", "scsi": {"scsi3": ":5"}}
    if not shared:
        asked["reservations"] = "none"
    cluster.fault(method="POST", path="/qemu$", count=1, task_seconds=200)
    slow = controller.start("qemu_schedule", **asked)
    until(lambda: [vmid for vmid in cluster.state()["guests"] if vmid < 900 and vmid != 100])
    slow.kill()
    result = controller.schedule(**asked)
    assert result["vms"][0]["actions"] == ["finish"]
    assert len(posts(cluster)) == 1
    assert restored(cluster, result)["scsi3"].endswith("size=5G")


@both_versions
def test_vm_restored_beside_its_original__does_not_get_its_address(control: Callable[..., Lab]) -> None:
    config = {**CONFIG, "ipconfig0": "ip=192.0.2.60/24,gw=192.0.2.1"}
    original = {"vmid": 170, "name": "web", "node": "pve1", "memory": 1024, "disks": {"scsi0": "ceph:5"}}
    original["config"] = {"ipconfig0": config["ipconfig0"], "net0": CONFIG["net0"]}
    guests = [*CLUSTER["guests"], original]
    cluster, controller = control(**{**PARTS, "guests": guests, "backups": [backup(OLD, 170, config=config)]})
    copy: dict[str, Any] = {"name": "web-copy", "archive": OLD, "state": "present"}
    pools = {"address_pools": {"lan": {"network": "192.0.2.0/24", "ranges": ["192.0.2.60-192.0.2.69"]}}}
    for beside, known in (([], pools), ([], {}), ([{"name": "web"}], {}), ([{**copy, "name": "other"}], {})):
        for check in (True, False):
            failed = controller.fail("AddressConflict", vms=[*beside, copy], check=check, **known)
            assert 'VM "web-copy": 192.0.2.60 is the address of ' in failed["msg"]
    assert posts(cluster) == []
    made = controller.schedule(**copy, addresses={"ipconfig0": "lan"}, **pools)
    assert "ip=192.0.2.61/24" in restored(cluster, made)["ipconfig0"]
