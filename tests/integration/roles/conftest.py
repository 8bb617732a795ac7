# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated cluster per test file, and the collection's roles and playbooks run against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.playbook import PlayRun, run_playbook

Play = Callable[..., PlayRun]

VMS: dict[str, Any] = {
    "qemu_options": {"cores": 2, "memory": 2048, "net": {"net0": "virtio,bridge=vmbr0"}, "agent": "enabled=1"},
    "qemu_vms": [
        {"name": "web-1", "tags": ["web", "front-end"], "scsi": {"scsi0": {"size": 8}}},
        {"name": "db-1", "tags": ["db"], "memory": 4096, "state": "stopped"},
    ],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    """Five unlike nodes with forty guests."""
    with SimulatedCluster.start(CLUSTERS / "demo.yml", time_scale=0.02) as running:
        yield running


@pytest.fixture(autouse=True)
def _as_it_was(cluster: SimulatedCluster) -> Iterator[None]:
    before = set(cluster.state()["guests"])
    yield
    for vmid in set(cluster.state()["guests"]) - before:
        cluster.remove_guest(vmid)


@pytest.fixture
def play(cluster: SimulatedCluster, tmp_path: Path) -> Play:
    """Run a playbook of the collection by its name, or plays as data, with extra variables, on one controller."""

    def run(playbook: str | list[dict[str, Any]], variables: dict[str, Any] | None = None, *arguments: str) -> PlayRun:
        name = f"qemu_scheduler.proxmox.{playbook}" if isinstance(playbook, str) else playbook
        if variables is not None:
            file = tmp_path / "variables.yml"
            file.write_text(yaml.safe_dump(variables), encoding="utf-8")
            arguments = ("-e", f"@{file}", *arguments)
        return run_playbook(tmp_path, name, cluster.environment(), *arguments)

    return run
