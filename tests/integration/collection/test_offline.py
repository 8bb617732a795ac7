# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deciding from recorded answers: as the live cluster would have it, without a connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

AUTHORITY = "/nodes/localhost/certificates/info"
PATHS = ("/cluster/resources", "/cluster/tasks", "/cluster/options", AUTHORITY, "/nodes/pve1/qemu/9000/config")
VMS: dict[str, Any] = {
    "memory": 4096,
    "cores": 2,
    "scsi": {"scsi0": {"size": 8}},
    "vms": [{"name": "web-1"}, {"name": "web-2", "vmid_range": "500-600"}, {"name": "web-3", "node": "pve3"}],
}
NO_CONNECTION = {f"PROXMOX_{name}": None for name in ("HOST", "PORT", "USER", "TOKEN_ID", "TOKEN_SECRET", "CA_PATH")}


@pytest.fixture
def recording(cluster: SimulatedCluster) -> dict[str, Any]:
    token = f"PVEAPIToken={cluster.token_user}!{cluster.token_id}={cluster.token_secret}"
    return {
        path: requests.get(
            f"{cluster.url}/api2/json{path}", headers={"Authorization": token}, verify=cluster.ca_path, timeout=30
        ).json()["data"]
        for path in PATHS
    }


@both_versions
def test_decision__is_that_of_the_live_cluster(
    controller: Controller, cluster: SimulatedCluster, recording: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(recording), encoding="utf-8")
    live = controller.schedule(check=True, **VMS)
    cluster.reset_requests()
    for snapshot in (recording, str(file)):
        offline = controller.schedule(snapshot=snapshot, env=NO_CONNECTION, **VMS)
        assert offline["vms"] == live["vms"]
        assert offline["changed"] is True
    assert cluster.requests() == []
    assert not {"web-1", "web-2", "web-3"} & {guest["name"] for guest in cluster.state()["guests"].values()}


def test_recordings_of_several_clusters__are_decided_about_together(
    planner: Controller, recording: dict[str, Any]
) -> None:
    clusters = [{"name": name, "snapshot": recording} for name in ("north", "south")]
    offline = planner.schedule(clusters=clusters, env=NO_CONNECTION, **VMS)
    assert {vm["cluster"] for vm in offline["vms"]} == {"north", "south"}
    assert len(offline["nodes"]) == 2 * len({node["node"] for node in offline["nodes"]})


def test_clone__is_decided_offline_with_its_templates_sizes(controller: Controller, recording: dict[str, Any]) -> None:
    live = controller.schedule(name="web-1", clone="debian-13", check=True)
    offline = controller.schedule(name="web-1", clone="debian-13", snapshot=recording, env=NO_CONNECTION)
    assert offline["vms"] == live["vms"]


def test_vmids__are_picked_offline(controller: Controller, recording: dict[str, Any]) -> None:
    picked = controller.run("vmid_pick", snapshot=recording, count=2, vmid_range="100-120", env=NO_CONNECTION)
    assert picked["vmids"] == [103, 104]


def test_what_cannot_be_placed__is_told_as_online(controller: Controller, recording: dict[str, Any]) -> None:
    told = [
        controller.fail("NoNodesAvailable", name="huge", memory=10**6, **more)["vms"]
        for more in ({}, {"snapshot": recording})
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("snapshot", "told"),
    [({"/cluster/tasks": []}, "/cluster/resources"), ("/nowhere/cluster.json", "/nowhere/cluster.json"), ([], "")],
)
def test_recording_that_is_none__is_refused(controller: Controller, snapshot: Any, told: str) -> None:
    assert told in controller.fail("InvalidSnapshot", name="web-1", snapshot=snapshot)["msg"]


def test_file_that_is_not_json__is_refused(controller: Controller, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text("no JSON", encoding="utf-8")
    assert str(file) in controller.fail("InvalidSnapshot", name="web-1", snapshot=str(file))["msg"]
