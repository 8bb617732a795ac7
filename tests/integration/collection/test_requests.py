# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many requests runs cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

VM: dict[str, Any] = {"memory": 512, "cores": 1, "scsi": {"scsi0": {"storage": "shared", "size": 1}}}


def asked(cluster: SimulatedCluster) -> list[str]:
    """What was asked, without the polls of tasks."""
    calls = [f"{r['method']} {r['path']}" for r in cluster.requests(reset=True)]
    return [call for call in calls if "/tasks/UPID:" not in call]


def generated(nodes: int) -> dict[str, Any]:
    return {
        "generate": {"nodes": nodes, "guests_per_node": 2, "seed": 1},
        "storages": [
            {"name": "local-lvm", "type": "lvmthin", "size": 2000},
            {"name": "shared", "type": "rbd", "shared": True, "size": 9000},
        ],
        "timing": {"create_seconds": 0, "disk_seconds": 0, "start_seconds": 0},
    }


REAL_TIME = 1.0
"""Where the clock is faster, a VM may be seconds younger than the task that makes it: that costs one more request."""


@both_versions
@pytest.mark.parametrize("nodes", [3, 40])
def test_one_vm__costs_at_most_four_requests_whatever_the_clusters_size(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], nodes: int
) -> None:
    cluster = start(generated(nodes))
    controller = control(cluster)
    controller.schedule(name="first", **VM)
    asked(cluster)
    cluster.advance(120)
    result = controller.schedule(name="second", **VM)
    calls = asked(cluster)
    assert len(calls) <= 4, calls
    assert calls[-1] == f"POST /nodes/{result['node']}/qemu"


def test_clone_and_a_start__cost_a_fixed_number_more(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="first", **VM)
    asked(cluster)
    cluster.advance(120)
    controller.schedule(name="second", clone="debian-13", cores=4, state="started")
    calls = asked(cluster)
    # The template is cloned, the clone is adjusted and started: each write is proved by one read of a config, and that
    # of the clone by one of the tasks. The template has a network card, so the bridges of the chosen node are read.
    assert len(calls) <= 11 + 1, calls


@pytest.mark.parametrize(
    ("change", "writes"),
    [
        ({"cores": 6, "update": True}, 1),
        ({"scsi": {"scsi0": {"size": 40}}, "cores": 6, "update": True}, 2),
        ({"pool": "web", "update": True}, 1),
        ({"ha": {"state": "stopped"}, "update": True}, 1),
        ({"state": "started"}, 1),
        ({"state": "started", "cores": 6, "update": True}, 2),
        ({"template": True, "update": True}, 1),
    ],
)
def test_write_to_an_existing_vm__costs_one_read_at_most(
    controller: Controller, cluster: SimulatedCluster, change: dict[str, Any], writes: int
) -> None:
    controller.schedule(name="spare")
    asked(cluster)
    cluster.advance(120)
    controller.schedule(name="spare", **change)
    calls = asked(cluster)
    read = "GET /nodes/pve2/qemu/102/config"
    assert len([call for call in calls if not call.startswith("GET")]) == writes, calls
    # The first read compares the VM with its request.
    assert calls.count(read) - 1 <= writes, calls


@both_versions
@pytest.mark.parametrize("state", ["present", "stopped", "started"])
def test_unchanged_run_of_many__costs_two_requests_and_one_per_vm(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], state: str
) -> None:
    cluster = start(generated(10), time_scale=REAL_TIME)
    controller = control(cluster)
    vms = [{"name": f"web-{number}"} for number in range(12)]
    controller.schedule(vms=vms, state=state, **VM)
    cluster.advance(120)
    asked(cluster)
    assert controller.schedule(vms=vms, state=state, **VM)["changed"] is False
    calls = asked(cluster)
    assert len(calls) <= 2 + 12, calls
    assert {call.split()[0] for call in calls} == {"GET"}


def test_unchanged_run_of_a_count__costs_no_more_than_that_of_its_vms(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start(generated(10), time_scale=REAL_TIME)
    controller = control(cluster)
    vms = [{"name": "web-{n}", "count": 6, "tags": ["web"], "surplus": "absent"}]
    controller.schedule(vms=vms, **VM)
    for _at_once_and_later in range(2):
        asked(cluster)
        assert controller.schedule(vms=vms, **VM)["changed"] is False
        assert len(asked(cluster)) == 2 + 6
        cluster.advance(120)
    # Nor does it wait for what others are creating, or remove it.
    cluster.fault(method="POST", path="/nodes/[^/]+/qemu$", task_held=True, count=1)
    other = controller.start("qemu_schedule", name="web-7", tags=["web"], **VM)
    until(lambda: any(call["method"] == "POST" for call in cluster.requests()))
    asked(cluster)
    assert controller.schedule(vms=vms, **VM)["changed"] is False
    assert len(asked(cluster)) == 2 + 6
    cluster.release()
    assert other.result()["changed"]


def test_unrequested_data__is_not_read(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="first", check=True, **VM)
    assert not [call for call in asked(cluster) if "hardware" in call or "/ha/" in call or "mapping" in call]
