# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storages: found with the node, counted for everybody, and each node's own words where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

from .conftest import CLUSTER, Lab

CREATE = {"method": "POST", "path": "/nodes/[^/]+/qemu$"}
CLASSES = {"local": {"shared": False}, "thin": {"types": ["rbd"], "overcommit": 2, "reserved": "10%"}}


def reasons(result: dict[str, Any]) -> dict[str, str | None]:
    return {node["node"]: node["reason"] for node in result["vms"][0]["decision"]["nodes"]}


def content_calls(cluster: SimulatedCluster) -> list[str]:
    return sorted(
        f"{request['path'].split('/')[2]} {request['params'].get('content')}"
        for request in cluster.requests()
        if request["path"].endswith("/content")
    )


def create_is_on_its_way(cluster: SimulatedCluster) -> None:
    until(lambda: any(r["method"] == "POST" and r["path"].endswith("/qemu") for r in cluster.requests()))


@both_versions
def test_every_drive__gets_a_storage_and_proxmox_makes_it_there(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    result = controller.schedule(
        name="db-1",
        bios="ovmf",
        efidisk0={"efitype": "4m"},
        tpmstate0={"version": "2.0", "storage_class": "local"},
        scsi={"scsi0": {"size": 50, "storage_class": "local"}, "scsi1": "ceph:20", "scsi2": ":5"},
        ide={"ide0": "nfs:iso/everywhere.iso,media=cdrom", "ide2": "ceph:cloudinit"},
        storage_classes=CLASSES,
    )
    storages = result["vms"][0]["storages"]
    assert result["node"] in ("pve1", "pve2"), "pve3 has 40 GiB of local storage"
    assert (storages["scsi0"], storages["tpmstate0"], storages["scsi1"], storages["ide2"]) == (
        *("thick", "thick"),
        *("ceph", "ceph"),
    )
    config = cluster.state()["guests"][result["vmid"]]["config"]
    for slot, storage in storages.items():
        assert config[slot].startswith(f"{storage}:"), slot
    assert config["ide0"].startswith("nfs:iso/everywhere.iso")


def test_each_node__says_what_it_lacks(control: Callable[..., Lab]) -> None:
    nodes = [{"name": f"pve{number}", "cores": 16, "memory": 65536} for number in range(1, 6)]
    storages = [
        {"name": "disks", "type": "lvm", "size": {"pve1": 12, "pve3": 100, "pve4": 100}, "content": ["images"]},
        {"name": "isos", "type": "dir", "size": 10, "content": ["iso"]},
    ]
    cluster, controller = control(nodes=nodes, storages=storages, isos={}, images={}, guests=[])
    cluster.set_node("pve4", online=False)
    cluster.advance(60)
    failed = controller.fail("NoStorageAvailable", name="db-1", scsi={"scsi0": "disks:164"})
    assert reasons(failed) == {
        "pve1": "had too little space on storage 'disks' (scsi0 needs 164 GiB, 12 GiB free)",
        "pve2": "didn't have storage 'disks'",
        "pve3": "had too little space on storage 'disks' (scsi0 needs 164 GiB, 100 GiB free)",
        "pve4": "were offline",
        "pve5": "didn't have storage 'disks'",
    }
    failed = controller.fail("NoStorageAvailable", name="db-1", scsi={"scsi0": "isos:1"})
    assert reasons(failed)["pve1"] == "had storage 'isos' without content type 'images'"
    cluster.set_storage("disks", enabled=False)
    cluster.advance(60)
    failed = controller.fail("NoStorageAvailable", name="db-1", scsi={"scsi0": "disks:1"})
    assert reasons(failed)["pve3"] == "didn't have storage 'disks'", "Proxmox lists no storage that is disabled"


def test_storage_and_a_class_for_one_drive__contradict_each_other(controller: Controller) -> None:
    drive = {"storage": "ceph", "storage_class": "local", "size": 1}
    failed = controller.fail("InvalidRequest", name="db-1", scsi={"scsi0": drive}, storage_classes=CLASSES)
    assert "a storage or a storage class, not both" in failed["msg"]


def test_class__limits_what_is_promised(controller: Controller) -> None:
    # 200 GiB, of which templates and a VM have 25: twice that, and a tenth of it kept.
    drive = {"size": 51, "storage_class": "thin"}
    vms = [{"name": f"vm-{number}"} for number in range(8)]
    options = {"scsi": {"scsi0": drive}, "storage_classes": CLASSES, "vms": vms, "all_or_nothing": False}
    failed = controller.fail("NoStorageAvailable", check=True, **options)
    assert [bool(vm.get("error")) for vm in failed["vms"]] == [False] * 6 + [True] * 2
    refused = failed["vms"][-1]["error"]["message"]
    assert "no storage for storage class 'thin'" in refused


# --- images ---


@both_versions
def test_vm__goes_where_its_image_is(controller: Controller, cluster: SimulatedCluster) -> None:
    cd = {"ide2": "local:iso/only-on-2.iso,media=cdrom"}
    result = controller.schedule(name="setup", ide=cd)
    assert result["node"] == "pve2"
    assert reasons(result)["pve1"] == "didn't have 'local:iso/only-on-2.iso'"
    assert content_calls(cluster) == ["pve1 iso", "pve2 iso", "pve3 iso"]
    assert "only-on-2.iso" in cluster.state()["guests"][result["vmid"]]["config"]["ide2"]

    imported = controller.schedule(name="cloud", scsi={"scsi0": "ceph:0,import-from=local:import/only-on-3.qcow2"})
    assert imported["node"] == "pve3"


def test_image_on_shared_storage__costs_one_call_and_requests_without_none(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    controller.schedule(name="plain-1", scsi={"scsi0": ":8"})
    assert content_calls(cluster) == []
    vms = [{"name": f"setup-{number}"} for number in range(3)]
    controller.schedule(vms=vms, ide={"ide2": "nfs:iso/everywhere.iso,media=cdrom"})
    assert content_calls(cluster) == ["pve1 iso"]


def test_image_that_is_nowhere__is_missed_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    failed = controller.fail("NoStorageAvailable", name="setup", ide={"ide2": "nfs:iso/no.iso,media=cdrom"})
    assert "3 node(s) didn't have 'nfs:iso/no.iso' (pve1, pve2, pve3)" in failed["msg"]
    known = "no volume 'nfs:iso/no.iso', or this user cannot see it, known: nfs:iso/everywhere.iso"
    assert failed["msg"].endswith(f"; {known}")
    assert not [request for request in cluster.requests() if request["method"] != "GET"]


def test_what_is_imported__counts_with_its_size(controller: Controller, cluster: SimulatedCluster) -> None:
    drive = {"import_from": "nfs:import/large.qcow2", "storage": "thick"}
    vms = [{"name": f"vm-{number}", "scsi": {"scsi0": drive}} for number in range(4)]
    failed = controller.fail("NoStorageAvailable", vms=vms, all_or_nothing=False)
    made = {vm["name"]: vm["node"] for vm in failed["vms"] if not vm.get("error")}
    assert sorted(made.values()) == ["pve1", "pve2"], "60, 100 less a template's 10, and 40 GiB"
    failed = controller.fail("NoStorageAvailable", name="more", node="pve3", scsi={"scsi0": drive})
    assert reasons(failed)["pve3"] == "had too little space on storage 'thick' (scsi0 needs 50 GiB, 40 GiB free)"


def test_what_is_imported__grows_and_never_shrinks(controller: Controller, cluster: SimulatedCluster) -> None:
    drives = {
        "scsi0": {"import_from": "nfs:import/large.qcow2", "storage": "ceph", "size": 60},
        "scsi1": {"import_from": "nfs:import/large.qcow2", "storage": "ceph", "size": 35},
    }
    for check in (True, False):
        failed = controller.fail("InvalidRequest", name="vm-1", scsi=drives, check=check)
        assert failed["msg"] == 'VM "vm-1": scsi1: nfs:import/large.qcow2 has 50 GiB and cannot shrink to 35 GiB'
    assert not [request for request in cluster.requests() if request["method"] != "GET"]

    # Nobody looks at images then.
    off = {"enable": False}
    unruled = {"filters": {"VolumeBinding": off}, "reserves": {"VolumeBinding": off}}
    result = controller.schedule(name="vm-1", scsi=drives, plugin_config=unruled)
    config = cluster.state()["guests"][result["vmid"]]["config"]
    assert "size=60G" in config["scsi0"]
    assert "size=50G" in config["scsi1"]
    told = [warning for warning in result["warnings"] if "scsi1" in warning]
    assert told == ['VM "vm-1": scsi1 is as large as its image: it has 50G and cannot shrink to 35G']


# --- counted for everybody ---


@both_versions
@pytest.mark.parametrize(("storage", "room"), [("thick", {"pve1", "pve2"}), ("ceph", set())])
def test_what_another_process_is_creating__takes_its_space_already(
    controller: Controller, cluster: SimulatedCluster, storage: str, room: set[str]
) -> None:
    cluster.fault(**CREATE, held=True, count=1)
    size = 39 if storage == "thick" else 174
    slow = controller.start("qemu_schedule", name="slow", node="pve3", scsi={"scsi0": f"{storage}:{size}"})
    create_is_on_its_way(cluster)
    failed = controller.fail("NoStorageAvailable", name="next", node="pve3", scsi={"scsi0": f"{storage}:2"})
    assert f"had too little space on storage '{storage}' (scsi0 needs 2 GiB" in (reasons(failed)["pve3"] or "")
    others = controller.run("qemu_schedule", name="next", scsi={"scsi0": f"{storage}:2"}, check=True)
    assert {node["node"] for node in others["vms"][0]["decision"]["nodes"] if node["feasible"]} == room
    slow.kill()


@both_versions
def test_vm_that_another_process_is_creating__keeps_others_away(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, held=True, count=1)
    slow = controller.start("qemu_schedule", name="db-1", node="pve3", affinity=[{"type": "apart", "tags": ["loud"]}])
    create_is_on_its_way(cluster)
    failed = controller.fail("NoNodesAvailable", name="batch-1", tags=["loud"], node="pve3")
    assert reasons(failed)["pve3"] == "held VMs that must be apart from the VM (db-1)"
    assert controller.schedule(name="quiet-1", node="pve3", check=True)["node"] == "pve3"
    slow.kill()


def test_vm_that_another_process_puts_under_an_ha_rule__counts_as_its_member(control: Callable[..., Lab]) -> None:
    rule = {"rule": "apart", "type": "resource-affinity", "affinity": "negative", "resources": "vm:100,vm:101"}
    guests = [
        *CLUSTER["guests"],
        {"vmid": 101, "name": "other", "node": "pve1", "memory": 1024, "disks": {"scsi0": "ceph:5"}},
    ]
    ha = {"resources": [{"sid": "vm:100"}, {"sid": "vm:101"}], "rules": [rule]}
    nodes = [{"name": f"pve{number}", "cores": 16, "memory": 65536} for number in range(1, 5)]
    cluster, controller = control(nodes=nodes, guests=guests, ha=ha)
    cluster.fault(**CREATE, held=True, count=1)
    slow = controller.start("qemu_schedule", name="third", node="pve2", ha={"rule": "apart"})
    create_is_on_its_way(cluster)
    found = controller.schedule(name="fourth", ha={"rule": "apart"}, check=True)
    assert found["node"] == "pve4"
    assert {reasons(found)[f"pve{number}"] for number in (1, 2, 3)} == {"held a VM of HA rule 'apart'"}
    slow.kill()
