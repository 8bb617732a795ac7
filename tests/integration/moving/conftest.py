# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters whose guests move, and what tests ask of them afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access

TIME_SCALE = 0.02
NODES = ("pve1", "pve2", "pve3")
VMS = (101, 102, 103, 104)


def description() -> dict[str, Any]:
    """Three nodes of 16 GiB; pve1 has four running VMs of 3 GiB, and one of each other kind."""

    def vm(vmid: int, node: str = "pve1", **more: Any) -> dict[str, Any]:
        return {
            "vmid": vmid,
            "node": node,
            "name": f"vm{vmid}",
            "cores": 1,
            "memory": 3072,
            "status": "running",
            "disks": {"scsi0": "shared:8"},
            **more,
        }

    return {
        "cluster": "moving",
        "nodes": [{"name": name, "cores": 16, "memory": 16384, "bridges": ["vmbr0"]} for name in NODES],
        "storages": [
            {"name": "local", "type": "dir", "content": ["iso"], "size": 60},
            {
                "name": "fast",
                "type": "dir",
                "content": ["images", "rootdir"],
                "size": 100,
                "options": {"path": "/mnt/fast"},
            },
            {"name": "shared", "type": "rbd", "shared": True, "content": ["images", "rootdir"], "size": 2000},
        ],
        "isos": {"local": {"boot.iso": 1}},
        "guests": [
            *(vm(vmid) for vmid in VMS),
            vm(105, status="stopped", disks={"scsi0": "fast:2"}),
            vm(106, memory=1024, disks={"scsi0": "fast:2"}),
            vm(201, "pve2", memory=2048),
        ],
    }


def container(vmid: int = 110) -> dict[str, Any]:
    return {
        "vmid": vmid,
        "node": "pve1",
        "type": "lxc",
        "name": f"ct{vmid}",
        "cores": 1,
        "memory": 512,
        "status": "running",
        "config": {"rootfs": f"shared:vm-{vmid}-disk-0,size=8G"},
    }


@pytest.fixture
def cluster(version: str) -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start(description(), version=version, time_scale=TIME_SCALE) as running:
        yield running


@pytest.fixture
def control(modules: ModuleServer, cluster: SimulatedCluster, tmp_path: Path) -> Callable[[], Controller]:
    """Set up a new controller, with a ledger of its own."""
    number = itertools.count()
    return lambda: Controller(modules, tmp_path / f"controller-{next(number)}", cluster.environment())


@pytest.fixture
def controller(control: Callable[[], Controller]) -> Controller:
    return control()


def on(cluster: SimulatedCluster, node: str) -> set[int]:
    """The VMIDs of the guests on a node."""
    return {vmid for vmid, guest in cluster.state()["guests"].items() if guest["node"] == node}


def writes(cluster: SimulatedCluster) -> list[str]:
    """What was sent that writes."""
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


@pytest.fixture
def params(cluster: SimulatedCluster, tmp_path: Path) -> dict[str, Any]:
    """The connection to the cluster, and a ledger, that all controllers of a test share."""
    return {
        "api_host": [cluster.host],
        "api_port": cluster.port,
        "api_user": cluster.token_user,
        "api_token_id": cluster.token_id,
        "api_token_secret": cluster.token_secret,
        "ca_path": cluster.ca_path,
        "reservations": str(tmp_path / "ledger.db"),
    }


@pytest.fixture
def access(params: dict[str, Any]) -> Iterator[Access]:
    opened = Access.open(params, lambda nodes: {})
    yield opened
    opened.close()
