# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of VMs: kept in a file, carried out exactly, completed, and refused when something is not as planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.identities import use_again
from support.versions import both_versions

SECRET = "correct-horse"
LAN = {"address_pools": {"lan": {"network": "192.0.2.0/24", "gateway": "192.0.2.1", "nameservers": ["192.0.2.53"]}}}
CLOUD_INIT = {"net": {"net0": "virtio,bridge=vmbr0"}, "ide": {"ide2": "shared:cloudinit"}}
TASK: dict[str, Any] = {
    **LAN,
    "storage_classes": {"net": {"storages": ["shared"]}},
    "vms": [
        {"name": "web-1", "memory": 2048, "scsi": {"scsi0": {"size": 8}}, "state": "started",
         "addresses": {"ipconfig0": "lan"}, **CLOUD_INIT, "cipassword": SECRET, "host_vars": {"password": SECRET}},
        {"name": "copy-1", "clone": "debian-13", "scsi": {"scsi0": {"size": 6}, "scsi1": {"size": 2}}},
        {"name": "app-1", "cores": 6, "update": True,
         "scsi": {"scsi0": {"size": 32, "storage_class": "net"}, "scsi1": {"size": 4}}},
        {"name": "spare", "state": "started"},
        {"name": "app-2", "state": "absent"},
        {"name": "never", "state": "absent"},
    ],
}  # fmt: skip


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


def found(cluster: SimulatedCluster, name: str) -> dict[str, Any]:
    (guest,) = (g for g in cluster.state()["guests"].values() if g["config"].get("name") == name)
    return dict(guest)


@pytest.fixture
def plan(controller: Controller, cluster: SimulatedCluster, tmp_path: Path) -> dict[str, Any]:
    """The plan of the task, from check mode; where it goes is not the first choice any more."""
    file = tmp_path / "plan.json"
    result = controller.schedule(**TASK, check=True, plan_file=str(file))
    assert writes(cluster) == []
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert result["vm_plan"] == document
    assert SECRET not in file.read_text(encoding="utf-8")
    return document


def crowd(cluster: SimulatedCluster, plan: dict[str, Any]) -> None:
    """Make every choice of the plan one that would not be made again."""
    for number, vm in enumerate(plan["vms"][:2]):
        cluster.add_guest(vmid=700 + number, name=f"other-{number}", node=vm["node"], cores=4, memory=20480,
                          status="running", disks={"scsi0": "local-lvm:400"})  # fmt: skip
    cluster.remove_guest(110)
    cluster.advance(60)


@both_versions
def test_plan__is_carried_out_exactly_and_once(
    controller: Controller, cluster: SimulatedCluster, plan: dict[str, Any]
) -> None:
    crowd(cluster, plan)
    again = controller.schedule(**TASK, check=True)["vm_plan"]
    assert [vm["node"] for vm in again["vms"][:2]] != [vm["node"] for vm in plan["vms"][:2]]

    checked = controller.schedule(**TASK, apply=plan, check=True)
    applied = controller.schedule(**TASK, apply=plan)

    for result in (checked, applied):
        assert result["vm_plan"] == plan
        assert [(vm["vmid"], vm["actions"]) for vm in result["vms"]] == [(v["vmid"], v["actions"]) for v in plan["vms"]]
    for vm in plan["vms"][:2]:
        guest = found(cluster, vm["name"])
        assert (guest["vmid"], guest["node"]) == (vm["vmid"], vm["node"])
        for slot, storage in vm["storages"].items():
            assert guest["config"][slot].startswith(f"{storage}:")
    web = found(cluster, "web-1")["config"]
    assert (web["ipconfig0"], web["nameserver"]) == (plan["vms"][0]["addresses"]["ipconfig0"], "192.0.2.53")
    app = found(cluster, "app-1")["config"]
    assert plan["vms"][2]["storages"] == {slot: app[slot].partition(":")[0] for slot in ("scsi0", "scsi1")}
    assert found(cluster, "spare")["status"] == "running"

    cluster.reset_requests()
    assert controller.schedule(**TASK, apply=plan)["changed"] is False
    assert writes(cluster) == []


def test_plan__that_was_carried_out_in_part_is_completed(
    controller: Controller, cluster: SimulatedCluster, plan: dict[str, Any]
) -> None:
    cluster.fault(method="POST", path="/status/start$", task_error="no start", count=2)
    cluster.fault(method="POST", path="/qemu/100/config$", status=500, message="no update", count=1)
    failed = controller.run("qemu_schedule", **TASK, apply=plan)
    assert failed["failed"]
    assert found(cluster, "web-1")["status"] == "stopped"
    cluster.remove_guest(110)

    result = controller.schedule(**TASK, apply=plan)

    assert [vm["actions"] for vm in result["vms"]] == [["start"], [], ["update"], ["start"], [], []]


@pytest.mark.parametrize("forgotten", [True, False])
def test_vm_that_somebody_else_made_since__is_not_finished(
    controller: Controller, cluster: SimulatedCluster, tmp_path: Path, forgotten: bool
) -> None:
    """It has the name, the VMID and the notes of one that the plan creates, and even its time and its UUID."""
    task: dict[str, Any] = {"name": "web-1", "clone": "debian-13", "cores": 4, "state": "started"}
    plan = controller.schedule(**task, check=True)["vm_plan"]
    cluster.fault(method="POST", path="/status/start$", task_error="no start", count=1)
    controller.fail("TaskFailed", **task, apply=plan)
    made = found(cluster, "web-1")
    config = {key: value for key, value in made["config"].items() if key not in ("vmgenid", "name", "cores", "memory")}
    cluster.remove_guest(made["vmid"])
    cluster.add_guest(vmid=made["vmid"], name="web-1", node=made["node"], cores=4, config=config,
                      memory=int(made["config"]["memory"]))  # fmt: skip
    cluster.reset_requests()

    failed = controller.fail(
        "PlanStale", **task, apply=plan, **({"reservations": str(tmp_path / "other")} if forgotten else {})
    )

    assert "the ledger does not prove that a run with this plan has created it" in failed["msg"]
    assert writes(cluster) == []


@pytest.mark.parametrize(
    "vm",
    [
        {"name": "spare", "state": "absent"},
        {"vmid": 102, "state": "absent"},
        {"name": "spare", "cores": 6, "update": True},
        {"name": "new-1", "clone": "debian-13"},
    ],
)
def test_guest_that_has_taken_the_vmid_since__is_left_alone(
    controller: Controller, cluster: SimulatedCluster, vm: dict[str, Any]
) -> None:
    """It has the same name, node and size."""
    plan = controller.schedule(vms=[vm], check=True)["vm_plan"]
    cluster.advance(5)
    for vmid, more in ((102, {"status": "stopped"}), (9000, {"status": "stopped", "template": True})):
        guest = cluster.state()["guests"][vmid]
        config = {key: value for key, value in guest["config"].items() if key not in ("smbios1", "vmgenid", "meta")}
        disk = {102: "shared:16", 9000: "shared:4"}[vmid]
        kept = {key: config.pop(key) for key in ("cores", "memory")}
        config = {key: value for key, value in config.items() if key not in ("scsi0", "ide2", "name")}
        use_again(cluster, vmid, guest["name"], **more, disks={"scsi0": disk}, config=config,
                  cores=kept["cores"], memory=int(kept["memory"]))  # fmt: skip
    cluster.advance(60)

    failed = controller.fail("PlanStale", vms=[vm], apply=plan)

    assert "another guest has its VMID" in failed["msg"]
    assert writes(cluster) == []


def test_vmid_that_is_lost_while_the_plan_is_carried_out__is_not_replaced(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    plan = controller.schedule(name="web-1", memory=512, check=True)["vm_plan"]
    cluster.fault(method="POST", path="/qemu$", vmid_taken=True, count=1)

    failed = controller.run("qemu_schedule", name="web-1", memory=512, apply=plan)

    assert failed["failed"]
    assert f"VMID {plan['vms'][0]['vmid']}" in failed["msg"]
    assert len([call for call in writes(cluster) if call.endswith("/qemu")]) == 1
    assert not [g for g in cluster.state()["guests"].values() if g["config"].get("name") == "web-1"]


def test_every_change__is_named_before_anything_is_written(controller: Controller, cluster: SimulatedCluster) -> None:
    for vmid, name in ((120, "drifts"), (121, "moves"), (122, "stops"), (123, "goes")):
        cluster.add_guest(vmid=vmid, name=name, node="pve2", cores=1, memory=512, status="running")
    cluster.advance(60)
    vms: list[dict[str, Any]] = [
        {"name": "on-lost-node", "node": "pve3"},
        {"name": "vmid-taken", "vmid_range": "300-309"},
        {"name": "no-room", "node": "pve1", "memory": 20480},
        {"name": "no-storage", "node": "pve2", "scsi": {"scsi0": "local-lvm:1"}},
        {"name": "address-taken", "addresses": {"ipconfig0": "lan"}, **CLOUD_INIT},
        {"name": "elsewhere"},
        {"name": "otherwise", "vmid_range": "310-319", "node": "pve2"},
        {"name": "appears", "state": "absent"},
        *({"name": name, "cores": 2, "update": True} for name in ("drifts", "moves", "stops")),
        {"name": "goes", "state": "present"},
        {"name": "unchanged", "node": "pve2"},
    ]
    task = {**LAN, "memory": 512, "vms": vms}
    plan = controller.schedule(**task, check=True)["vm_plan"]
    address = plan["vms"][4]["addresses"]["ipconfig0"]

    cluster.set_node("pve3", online=False)
    cluster.set_storage("local-lvm", enabled=False)
    for vmid in (121, 123):
        cluster.remove_guest(vmid)
    for guest in (
        {"vmid": 300, "name": "other", "node": "pve2"},
        {"vmid": 700, "name": "large", "node": "pve1", "memory": 45000, "status": "running"},
        {"vmid": 701, "name": "neighbour", "node": "pve2", "config": {"ipconfig0": address}},
        {"vmid": 702, "name": "elsewhere", "node": "pve2"},
        {"vmid": 310, "name": "otherwise", "node": "pve2", "memory": 1024},
        {"vmid": 703, "name": "appears", "node": "pve2"},
        {"vmid": 121, "name": "moves", "node": "pve1", "status": "running"},
    ):
        cluster.add_guest(**{"cores": 1, "memory": 512, **guest})
    cluster.set_guest(120, config={"cores": 3})
    cluster.set_guest(122, status="stopped")
    cluster.advance(60)

    failed = controller.fail("PlanStale", **task, apply=plan)

    told = {vm["name"]: (vm.get("error") or {"message": "", "changed": []}) for vm in failed["vms"]}
    for name, message in {
        "on-lost-node": "0/3 nodes are available",
        "vmid-taken": "VMID 300 belongs to other (300 on pve2)",
        "no-room": "would exceed the memory overcommit ratio",
        "no-storage": "didn't have storage 'local-lvm' (pve2)",
        "address-taken": "is the address of neighbour (701 on pve2)",
        "elsewhere": "the name belongs to elsewhere (702 on pve2)",
        "otherwise": "memory is 1024, planned 512",
        "appears": "it is on pve2 as 703, planned absent",
        "drifts": "cores would change from 3 to 2, planned from 1 to 2",
        "moves": "it is on pve1 as 121, planned on pve2 as 121",
        "stops": "it is stopped, planned when it was running",
        "goes": "it is absent, planned on pve2 as 123",
    }.items():
        assert message in told[name]["message"], (name, told[name])
        assert message in failed["msg"]
        assert message in "; ".join(told[name]["changed"])
    assert not told["unchanged"]["message"]
    assert failed["msg"].endswith("nothing was written")
    assert writes(cluster) == []
    # What was decided for a moment is not kept from others.
    assert controller.schedule(name="next", vmid=plan["vms"][-1]["vmid"])["vmid"] == plan["vms"][-1]["vmid"]
