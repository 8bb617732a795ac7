# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that hold on every cluster: on the simulated one, in all its releases, and with --real on the one named."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller, ModuleServer
from support.place import VMIDS_PER_TEST, Cluster, Corner
from support.versions import VERSIONS

TIME_SCALE = 0.05
FIRST_VMID = 900_000
NOT_EMPTY = "REAL_CLUSTER_NOT_EMPTY"
_CORNERS = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real", action="store_true", help="run against the cluster that PROXMOX_HOST names")


def pytest_configure(config: pytest.Config) -> None:
    # Whoever sets PROXMOX_VALIDATE_CERTS=false knows.
    config.addinivalue_line("filterwarnings", "ignore::urllib3.exceptions.InsecureRequestWarning")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster" in metafunc.fixturenames:
        real = metafunc.config.getoption("--real", default=False)
        metafunc.parametrize("cluster", ["real"] if real else VERSIONS, indirect=True, scope="session")


def real_environment() -> dict[str, str]:
    """The caller's PROXMOX_ variables; of those that are missing the first is named."""
    given = {key: value for key, value in os.environ.items() if key.startswith("PROXMOX_") and value}
    for name in ("PROXMOX_HOST", "PROXMOX_USER"):
        if name not in given:
            pytest.exit(f"{name} is not set: it has to name a cluster that may be tested on", returncode=4)
    if "PROXMOX_TOKEN_SECRET" in given:
        given.pop("PROXMOX_PASSWORD", None)
    elif "PROXMOX_PASSWORD" not in given:
        pytest.exit("neither PROXMOX_TOKEN_SECRET nor PROXMOX_PASSWORD is set", returncode=4)
    return given


def three_nodes() -> dict[str, Any]:
    """A simulated cluster with guests on two of its nodes, so that tests can drain the third one."""
    described: dict[str, Any] = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    described["guests"] = [guest for guest in described["guests"] if guest["node"] != "pve3"]
    return described


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of the tests: a simulated one of a release, or the real one."""
    if request.param != "real":
        with SimulatedCluster.start(three_nodes(), version=request.param, time_scale=TIME_SCALE) as simulated:
            yield Cluster.look(simulated.environment())
        return
    found = Cluster.look(real_environment())
    guests = found.guests()
    if guests and os.environ.get(NOT_EMPTY) != "1":
        pytest.exit(
            f"the cluster has guests ({', '.join(map(str, guests[:5]))}{', ...' if guests[5:] else ''}): set"
            f" {NOT_EMPTY}=1 if tests may run beside them", returncode=4)
    yield found


@pytest.fixture
def corner(cluster: Cluster, worker_number: int) -> Iterator[Corner]:
    """A part of the cluster for this test alone; whatever is in it is removed at the end."""
    base = int(os.environ.get("REAL_FIRST_VMID", FIRST_VMID))
    own = Corner(cluster, base + worker_number * 10_000 + next(_CORNERS) * VMIDS_PER_TEST)
    try:
        yield own
    finally:
        own.leave()


@pytest.fixture
def free_node(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """A node without guests, for a test that moves all guests of a node."""
    if request.config.getoption("--real", default=False) and "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("other tests run at the same time, and have their guests moved")
    if len(cluster.nodes) < 2:
        pytest.skip("one node: nowhere to move to")
    taken = {row["node"] for row in cluster.api.get("/cluster/resources", type="vm")}
    free = [node for node in cluster.nodes if node not in taken]
    if not free:
        pytest.skip("every node has guests, which are not to be moved")
    return free[-1]


@pytest.fixture(scope="session")
def worker_number() -> int:
    """Which of pytest-xdist's processes this is."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.fixture
def controller(modules: ModuleServer, cluster: Cluster, tmp_path: Path) -> Controller:
    return Controller(modules, tmp_path / "controller", cluster.environment)
