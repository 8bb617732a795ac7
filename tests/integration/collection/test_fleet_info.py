# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A list of VMs against the cluster."""

from __future__ import annotations

import signal
from typing import Any

from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


def info(controller: Controller, *vms: dict[str, Any], **options: Any) -> dict[str, Any]:
    result = controller.run("fleet_info", vms=list(vms), **options)
    assert not result.get("failed"), result
    return result


def states(result: dict[str, Any]) -> dict[str, str]:
    return {vm["name"]: vm["state"] for vm in result["vms"]}


@both_versions
def test_fleet__that_is_as_requested_is_clean(controller: Controller, cluster: SimulatedCluster) -> None:
    asked: dict[str, Any] = {"name": "web-{n}", "count": 2, "tags": ["web"], "state": "started"}
    controller.schedule(vms=[asked])
    cluster.reset_requests()
    result = info(controller, asked, {"name": "gone", "state": "absent"})
    assert result["clean"] is True
    assert result["summary"]["ok"] == 3
    assert states(result) == {"web-1": "ok", "web-2": "ok", "gone": "ok"}
    assert writes(cluster) == []


def test_fleet__tells_what_differs_of_a_locked_vm(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(100, config={"lock": "backup"})
    assert states(info(controller, {"name": "app-1", "state": "stopped"})) == {"app-1": "drifted"}


@both_versions
def test_fleet__tells_what_differs(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="app-1", memory=4096, update=True)
    cluster.reset_requests()
    result = info(
        controller,
        {"name": "app-1", "cores": 4, "memory": 4096},
        {"name": "app-2", "cores": 8},
        {"name": "spare", "state": "started"},
        {"name": "new"},
        {"name": "huge", "memory": 10**7},
        {"name": "proxy", "vmid": 110},
        update=True,
        limits="enforce",
    )
    assert states(result) == {
        "app-1": "pending",
        "app-2": "drifted",
        "spare": "drifted",
        "new": "missing",
        "huge": "missing",
        "proxy": "failed",
    }
    by_name = {vm["name"]: vm for vm in result["vms"]}
    assert by_name["app-1"]["pending"] == {"memory": {"old": 8192, "new": 4096}}
    assert by_name["app-2"]["drift"]["cores"] == {"old": 2, "new": 8}
    assert by_name["spare"]["drift"] == {"status": {"old": "stopped", "new": "running"}}
    assert by_name["new"]["actions"] == ["create"]
    assert by_name["huge"]["error"]["code"] == "NoNodesAvailable"
    assert by_name["proxy"]["error"]["code"] == "VMIDConflict"
    assert (result["clean"], result["changed"]) == (False, False)
    assert writes(cluster) == []


def test_fleet__tells_of_paused_vms_that_are_to_run_and_the_other_way_round(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(100, status="paused")
    cluster.advance(30)
    switched = info(controller, {"name": "app-1", "state": "started"}, {"name": "app-2", "state": "paused"})
    assert [vm["drift"] for vm in switched["vms"]] == [
        {"status": {"old": "paused", "new": "running"}},
        {"status": {"old": "running", "new": "paused"}},
    ]
    assert switched["clean"] is False
    assert info(controller, {"name": "app-1", "state": "paused"}, {"name": "app-2", "state": "started"})["clean"]


def test_fleet__tells_of_broken_rules(controller: Controller, cluster: SimulatedCluster) -> None:
    apart = {"affinity": [{"type": "apart", "name": "app-.*"}], "node": None}
    cluster.add_guest(vmid=150, name="app-3", node="pve1", memory=512, status="running")
    cluster.advance(30)
    result = info(controller, {"name": "app-1", **apart}, {"name": "app-3", **apart}, {"name": "app-2", **apart})
    assert states(result) == {"app-1": "broken", "app-3": "broken", "app-2": "ok"}
    assert "breaks a placement rule" in result["vms"][0]["broken"][0]


def test_fleet__tells_of_vms_that_are_in_no_list(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.add_guest(vmid=150, name="ci-1", node="pve1", memory=512, tags=["ci"], pool="web")
    cluster.advance(30)
    result = info(controller, {"name": "app-1"}, {"name": "new"}, unmanaged=True)
    assert [vm["name"] for vm in result["unmanaged"]] == ["app-2", "spare", "ci-1"]
    scoped = info(controller, {"name": "app-1"}, unmanaged=True, only_pool="web", only_tags=["ci"])
    assert scoped["unmanaged"] == [
        {"name": "ci-1", "vmid": 150, "node": "pve1", "status": "stopped", "pool": "web", "tags": ["ci"]}
    ]
    assert (scoped["clean"], scoped["summary"]["unmanaged"]) == (False, 1)
    assert scoped["doubts"] == []
    misspelt = info(controller, {"name": "app-1"}, unmanaged=True, only_pool="wbe", only_tags=["cii"])
    assert misspelt["unmanaged"] == []
    assert misspelt["doubts"] == [
        "only_pool: this user sees no guest in pool 'wbe'; known: web",
        "only_tags: no guest has the tag 'cii'; known: ci",
    ]
    assert info(controller, {"name": "app-1"})["clean"] is True


def test_fleet__tells_of_surplus_and_of_what_is_to_be_absent(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(vms=[{"name": "web-{n}", "count": 2, "pool": "web"}])
    shrunk = {"name": "web-{n}", "count": 1, "surplus": "absent", "pool": "web"}
    result = info(controller, shrunk, {"name": "app-1", "state": "absent"})
    assert states(result) == {"web-1": "ok", "app-1": "unwanted", "web-2": "unwanted"}


def test_fleet__tells_of_unfinished_vms(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="PUT", path="/qemu/[0-9]+/config", hang=True, count=1)
    running = controller.start("qemu_schedule", name="web", clone="debian-13", cores=4)
    until(lambda: any(r["method"] == "PUT" for r in cluster.requests()))
    running.interrupt(signal.SIGKILL)
    cluster.clear_faults()
    assert states(info(controller, {"name": "web", "clone": "debian-13", "cores": 4})) == {"web": "unfinished"}
