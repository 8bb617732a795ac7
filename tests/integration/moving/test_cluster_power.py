# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole cluster that is shut down, and started again as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.build import AUTOMATION_ROLE
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.playbook import run_playbook
from support.versions import both_versions
from support.waiting import until

from .conftest import NODES, TIME_SCALE, description, writes

ADMIN = {"roles": {"Automation": [*AUTOMATION_ROLE, "Sys.Modify", "Sys.Console", "Sys.PowerMgmt"]}}
CEPH = {"ceph": {"status": "HEALTH_OK", "checks": {}}}
HA = {"ha": {"resources": [{"sid": f"vm:{vmid}", "state": "started"} for vmid in (103, 104)]}}
ORDER = [{"vmid": [102]}, {"name": "vm10[14]"}]
FLAGS = ["nobackfill", "nodown", "noout", "norebalance", "norecover", "pause"]

Start = Callable[..., tuple[SimulatedCluster, Controller]]


@pytest.fixture
def start(modules: ModuleServer, tmp_path: Path, version: str) -> Iterator[Start]:
    """Start the cluster of these tests with changes, and a controller for it."""
    with ExitStack() as stack:

        def run(**changes: Any) -> tuple[SimulatedCluster, Controller]:
            found = {**description(), **ADMIN, **CEPH, **changes}
            for node in found["nodes"]:
                node["wakeonlan"] = f"bc:24:11:00:00:0{node['name'][-1]}"
            cluster = stack.enter_context(SimulatedCluster.start(found, version=version, time_scale=TIME_SCALE))
            return cluster, Controller(modules, tmp_path / "controller", cluster.environment())

        yield run


def switch(controller: Controller, state: str, **options: Any) -> dict[str, Any]:
    options = {"shutdown": {"force": True}, "wait": 30, "timeout": 30, **options}
    result: dict[str, Any] = controller.run("cluster_power", state=state, **options)
    return result


def running(cluster: SimulatedCluster) -> set[int]:
    return {vmid for vmid, guest in cluster.state()["guests"].items() if guest["status"] == "running"}


def online(cluster: SimulatedCluster) -> set[str]:
    return {name for name, node in cluster.state()["nodes"].items() if node["online"]}


def switched(cluster: SimulatedCluster, verb: str) -> list[int]:
    """The VMIDs of guests in the order in which they were shut down or started."""
    path = f"/status/{verb}"
    return [int(r["path"].split("/")[-3]) for r in cluster.requests() if r["path"].endswith(path)]


@both_versions
def test_cluster__is_shut_down_in_order_and_started_as_it_was(start: Start, version: str) -> None:
    cluster, controller = start(**HA)
    cluster.set_guest(101, config={"startup": "order=1"})
    before = running(cluster)
    assert before == {101, 102, 103, 104, 106, 201}

    drill = switch(controller, "off", order=ORDER, check=True)
    assert (writes(cluster), running(cluster)) == ([], before)
    result = switch(controller, "off", order=ORDER)

    assert not result.get("failed"), result["msg"]
    assert result["steps"] == drill["steps"]
    assert sorted(result["guests"]) == sorted(before)
    order = switched(cluster, "shutdown")
    # Those that no entry selects come first, and within an entry the last one of startup.
    assert set(order[:3]) == {103, 106, 201}
    assert order[3:] == [104, 101, 102]
    state = cluster.state()
    assert (running(cluster), state["ceph_flags"]) == (set(), FLAGS)
    assert result["switched_nodes"] == ["pve2", "pve3", "pve1"]
    # The last node answers, and cannot be awaited. No node is while HA is armed.
    until(lambda: not online(cluster))
    assert set(state["pools"]) == {"cluster-shutdown"}

    cluster.set_node("pve1", online=True)
    started = switch(controller, "on")

    assert not started.get("failed"), started["msg"]
    assert started["switched_nodes"] == ["pve2", "pve3"]
    assert switched(cluster, "start")[:3] == [102, 101, 104]
    state = cluster.state()
    assert (running(cluster), online(cluster), state["ceph_flags"], state["pools"]) == (before, set(NODES), [], {})
    assert all(entry.get("state", "started") == "started" for entry in state["ha"]["resources"].values())
    sent = [r["path"].rpartition("/")[2] for r in cluster.requests() if r["path"].endswith("arm-ha")]
    assert sent == (["disarm-ha", "arm-ha"] if version == "9.2" else [])
    assert switch(controller, "on")["changed"] is False


def test_shutdown__is_refused_with_all_reasons_before_anything_is_changed(start: Start) -> None:
    health = {"status": "HEALTH_WARN", "checks": {"SLOW_OPS": {"summary": {"message": "slow"}}}}
    cluster, controller = start(roles={}, ceph=health)
    cluster.set_guest(101, config={"lock": "backup"})
    cluster.set_node("pve3", online=False)

    result = switch(controller, "off")

    assert (result["error_code"], writes(cluster)) == ("ShutdownRefused", [])
    named = {(each["node"], each["name"]) for each in result["refused"] if each["name"]}
    assert named == {("pve3", "offline"), ("pve1", "lock"), ("", "ceph:SLOW_OPS")}
    rights = {each["why"] for each in result["refused"] if not each["name"]}
    assert {"this user lacks Sys.PowerMgmt on /nodes/pve1", "this user lacks Sys.Modify on /"} <= rights
    assert all(each["cure"] for each in result["refused"])


def test_guest_that_does_not_shut_down__keeps_the_nodes_on_and_the_way_back_starts_the_others(start: Start) -> None:
    cluster, controller = start()
    cluster.set_guest(102, acpi=False)
    before = running(cluster)

    result = switch(controller, "off", order=ORDER, shutdown={"timeout": 20})

    assert result["error_code"] == "GoalsNotReached"
    assert "vm102 (102) on pve1 does not shut down within 20 s" in result["msg"]
    assert (running(cluster), online(cluster), cluster.state()["ceph_flags"]) == ({102}, set(NODES), [])
    assert not switch(controller, "on").get("failed")
    assert (running(cluster), cluster.state()["pools"]) == (before, {})


def test_other_guest_under_the_same_vmid__is_not_started(start: Start) -> None:
    cluster, controller = start()
    switch(controller, "off", nodes=False)
    cluster.remove_guest(201)
    cluster.add_guest(vmid=201, name="vm201", node="pve2", memory=512, status="stopped", disks={"scsi0": "shared:2"})
    cluster.remove_guest(106)

    result = switch(controller, "on")

    assert (running(cluster), cluster.state()["pools"]) == ({101, 102, 103, 104}, {})
    assert any("vm201 (201) is not the guest that ran" in text for text in result["warnings"])
    assert any("guest 106 ran before the shutdown" in text for text in result["warnings"])


def test_node_that_does_not_come_back__is_named_and_the_next_run_goes_on(start: Start) -> None:
    cluster, controller = start()
    switch(controller, "off", nodes=False)
    cluster.set_node("pve2", online=False)

    failed = switch(controller, "on", nodes=False, wait=1)
    assert "pve2 is offline" in failed["msg"]
    assert running(cluster) == set()
    partly = switch(controller, "on", nodes=False, accept=["offline"])
    assert "guest 201 is on none of the nodes that are online" in partly["msg"]
    assert running(cluster) == {101, 102, 103, 104, 106}
    cluster.set_node("pve2", online=True)
    assert not switch(controller, "on").get("failed")
    assert (201 in running(cluster), cluster.state()["pools"]) == (True, {})


def test_roles__show_the_steps_of_a_drill_and_carry_them_out(start: Start, tmp_path: Path) -> None:
    cluster, _controller = start()
    before = running(cluster)

    def play(name: str, *more: str) -> Any:
        return run_playbook(tmp_path, f"qemu_scheduler.proxmox.{name}", cluster.environment(), *more)

    # Else the nodes would be shut down as well.
    misnamed = play("cluster_shutdown", "-e", "cluster_shutdown_force=true", "-e", "shutdown_nodes=false")
    assert misnamed.last["msg"] == "unknown variable shutdown_nodes; did you mean cluster_shutdown_nodes?"
    misplaced = play("cluster_shutdown", "-e", '{"cluster_shutdown_options": {"state": "on"}}')
    assert misplaced.last["msg"].startswith("cluster_shutdown_options: state has no effect there; use the role ")
    assert running(cluster) == before
    force = ("-e", "cluster_shutdown_force=true", "-e", "cluster_shutdown_nodes=false")
    drill = play("cluster_shutdown", "--check", *force)
    assert (drill.code, running(cluster)) == (0, before), drill.output
    assert "shut guests down: vm101 (101), vm102 (102)" in drill.output
    assert play("cluster_shutdown", *force).code == 0
    assert running(cluster) == set()
    assert play("cluster_start").code == 0
    assert running(cluster) == before
