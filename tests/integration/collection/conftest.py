# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated cluster per test file, and tasks run against it by a real ansible-playbook."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.playbook import PlayRun, run_tasks

Schedule = Callable[..., PlayRun]


@pytest.fixture(scope="module", params=["9.2", "8.4"])
def cluster(request: pytest.FixtureRequest) -> Iterator[SimulatedCluster]:
    """Three quiet nodes, once per Proxmox VE version."""
    with SimulatedCluster.start(CLUSTERS / "three-nodes.yml", version=request.param, time_scale=0.05) as running:
        yield running


@pytest.fixture
def tasks(cluster: SimulatedCluster, tmp_path: Path) -> Schedule:
    """Run tasks on a new controller: `tasks({"qemu_schedule": {...}}, "--check")`."""
    number = itertools.count()

    def run(*given: dict[str, Any] | str, env: dict[str, str] | None = None) -> PlayRun:
        plays = [
            {
                "name": f"task {next(number)}",
                **{(f"qemu_scheduler.proxmox.{key}" if key in MODULES else key): value for key, value in task.items()},
            }
            for task in given
            if not isinstance(task, str)
        ]
        arguments = [argument for argument in given if isinstance(argument, str)]
        return run_tasks(tmp_path, plays, {**cluster.environment(), **(env or {})}, *arguments)

    return run


MODULES = ("qemu_schedule", "vmid_pick", "capacity_info", "cluster_snapshot_info")
