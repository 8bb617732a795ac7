# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many runs at the same moment, on one controller and on several, and runs that are killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, Result, RunningModule
from support.versions import both_versions
from support.waiting import until

CREATE = {"method": "POST", "path": "/nodes/[^/]+/qemu$"}
GIB_PER_NODE = 4
SMALL: dict[str, Any] = {
    "nodes": [{"name": f"pve{n}", "cores": 16, "memory": GIB_PER_NODE * 1024} for n in (1, 2, 3)],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 1000}],
}
"""Room for twelve VMs of a GiB, four on each node."""
VM: dict[str, Any] = {"memory": 1024, "state": "started", "scsi": {"scsi0": {"size": 1}}}


@pytest.fixture
def small(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    return start(SMALL)


def names(cluster: SimulatedCluster) -> dict[str, int]:
    """The VMs' VMIDs by name; a name twice is an error."""
    guests = cluster.state()["guests"].values()
    found = {guest["name"]: guest["vmid"] for guest in guests}
    assert len(found) == len(guests)
    return found


def per_node(cluster: SimulatedCluster) -> dict[str, int]:
    nodes = [guest["node"] for guest in cluster.state()["guests"].values()]
    return {node: nodes.count(node) for node in set(nodes)}


def at_once(controllers: list[Controller], count: int, **options: Any) -> list[Result]:
    running = [
        controllers[number % len(controllers)].start("qemu_schedule", name=f"vm-{number}", **{**VM, **options})
        for number in range(count)
    ]
    return [module.result() for module in running]


def succeeded(results: list[Result]) -> dict[str, int]:
    return {result["name"]: result["vmid"] for result in results if not result.get("failed")}


def posts(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [r for r in cluster.requests() if r["method"] == "POST"]


def task_is_followed(cluster: SimulatedCluster) -> bool:
    return any(r["path"].endswith("/status") and ":qmcreate:" in r["path"] for r in cluster.requests())


def is_answered(cluster: SimulatedCluster, post: int) -> bool:
    """Whether the controller has gone on after so many POSTs."""
    methods = [r["method"] for r in cluster.requests()]
    sent = [at for at, method in enumerate(methods) if method == "POST"]
    return len(sent) >= post and "GET" in methods[sent[post - 1] :]


# --- one controller ---


def test_runs_at_the_same_moment__fill_the_cluster_to_its_limit_and_not_beyond(
    control: Callable[..., Controller], small: SimulatedCluster
) -> None:
    results = at_once([control(small)], 15)
    done = succeeded(results)
    assert len(done) == 12
    assert names(small) == done
    assert per_node(small) == {"pve1": 4, "pve2": 4, "pve3": 4}
    assert {r["error_code"] for r in results if r.get("failed")} == {"NoNodesAvailable"}


def test_runs_that_want_one_name_at_the_same_moment__make_one_vm(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    running = [controller.start("qemu_schedule", name="only-one", memory=512) for _run in range(6)]
    results = [module.result() for module in running]
    vmid = names(cluster)["only-one"]
    good = [result for result in results if not result.get("failed")]
    assert {result["vmid"] for result in good} == {vmid}
    assert sum(result["changed"] for result in good) == 1
    assert {result["error_code"] for result in results if result.get("failed")} <= {"AlreadyReserved"}
    assert controller.schedule(name="only-one", memory=512)["changed"] is False


def test_pick__passes_over_what_is_being_created_whatever_address_the_cluster_is_reached_by(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, hang=True)
    slow = controller.start("qemu_schedule", name="web-1", vmid=103, memory=512)
    until(lambda: cluster.count_requests("POST", "/qemu"))
    for host in ("127.0.0.1", "localhost"):
        assert controller.run("vmid_pick", count=2, api_host=host)["vmids"] == [104, 105]
    assert controller.run("vmid_pick", count=2, reservations="none")["vmids"] == [103, 104]
    slow.kill()


# --- several controllers ---


@both_versions
def test_controllers_that_know_nothing_of_each_other__never_share_a_vmid(
    control: Callable[..., Controller], cluster: SimulatedCluster
) -> None:
    results = at_once([control(cluster), control(cluster)], 8, reservations="none")
    done = succeeded(results)
    assert len(done) == 8, [result.get("msg") for result in results]
    assert len(set(done.values())) == 8
    everything = names(cluster)
    assert {name: everything[name] for name in done} == done, "each reports its own VM"


def test_limit_that_was_broken_in_a_race__is_reported(
    control: Callable[..., Controller], start: Callable[..., SimulatedCluster]
) -> None:
    cluster = start({**SMALL, "nodes": [{"name": "pve1", "cores": 8, "memory": 4096}]})
    cluster.fault(**CREATE, held=True, count=2)
    running: list[RunningModule] = []
    for number in (1, 2):
        options = {**VM, "name": f"vm-{number}", "vmid": 100 + number, "memory": 3072, "reservations": "none"}
        running.append(control(cluster).start("qemu_schedule", **options))
        until(lambda: sum(r["path"].endswith("/qemu") for r in posts(cluster)) == len(running))
    cluster.release()
    results = [module.result() for module in running]
    assert sorted(succeeded(results)) == ["vm-1", "vm-2"]
    told = [result for result in results if result["vms"][0]["limit_broken"]]
    assert told
    for result in told:
        assert "memory overcommit ratio" in result["vms"][0]["limit_broken"]
        assert any(result["vms"][0]["limit_broken"] in warning for warning in result["warnings"])
        assert result["changed"] is True


def test_controllers_that_share_a_database__fill_the_cluster_to_its_limit_and_not_beyond(
    control: Callable[..., Controller], small: SimulatedCluster, empty_postgres: str
) -> None:
    results = at_once([control(small), control(small)], 15, reservations=empty_postgres)
    done = succeeded(results)
    assert len(done) == 12, [result.get("msg") for result in results]
    assert names(small) == done
    assert per_node(small) == {"pve1": 4, "pve2": 4, "pve3": 4}
    assert {r["error_code"] for r in results if r.get("failed")} == {"NoNodesAvailable"}


# --- runs that are killed ---


@both_versions
def test_run_killed_between_reserving_and_creating__leaves_nothing_stuck(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(method="GET", path="/qemu/100/pending$", delay=2000, count=1)
    run = controller.start("qemu_schedule", vms=[{"name": "web-1"}, {"name": "app-1"}], memory=512)
    until(lambda: cluster.count_requests("GET", "/qemu/100/pending"))
    run.kill()
    assert "web-1" not in names(cluster)
    assert controller.run("vmid_pick")["vmid"] == 103, "nothing was sent for it: its reservation ends with its holder"
    result = controller.schedule(name="web-1", memory=512)
    assert (result["vms"][0]["action"], result["vmid"]) == ("create", 103)


@both_versions
def test_run_killed_while_its_create_is_on_its_way__is_taken_over(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, held=True, count=1)
    run = controller.start("qemu_schedule", name="web-1", memory=512)
    until(lambda: cluster.count_requests("POST", "/qemu"))
    run.kill()
    other = controller.schedule(name="web-2", memory=512)
    cluster.remove_guest(100)
    cluster.release()
    result = controller.schedule(name="web-1", memory=512)
    assert result["vmid"] == 103, "its VMID is kept for it, though a lower one is free by now"
    found = names(cluster)
    assert (found["web-1"], found["web-2"]) == (103, other["vmid"])
    cluster.advance(60)
    assert controller.schedule(name="web-1", memory=512)["changed"] is False


@pytest.mark.parametrize("reservations", ["default", "none"])
@both_versions
def test_run_killed_while_its_vm_is_being_made__is_taken_over(
    controller: Controller, cluster: SimulatedCluster, reservations: str
) -> None:
    cluster.fault(**CREATE, task_seconds=20, count=1)
    run = controller.start("qemu_schedule", name="web-1", memory=512, reservations=reservations)
    until(lambda: task_is_followed(cluster))
    run.kill()
    result = controller.schedule(name="web-1", memory=512, reservations=reservations)
    assert (result["changed"], result["vmid"]) == (False, 103)
    assert names(cluster)["web-1"] == 103


def test_killed_run_of_many__is_finished_by_the_next(controller: Controller, cluster: SimulatedCluster) -> None:
    vms = [{"name": f"web-{number}"} for number in range(6)]
    cluster.fault(**CREATE, task_held=True, after=2, count=1)
    run = controller.start("qemu_schedule", vms=vms, memory=512, parallel_creates=1)
    until(lambda: is_answered(cluster, post=3))
    run.kill()
    cluster.release()
    result = controller.schedule(vms=vms, memory=512)
    assert [vm["action"] for vm in result["vms"]] == ["none"] * 3 + ["create"] * 3
    found = names(cluster)
    assert [found[vm["name"]] for vm in result["vms"]] == [vm["vmid"] for vm in result["vms"]]


def test_run_that_is_stopped_for_a_while__goes_on_when_it_is_let(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.fault(**CREATE, task_seconds=10, count=1)
    run = controller.start("qemu_schedule", name="web-1", memory=512)
    until(lambda: task_is_followed(cluster))
    run.pause()
    others = controller.schedule(vms=[{"name": "web-2"}, {"name": "web-3"}], memory=512)
    run.go_on()
    assert run.result()["changed"] is True
    assert len({103, *(vm["vmid"] for vm in others["vms"])}) == 3
