# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated cluster per test, controllers that run modules against it, and tasks run by a real ansible-playbook."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller, ModuleServer
from support.ledgers import empty_postgres, postgres_url
from support.playbook import PlayRun, run_tasks

__all__ = ["empty_postgres", "postgres_url"]

TIME_SCALE = 0.05
"""Real seconds per Proxmox second: new VMs are shown whole half a second after they were made."""

MODULES = ("node_drain", "qemu_schedule", "vmid_pick")


@pytest.fixture
def start(version: str) -> Iterator[Callable[..., SimulatedCluster]]:
    """Start clusters from a description, by default the quiet one of three nodes; they end with the test."""
    with ExitStack() as stack:

        def run(description: Path | dict[str, Any] = CLUSTERS / "three-nodes.yml", **options: Any) -> SimulatedCluster:
            options = {"version": version, "time_scale": TIME_SCALE, **options}
            return stack.enter_context(SimulatedCluster.start(description, **options))

        yield run


@pytest.fixture
def cluster(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    """Three quiet nodes."""
    return start()


@pytest.fixture
def control(modules: ModuleServer, tmp_path: Path) -> Callable[..., Controller]:
    """Set up a new controller for a cluster."""
    number = itertools.count()

    def set_up(cluster: SimulatedCluster) -> Controller:
        return Controller(modules, tmp_path / f"controller-{next(number)}", cluster.environment())

    return set_up


@pytest.fixture
def controller(control: Callable[..., Controller], cluster: SimulatedCluster) -> Controller:
    return control(cluster)


@pytest.fixture(scope="module")
def untouched() -> Iterator[SimulatedCluster]:
    """Three quiet nodes for all tests of a file that write nothing."""
    with SimulatedCluster.start(CLUSTERS / "three-nodes.yml", time_scale=TIME_SCALE) as running:
        guests = running.state()["guests"]
        yield running
        assert running.state()["guests"] == guests


@pytest.fixture(scope="module")
def planner(modules: ModuleServer, untouched: SimulatedCluster, tmp_path_factory: pytest.TempPathFactory) -> Controller:
    return Controller(modules, tmp_path_factory.mktemp("planner"), untouched.environment())


@pytest.fixture
def tasks(cluster: SimulatedCluster, tmp_path: Path) -> Callable[..., PlayRun]:
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
        return run_tasks(tmp_path / "ansible", plays, {**cluster.environment(), **(env or {})}, *arguments)

    return run
