# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMIDs that are used again while a task runs: what was planned for one VM is not done to another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.identities import use_again
from support.versions import both_versions
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.unfinished import MARK

SLOW = 60
"""Seconds of the cluster that the creation of a new VM takes."""

VM = {"node": "pve1", "cores": 2, "memory": 512, "disks": {"scsi0": "shared:8"}}
RUNNING, STOPPED = {**VM, "status": "running"}, {**VM, "status": "stopped"}
UNFINISHED = {**STOPPED, "config": {"description": MARK}}

PLANNED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (RUNNING, {"state": "stopped"}),
    (RUNNING, {"state": "restarted"}),
    (RUNNING, {"state": "paused"}),
    (RUNNING, {"state": "suspended"}),
    (RUNNING, {"state": "absent"}),
    (RUNNING, {"cores": 6, "scsi": {"scsi0": {"size": 64}}, "update": True}),
    (RUNNING, {"cores": 6, "update": True, "apply_pending": "reboot"}),
    (RUNNING, {"scsi": {"scsi0": {"size": 64}}, "update": True}),
    (RUNNING, {"scsi": {"scsi0": {"storage": "local-lvm", "size": 8}}, "update": True}),
    (RUNNING, {"scsi": {"scsi1": {"storage": "shared", "size": 4}}, "update": True}),
    (RUNNING, {"pool": "web", "update": True}),
    (RUNNING, {"ha": {"state": "started"}, "update": True}),
    (STOPPED, {"state": "started"}),
    (STOPPED, {"state": "absent"}),
    (STOPPED, {"template": True, "update": True}),
    (UNFINISHED, {"cores": 4}),
    (UNFINISHED, {"cores": 4, "ha": {"state": "stopped"}}),
    (UNFINISHED, {"template": True}),
]
"""What a VM is, and what a task wants of it: each kind of write."""

BY_VMID = [{"state": "stopped"}, {"state": "absent"}]


def sent(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [request for request in cluster.requests() if request["method"] != "GET"]


def during_a_creation(
    cluster: SimulatedCluster, controller: Controller, vms: list[dict[str, Any]], meanwhile: Callable[[], None]
) -> dict[str, Any]:
    """Run a task about VMs that exist and a new one; do something before the turn of the former comes."""
    cluster.advance(60)
    cluster.fault(method="POST", path="/qemu$", task_seconds=SLOW, count=1)
    new = {"name": "new-1", "cores": 1, "memory": 512}
    options = {"parallel_creates": 1, "all_or_nothing": False, "timeout": 600, "limits": "warn", "force": True}
    running = controller.start("qemu_schedule", vms=[new, *vms], **options)
    until(lambda: sent(cluster) or not running.is_running)
    assert running.is_running, running.result()
    meanwhile()
    result: dict[str, Any] = running.result()
    return result


def writes_to(cluster: SimulatedCluster, vmid: int) -> list[str]:
    """The writes that have reached the guest that has the VMID now."""
    birth = cluster.state()["guests"][vmid]["birth"]
    return [f"{each['method']} {each['path']}" for each in sent(cluster) if each["guests"].get(vmid) == birth]


@both_versions
def test_vms_that_were_replaced__are_not_treated_as_the_former_ones(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    vms = []
    for vmid, (guest, wanted) in enumerate(PLANNED, start=200):
        cluster.add_guest(vmid=vmid, name=f"vm-{vmid}", **guest)
        vms.append({"name": f"vm-{vmid}", **wanted})
    for vmid, wanted in enumerate(BY_VMID, start=300):
        cluster.add_guest(vmid=vmid, name=f"vm-{vmid}", **RUNNING)
        vms.append({"vmid": vmid, **wanted})
    replaced = [*range(200, 200 + len(PLANNED)), *range(300, 300 + len(BY_VMID))]

    def meanwhile() -> None:
        before = cluster.state()["guests"]
        for vmid in replaced:
            use_again(cluster, vmid, name=f"payroll-{vmid}", status=before[vmid]["status"])

    result = during_a_creation(cluster, controller, vms, meanwhile)

    guests = cluster.state()["guests"]
    assert {vmid: guests[vmid]["config"]["name"] for vmid in replaced} == {v: f"payroll-{v}" for v in replaced}
    assert {vmid: writes_to(cluster, vmid) for vmid in replaced} == {vmid: [] for vmid in replaced}
    assert result["failed"]
    for vmid, vm in zip(replaced, result["vms"][1:], strict=True):
        assert vm["error"]["code"] == "NotTheSameGuest", (vm["error"], PLANNED[vmid - 200 : vmid - 199])
        assert f'VM "vm-{vmid}" on pve1' in vm["error"]["message"]
        assert f'VM "payroll-{vmid}" on pve1' in vm["error"]["message"]
    assert result["vms"][0]["status"] == "stopped"


@pytest.mark.parametrize("node", ["pve1", "pve2"])
def test_vm_of_the_same_name__is_another_one_all_the_same(
    cluster: SimulatedCluster, controller: Controller, node: str
) -> None:
    cluster.add_guest(vmid=200, name="app", **RUNNING)

    result = during_a_creation(
        cluster, controller, [{"name": "app", "state": "stopped"}], lambda: use_again(cluster, 200, "app", node=node)
    )

    assert result["vms"][1]["error"]["code"] == "NotTheSameGuest"
    assert writes_to(cluster, 200) == []


def test_vm_whose_owner_has_copied_the_marks_of_the_former_one__is_another_one(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    """Its owner can set the UUID, root also vmgenid, and nobody the time of creation."""
    cluster.add_guest(vmid=200, name="app", **RUNNING)
    config = cluster.state()["guests"][200]["config"]
    copied = {"smbios1": config["smbios1"], "vmgenid": config["vmgenid"]}

    def meanwhile() -> None:
        cluster.advance(5)
        use_again(cluster, 200, "app", config=copied)

    result = during_a_creation(cluster, controller, [{"name": "app", "state": "absent"}], meanwhile)

    assert result["vms"][1]["error"]["code"] == "NotTheSameGuest"
    assert writes_to(cluster, 200) == []


def test_vm_that_was_only_changed_by_others__is_updated(cluster: SimulatedCluster, controller: Controller) -> None:
    """A change by others makes the digest another one, and another UUID one of its marks."""
    cluster.add_guest(vmid=200, name="app", **RUNNING)

    def meanwhile() -> None:
        cluster.set_guest(200, config={"description": "edited by hand", "smbios1": None})

    result = during_a_creation(cluster, controller, [{"name": "app", "cores": 6, "update": True}], meanwhile)

    assert not result.get("failed"), result["msg"]
    guest = cluster.state()["guests"][200]
    assert {**guest["config"], **guest["pending"]}["cores"] == 6
    assert guest["config"]["description"] == "edited by hand"


def test_vm_that_was_renamed__is_left_alone(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.add_guest(vmid=200, name="app", **RUNNING)

    result = during_a_creation(
        cluster,
        controller,
        [{"name": "app", "state": "absent"}],
        lambda: cluster.set_guest(200, config={"name": "payroll"}),
    )

    assert result["vms"][1]["error"]["code"] == "GuestVanished"
    assert "VMID 200 on pve1 is now called 'payroll'" in result["vms"][1]["error"]["message"]
    assert writes_to(cluster, 200) == []


@pytest.mark.parametrize(("config", "code"), [({}, None), ({"cores": 3}, "NotTheSameGuest")])
def test_vm_that_is_older_than_all_marks__is_known_by_its_digest(
    cluster: SimulatedCluster, controller: Controller, config: dict[str, Any], code: str | None
) -> None:
    unmarked = {"smbios1": None, "vmgenid": None, "meta": None}
    cluster.add_guest(vmid=200, name="app", **STOPPED)
    cluster.set_guest(200, config=unmarked)
    wanted = {"name": "app", "cores": 6, "scsi": {"scsi0": {"size": 64}}, "update": True, "state": "started"}

    result = during_a_creation(cluster, controller, [wanted], lambda: cluster.set_guest(200, config=config))

    assert (result["vms"][1].get("error") or {}).get("code") == code
    guest = cluster.state()["guests"][200]
    assert guest["status"] == ("running" if code is None else "stopped")
    assert ("size=64G" in guest["config"]["scsi0"]) is (code is None)
