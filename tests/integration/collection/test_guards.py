# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that a guard protects are not removed."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.waiting import until


@pytest.fixture(autouse=True)
def _guests(cluster: SimulatedCluster) -> None:
    cluster.add_guest(vmid=150, name="ci-1", node="pve1", memory=512, tags=["ci", "old"], pool="web")
    cluster.add_guest(vmid=151, name="ci-2", node="pve2", memory=512, tags=["old"])
    cluster.advance(30)


def remove(*names: str, **options: Any) -> dict[str, Any]:
    return {"state": "absent", "vms": [{"name": name} for name in names], **options}


def test_guard__of_tags_keeps_vms_without_them(controller: Controller, cluster: SimulatedCluster) -> None:
    failed = controller.fail("RemovalRefused", **remove("ci-1", "ci-2", only_tags=["CI"]))
    assert (
        'VM "ci-2" (151 on pve2) is not removed: only_tags requires the tag ci, and its tags are: old' in failed["msg"]
    )
    assert {150, 151} <= set(cluster.state()["guests"]), "with all_or_nothing, nothing is removed"
    controller.fail("RemovalRefused", **remove("ci-1", "ci-2", only_tags=["ci"], all_or_nothing=False))
    assert 150 not in cluster.state()["guests"]
    assert 151 in cluster.state()["guests"]


def test_guard__of_a_pool_keeps_vms_elsewhere(controller: Controller, cluster: SimulatedCluster) -> None:
    failed = controller.fail("RemovalRefused", **remove("ci-2", only_pool="web"))
    assert "only_pool requires pool web, and it is in no pool that this user can see" in failed["msg"]
    planned = controller.fail("RemovalRefused", **remove("ci-2", only_pool="web"), check=True)
    assert planned["msg"] == failed["msg"]
    assert controller.schedule(**remove("ci-1", "gone", only_pool="web"))["changed"] is True
    assert 150 not in cluster.state()["guests"]


def test_guard__does_not_concern_vms_that_stay(controller: Controller) -> None:
    assert controller.schedule(name="ci-2", only_tags=["ci"])["changed"] is False


def test_guard__holds_for_surplus(controller: Controller, cluster: SimulatedCluster) -> None:
    vms = [{"name": "ci-{n}", "count": 0, "surplus": "absent"}]
    failed = controller.fail("RemovalRefused", vms=vms, only_pool="web")
    assert 'VM "ci-2" (151 on pve2) is not removed' in failed["msg"]
    assert {150, 151} <= set(cluster.state()["guests"])


def test_guard__of_an_entry_holds_for_surplus_of_a_plan(controller: Controller, cluster: SimulatedCluster) -> None:
    vms = [{"name": "ci-{n}", "count": 0, "surplus": "absent", "only_tags": ["old"]}]
    plan = controller.schedule(vms=vms, check=True)["vm_plan"]
    cluster.set_guest(151, config={"tags": "payroll"})
    cluster.advance(30)

    failed = controller.fail("PlanStale", vms=vms, apply=plan)

    assert 'VM "ci-2" (151 on pve2) is not removed: only_tags requires the tag old' in failed["msg"]
    assert {150, 151} <= set(cluster.state()["guests"])


@pytest.mark.parametrize("guard", [{"only_tags": ["old"]}, {"only_pool": "web"}])
def test_guard__holds_for_a_vm_that_got_the_vmid_meanwhile(
    controller: Controller, cluster: SimulatedCluster, guard: dict[str, Any]
) -> None:
    cluster.fault(method="GET", path="/qemu/150/config$", count=1, held=True)
    running = controller.start("qemu_schedule", vmid=150, state="absent", **guard)
    until(lambda: any(request["path"].endswith("/qemu/150/config") for request in cluster.requests()))
    cluster.remove_guest(150)
    cluster.add_guest(vmid=150, name="payroll", node="pve1", memory=512, status="running", tags=["prod"])
    cluster.release()

    failed = running.result()

    assert failed.get("error_code") == "RemovalRefused", failed
    assert cluster.state()["guests"][150]["status"] == "running"
