# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that exist are cloned, changed, stopped and kept by HA."""

from __future__ import annotations

import pytest
from support.controller import Controller
from support.place import Cluster, Corner


def template(controller: Controller, corner: Corner) -> dict[str, object]:
    return controller.schedule(**corner.small("base", template=True))


@pytest.mark.parametrize("full", [True, False])
def test_clone__is_whole_or_linked_as_asked_and_has_its_own_name(
    controller: Controller, corner: Corner, full: bool
) -> None:
    base = template(controller, corner)
    asked = corner.small("web", clone=base["vmid"], full=full, memory=48)
    del asked["scsi"]
    result = controller.schedule(**asked)
    config = corner.config(result["vmid"])
    assert (config["name"], config["memory"]) == (asked["name"], "48")
    assert (f"base-{base['vmid']}" in config["scsi0"]) == (not full)
    assert not controller.schedule(**asked)["changed"]


def test_a_full_clone__gets_a_larger_disk(controller: Controller, corner: Corner) -> None:
    base = template(controller, corner)
    result = controller.schedule(**corner.small("web", clone=base["vmid"], full=True, scsi={"scsi0": {"size": 2}}))
    assert "size=2G" in corner.config(result["vmid"])["scsi0"]


def test_update__is_told_as_drift_first_and_applied_when_asked(controller: Controller, corner: Corner) -> None:
    vmid = controller.schedule(**corner.small("web"))["vmid"]
    wanted = corner.small("web", memory=64, cores=2, tags=["b", "a"], description="a test")
    told = controller.schedule(**wanted)
    assert (told["changed"], set(told["vms"][0]["drift"])) == (False, {"memory", "cores", "tags", "description"})
    done = controller.schedule(update=True, **wanted)
    config = corner.config(vmid)
    assert (done["changed"], config["memory"], config["cores"], config["tags"]) == (True, "64", 2, "a;b")
    assert not controller.schedule(update=True, **wanted)["changed"]


def test_update_of_a_running_vm__waits_for_its_next_start(controller: Controller, corner: Corner) -> None:
    vmid = controller.schedule(**corner.small("web", state="started"))["vmid"]
    controller.schedule(update=True, **corner.small("web", state="started", memory=64))
    assert (corner.config(vmid)["memory"], corner.config(vmid, current=1)["memory"]) == ("64", "32")


def test_a_disk__grows_and_keeps_what_is_not_asked_for(controller: Controller, corner: Corner) -> None:
    vmid = controller.schedule(**corner.small("web", scsi={"scsi0": {
        "size": 1, "storage": corner.cluster.storage, "discard": "on", "backup": False}}))["vmid"]
    asked = corner.small("web", scsi={"scsi0": {"size": 2}}, update=True)
    assert controller.schedule(**asked)["changed"]
    drive = corner.config(vmid)["scsi0"].split(",")
    assert {"size=2G", "discard=on", "backup=0"} <= set(drive)
    assert not controller.schedule(**asked)["changed"]


def test_a_disk__moves_to_another_storage_and_grows(controller: Controller, corner: Corner) -> None:
    made = controller.schedule(**corner.small("web", scsi={"scsi0": {"size": 1, "storage": corner.cluster.storage}}))
    (node,) = (node for node in made["nodes"] if node["node"] == made["node"])
    others = [each["storage"] for each in node["storages"] if each["storage"] != corner.cluster.storage]
    if not others:
        pytest.skip(f"{made['node']} has one storage for disks")
    asked = corner.small("web", scsi={"scsi0": {"size": 2, "storage": others[0], "ssd": True}}, update=True)
    assert controller.schedule(**asked)["changed"]
    config = corner.config(made["vmid"])
    assert config["scsi0"].startswith(f"{others[0]}:")
    assert {"size=2G", "ssd=1"} <= set(config["scsi0"].split(","))
    assert not [key for key in config if key.startswith("unused")]
    assert not controller.schedule(**asked)["changed"]


def test_stopped_by_force__ends_a_guest_that_does_not_listen(controller: Controller, corner: Corner) -> None:
    quick = {"startup": "down=1"}
    vmid = controller.schedule(**corner.small("web", state="started", **quick))["vmid"]
    controller.schedule(name=corner.name("web"), state="stopped", force=True, **quick)
    assert corner.status(vmid) == "stopped"


def test_ha__keeps_the_vm_and_puts_it_into_its_rule(controller: Controller, corner: Corner, cluster: Cluster) -> None:
    api = cluster.api
    first = controller.schedule(**corner.small("db-1", ha={"state": "stopped"}, state="stopped"))["vmid"]
    ha: dict[str, str] = {"state": "stopped"}
    if cluster.modern:
        rule = {"type": "node-affinity", "resources": f"vm:{first}", "nodes": ",".join(cluster.nodes)}
        api.ask("POST", "/cluster/ha/rules", rule=f"{corner.label}-rule", **rule)
        ha["rule"] = f"{corner.label}-rule"
    second = controller.schedule(**corner.small("db-2", ha=ha, state="stopped"))["vmid"]
    managed = {row["sid"] for row in api.get("/cluster/ha/resources")}
    assert {f"vm:{first}", f"vm:{second}"} <= managed
    if "rule" in ha:
        row = api.get(f"/cluster/ha/rules/{ha['rule']}")
        assert set(row["resources"].split(",")) == {f"vm:{first}", f"vm:{second}"}
    controller.schedule(name=corner.name("db-1"), state="absent")
    assert f"vm:{first}" not in {row["sid"] for row in api.get("/cluster/ha/resources")}


def test_a_vm_that_somebody_else_made__is_found_by_its_name_at_once(
    controller: Controller, corner: Corner, cluster: Cluster
) -> None:
    ended = cluster.api.do(
        "POST", f"/nodes/{cluster.nodes[0]}/qemu", vmid=corner.first + 5, name=corner.name("web"), memory=32)
    assert ended == "OK"
    result = controller.schedule(name=corner.name("web"), memory=32)
    assert (result["changed"], result["vmid"]) == (False, corner.first + 5)


def test_a_vm_that_moved__is_found_where_it_is(controller: Controller, corner: Corner, cluster: Cluster) -> None:
    if len(cluster.nodes) < 2:
        pytest.skip("one node: nowhere to move to")
    asked = corner.small("web")
    result = controller.schedule(**asked)
    target = next(node for node in cluster.nodes if node != result["node"])
    assert cluster.api.do("POST", f"{corner.path(result['vmid'])}/migrate", target=target) == "OK"
    again = controller.schedule(**asked)
    assert (again["changed"], again["node"]) == (False, target)
