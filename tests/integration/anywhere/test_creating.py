# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs are made as asked for, once, and go again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.controller import Controller, ModuleServer
from support.place import Cluster, Corner


def test_create__makes_what_is_asked_for_and_changes_nothing_the_second_time(
    controller: Controller, corner: Corner
) -> None:
    asked = corner.small("web", tags=["web"], pool=corner.pool, net={"net0": f"virtio,bridge={corner.cluster.bridge}"})
    result = controller.schedule(**asked)
    config = corner.config(result["vmid"])
    assert (config["name"], config["cores"], config["memory"], config["tags"]) == (asked["name"], 1, "32", "web")
    assert f"bridge={corner.cluster.bridge}" in config["net0"]
    assert config["scsi0"].startswith(f"{corner.cluster.storage}:")
    assert corner.members() == {result["vmid"]}
    assert corner.vms()[result["vmid"]]["node"] == result["node"]
    again = controller.schedule(**asked)
    assert (again["changed"], again["vmid"], again["vms"][0]["drift"]) == (False, result["vmid"], {})


def test_check_mode__plans_what_the_run_then_does(controller: Controller, corner: Corner) -> None:
    asked = corner.small("web")
    plan = controller.schedule(check=True, diff=True, **asked)
    assert plan["changed"]
    assert corner.vms() == {}
    result = controller.schedule(**asked)
    assert (result["vmid"], result["node"]) == (plan["vmid"], plan["node"])


def test_started__runs_and_stays_so(controller: Controller, corner: Corner) -> None:
    asked = corner.small("web", state="started")
    result = controller.schedule(**asked)
    assert corner.status(result["vmid"]) == "running"
    assert not controller.schedule(**asked)["changed"]


def test_start_on_a_bridge_that_does_not_exist__fails_and_says_why(controller: Controller, corner: Corner) -> None:
    result = controller.run(
        "qemu_schedule", **corner.small("web", state="started", net={"net0": "virtio,bridge=vmbr4093"}))
    assert result.get("failed"), result
    assert "vmbr4093" in result["msg"]


def test_absent__removes_a_running_vm_with_its_disks(controller: Controller, corner: Corner) -> None:
    name = corner.name("web")
    vmid = controller.schedule(**corner.small("web", state="started"))["vmid"]
    node = corner.vms()[vmid]["node"]
    result = controller.schedule(name=name, state="absent", force=True)
    assert (result["changed"], corner.vms()) == (True, {})
    content = f"/nodes/{node}/storage/{corner.cluster.storage}/content"
    assert corner.cluster.api.get(content, vmid=vmid, content="images") == []
    assert not controller.schedule(name=name, state="absent", force=True)["changed"]


def test_a_name_that_was_removed__is_made_anew(controller: Controller, corner: Corner) -> None:
    first = controller.schedule(**corner.small("web"))
    controller.schedule(name=corner.name("web"), state="absent")
    second = controller.schedule(**corner.small("web"))
    assert (first["changed"], second["changed"], len(corner.vms())) == (True, True, 1)


def test_vms_of_one_task__are_spread_as_the_rule_wants(
    controller: Controller, corner: Corner, cluster: Cluster
) -> None:
    apart = [{"type": "apart", "name": f"{corner.label}-.*"}]
    wanted = min(3, len(cluster.nodes))
    result = controller.schedule(vms=[corner.small(f"db-{n}", affinity=apart) for n in range(wanted)])
    assert len({vm["node"] for vm in result["vms"]}) == wanted
    assert {row["node"] for row in corner.vms().values()} == {vm["node"] for vm in result["vms"]}


def test_tasks_at_the_same_moment__never_share_a_vmid(
    modules: ModuleServer, corner: Corner, cluster: Cluster, tmp_path: Path
) -> None:
    controller = Controller(modules, tmp_path / "one", cluster.environment)
    running = [controller.start("qemu_schedule", **corner.small(f"many-{n}")) for n in range(6)]
    results = [module.result() for module in running]
    assert [result["msg"] for result in results if result.get("failed")] == []
    assert len({result["vmid"] for result in results}) == 6
    assert {row["name"] for row in corner.vms().values()} == {corner.name(f"many-{n}") for n in range(6)}


def test_controllers_that_know_nothing_of_each_other__never_share_a_vmid(
    modules: ModuleServer, corner: Corner, cluster: Cluster, tmp_path: Path
) -> None:
    controllers = [Controller(modules, tmp_path / f"controller-{n}", cluster.environment) for n in range(3)]
    running = [
        controller.start("qemu_schedule", **corner.small(f"far-{n}")) for n, controller in enumerate(controllers)
    ]
    results = [module.result() for module in running]
    assert [result["msg"] for result in results if result.get("failed")] == []
    assert {row["name"] for row in corner.vms().values()} == {corner.name(f"far-{n}") for n in range(3)}


@pytest.mark.parametrize("options", [{"cores": 4096}, {"pool": "no-such-pool"}, {"memory": 10**9}])
def test_what_proxmox_would_refuse__fails_and_leaves_nothing(
    controller: Controller, corner: Corner, options: dict[str, object]
) -> None:
    result = controller.run("qemu_schedule", **{**corner.small("web"), **options})
    assert result.get("failed"), result
    assert corner.vms() == {}
