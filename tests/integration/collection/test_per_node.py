# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of one name on several nodes: made, found, cloned from and removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

TEMPLATE: dict[str, Any] = {"name": "golden", "template": True, "per_node": True, "scsi": {"scsi0": "local-lvm:4"}}


def named(cluster: SimulatedCluster, name: str = "golden") -> dict[str, int]:
    """The VMIDs of the guests with a name, by node."""
    guests = [guest for guest in cluster.state()["guests"].values() if guest["name"] == name]
    found = {guest["node"]: guest["vmid"] for guest in guests}
    assert len(found) == len(guests), "two on one node"
    return found


def online(cluster: SimulatedCluster) -> set[str]:
    return {name for name, node in cluster.state()["nodes"].items() if node["online"]}


@both_versions
def test_template_per_node__is_made_on_each_node_and_found_there_again(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    planned = controller.schedule(**TEMPLATE, check=True)
    assert {vm["node"] for vm in planned["vms"]} == online(cluster)
    made = controller.schedule(**TEMPLATE)
    assert (
        named(cluster)
        == {vm["node"]: vm["vmid"] for vm in made["vms"]}
        == {vm["node"]: vm["vmid"] for vm in planned["vms"]}
    )
    assert all(cluster.state()["guests"][vmid]["template"] for vmid in named(cluster).values())
    again = controller.schedule(**TEMPLATE)
    assert again["changed"] is False
    assert {vm["node"]: vm["vmid"] for vm in again["vms"]} == named(cluster)


@both_versions
def test_second_template_of_a_name__is_made_on_the_node_that_is_given(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {**TEMPLATE, "vms": [{"name": "golden", "node": "pve1"}, {"name": "golden", "node": "pve2", "vmid": 832}]}
    asked.pop("name")
    controller.schedule(**asked)
    assert named(cluster).keys() == {"pve1", "pve2"}
    assert named(cluster)["pve2"] == 832
    assert controller.schedule(**asked)["changed"] is False
    assert controller.schedule(**TEMPLATE, node="pve2")["vmid"] == 832
    failed = controller.fail("VMIDConflict", **TEMPLATE, node="pve2", vmid=833)
    assert 'VM "golden" on pve2: expected VMID 833, but the name belongs to golden (832 on pve2)' in failed["msg"]
    assert "golden (832 on pve2)" in controller.fail("AmbiguousName", name="golden", template=True)["msg"]


@both_versions
def test_clone__is_made_from_the_copy_on_its_node(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(**TEMPLATE)
    nodes = sorted(online(cluster))
    made = controller.schedule(clone="golden", vms=[{"name": f"web-{node}", "node": node} for node in nodes])
    cloned = {r["path"].split("/")[-2] for r in cluster.requests() if r["path"].endswith("/clone")}
    assert cloned == {str(vmid) for vmid in named(cluster).values()}
    assert [vm["node"] for vm in made["vms"]] == nodes


@both_versions
@pytest.mark.parametrize("by_vmid", [True, False])
def test_copies_of_other_names__are_listed(controller: Controller, cluster: SimulatedCluster, by_vmid: bool) -> None:
    copies = [{"name": f"tpl-{node}", "node": node} for node in ("pve1", "pve2")]
    template = {"template": True, "scsi": TEMPLATE["scsi"]}
    listed = [vm["vmid" if by_vmid else "name"] for vm in controller.schedule(**template, vms=copies)["vms"]]
    made = controller.schedule(clone=listed, vms=[{"name": "web-1", "node": "pve1"}, {"name": "web-2", "node": "pve2"}])
    assert [vm["node"] for vm in made["vms"]] == ["pve1", "pve2"]
    assert controller.fail("InvalidRequest", name="web-3", clone=[])["msg"].startswith("clone: '' is not valid")
    assert controller.fail("InvalidRequest", name="web-3", clone=[{"vmid": 7}, "a"])["msg"].startswith("clone: ")
    failed = controller.fail("TemplateNotFound", name="web-3", clone=["no", "none"])
    assert "no VM 'no' or 'none' exists" in failed["msg"]


@both_versions
def test_copies_on_local_storage__are_cloned_from_a_template_on_a_shared_one(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {"name": "debian-13", "template": True, "per_node": True, "clone": {"vmid": 9000}}
    controller.schedule(**asked, storage_class="own", storage_classes={"own": {"shared": False}})
    copies = named(cluster, "debian-13")
    assert copies.keys() == online(cluster)
    assert 9000 in copies.values()
    for vmid in set(copies.values()) - {9000}:
        guest = cluster.state()["guests"][vmid]
        assert (guest["template"], guest["config"]["scsi0"].partition(":")[0]) == (True, "local-lvm")
    clone = controller.schedule(name="web", clone="debian-13", node=next(n for n in copies if copies[n] != 9000))
    assert clone["vms"][0]["storages"]["scsi0"] == "local-lvm"


@pytest.mark.parametrize("state", [{"online": False}, {"maintenance": True}])
def test_nodes_that_match__get_a_copy_and_those_that_are_not_ready_are_told(
    controller: Controller, cluster: SimulatedCluster, state: dict[str, bool]
) -> None:
    cluster.set_node("pve2", **state)
    cluster.advance(60)
    result = controller.schedule(**TEMPLATE, node_regex="pve[12]")
    assert named(cluster).keys() == {"pve1"}
    assert result["warnings"] == ['VM "golden": no copy is made on pve2, which cannot be used at present']
    assert "matches no node" in controller.fail("InvalidRequest", **TEMPLATE, node_regex="big.*")["msg"]


@both_versions
def test_all_copies__are_removed_and_no_other_vm(controller: Controller, cluster: SimulatedCluster) -> None:
    before = cluster.state()["guests"].keys()
    controller.schedule(**TEMPLATE)
    assert {vm["state"] for vm in controller.run("fleet_info", vms=[TEMPLATE])["vms"]} == {"ok"}
    removal = {"name": "golden", "per_node": True, "state": "absent"}
    controller.schedule(**removal, node="pve1")
    assert named(cluster).keys() == online(cluster) - {"pve1"}
    assert controller.schedule(**removal)["changed"] is True
    assert cluster.state()["guests"].keys() == before
    assert controller.schedule(**removal)["changed"] is False


def test_plan_of_copies__is_carried_out_as_approved(
    controller: Controller, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    path = str(tmp_path / "plan")
    controller.schedule(**TEMPLATE, plan_file=path, check=True)
    planned = {vm["node"]: vm["vmid"] for vm in json.loads(Path(path).read_text(encoding="utf-8"))["vms"]}
    controller.schedule(**TEMPLATE, apply=path)
    assert named(cluster) == planned
    assert controller.schedule(**TEMPLATE, apply=path)["changed"] is False


def test_copies_for_several_nodes__may_be_made_at_the_same_time(
    control: Callable[..., Controller], cluster: SimulatedCluster
) -> None:
    shared = control(cluster)
    running = [shared.start("qemu_schedule", **TEMPLATE, node=node) for node in sorted(online(cluster))]
    results = [each.result() for each in running]
    assert not any(result.get("failed") for result in results), results
    assert named(cluster).keys() == online(cluster)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"template": None}, "per_node: is for templates, which stay on their nodes; set template=true"),
        ({"template": None, "state": "started"}, "per_node: is for templates"),
        ({"vmid": 700}, "vmid: 700 can be the VMID of one copy only; set node, too"),
    ],
)
def test_name_of_several_vms__is_for_templates(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any], expected: str
) -> None:
    failed = controller.fail("InvalidRequest", **{**TEMPLATE, **options})
    assert failed["msg"].startswith(expected)
    assert named(cluster) == {}


def test_name_of_copies_and_of_a_vm__is_refused(controller: Controller) -> None:
    copies = {key: value for key, value in TEMPLATE.items() if key != "scsi"}
    failed = controller.fail("InvalidRequest", vms=[copies, {"name": "golden"}])
    assert failed["msg"] == "name: 'golden' is set with per_node and without it in vms"
    failed = controller.fail("InvalidRequest", vms=[copies, {**copies, "node": "pve1"}])
    assert "'golden on pve1' is set in 2 entries of vms" in failed["msg"]
