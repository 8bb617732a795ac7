# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tours that are killed: the next run goes on from what is, and leaves nothing. The steps are those of the role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.build import AUTOMATION_ROLE
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access

from .conftest import TIME_SCALE, description

OPTIONS: dict[str, Any] = {
    "name": ["pve1", "pve2"],
    "guests": [{"immovable": True, "action": "shut_down"}],
    "shutdown": {"force": True},
}


class Killed(Exception):
    """The run ends here."""


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    found = {
        **description(),
        "ceph": {"status": "HEALTH_OK", "checks": {}},
        "options": {"crs": {"ha": "static", "ha-auto-rebalance": 1}},
        "roles": {"Automation": [*AUTOMATION_ROLE, "Sys.Modify"]},
    }
    with SimulatedCluster.start(found, time_scale=TIME_SCALE) as running:
        running.set_guest(101, config={"hostpci0": "0000:01:00.0"})
        yield running


class Tour:
    """One run of the role's steps.

    Attributes:
        maintained: the nodes whose tasks ran.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        controller: Controller,
        steps: int | None = None,
        options: dict[str, Any] = OPTIONS,
    ) -> None:
        self.maintained: list[str] = []
        self._cluster = cluster
        self._options = options
        self._controller = controller
        self._left = steps

    def run(self) -> None:
        """Run to the end, or until Killed."""
        plan = self._step("maintenance_tour", **self._options)
        for node in plan["unfinished"]:
            self._return([node])
        while plan["tour"]["steps"]:
            step = plan["tour"]["steps"][0]
            nodes, kept = [step["node"], *step.get("beside", ())], [*step["shut_down"], *step["stay"]]
            for node in nodes:
                self._step("maintenance_tour", state="begun", name=[node])
            stays = [{"vmid": kept}] if kept else []
            self._step("node_drain", name=nodes, prefer=step["prefer"], stays=stays)
            for node in nodes:
                self._step("maintenance_tour", state="prepared", name=[node], shut_down=step["shut_down"],
                           may_run=step["stay"], shutdown={"force": True})  # fmt: skip
            self._maintain(nodes, set(step["stay"]))
            self._return(nodes)
            plan = self._step("maintenance_tour", **self._options)
        self._step("maintenance_tour", state="ended")

    def _return(self, nodes: list[str]) -> None:
        self._step("node_drain", name=nodes, state="active", bring_back=False)
        self._step("maintenance_tour", state="finished", name=nodes)

    def _maintain(self, nodes: list[str], may_run: set[int]) -> None:
        guests = self._cluster.state()["guests"].items()
        running = {vmid for vmid, guest in guests if guest["node"] in nodes and guest["status"] == "running"}
        assert running <= may_run, "the tasks for a node ran beside guests that should have left it"
        self.maintained += nodes

    def _step(self, module: str, **options: Any) -> dict[str, Any]:
        if self._left is not None:
            if not self._left:
                raise Killed
            self._left -= 1
        result: dict[str, Any] = self._controller.run(module, **options)
        assert not result.get("failed"), result["msg"]
        return result


def run_until_it_ends(tour_of: Callable[[int], Tour], first: int) -> tuple[int, list[str]]:
    """Kill one tour after the other, each a step later, until one ends. Return its steps, and the maintained nodes."""
    maintained: list[str] = []
    for steps in count(first):
        tour = tour_of(steps)
        try:
            tour.run()
            break
        except Killed:
            continue
        finally:
            maintained += tour.maintained
    return steps, maintained


def assert_nothing_is_left(cluster: SimulatedCluster, running: set[int]) -> None:
    state = cluster.state()
    assert (state["pools"], state["ceph_flags"]) == ({}, [])
    assert state["options"]["crs"] == {"ha": "static", "ha-auto-rebalance": 1}
    assert {vmid for vmid, guest in state["guests"].items() if guest["status"] == "running"} == running
    assert state["guests"][101]["node"] == "pve1"


def test_tour__that_is_killed_one_step_later_each_time_reaches_its_end(
    cluster: SimulatedCluster, control: Callable[[], Controller]
) -> None:
    running = {vmid for vmid, guest in cluster.state()["guests"].items() if guest["status"] == "running"}
    steps, maintained = run_until_it_ends(lambda steps: Tour(cluster, control(), steps), 2)

    assert set(maintained) == {"pve1", "pve2"}
    # A node may be maintained again only if the run was killed before it was done.
    assert steps <= 14
    assert_nothing_is_left(cluster, running)


def test_tour_of_two_nodes_at_a_time__that_is_killed_one_step_later_each_time_reaches_its_end(
    modules: ModuleServer, tmp_path: Path
) -> None:
    names = ["pve1", "pve2", "pve3", "pve4"]
    found = description() | {
        "nodes": [{"name": name, "cores": 16, "memory": 16384} for name in names],
        "guests": [{"vmid": 100 + n, "name": f"web-{n}", "node": names[n % 4], "memory": 512, "status": "running",
                    "disks": {"scsi0": "shared:2"}} for n in range(4)],
        "qdevice": {"State": "Connected", "Algorithm": "Fifty-Fifty split"},
    }  # fmt: skip
    options: dict[str, Any] = {"parallel_nodes": 2}
    with SimulatedCluster.start(found, time_scale=TIME_SCALE) as cluster:
        controller = Controller(modules, tmp_path / "controller", cluster.environment())
        steps, maintained = run_until_it_ends(lambda steps: Tour(cluster, controller, steps, options), 4)
        state = cluster.state()

    assert set(maintained) == set(names)
    assert steps <= 20
    assert state["pools"] == {}
    assert {guest["status"] for guest in state["guests"].values()} == {"running"}


@pytest.mark.parametrize(
    ("module", "options", "write"),
    [
        ("node_drain", {"name": ["pve1"], "stays": [{"vmid": [101]}]}, "/migrate"),
        (
            "maintenance_tour",
            {"state": "prepared", "name": ["pve2"], "shut_down": [201], "shutdown": {"force": True}},
            "/shutdown",
        ),
    ],
    ids=["drain", "shutdown"],
)
def test_tour__goes_on_after_a_module_was_killed_in_its_middle(
    cluster: SimulatedCluster, control: Callable[[], Controller], module: str, options: dict[str, Any], write: str
) -> None:
    running = {vmid for vmid, guest in cluster.state()["guests"].items() if guest["status"] == "running"}
    # The task goes on long after the end of the run.
    cluster.fault(method="POST", path=f"{write}$", task_held=True, count=1)
    first = control()
    assert not first.run("maintenance_tour", state="begun", name=options["name"]).get("failed")
    begun = first.start(module, **options)
    until(lambda: not begun.is_running or cluster.count_requests("POST", write) > 0)
    begun.kill()
    cluster.reset_requests()
    planning = control().start("maintenance_tour", **OPTIONS)
    until(lambda: not planning.is_running or cluster.count_requests("GET", "/cluster/tasks") > 2)
    assert planning.is_running, "the tour was planned while the task of the killed run was running"
    cluster.release()
    assert not planning.result().get("failed")

    tour = Tour(cluster, control())
    tour.run()

    assert tour.maintained[0] == options["name"][0]
    assert sorted(tour.maintained) == ["pve1", "pve2"]
    assert_nothing_is_left(cluster, running)


def test_node_that_is_lost_in_the_turn_of_another__stops_the_tour_until_it_is_back(
    cluster: SimulatedCluster, control: Callable[[], Controller]
) -> None:
    running = {vmid for vmid, guest in cluster.state()["guests"].items() if guest["status"] == "running"}
    with pytest.raises(Killed):
        Tour(cluster, control(), 7).run()
    cluster.set_node("pve3", online=False)
    cluster.advance(60)

    refused = control().run("maintenance_tour", **OPTIONS)

    assert refused["error_code"] == "TourRefused"
    assert {each["name"] for each in refused["refused"]} >= {"offline", "quorum"}
    cluster.set_node("pve3", online=True)
    cluster.advance(60)
    tour = Tour(cluster, control())
    tour.run()
    assert len(tour.maintained) == 1
    assert running - {vmid for vmid, guest in cluster.state()["guests"].items() if guest["node"] == "pve3"} <= {
        vmid for vmid, guest in cluster.state()["guests"].items() if guest["status"] == "running"
    }
    assert (cluster.state()["pools"], cluster.state()["ceph_flags"]) == ({}, [])


@pytest.mark.parametrize("comment", ["[" * 3000, '{"done": {"pve1": 99999999999, "pve2": 1%s}}' % ("0" * 400)])
def test_record_that_others_have_edited__keeps_no_node_from_its_maintenance(
    cluster: SimulatedCluster, access: Access, control: Callable[[], Controller], comment: str
) -> None:
    running = {vmid for vmid, guest in cluster.state()["guests"].items() if guest["status"] == "running"}
    access.writer().post(
        "/pools", poolid="maintenance-tour", comment=f"qemu_scheduler.proxmox maintains nodes: {comment}"
    )

    tour = Tour(cluster, control())
    tour.run()

    assert sorted(tour.maintained) == ["pve1", "pve2"]
    assert_nothing_is_left(cluster, running)
