# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The privileges that draining takes: those of docs/operating.md are enough, and each is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.versions import both_versions

from .conftest import TIME_SCALE, description, on

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")
(ROLE,) = re.findall(r'pveum role add NodeDrainer --privs "(.+)"', PAGE)
SECRET = "12345678-1234-4234-8234-123456789abc"
TOKEN = {"PROXMOX_USER": "drainer@pve", "PROXMOX_TOKEN_ID": "ci", "PROXMOX_TOKEN_SECRET": SECRET}

As = Callable[[str], tuple[SimulatedCluster, Controller]]


@pytest.fixture
def having(modules: ModuleServer, tmp_path: Path, version: str) -> Iterator[As]:
    """A cluster, and the controller of a user who has these privileges there."""
    with ExitStack() as stack:

        def start(privileges: str) -> tuple[SimulatedCluster, Controller]:
            lab: dict[str, Any] = {
                **description(),
                "users": [{"name": "drainer@pve"}],
                "tokens": [{"id": "drainer@pve!ci", "secret": SECRET, "privsep": False}],
                "roles": {"NodeDrainer": privileges.split()},
                "acl": [{"path": "/", "user": "drainer@pve", "role": "NodeDrainer"}],
            }
            cluster = stack.enter_context(SimulatedCluster.start(lab, version=version, time_scale=TIME_SCALE))
            return cluster, Controller(modules, tmp_path / "drainer", {**cluster.environment(), **TOKEN})

        yield start


@both_versions
def test_role__drains_a_node_and_makes_it_active_again(having: As) -> None:
    cluster, controller = having(ROLE)

    result = controller.run("node_drain", name=["pve1"])

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == set()
    assert controller.run("node_drain", name=["pve1"], state="active")["changed"]


@pytest.mark.parametrize("missing", sorted(ROLE.split()))
def test_role__needs_each_of_its_privileges(having: As, missing: str) -> None:
    cluster, controller = having(ROLE.replace(missing, "").strip())

    result = controller.run("node_drain", name=["pve1"])

    assert on(cluster, "pve1"), missing
    assert result["error_code"] in ("GoalsNotReached", "PermissionDenied")
