# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of nodes, through the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

NODES: dict[str, Any] = {
    "nodes": [{"name": f"pve{n}", "cores": 8, "memory": 8192} for n in (1, 2, 3)],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 100}],
}
Start = Callable[..., SimulatedCluster]
Control = Callable[..., Controller]


@both_versions
def test_healthy_nodes__have_no_problems(start: Start, control: Control, version: str) -> None:
    result = control(start({**NODES, "version": version})).run("node_health_info", name=["pve3", "pve1"])
    assert result["healthy"] is True
    assert [node["name"] for node in result["nodes"]] == ["pve3", "pve1"]
    for node in result["nodes"]:
        assert (node["problems"], node["unchecked"]) == ([], [])
        assert node["uptime"] > 0
        assert node["version"].startswith(version)


def test_each_problem__is_reported_for_its_node(start: Start, control: Control) -> None:
    cluster = start(NODES)
    cluster.set_node("pve1", dead_services=["pvestatd", "chrony"])
    cluster.set_node("pve2", clock_offset=60)
    cluster.set_node("pve3", online=False)
    result = control(cluster).run("node_health_info", name=["pve1", "pve2", "pve3"])
    assert result["healthy"] is False
    problems = {node["name"]: node["problems"] for node in result["nodes"]}
    assert problems["pve1"] == ["service pvestatd is dead"]
    assert len(problems["pve2"]) == 1
    assert problems["pve2"][0].startswith("its clock differs by ")
    assert problems["pve3"] == ["it is offline"]


def test_lost_quorum__is_a_problem_of_every_node(start: Start, control: Control) -> None:
    cluster = start(NODES)
    cluster.set_quorum(False)
    (node,) = control(cluster).run("node_health_info", name=["pve1"])["nodes"]
    assert "the cluster has no quorum" in node["problems"]


@pytest.mark.parametrize(
    ("health", "problems"),
    [
        ({"status": "HEALTH_OK", "checks": {}}, []),
        ({"status": "HEALTH_WARN", "checks": {"OSDMAP_FLAGS": {"summary": {"message": "noout flag(s) set"}}}}, []),
        (
            {"status": "HEALTH_WARN", "checks": {"OSD_DOWN": {"summary": {"message": "1 osds down"}}}},
            ["Ceph reports OSD_DOWN: 1 osds down"],
        ),
        ({"status": "HEALTH_ERR"}, ["Ceph reports HEALTH_ERR"]),
    ],
)
def test_ceph__is_checked_apart_from_flags(
    start: Start, control: Control, health: dict[str, Any], problems: list[str]
) -> None:
    (node,) = control(start({**NODES, "ceph": health})).run("node_health_info", name=["pve1"])["nodes"]
    assert node["problems"] == problems


def test_node_that_comes_back__ends_the_wait(start: Start, control: Control) -> None:
    cluster = start(NODES)
    cluster.set_node("pve2", online=False)
    module = control(cluster).start("node_health_info", name=["pve2"], wait=60)
    until(lambda: any(request["path"] == "/cluster/status" for request in cluster.requests()))
    cluster.set_node("pve2", online=True)
    assert module.result()["healthy"] is True


def test_unknown_node__is_named_with_those_that_exist(start: Start, control: Control) -> None:
    failed = control(start(NODES)).fail("InvalidRequest", "node_health_info", name=["pve7"])
    assert "name[0]: 'pve7' is not a node of the cluster; its nodes: pve1, pve2, pve3" in failed["msg"]
