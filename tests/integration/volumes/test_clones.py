# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clones are made where Proxmox makes them, and where it does not that is said before anything is written."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until


def writes(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [request for request in cluster.requests() if request["method"] != "GET"]


def clone_call(cluster: SimulatedCluster) -> dict[str, Any]:
    (call,) = (request for request in cluster.requests() if request["path"].endswith("/clone"))
    params: dict[str, Any] = call["params"]
    return params


def reasons(result: dict[str, Any]) -> dict[str, str | None]:
    return {node["node"]: node["reason"] for node in result["vms"][0]["decision"]["nodes"]}


@both_versions
@pytest.mark.parametrize(
    ("template", "options"),
    [
        ("shared-template", {"full": True}),
        ("shared-template", {"full": False}),
        ("shared-template", {"full": True, "storage": "nfs"}),
        ("plain", {"full": True}),
    ],
)
def test_what_is_on_shared_storage__is_cloned_to_any_node(
    controller: Controller, cluster: SimulatedCluster, template: str, options: dict[str, Any]
) -> None:
    result = controller.schedule(name="copy", clone=template, node="pve2", **options)
    guest = cluster.state()["guests"][result["vmid"]]
    assert (guest["name"], guest["node"]) == ("copy", "pve2")
    assert clone_call(cluster)["target"] == "pve2"
    assert guest["config"]["scsi0"].startswith(options.get("storage", "ceph") + ":")


@both_versions
@pytest.mark.parametrize(
    ("template", "options", "expected"),
    [
        ("local-template", {}, "its scsi0 is on local storage 'thick' of pve2"),
        ("local-template", {"full": False}, "its scsi0 is on local storage 'thick' of pve2"),
        ("local-template", {"storage": "ceph"}, "its scsi0 is on local storage 'thick' of pve2"),
        ("cd-template", {}, "its ide2 is on local storage 'local' of pve2"),
    ],
)
def test_node_that_proxmox_does_not_clone_to__says_why_and_proxmox_agrees(
    controller: Controller, cluster: SimulatedCluster, template: str, options: dict[str, Any], expected: str
) -> None:
    failed = controller.fail("NoNodesAvailable", name="copy", clone=template, node="pve3", **options)
    why = f"couldn't be cloned to from '{template}'"
    assert reasons(failed)["pve3"] == f"{why} ({expected})"
    assert why in failed["msg"]
    assert expected in failed["msg"]
    assert writes(cluster) == []

    off = {"enable": False}
    unruled = {
        "filters": {"TemplateLocality": off, "VolumeBinding": off},
        "reserves": {"VolumeBinding": off},
        "scores": {"StorageBalance": off},
    }
    refused = controller.fail("ApiError", name="copy", clone=template, node="pve3", plugin_config=unruled, **options)
    assert "can't clone" in refused["msg"]
    assert clone_call(cluster)["target"] == "pve3"


def test_templates_own_node__takes_all_of_that(controller: Controller, cluster: SimulatedCluster) -> None:
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("local-template", {}),
        ("local-template", {"full": False}),
        ("cd-template", {}),
        ("cd-template", {"storage": "thick"}),
    ]
    for number, (template, options) in enumerate(wanted):
        result = controller.schedule(name=f"copy-{number}", clone=template, **options)
        assert result["node"] == "pve2"
    assert len(cluster.state()["guests"]) == 8


def test_linked_clone_of_a_plain_vm__is_refused_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    failed = controller.fail("InvalidRequest", name="copy", clone="plain", full=False)
    assert failed["msg"].startswith("full: VM 100 (plain) is not a template")
    assert writes(cluster) == []


def test_drives_that_the_template_has_otherwise__are_refused_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    failed = controller.fail("InvalidRequest", name="copy", clone="cd-template", ide={"ide2": "ceph:8"})
    assert failed["msg"].startswith('VM "copy": ide2: is not possible in a clone of VM 902 (cd-template): ')
    linked = {"name": "copy", "clone": "cd-template", "full": False}
    failed = controller.fail("NoStorageAvailable", **linked, scsi={"scsi0": "nfs:20"})
    why = "couldn't get a clone of 'cd-template' with scsi0 on storage 'nfs' (it is made on 'ceph')"
    assert why in (reasons(failed)["pve2"] or "")
    for option in ("storage", "storage_class"):
        failed = controller.fail("InvalidRequest", **linked, **{option: "nfs"})
        assert failed["msg"].startswith(f"{option}: 'nfs' is for full clones only")
    for wrong in ({}, {"clone": "plain", "storage": "ceph"}):
        failed = controller.fail("InvalidRequest", name="copy", storage_class="own", **wrong)
        assert failed["msg"].startswith("storage_class: 'own' ")
    assert writes(cluster) == []


@both_versions
def test_clone__gets_new_drives_beside_its_templates_and_other_properties_of_these(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    drives = {"scsi0": {"ssd": True, "discard": True}, "scsi1": {"size": 30, "storage_class": "here"}}
    asked = {"name": "copy", "clone": "shared-template", "scsi": drives}
    result = controller.schedule(**asked, storage_classes={"here": {"shared": False}}, diff=True)
    assert result["vms"][0]["storages"] == {"ide2": "ceph", "scsi0": "ceph", "scsi1": "thick"}
    assert "scsi0: ceph,discard=on,ssd=1" in result["diff"][0]["after"].splitlines()
    config = cluster.state()["guests"][result["vmid"]]["config"]
    assert config["scsi1"].startswith("thick:")
    assert config["scsi0"].endswith(",discard=on,size=10G,ssd=1")
    again = controller.schedule(**asked, storage_classes={"here": {"shared": False}}, update=True)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


def test_smaller_disk_than_the_templates__is_refused_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    for check in (True, False):
        failed = controller.fail(
            "InvalidRequest", name="copy", clone="shared-template", scsi={"scsi0": {"size": 5}}, check=check
        )
        expected = "(shared-template): it has 10G and cannot shrink to 5G; request at least its size"
        assert failed["msg"].endswith(expected)
    assert writes(cluster) == []


def test_clone__moves_to_the_storage_of_the_task_where_no_filter_asks_for_the_templates(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    off = {"enable": False}
    unruled = {"filters": {"VolumeBinding": off}, "reserves": {"VolumeBinding": off}}
    drives = {"scsi0": {"size": 20, "storage": "thick"}}
    result = controller.schedule(name="copy", clone="shared-template", scsi=drives, plugin_config=unruled)
    config = cluster.state()["guests"][result["vmid"]]["config"]
    assert (config["scsi0"].partition(":")[0], config["scsi0"][-8:]) == ("thick", "size=20G")


OWN = {"storage_class": "own", "storage_classes": {"own": {"shared": False}}}


def disks_of(cluster: SimulatedCluster, vmid: int) -> dict[str, str]:
    config = cluster.state()["guests"][vmid]["config"]
    return {key: str(config[key]).partition(":")[0] for key in ("ide2", "scsi0") if key in config}


@both_versions
@pytest.mark.parametrize("options", [{"storage": "thick"}, OWN])
@pytest.mark.parametrize("node", ["pve1", "pve2"])
def test_shared_template__is_cloned_to_the_nodes_own_storage_in_one_task(
    controller: Controller, cluster: SimulatedCluster, node: str, options: dict[str, Any]
) -> None:
    asked = {"name": "copy", "clone": "shared-template", "node": node, "state": "started", **options}
    planned = controller.schedule(**asked, check=True)
    result = controller.schedule(**asked)
    guest = cluster.state()["guests"][result["vmid"]]
    assert (guest["node"], guest["status"], guest["config"].get("description")) == (node, "running", None)
    assert set(disks_of(cluster, result["vmid"]).values()) == {"thick"}
    assert result["vms"][0]["storages"] == planned["vms"][0]["storages"] == disks_of(cluster, result["vmid"])
    left = [each["volid"] for each in cluster.state()["volumes"] if f"-{result['vmid']}-" in each["volid"]]
    assert all(volume.startswith("thick:") for volume in left), "nothing is left on the template's storage"
    assert [key for key in guest["config"] if key.startswith("unused")] == []
    again = controller.schedule(**asked, update=True)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


@both_versions
def test_clone_whose_move_fails__is_removed_with_all_its_volumes(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    before = cluster.state()
    cluster.fault(method="POST", path="/move_disk", task_error="copy failed")
    failed = controller.fail("TaskFailed", name="copy", clone="shared-template", node="pve2", **OWN)
    assert "copy failed" in failed["msg"]
    after = cluster.state()
    assert after["guests"].keys() == before["guests"].keys()
    assert after["volumes"] == before["volumes"]


@both_versions
def test_clone_whose_run_dies_before_its_moves__is_finished_by_the_next_one(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked: dict[str, Any] = {"name": "copy", "clone": "shared-template", "node": "pve2", **OWN}
    cluster.fault(method="POST", path="/move_disk", hang=True, count=1)
    running = controller.start("qemu_schedule", **asked, reservations="none")
    until(lambda: any(request["path"].endswith("/move_disk") for request in cluster.requests()))
    running.interrupt(signal.SIGKILL)
    cluster.clear_faults()
    finished = controller.schedule(**asked)
    assert finished["vms"][0]["actions"] == ["finish"]
    assert set(disks_of(cluster, finished["vmid"]).values()) == {"thick"}
    assert "description" not in cluster.state()["guests"][finished["vmid"]]["config"]


@both_versions
def test_plan_of_a_clone__fixes_the_storages_that_a_class_leaves_open(
    controller: Controller, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    asked = {"name": "copy", "clone": "shared-template", "storage_class": "any", "storage_classes": {"any": {}}}
    planned = controller.schedule(**asked, plan_file=str(tmp_path / "plan"), check=True)
    result = controller.schedule(**asked, apply=str(tmp_path / "plan"))
    assert result["vms"][0]["storages"] == planned["vms"][0]["storages"] == disks_of(cluster, result["vmid"])


def test_template_whose_node_is_offline__is_no_source_when_another_copy_is(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    for number in (1, 2):
        cluster.add_guest(
            vmid=910 + number, name="golden", node=f"pve{number}", template=True, disks={"scsi0": "thick:4"}
        )
    cluster.set_node("pve1", online=False)
    cluster.advance(60)
    assert controller.schedule(name="copy", clone="golden")["node"] == "pve2"
    failed = controller.fail("TemplateNotFound", name="other", clone="shared-template")
    assert failed["msg"] == 'clone: VM 900 (shared-template) is on pve1, which is offline, for VM "other"'


def test_full_clones__fill_a_thick_storage_and_no_more_and_linked_ones_take_nothing(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    vms = [{"name": f"copy-{number}"} for number in range(10)]
    failed = controller.fail("NoStorageAvailable", clone="local-template", vms=vms, all_or_nothing=False)
    made = [vm for vm in failed["vms"] if not vm.get("error")]
    assert len(made) == 9, "100 GiB, of which the template has 10"
    refused = next(vm for vm in failed["vms"] if vm.get("error"))
    assert "scsi0 needs 10 GiB, 0 GiB free" in refused["error"]["message"]
    for vm in made:
        cluster.remove_guest(vm["vmid"])
    cluster.advance(60)
    assert controller.schedule(clone="local-template", full=False, vms=[{"name": f"l-{n}"} for n in range(12)])
