# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clones: of what, how, and what is applied to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

CLONE = {
    "clone": "debian-13",
    "cores": 4,
    "memory": 4096,
    "scsi": {"scsi0": {"size": 20}},
    "ciuser": "admin",
    "ipconfig": {"ipconfig0": "ip=dhcp"},
    "tags": ["web"],
}


@both_versions
def test_full_clone__gets_its_sizes_its_cloud_init_and_a_larger_disk(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    result = controller.schedule(name="web-1", state="started", pool="web", **CLONE)
    assert result["vms"][0]["actions"] == ["clone", "start"]
    guest = cluster.state()["guests"][result["vmid"]]
    config = guest["config"]
    assert (guest["name"], guest["status"], guest["pool"]) == ("web-1", "running", "web")
    assert (config["cores"], config["memory"], config["ciuser"]) == (4, "4096", "admin")
    assert config["ipconfig0"] == "ip=dhcp"
    assert "size=20G" in config["scsi0"]
    assert "base-9000" not in config["scsi0"]
    again = controller.schedule(name="web-1", state="started", pool="web", **CLONE)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


def test_imported_disk_beside_those_of_the_template__is_grown_to_its_size(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {
        "name": "web-1",
        "clone": "debian-13",
        "scsi": {"scsi1": {"import_from": "local:import/debian-13.qcow2", "size": 30}},
        "update": True,
    }
    result = controller.schedule(**asked)
    assert "size=30G" in cluster.state()["guests"][result["vmid"]]["config"]["scsi1"]
    again = controller.schedule(**asked)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


@pytest.mark.parametrize(("options", "drive"), [(CLONE, "scsi0: shared:20"), ({"clone": 9000}, "scsi0: shared")])
def test_diff_of_a_clone__tells_its_template_and_its_storages(
    controller: Controller, options: dict[str, Any], drive: str
) -> None:
    result = controller.schedule(name="web-1", check=True, diff=True, **options)
    lines = result["diff"][0]["after"].splitlines()
    assert any(line.startswith("clone: debian-13 (9000 on pve") for line in lines), lines
    assert drive in lines, lines


@both_versions
def test_linked_clone_by_vmid__stays_on_its_templates_storage(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    result = controller.schedule(name="linked", clone=9000, full=False)
    assert result["vms"][0]["storages"]["scsi0"] == "shared"
    assert "base-9000" in cluster.state()["guests"][result["vmid"]]["config"]["scsi0"]
    (post,) = [r for r in cluster.requests() if r["path"].endswith("/9000/clone")]
    assert str(post["params"]["full"]) == "0"


def test_clones_sizes__are_the_templates_where_none_are_given(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    controller.schedule(name="small", clone="debian-13", state="started")
    cluster.set_node("pve1", maintenance=False)
    result = controller.schedule(name="other", clone="debian-13", check=True, diff=True)
    config = cluster.state()["guests"][9000]["config"]
    made = next(g for g in cluster.state()["guests"].values() if g["name"] == "small")["config"]
    assert (made["cores"], made["memory"]) == (config["cores"], config["memory"])
    assert result["vms"][0]["action"] == "clone"


def test_full_clone__goes_to_the_storage_that_is_asked_for(controller: Controller, cluster: SimulatedCluster) -> None:
    result = controller.schedule(name="web-1", clone="debian-13", storage="local-lvm", node="pve1")
    assert cluster.state()["guests"][result["vmid"]]["config"]["scsi0"].startswith("local-lvm:")
    assert result["vms"][0]["storages"]["scsi0"] == "local-lvm"


def test_clone__leaves_nothing_of_its_template_that_was_asked_to_be_otherwise(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    result = controller.schedule(
        name="web-1",
        clone="debian-13",
        net={"net0": "virtio,bridge=vmbr1"},
        plugin_config={"filters": {"NetworkBridge": {"enable": True}}},
    )
    assert "bridge=vmbr1" in cluster.state()["guests"][result["vmid"]]["config"]["net0"]
    assert result["node"] in ("pve1", "pve2"), "pve3 has no vmbr1"


@pytest.mark.parametrize("clone", ["nope", "4711"])
def test_template_that_is_not_there__is_an_error(controller: Controller, clone: str) -> None:
    failed = controller.fail("TemplateNotFound", name="web-1", clone=clone)
    assert failed["msg"] == (
        f"clone: no VM '{clone}' exists, or this user cannot see it, for VM \"web-1\"; known templates: debian-13"
    )


def test_two_templates_of_one_name_on_one_node__are_an_error(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.add_guest(vmid=9001, name="debian-13", node="pve1", template=True, disks={"scsi0": "shared:4"})
    cluster.advance(60)
    failed = controller.fail("AmbiguousName", name="web-1", clone="debian-13")
    assert "template 9000 on pve1 in no pool, template 9001 on pve1 in no pool" in failed["msg"]


def test_copy_of_the_template_on_the_decided_node__is_cloned(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    description = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    description["guests"] = [
        {
            "vmid": 9000 + number,
            "name": "golden",
            "node": f"pve{number}",
            "template": True,
            "memory": 1024,
            "disks": {"scsi0": "local-lvm:4"},
        }
        for number in (1, 2)
    ]
    cluster = start(description)
    controller = control(cluster)
    result = controller.schedule(clone="golden", vms=[{"name": f"vm-{number}"} for number in range(4)])
    made = {vm["name"]: vm["node"] for vm in result["vms"]}
    assert set(made.values()) == {"pve1", "pve2"}, "pve3 has no copy"
    sources = {
        request["params"]["name"]: request["path"].split("/")[2]
        for request in cluster.requests()
        if request["path"].endswith("/clone")
    }
    assert sources == made
    assert "pve3" in [n["node"] for n in result["vms"][0]["decision"]["nodes"] if not n["feasible"]]


@both_versions
def test_vm__becomes_a_template_as_proxmox_makes_them(controller: Controller, cluster: SimulatedCluster) -> None:
    options = {"name": "golden", "memory": 1024, "scsi": {"scsi0": "shared:4"}, "template": True}
    result = controller.schedule(**options)
    guest = cluster.state()["guests"][result["vmid"]]
    assert guest["template"]
    assert "base-" in guest["config"]["scsi0"], "its disks are a template's"
    cluster.advance(60)
    assert controller.schedule(**options)["changed"] is False
    linked = controller.schedule(name="linked", clone="golden", full=False)
    assert linked["changed"] is True


def test_options_of_full_clones__are_refused_for_linked_ones(controller: Controller) -> None:
    for option, value in (("storage", "shared"), ("format", "raw")):
        failed = controller.fail("InvalidRequest", name="x", clone="debian-13", full=False, **{option: value})
        assert failed["msg"].startswith(f"{option}: ")
