# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storages on which less can be written than is not used, by a quota or blocks that are kept back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

LAB: dict[str, Any] = {
    "nodes": [{"name": name, "cores": 16, "memory": 65536} for name in ("pve1", "pve2", "pve3")],
    "storages": [
        {"name": "data", "type": "dir", "shared": True, "size": 252, "used": 30, "reserved": 149},
    ],
}


def reads_of_storages(cluster: SimulatedCluster) -> list[str]:
    return [request["path"] for request in cluster.requests(reset=True) if request["path"].endswith("/storage")]


@both_versions
def test_free_space__is_what_proxmox_says_is_available(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start(LAB)
    controller = control(cluster)
    failed = controller.fail("NoStorageAvailable", name="big", memory=512, scsi={"scsi0": {"size": 100}})
    assert "scsi0 needs 100 GiB, 73 GiB free" in failed["msg"]
    assert reads_of_storages(cluster) == ["/nodes/pve1/storage"]
    assert controller.schedule(name="small", memory=512, scsi={"scsi0": {"size": 8}})["changed"]
    assert reads_of_storages(cluster) == [], "nothing is asked where much is left"


@both_versions
def test_free_space__is_counted_as_proxmox_says_by_capacity_info_and_in_recordings(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    controller = control(start(LAB))
    shape = {"name": "s", "memory": 16, "scsi": {"scsi0": {"size": 10}}}
    live = controller.run("capacity_info", shapes=[shape])
    snapshot = controller.run("cluster_snapshot_info")["snapshot"]
    recorded = controller.run("capacity_info", shapes=[shape], snapshot=snapshot)
    assert live["shapes"][0]["fit"] == recorded["shapes"][0]["fit"] == 7
