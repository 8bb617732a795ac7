# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster is the same one whoever asks, by whatever address, and never another's."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulated_cluster.build import AUTOMATION_ROLE
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

AUTHORITY = "/nodes/localhost/certificates/info"
LIMITED, SECRET = "limited@pve", "01234567-89ab-cdef-0123-456789abcdef"
TWO_NODES: dict[str, Any] = {
    "nodes": [{"name": "pve1", "cores": 8, "memory": 2048}, {"name": "pve2", "cores": 8, "memory": 2048}],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 1000}],
    "users": [{"name": LIMITED}],
    "tokens": [{"id": f"{LIMITED}!t", "secret": SECRET, "privsep": False}],
    "roles": {"Work": [each for each in AUTOMATION_ROLE if each != "Sys.Audit"], "Nodes": ["Sys.Audit"]},
    "acl": [
        {"path": "/", "user": LIMITED, "role": "Work"},
        {"path": "/nodes", "user": LIMITED, "role": "Nodes"},
    ],
}
"""Room for two VMs of 2 GiB, and a user who may not read the status of the cluster."""
LONE: dict[str, Any] = {**TWO_NODES, "nodes": [{"name": "pve", "cores": 8, "memory": 2048}]}
VM: dict[str, Any] = {"memory": 2048, "state": "started"}
AS_LIMITED: dict[str, Any] = {
    "api_user": LIMITED,
    "api_token_id": "t",
    "api_token_secret": SECRET,
    "api_host": "localhost",
}


def count(cluster: SimulatedCluster, path: str, method: str = "GET") -> int:
    return sum(r["method"] == method and r["path"].endswith(path) for r in cluster.requests())


@both_versions
def test_identity__does_not_depend_on_privileges_or_address(
    control: Callable[..., Controller], start: Callable[..., SimulatedCluster]
) -> None:
    cluster = start(TWO_NODES)
    controller = control(cluster)
    cluster.fault(method="POST", path="/qemu$", hang=True, count=2)
    running = []
    for number, options in enumerate(({}, AS_LIMITED), start=1):
        running.append(controller.start("qemu_schedule", name=f"vm-{number}", **VM, **options))
        until(lambda wanted=number: count(cluster, "/qemu", "POST") == wanted)
    posts = [r["path"] for r in cluster.requests() if r["method"] == "POST"]
    for module in running:
        module.kill()
    assert sorted(posts) == ["/nodes/pve1/qemu", "/nodes/pve2/qemu"]
    assert count(cluster, AUTHORITY) == 2
    controller.fail("NoNodesAvailable", name="vm-3", **VM, **AS_LIMITED)
    assert count(cluster, AUTHORITY) == 2, "it is remembered for each address"


def test_identity__tells_lone_nodes_of_one_name_apart(
    control: Callable[..., Controller], start: Callable[..., SimulatedCluster], empty_postgres: str
) -> None:
    first, second = start(LONE), start(LONE)
    first.fault(method="POST", path="/qemu$", hang=True)
    slow = control(first).start("qemu_schedule", name="web-1", reservations=empty_postgres, **VM)
    until(lambda: count(first, "/qemu", "POST"))
    other = control(second)
    assert other.schedule(name="web-1", reservations=empty_postgres, **VM)["vmid"] == 100
    assert other.schedule(name="web-1", reservations=empty_postgres, **VM)["changed"] is False
    assert count(second, AUTHORITY) == 2, "a lone node is asked each time"
    slow.kill()


def test_identity__is_asked_for_again_where_an_earlier_version_kept_another(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    controller.schedule(name="web-1", memory=512)
    path: Path = controller.folder / "state/qemu_scheduler/reservations.db"
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as file, file:
        (before,) = file.execute("SELECT cluster FROM qemu_scheduler_endpoints").fetchall()
        file.execute("UPDATE qemu_scheduler_endpoints SET cluster = 'lab at 192.0.2.1'")
    controller.schedule(name="web-2", memory=512)
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as file:
        assert file.execute("SELECT cluster FROM qemu_scheduler_endpoints").fetchall() == [before]
    assert count(cluster, AUTHORITY) == 2
