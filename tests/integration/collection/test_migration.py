# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks in the style of three that are public, converted from proxmox_kvm as the page about migration says.

A tutorial that clones, changes and starts a VM in four tasks; a cluster of VMs in a loop over nodes, each with its own
template; and a role that takes all options of a VM as variables.
"""

from __future__ import annotations

from typing import Any

from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions


def config_of(cluster: SimulatedCluster, vmid: int) -> dict[str, Any]:
    found: dict[str, Any] = cluster.state()["guests"][vmid]["config"]
    return found


@both_versions
def test_tutorial__needs_another_module_name_only_and_fits_into_one_task(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    clone: dict[str, Any] = {"clone": "debian-13", "name": "app", "newid": 400, "full": True, "storage": "shared"}
    changed: dict[str, Any] = {
        "vmid": 400,
        "cores": 2,
        "memory": 2048,
        "ciuser": "admin",
        "ipconfig": {"ipconfig0": "ip=192.0.2.40/24,gw=192.0.2.1"},
        "net": {"net0": "virtio,bridge=vmbr0"},
        "update": True,
    }
    tasks = [
        clone,
        changed,
        {"vmid": 400, "scsi": {"scsi1": "shared:4"}, "update": True},
        {"name": "app", "state": "started"},
    ]
    assert [controller.schedule(**task)["changed"] for task in tasks] == [True] * 4
    config = config_of(cluster, 400)
    assert (int(config["memory"]), config["cores"], config["ciuser"]) == (2048, 2, "admin")
    assert cluster.state()["guests"][400]["status"] == "running"
    assert [controller.schedule(**task)["changed"] for task in tasks] == [False] * 4
    merged = {**clone, **changed, "scsi": {"scsi1": "shared:4"}, "state": "started"}
    del merged["vmid"]
    assert controller.schedule(**merged)["changed"] is False


@both_versions
def test_vms_in_a_loop_over_nodes__become_a_list_whose_templates_are_per_node(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    template = {"name": "k8s-node", "template": True, "per_node": True, "clone": "debian-13"}
    local = {"storage_class": "own", "storage_classes": {"own": {"shared": False}}}
    controller.schedule(**template, **local)
    nodes: dict[str, Any] = {
        "clone": "k8s-node",
        "cores": 2,
        "memory": 1024,
        "scsi": {"scsi0": {"size": 8}, "scsi1": {"size": 2, "storage": "shared"}},
        "state": "started",
        "vms": [{"name": "k8s-1"}, {"name": "k8s-2"}],
        "affinity": [{"type": "anti-affinity", "name": "k8s-.*"}],
    }
    failed = controller.fail("InvalidRequest", **nodes, nameservers="192.0.2.1 192.0.2.2")
    assert "expected a list of single words, such as [192.0.2.1, 192.0.2.2]" in failed["msg"]
    nodes["nameservers"] = ["192.0.2.1", "192.0.2.2"]
    made = controller.schedule(**nodes)
    assert len({vm["node"] for vm in made["vms"]}) == 2
    for vm in made["vms"]:
        drives = {slot: config_of(cluster, vm["vmid"])[slot] for slot in ("scsi0", "scsi1")}
        assert {slot: drive.partition(":")[0] for slot, drive in drives.items()} == {
            "scsi0": "local-lvm",
            "scsi1": "shared",
        }
        assert "size=8G" in drives["scsi0"]
    assert controller.schedule(**nodes, update=True)["changed"] is False


@both_versions
def test_role_with_all_options_as_variables__names_the_right_option_for_a_bus(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked: dict[str, Any] = {
        "name": "server",
        "agent": True,
        "boot": "order=scsi0;net0",
        "cores": 4,
        "memory": 4096,
        "net": "{'net0': 'virtio,bridge=vmbr0,'}",
        "onboot": True,
        "scsihw": "virtio-scsi-single",
        "tags": "web,prod",
        "scsi": {"scsi0": "shared:8,format=raw,"},
    }
    failed = controller.fail("InvalidRequest", **asked, virtio={"sata1": "shared:4"})
    assert "did you mean sata: {sata1: ...}?" in failed["msg"]
    asked["sata"] = {"sata1": "shared:4"}
    vmid = controller.schedule(**asked)["vmid"]
    config = config_of(cluster, vmid)
    assert {"scsi0", "sata1", "net0"} <= config.keys()
    assert controller.schedule(**asked, update=True)["changed"] is False
    assert controller.schedule(name="server", sata={"sata1": {"remove": "destroy"}}, update=True)["changed"] is True
    assert "sata1" not in config_of(cluster, vmid)
    assert controller.schedule(vmid=vmid, name="server-1", rename=True, update=True)["changed"] is True
