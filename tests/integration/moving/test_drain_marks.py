# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who returns to a node that was drained, and how long the node remembers them."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access

from .conftest import container, on, writes

MARK = "drained-node-pve1"


def drain(controller: Controller, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = controller.run("node_drain", name=["pve1"], **options)
    assert not result.get("failed"), result["msg"]
    return result


def activate(controller: Controller, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = controller.run("node_drain", name=["pve1"], state="active", **options)
    return result


def comment(access: Access) -> str:
    """The comment of the mark of pve1."""
    return str(access.writer().get(f"/pools/{MARK}")["comment"])


def use_again(cluster: SimulatedCluster, vmid: int, name: str = "payroll", node: str = "pve3", **more: Any) -> None:
    """Remove a guest, and create another one with its VMID elsewhere."""
    cluster.remove_guest(vmid)
    disks = {} if more.get("type") == "lxc" else {"disks": {"scsi0": "shared:8"}}
    guest = {"vmid": vmid, "name": name, "node": node, "cores": 1, "memory": 512, "status": "running"}
    cluster.add_guest(**guest, **disks, **more)
    cluster.advance(30)


@both_versions
def test_active__brings_no_guest_back_that_has_taken_a_vmid(cluster: SimulatedCluster, controller: Controller) -> None:
    before = on(cluster, "pve1")
    drain(controller)
    use_again(cluster, 101)

    planned = activate(controller, check=True)
    result = activate(controller)

    assert cluster.state()["guests"][101]["node"] == "pve3"
    assert on(cluster, "pve1") == before - {101}
    for each in (planned, result):
        assert not each.get("failed"), each["msg"]
        assert [(stuck["vmid"], stuck["name"]) for stuck in each["stuck"]] == [(101, "payroll")]
        assert any("payroll (101) on pve3: its VMID belonged to another guest" in text for text in each["warnings"])
    # It was never there, so that nobody waits for it.
    assert MARK not in cluster.state()["pools"]


@both_versions
def test_active__brings_no_container_back_that_has_taken_a_vmid(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.add_guest(**container())
    drain(controller, containers="restart")
    use_again(cluster, 110, type="lxc", config={"rootfs": "shared:vm-110-disk-0,size=8G"})

    activate(controller, containers="restart")

    assert cluster.state()["guests"][110]["node"] == "pve3"


def test_active__brings_no_clone_back_that_was_prepared_to_look_like_the_guest(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    before = on(cluster, "pve1")
    drain(controller)
    former = cluster.state()["guests"][101]["config"]
    copied = {key: former[key] for key in ("smbios1", "meta")}
    use_again(cluster, 101, former["name"], config={**copied, "vmgenid": "11111111-2222-4333-8444-555555555555"})

    result = activate(controller)

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == before - {101}
    assert any("(101) on pve3: its VMID belonged to another guest" in text for text in result["warnings"])


def test_active__knows_a_guest_that_was_renamed(cluster: SimulatedCluster, controller: Controller) -> None:
    before = on(cluster, "pve1")
    drain(controller)
    cluster.set_guest(101, config={"name": "renamed"})
    cluster.advance(30)

    result = activate(controller)

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == before
    assert not result.get("warnings")


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("qemu_scheduler.proxmox keeps pve1 free of guests; guests that come back: 101, 201", set[int]()),
        ("guests that come back: 201=00000000.00000000", set[int]()),
        ("guests that come back: 201=-.-", set[int]()),
        ("guests that come back: 201=../../pools", set[int]()),
        ("guests that come back: {{ 201 }}", set[int]()),
        ("", set[int]()),
    ],
)
def test_active__takes_what_a_mark_says_for_a_hint(
    cluster: SimulatedCluster, controller: Controller, access: Access, text: str, back: set[int]
) -> None:
    drain(controller)
    access.writer().put(f"/pools/{MARK}", comment=text)

    result = activate(controller)

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == back
    assert MARK not in cluster.state()["pools"]
    if "101, 201" in text:
        assert {stuck["vmid"] for stuck in result["stuck"]} == {101, 201}
        assert "the mark of the node is of an earlier version" in " ".join(result["warnings"])


def test_active__remembers_who_could_not_come_back(
    cluster: SimulatedCluster, controller: Controller, access: Access
) -> None:
    before = on(cluster, "pve1")
    drain(controller)
    cluster.fault(method="POST", path="/101/migrate$", task_error="migration aborted")

    first = activate(controller)
    assert first["error_code"] == "GoalsNotReached", first
    assert on(cluster, "pve1") == before - {101}
    assert "pve1 stays marked as drained until all its guests are back, 1 guest(s) stay: vm101 (101)" in first["msg"]
    assert comment(access).count("=") == 1
    again = activate(controller, on_failure="stop")
    assert (again["error_code"], MARK in cluster.state()["pools"]) == ("MoveFailed", True)
    cluster.clear_faults()

    result = activate(controller)

    assert not result.get("failed"), result["msg"]
    assert (on(cluster, "pve1"), MARK in cluster.state()["pools"]) == (before, False)
    assert not activate(controller)["changed"]


def test_active__without_success_changes_nothing(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_guest(102, status="stopped")
    drain(controller)
    activate(controller, offline=False)
    cluster.reset_requests()

    result = activate(controller, offline=False)

    assert (result["changed"], result["error_code"], writes(cluster)) == (False, "GoalsNotReached", [])
    assert result["msg"].endswith("or make the node active without them (bring_back: false)")
    assert activate(controller, offline=False, check=True)["changed"] is False
    assert len(result["stuck"]) == 2


@both_versions
@pytest.mark.parametrize(
    ("state", "what"),
    [
        ({"online": False}, "it is offline; cure: wait until it is back"),
        ({"maintenance": True}, "node-maintenance disable pve1' on a node, wait up to two minutes, and run again"),
    ],
    ids=["offline", "maintenance"],
)
def test_active__of_a_node_that_is_not_back_is_refused(
    cluster: SimulatedCluster, controller: Controller, access: Access, state: dict[str, bool], what: str
) -> None:
    access.writer().post("/cluster/ha/resources", sid="vm:201")
    cluster.advance(30)
    before = on(cluster, "pve1")
    drain(controller)
    cluster.set_node("pve1", **state)
    cluster.advance(60)
    cluster.reset_requests()

    for check in (True, False):
        result = activate(controller, check=check)
        assert result["error_code"] == "GoalsNotReached"
        assert what in result["msg"]
    assert (writes(cluster), MARK in cluster.state()["pools"]) == ([], True)
    cluster.set_node("pve1", **{key: not value for key, value in state.items()})
    cluster.advance(60)

    assert not activate(controller).get("failed")
    assert on(cluster, "pve1") == before


def test_active__forgets_who_was_there_when_the_user_says_so(cluster: SimulatedCluster, controller: Controller) -> None:
    drain(controller)
    cluster.set_node("pve1", online=False)
    cluster.advance(60)
    cluster.reset_requests()

    result = activate(controller, bring_back=False)

    assert (result["changed"], result["warnings"]) == (True, [])
    assert writes(cluster) == [f"DELETE /pools/{MARK}"]


def test_drain__that_is_repeated_keeps_the_mark_as_it_is(
    cluster: SimulatedCluster, controller: Controller, access: Access
) -> None:
    cluster.add_guest(**container())
    controller.run("node_drain", name=["pve1"])
    mark = comment(access)
    assert mark.count("=") == 7
    cluster.reset_requests()

    result = controller.run("node_drain", name=["pve1"])

    assert result["error_code"] == "GoalsNotReached"
    assert (writes(cluster), comment(access)) == ([], mark)


def test_drain__adds_to_the_guests_of_an_earlier_one(
    cluster: SimulatedCluster, controller: Controller, access: Access
) -> None:
    before = on(cluster, "pve1")
    drain(controller)
    cluster.add_guest(vmid=150, node="pve1", name="late", memory=512, status="running")
    cluster.advance(30)
    drain(controller)
    assert comment(access).count("=") == len(before) + 1

    activate(controller)

    assert on(cluster, "pve1") == before | {150}
