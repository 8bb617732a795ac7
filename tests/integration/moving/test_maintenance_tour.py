# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for the maintenance of all nodes, what refuses it, and what it sets and takes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.build import AUTOMATION_ROLE
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.versions import both_versions

from .conftest import NODES, TIME_SCALE, container, description, writes

ADMIN = {"roles": {"Automation": [*AUTOMATION_ROLE, "Sys.Modify"]}}
CEPH = {"ceph": {"status": "HEALTH_OK", "checks": {}}}
NOT_THE_NODE = {"name": "vm10[1-4]"}


@pytest.fixture
def start(
    modules: ModuleServer, tmp_path: Path, version: str
) -> Iterator[Callable[..., tuple[SimulatedCluster, Controller]]]:
    """Start the cluster of these tests with changes, and a controller for it."""
    with ExitStack() as stack:

        def run(**changes: Any) -> tuple[SimulatedCluster, Controller]:
            found = {**description(), **ADMIN, **changes}
            cluster = stack.enter_context(SimulatedCluster.start(found, version=version, time_scale=TIME_SCALE))
            return cluster, Controller(modules, tmp_path / "controller", cluster.environment())

        yield run


Start = Callable[..., tuple[SimulatedCluster, Controller]]


def nodes(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of the cluster, some of them changed."""
    return [{**node, **changes.get(node["name"], {})} for node in description()["nodes"]]


def tour(controller: Controller, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = controller.run("maintenance_tour", **options)
    return result


def order(result: dict[str, Any]) -> list[str]:
    return [step["node"] for step in result["tour"]["steps"]]


@both_versions
def test_tour__is_planned_for_all_nodes_and_writes_nothing(start: Start) -> None:
    cluster, controller = start()

    result = tour(controller)

    assert not result.get("failed"), result["msg"]
    assert (sorted(order(result)), result["changed"]) == (list(NODES), False)
    # pve3 has no guests, those of pve2 and pve1 then go there and to each other.
    assert order(result)[0] == "pve3"
    assert result["total_moves"] <= 9
    assert [(step["votes"], step["votes_needed"]) for step in result["tour"]["steps"]] == [(2, 2)] * 3
    assert writes(cluster) == []


def test_refusal__tells_all_reasons_for_all_nodes_at_once(start: Start) -> None:
    health = {
        "status": "HEALTH_WARN",
        "checks": {"SLOW_OPS": {"severity": "HEALTH_WARN", "summary": {"message": "slow"}}},
    }
    pools = [{"pool_name": "vms", "size": 2, "min_size": 2}]
    guests = [*description()["guests"], {"vmid": 300, "name": "gpu", "node": "pve2", "status": "running", "memory": 512,
              "disks": {"scsi0": "shared:2"}, "config": {"hostpci0": "0000:01:00.0"}}]  # fmt: skip
    changed = nodes(pve3={"online": False}, pve2={"dead_services": ["pvestatd"]})
    cluster, controller = start(nodes=changed, ceph=health, ceph_pools=pools, guests=[*guests, container()], roles={})

    result = tour(controller)

    assert (result["error_code"], writes(cluster)) == ("TourRefused", [])
    found = {(each["node"], each["name"]): each["why"] for each in result["refused"] if each["name"]}
    assert found.keys() == {
        ("", "ceph:SLOW_OPS"), ("", "ceph:pool"), ("pve3", "offline"), ("pve2", "service:pvestatd"),
        ("pve1", "quorum"), ("pve2", "quorum"),
    }  # fmt: skip
    assert found["pve1", "quorum"] == "without it, 1 of 3 votes are left, and 2 are needed, with pve3 offline"
    rest = [each["why"] for each in result["refused"] if not each["name"]]
    assert any(text.startswith("gpu (300): it uses devices of its node: hostpci0") for text in rest)
    assert any(text.startswith("ct110 (110): it is a running container") for text in rest)
    assert "this user lacks Sys.Modify on /" in rest
    assert all(each["cure"] for each in result["refused"])
    assert result["msg"].count("cure: ") == len(result["refused"])


def test_known_problems__are_accepted_by_name(start: Start) -> None:
    health = {
        "status": "HEALTH_WARN",
        "checks": {"SLOW_OPS": {"severity": "HEALTH_WARN", "summary": {"message": "slow"}}},
    }
    cluster, controller = start(ceph=health, nodes=nodes(pve2={"dead_services": ["pvestatd"]}))

    assert not tour(controller, accept=["ceph", "service:pvestatd"]).get("failed")
    assert [each["name"] for each in tour(controller, accept=["ceph"])["refused"]] == ["service:pvestatd"]
    health_now = controller.run("node_health_info", name=["pve2"], accept=["ceph:SLOW_OPS"])["nodes"][0]
    assert (health_now["problem_names"], health_now["accepted"]) == (
        ["service:pvestatd"],
        ["Ceph reports SLOW_OPS: slow"],
    )
    assert writes(cluster) == []


def test_quorum__counts_votes_and_the_qdevice_as_corosync_does(start: Start) -> None:
    two = [node for node in nodes() if node["name"] != "pve3"]
    _cluster, controller = start(nodes=two)
    assert {each["name"] for each in tour(controller)["refused"]} == {"quorum"}
    device = {"State": "Connected", "Algorithm": "Fifty-Fifty split", "Model": "Net"}
    _cluster, controller = start(nodes=two, qdevice=device)
    assert not tour(controller).get("failed")
    _cluster, controller = start(nodes=two, qdevice={**device, "State": "Connecting"})
    assert "with the QDevice not connected" in tour(controller)["refused"][0]["why"]


def test_nodes_share_a_turn__where_quorum_and_ceph_allow_it(start: Start, tmp_path: Path) -> None:
    four = {"nodes": [*nodes(), {"name": "pve4", "cores": 16, "memory": 16384, "updates": ["pve-manager"]}]}
    four["qdevice"] = {"State": "Connected", "Algorithm": "Fifty-Fifty split"}
    cluster, controller = start(**four)
    file = str(tmp_path / "tour.json")

    two = tour(controller, parallel_nodes=2, plan_file=file, needed=dict.fromkeys(("pve1", "pve2", "pve3"), "old"),
               only_if=["updates"])  # fmt: skip
    one = tour(controller)

    turns = [[step["node"], *step["beside"]] for step in two["tour"]["steps"]]
    assert list(map(len, turns)) == [2, 2]
    assert {name for names in turns for name in names} == {*NODES, "pve4"}
    assert [(step["votes"], step["votes_needed"]) for step in two["tour"]["steps"]] == [(3, 3)] * 2
    needs = [why for step in two["tour"]["steps"] for why in step["needs"]]
    assert "pve4: 1 package(s) have updates: pve-manager" in needs
    assert not any("beside" in step for step in one["tour"]["steps"])
    assert tour(controller, parallel_nodes=2, apply=file)["tour"]["steps"][0]["node"] == turns[0][0]
    assert "instead of" in tour(controller, apply=file)["msg"]
    assert tour(controller, parallel_nodes=0)["msg"].startswith("parallel_nodes: ")
    assert writes(cluster) == []

    for changes in ({**four, "qdevice": {}}, {**four, **CEPH}):
        _cluster, controller = start(**changes)
        alone = tour(controller, parallel_nodes=2)
        assert not alone.get("failed"), alone["msg"]
        assert [step.get("beside") for step in alone["tour"]["steps"]] == [None] * 4


def test_nodes_without_need__are_not_touched_and_are_named(start: Start) -> None:
    changed = nodes(pve1={"updates": ["pve-manager"]}, pve2={"kernels": ["6.14.11-1-pve"]})
    _cluster, controller = start(nodes=changed)

    both = tour(controller, only_if=["updates", "kernel"])
    updates = tour(controller, only_if=["updates"])

    assert sorted(order(both)) == ["pve1", "pve2"]
    assert both["tour"]["skipped"] == {"pve3": "it needs no maintenance"}
    needs = {step["node"]: step["needs"] for step in both["tour"]["steps"]}
    assert needs["pve1"] == ["1 package(s) have updates: pve-manager"]
    assert needs["pve2"][0].endswith("and 6.14.11-1-pve is installed")
    assert order(updates) == ["pve1"]
    assert order(tour(controller, name=["pve3"], only_if=["kernel"])) == []
    told = tour(controller, needed={"pve1": "False", "pve2": "  disk\nfails ", "pve3": True})
    assert {step["node"]: step["needs"] for step in told["tour"]["steps"]} == {
        "pve2": ["disk fails"], "pve3": ["the task says that it needs maintenance"],
    }  # fmt: skip
    assert order(tour(controller, needed={}, only_if=["updates"])) == ["pve1"]
    assert tour(controller, needed={"pve9": True})["msg"].startswith("needed[0]: 'pve9' is not a node of the cluster")
    assert tour(controller, needed={"pve1": [1]})["msg"].startswith("needed: [1] for pve1, expected a reason")


def test_guests_that_are_not_moved__are_those_that_the_task_names(start: Start) -> None:
    cluster, controller = start()
    cluster.set_guest(101, config={"hostpci0": "0000:01:00.0"})
    choices = [{"status": "stopped", "action": "stay"}, {"immovable": True, "action": "shut_down"}]

    result = tour(controller, guests=choices)

    step = next(step for step in result["tour"]["steps"] if step["node"] == "pve1")
    assert (step["shut_down"], step["stay"]) == ([101], [105])
    assert not {101, 105} & {move["vmid"] for move in step["moves"]}
    assert result["names"] == {"101": "vm101", "105": "vm105"}
    # A lock ends, and the guest could not be shut down with it either.
    cluster.set_guest(102, config={"lock": "backup"})
    locked = tour(controller, guests=choices)
    assert [each["why"] for each in locked["refused"]] == ["vm102 (102): it is locked (backup)"]
    refused = tour(controller, guests=[{"action": "stay"}])
    assert refused["msg"].startswith("guests[0]: is empty and would concern all guests, expected one or more of vmid")


def test_guest_that_others_have_just_moved__does_not_refuse_the_tour(start: Start) -> None:
    """The list of the cluster shows it on its old node, of which its config has left."""
    cluster, controller = start()
    gone = "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist"
    cluster.fault(method="GET", path="/pve1/qemu/101/migrate$", status=500, message=gone, count=1)

    result = tour(
        controller, guests=[{"status": "stopped", "action": "stay"}, {"immovable": True, "action": "shut_down"}]
    )

    step = next(step for step in result["tour"]["steps"] if step["node"] == "pve1")
    assert result["refused"] == []
    assert 101 in {move["vmid"] for move in step["moves"]}
    assert step["shut_down"] == []


def test_guest_that_moves_only_with_a_locked_one__is_not_shut_down_for_that(start: Start) -> None:
    """The lock ends, and the HA manager brings both to one node then."""
    pair = {"rule": "pair", "type": "resource-affinity", "affinity": "positive", "resources": "vm:101,vm:201"}
    ha = {"resources": [{"sid": "vm:101", "state": "started"}, {"sid": "vm:201", "state": "started"}], "rules": [pair]}
    guests = [
        {**each, "config": {"lock": "backup"}} if each["vmid"] == 201 else each for each in description()["guests"]
    ]
    cluster, controller = start(ha=ha, guests=guests)

    cluster.advance(60)
    result = tour(controller, name=["pve1"], guests=[{"immovable": True, "action": "shut_down"}])

    assert [each["why"] for each in result["refused"]] == ["vm101 (101): it moves only with 201: it is locked (backup)"]


def test_settings__are_recorded_before_they_are_made_and_taken_back(start: Start) -> None:
    cluster, controller = start(**CEPH, options={"crs": {"ha": "static", "ha-auto-rebalance": 1}})
    cluster.set_guest(101, config={"startup": "order=1"})

    def step(state: str, **options: Any) -> dict[str, Any]:
        result = tour(controller, state=state, **options)
        assert not result.get("failed"), result["msg"]
        return result

    step("begun", name=["pve1"])
    assert cluster.state()["options"]["crs"] == {"ha": "static", "ha-auto-rebalance": 0}
    still = tour(controller, state="prepared", name=["pve1"], shut_down=[101], may_run=[102])
    assert (still["error_code"], still["error_details"]["guests"]) == ("GoalsNotReached", [103, 104, 106])
    assert cluster.state()["ceph_flags"] == []
    off = step("prepared", name=["pve1"], shut_down=[101, 102], may_run=[103, 104, 106], shutdown={"force": True})
    # The one without an order is shut down first.
    assert (off["off"], off["record"]["off"], cluster.state()["ceph_flags"]) == (
        [102, 101],
        {"pve1": [101, 102]},
        ["noout"],
    )
    assert [cluster.state()["guests"][vmid]["status"] for vmid in (101, 102, 103)] == ["stopped", "stopped", "running"]
    recorded = step("recorded")
    assert (recorded["changed"], recorded["record"]["begun"], recorded["record"]["set"]) == (
        False, ["pve1"], ["ha-auto-rebalance", "noout"],
    )  # fmt: skip
    back = step("finished", name=["pve1"])
    assert (back["started"], back["record"]["begun"], sorted(back["record"]["done"])) == ([101, 102], [], ["pve1"])
    assert cluster.state()["ceph_flags"] == []
    assert "pve1" not in order(tour(controller))
    assert "pve1" in order(tour(controller, resume=0))
    step("ended")
    state = cluster.state()
    assert (state["options"]["crs"], state["pools"]) == ({"ha": "static", "ha-auto-rebalance": 1}, {})
    assert all(state["guests"][vmid]["status"] == "running" for vmid in (101, 102))


def test_resource_that_ha_brings_back__leaves_a_node_that_is_in_ha_maintenance(start: Start) -> None:
    rule = {"rule": "home", "type": "node-affinity", "resources": "vm:101", "nodes": "pve1:2,pve2:1"}
    ha = {"resources": [{"sid": "vm:101", "state": "started"}], "rules": [rule]}
    cluster, controller = start(ha=ha, timing={"maintenance_end_seconds": 9000})

    refused = tour(controller, name=["pve1"])
    planned = tour(controller, name=["pve1"], ha_maintenance=True)

    assert [each["why"][:12] for each in refused["refused"]] == ["vm101 (101):"]
    assert {move["vmid"]: move["to"] for move in planned["tour"]["steps"][0]["moves"]}[101] == "pve2"
    begun = tour(controller, state="begun", name=["pve1"], ha_maintenance=True)
    assert begun["record"]["ha_maintenance"] == ["pve1"]
    early = tour(controller, state="entered", name=["pve1"], timeout=1)
    assert (early["error_code"], early["msg"].split(";")[0]) == (
        "TaskTimeout", "pve1 is not in HA maintenance after 1 s",
    )  # fmt: skip
    cluster.set_node("pve1", maintenance=True)
    assert not tour(controller, state="entered", name=["pve1"]).get("failed")
    cluster.set_node("pve1", maintenance=False, known=False)
    late = tour(controller, state="left", name=["pve1"], timeout=1)
    assert (late["error_code"], late["msg"].split(";")[0]) == (
        "TaskTimeout", "pve1 is still in HA maintenance after 1 s",
    )  # fmt: skip
    cluster.advance(9000)
    assert tour(controller, state="left", name=["pve1"])["record"]["ha_maintenance"] == []
    # One that an administrator has put into maintenance stays in it.
    cluster.set_node("pve2", maintenance=True)
    assert tour(controller, state="begun", name=["pve2"], ha_maintenance=True)["record"]["ha_maintenance"] == []


def test_agents__that_answered_before_must_answer_again(start: Start) -> None:
    _cluster, controller = start()
    lacking = tour(controller, agents=True)["refused"]
    assert [each["why"] for each in lacking] == ["this user lacks VM.GuestAgent.Audit on /vms"]
    roles = {"Automation": [*ADMIN["roles"]["Automation"], "VM.GuestAgent.Audit"]}
    cluster, controller = start(roles=roles)
    assert not tour(controller, agents=True).get("failed")
    for vmid in (101, 102):
        cluster.set_guest(vmid, config={"agent": "1"})
    cluster.set_guest(102, agent={})
    cluster.advance(60)

    tour(controller, state="begun", name=["pve1"], agents=True)
    assert not tour(controller, state="finished", name=["pve1"], timeout=1).get("failed")
    tour(controller, state="begun", name=["pve1"], agents=True)
    cluster.set_guest(101, agent={})
    silent = tour(controller, state="finished", name=["pve1"], timeout=1)

    assert (silent["error_code"], "vm101 (101); see to these guests" in silent["msg"]) == ("GoalsNotReached", True)
    # The node is done: the next run goes on with the others, and does not look at these agents again.
    again = tour(controller, state="recorded")["record"]
    assert (again["begun"], list(again["done"])) == ([], ["pve1"])


def test_backup_job_that_begins_soon__refuses_the_tour(start: Start) -> None:
    soon, later = time.time() + 3600, time.time() + 86400
    jobs = [{"id": "nightly", "all": 1, "next-run": int(soon)}, {"id": "weekly", "all": 1, "next-run": int(later)}]
    _cluster, controller = start(backup_jobs=jobs)

    assert not tour(controller).get("failed")
    refused = tour(controller, backup_window=8)
    assert [each["name"] for each in refused["refused"]] == ["backup:nightly"]
    assert not tour(controller, backup_window=8, accept=["backup"]).get("failed")


def test_settings_of_others__stay_and_a_guest_under_the_same_vmid_is_not_started(start: Start) -> None:
    cluster, controller = start(**CEPH)
    controller.run("ceph_flag", name="noout")
    tour(controller, state="begun", name=["pve1"])
    others = [102, 103, 104, 106]
    tour(controller, state="prepared", name=["pve1"], shut_down=[101], may_run=others, shutdown={"force": True})
    assert cluster.state()["guests"][101]["status"] == "stopped"
    cluster.remove_guest(101)
    cluster.add_guest(vmid=101, name="vm101", node="pve1", memory=512, status="stopped", disks={"scsi0": "shared:2"})

    result = tour(controller, state="finished", name=["pve1"])
    tour(controller, state="ended")

    assert (result["started"], cluster.state()["guests"][101]["status"]) == ([], "stopped")
    assert (cluster.state()["ceph_flags"], cluster.state()["pools"]) == (["noout"], {})


def test_guest_that_runs_again__leaves_its_node_although_the_record_says_that_it_is_off(start: Start) -> None:
    cluster, controller = start()
    tour(controller, state="begun", name=["pve1"])
    others = [102, 103, 104, 106]
    tour(controller, state="prepared", name=["pve1"], shut_down=[101], may_run=others, shutdown={"force": True})

    def staying() -> tuple[list[int], list[int]]:
        step = next(step for step in tour(controller)["tour"]["steps"] if step["node"] == "pve1")
        return step["stay"], [move["vmid"] for move in step["moves"]]

    assert staying()[0] == [101]
    # Its owner does not wait for the end of the tour, or somebody else has got the VMID.
    cluster.set_guest(101, status="running")

    stay, moves = staying()

    assert (stay, 101 in moves) == ([], True)


def test_node_whose_maintenance_failed__is_left_alone_by_the_tour_of_another(start: Start) -> None:
    cluster, controller = start()
    tour(controller, state="begun", name=["pve1"])
    tour(
        controller,
        state="prepared",
        name=["pve1"],
        shut_down=[101],
        may_run=[102, 103, 104, 106],
        shutdown={"force": True},
    )

    assert tour(controller, name=["pve2"])["unfinished"] == []
    tour(controller, state="begun", name=["pve2"])
    tour(controller, state="finished", name=["pve2"])
    ended = tour(controller, state="ended")

    record = ended["record"]
    assert (record["begun"], record["done"], record["off"]) == (["pve1"], {}, {"pve1": [101]})
    assert cluster.state()["guests"][101]["status"] == "stopped"
    assert any("the maintenance of pve1 has begun and not ended" in text for text in ended["warnings"])


def test_guest_under_a_vmid_of_the_tour__is_not_shut_down_and_nothing_is_done_to_its_node(start: Start) -> None:
    cluster, controller = start(**CEPH)
    guests = [{"vmid": [101], "action": "shut_down"}, {"vmid": [102], "action": "stay"}]
    planned = tour(controller, name=["pve1"], guests=guests)["tour"]
    rest = {"shut_down": [101], "may_run": [102, 103, 104, 106], "shutdown": {"force": True}, "apply": planned}
    tour(controller, state="begun", name=["pve1"])
    for vmid in (101, 102):
        cluster.remove_guest(vmid)
        payroll = {"name": "payroll", "status": "running", "memory": 512, "disks": {"scsi0": "shared:2"}}
        cluster.add_guest(vmid=vmid, node="pve1", **payroll)

        result = tour(controller, state="prepared", name=["pve1"], **rest)

        assert result["error_code"] == "GoalsNotReached"
        assert f"pve1 still has guests that run: payroll ({vmid}); not proved to be those of the plan" in result["msg"]
        assert (cluster.state()["guests"][vmid]["status"], cluster.state()["ceph_flags"]) == ("running", [])
        cluster.set_guest(vmid, status="stopped")


def test_plan__is_kept_and_applied_only_to_the_same_tour(start: Start, tmp_path: Path) -> None:
    cluster, controller = start()
    file = str(tmp_path / "tour.json")
    planned = tour(controller, plan_file=file)

    assert tour(controller, apply=file)["tour"]["steps"] == planned["tour"]["steps"]
    cluster.add_guest(vmid=400, name="new", node="pve2", memory=512, status="running", disks={"scsi0": "shared:2"})
    cluster.advance(30)
    stale = tour(controller, apply=file)
    assert stale["error_code"] == "PlanStale"
    assert "guest 400 (new) would leave pve2, which was not planned" in stale["error_details"]["changed"]
    changed = {**planned["tour"], "goal": "x"}
    assert "digest: does not match" in tour(controller, apply=changed)["msg"]
    assert "steps[0].node" in tour(controller, apply={**changed, "steps": [{**changed["steps"][0], "node": 5}]})["msg"]
