# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated clusters with storages of all kinds, and a controller that runs modules against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer

Lab = tuple[SimulatedCluster, Controller]

IMAGES = ["images", "rootdir"]
CLUSTER: dict[str, Any] = {
    "cluster": "volumes",
    "nodes": [{"name": f"pve{number}", "cores": 16, "memory": 65536} for number in (1, 2, 3)],
    "storages": [
        {"name": "local", "type": "dir", "content": ["iso", "import"], "size": 100},
        {"name": "thick", "type": "lvm", "content": IMAGES, "size": {"pve1": 60, "pve2": 100, "pve3": 40}},
        {"name": "ceph", "type": "rbd", "shared": True, "content": IMAGES, "size": 200},
        {"name": "nfs", "type": "nfs", "content": ["iso", "import", "images"], "size": 300},
    ],
    "isos": {"local": {"only-on-2.iso": {"pve2": 1}}, "nfs": {"everywhere.iso": 1}},
    "images": {"local": {"only-on-3.qcow2": {"pve3": 20}}, "nfs": {"large.qcow2": 50}},
    "guests": [
        {
            "vmid": 900,
            "name": "shared-template",
            "node": "pve1",
            "template": True,
            "memory": 1024,
            "disks": {"scsi0": "ceph:10"},
            "config": {"ide2": "ceph:cloudinit"},
        },
        {
            "vmid": 901,
            "name": "local-template",
            "node": "pve2",
            "template": True,
            "memory": 1024,
            "disks": {"scsi0": "thick:10"},
        },
        {
            "vmid": 902,
            "name": "cd-template",
            "node": "pve2",
            "template": True,
            "memory": 1024,
            "disks": {"scsi0": "ceph:10"},
            "config": {"ide2": "local:iso/only-on-2.iso,media=cdrom"},
        },
        {"vmid": 100, "name": "plain", "node": "pve3", "memory": 1024, "disks": {"scsi0": "ceph:5"}},
    ],
}
"""Three nodes; thick and local are local storages of each, ceph and nfs shared."""


@pytest.fixture
def control(modules: ModuleServer, tmp_path: Path, version: str) -> Iterator[Callable[..., Lab]]:
    """Start a cluster, CLUSTER with the given parts replaced, and set up a controller for it."""
    with ExitStack() as stack:

        def set_up(**parts: Any) -> Lab:
            description = {**CLUSTER, **parts}
            cluster = stack.enter_context(SimulatedCluster.start(description, version=version, time_scale=0.02))
            return cluster, Controller(modules, tmp_path / "controller", cluster.environment())

        yield set_up


@pytest.fixture
def cluster(lab: Lab) -> SimulatedCluster:
    return lab[0]


@pytest.fixture
def controller(lab: Lab) -> Controller:
    return lab[1]


@pytest.fixture
def lab(control: Callable[..., Lab]) -> Lab:
    return control()
