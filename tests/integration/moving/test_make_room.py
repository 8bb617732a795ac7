# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that fit nowhere until other guests have moved."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.playbook import PlayRun, run_playbook, run_tasks
from support.versions import both_versions
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import moves_table

from .conftest import TIME_SCALE, description, on, writes

SIZES = {"pve1": {101: 5, 102: 4}, "pve2": {201: 6, 202: 4}, "pve3": {301: 10}}
"""GiB of memory of the running VMs, on nodes of 16 GiB: 7, 6 and 6 GiB are left."""

BIG = {"name": "big", "memory": 8192, "scsi": {"scsi0": "shared:8"}, "state": "started"}
ROOM: dict[str, Any] = {"make_room": {}}


def lab(**changes: dict[str, Any]) -> dict[str, Any]:
    """The cluster; changes are to the config of guests, by vmVMID."""
    guests = [
        {"vmid": vmid, "node": node, "name": f"vm{vmid}", "cores": 1, "memory": gib * 1024, "status": "running",
         "disks": {"scsi0": "shared:8"}, **changes.get(f"vm{vmid}", {})}
        for node, sizes in SIZES.items() for vmid, gib in sizes.items()
    ]  # fmt: skip
    return {**description(), "guests": guests}


@pytest.fixture
def cluster(version: str) -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start(lab(), version=version, time_scale=TIME_SCALE) as running:
        yield running


def posts(cluster: SimulatedCluster) -> list[str]:
    """What was begun, in order: migrations and creations."""
    return [call.rpartition("/nodes/")[2] for call in writes(cluster) if call.startswith("POST")]


@both_versions
def test_make_room__moves_guests_and_then_creates_the_vm(cluster: SimulatedCluster, controller: Controller) -> None:
    refused = controller.run("qemu_schedule", **BIG)
    planned = controller.run("qemu_schedule", check=True, **BIG, **ROOM)
    assert not writes(cluster)
    made = controller.run("qemu_schedule", **BIG, **ROOM)
    again = controller.run("qemu_schedule", **BIG, **ROOM)

    way = 'it may fit after 1 move(s), which make_room checks and makes: VM "vm102" (102) from pve1 to '
    assert (refused["error_code"], way in refused["msg"]) == ("NoNodesAvailable", True), refused["msg"]
    assert not planned.get("failed"), planned["msg"]
    (move,) = planned["plan"]["moves"]
    assert (move["vmid"], move["from"], move["why"]) == (102, "pve1", "makes room on pve1 for big")
    assert (planned["vms"][0]["node"], planned["moves"], planned["changed"]) == ("pve1", [], True)
    assert moves_table(planned)[0] == "place 1 VM(s): 1 move(s), 4.0 GiB"
    assert moves_table(planned["vm_plan"]) == moves_table(planned)
    assert not made.get("failed"), made["msg"]
    assert [(m["vmid"], m["outcome"]) for m in made["moves"]] == [(102, "moved")]
    assert (made["vms"][0]["node"], made["vms"][0]["vmid"]) == ("pve1", planned["vms"][0]["vmid"])
    assert made["diff"][0]["before"] == {"102 vm102": "pve1"}
    assert posts(cluster)[:2] == ["pve1/qemu/102/migrate", "pve1/qemu"]
    assert (again["changed"], "moves" in again) == (False, False)


@pytest.mark.parametrize("is_complete", [True, False])
def test_make_room__moves_a_vm_that_was_created_a_moment_ago_and_none_that_is_being_created(
    version: str, modules: ModuleServer, tmp_path: Path, is_complete: bool
) -> None:
    guests = [guest for guest in lab()["guests"] if guest["vmid"] != 102]
    new = {"name": "new", "node": "pve1", "memory": 4096, "scsi": {"scsi0": "shared:8"}, "state": "started"}
    late = {**lab(), "guests": guests, "tick": 3600}
    with SimulatedCluster.start(late, version=version, time_scale=TIME_SCALE) as cluster:
        controller = Controller(modules, tmp_path, cluster.environment())
        if not is_complete:
            cluster.fault(method="POST", path="/start$", task_held=True, count=1)
        creating = controller.start("qemu_schedule", **new)
        until(lambda: not creating.is_running if is_complete else len(posts(cluster)) == 2)
        result = controller.run("qemu_schedule", **BIG, **ROOM)
        creating.kill() if not is_complete else creating.result()

    assert not result.get("failed"), result["msg"]
    assert [move["name"] for move in result["moves"]] == ["new" if is_complete else "vm202"]


def test_make_room__moves_nothing_where_that_does_not_help(cluster: SimulatedCluster, controller: Controller) -> None:
    large = {"name": "large", "memory": 20480}
    too_many = {"vms": [{**BIG, "memory": 16384}, {"name": "small", "memory": 4096}]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({**too_many, **ROOM}, "make_room: no moves make it fit"),
        ({**BIG, "make_room": {"max_moves": 0}}, "make_room: no moves make it fit within max_moves"),
        ({**BIG, "make_room": {"max_transfer": 3.9}}, "within max_transfer"),
        ({**BIG, "make_room": {}, "search_time": 0.00001}, "within search_time"),
        ({"vms": [BIG, large], **ROOM}, "large"),
        ({**BIG, "make_room": {"max_moves": -1}}, "make_room.max_moves: -1 is not possible, expected 0 to 1000000000"),
        (too_many, "3 node(s) would exceed the memory overcommit ratio 1.0"),
    ]
    for options, message in cases:
        result = controller.run("qemu_schedule", **options)
        assert result.get("failed"), options
        assert message in result["msg"], result["msg"]
        assert "fit after" not in result["msg"]
        assert result.keys().isdisjoint({"plan", "moves"})
    assert not writes(cluster)


def test_make_room__serves_the_others_where_not_all_are_needed(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    vms = [{**BIG, "name": "large", "memory": 20480}, BIG, {"name": "small", "memory": 4096}]
    result = controller.run("qemu_schedule", vms=vms, all_or_nothing=False, **ROOM)

    assert [vm["action"] for vm in result["vms"]] == ["none", "create", "create"], result["msg"]
    assert [move["outcome"] for move in result["moves"]] == ["moved"]
    assert result["error_code"] == "NoNodesAvailable"


def test_make_room__keeps_the_room_from_others_and_is_completed_by_the_next_run(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.fault(method="POST", path="/migrate$", task_held=True, count=1)
    running = controller.start("qemu_schedule", **BIG, **ROOM)
    until(lambda: posts(cluster))
    others = controller.run("qemu_schedule", name="other", memory=2048, node="pve1")
    running.interrupt(signal.SIGINT)
    cluster.release()
    result = running.result()

    assert "would exceed the memory overcommit ratio" in others["msg"]
    assert result["error_code"] == "Interrupted"
    assert [move["vmid"] for move in result["moves"]] == [102]
    assert len(posts(cluster)) == 1
    until(lambda: 102 not in on(cluster, "pve1"))
    cluster.advance(30)
    assert controller.schedule(**BIG, **ROOM)["vms"][0]["action"] == "create"


# --- plans that are kept ---

TWO = {"vms": [BIG, {"name": "vm102", "cores": 2, "update": True}]}
"""A new VM, and the guest that has to make room for it."""


def plan_of_two(controller: Controller) -> dict[str, Any]:
    """The plan of both, from check mode."""
    plan: dict[str, Any] = controller.schedule(check=True, **TWO, **ROOM)["vm_plan"]
    return plan


@both_versions
def test_plan__contains_the_moves_and_is_carried_out_exactly(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    checked = controller.schedule(check=True, **TWO, **ROOM, plan_file=str(file))
    plan = json.loads(file.read_text(encoding="utf-8"))
    assert not writes(cluster)
    (move,) = plan["moves"]
    # Anybody who decides again finds room without a move.
    cluster.remove_guest(201)
    cluster.advance(30)

    result = controller.schedule(**TWO, **ROOM, apply=str(file))

    assert (move["vmid"], move["from"], plan["vms"][0]["node"], plan["vms"][0]["after"]) == (102, "pve1", "pve1", [1])
    assert (plan["vms"][1]["node"], plan["vms"][1]["actions"]) == (move["to"], ["update"])
    assert checked["vm_plan"] == result["vm_plan"] == plan
    assert checked["plan"] == result["plan"]
    assert [(each["vmid"], each["to"], each["outcome"]) for each in result["moves"]] == [(102, move["to"], "moved")]
    assert posts(cluster)[0] == "pve1/qemu/102/migrate"
    assert any(call.endswith(f"/nodes/{move['to']}/qemu/102/config") for call in writes(cluster))
    assert controller.schedule(**TWO, **ROOM, apply=plan)["changed"] is False


def test_plan__with_moves_passes_through_the_role_and_its_statistic(cluster: SimulatedCluster, tmp_path: Path) -> None:
    variables = {"qemu_vms": [BIG], "qemu_options": ROOM}
    page = tmp_path / "plan.html"

    def play(name: str, **more: Any) -> PlayRun:
        extra = json.dumps({**variables, **more})
        run = run_playbook(tmp_path, f"qemu_scheduler.proxmox.{name}", cluster.environment(), "-e", extra)
        assert run.code == 0, run.output
        return run

    plan = play("plan", provision_page=str(page))
    kept = plan.of("qemu_scheduler.proxmox.provision : Set the statistics")["ansible_stats"]["data"]
    play("provision", provision_apply=kept["qemu_scheduler_plan"])

    assert "place 1 VM(s): 1 move(s), 4.0 GiB" in plan.output
    assert "makes room on pve1 for big" in page.read_text(encoding="utf-8")
    assert posts(cluster)[:2] == ["pve1/qemu/102/migrate", "pve1/qemu"]


def test_plan__of_a_run_contains_the_moves_that_it_makes(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    result = controller.schedule(**BIG, **ROOM, plan_file=str(file))

    assert json.loads(file.read_text(encoding="utf-8")) == result["vm_plan"]
    assert [each["id"] for each in result["moves"]] == [each["id"] for each in result["vm_plan"]["moves"]]


def test_plan__with_moves_is_refused_where_the_task_permits_none(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    result = controller.fail("InvalidRequest", **TWO, apply=plan_of_two(controller))

    assert "this plan moves guests, expected a task with make_room" in result["msg"]
    assert not writes(cluster)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("moved", "guest 102 (vm102) is on {other} instead of pve1"),
        ("stopped", "guest 102 (vm102) was stopped"),
        ("gone", "guest 102 (vm102) is gone"),
        ("room", "node {target} has"),
        ("lost", "node {target} is offline"),
        ("taken", "would exceed the memory overcommit ratio"),
    ],
)
def test_plan__that_is_stale_says_what_changed_before_anything_is_written(
    cluster: SimulatedCluster, controller: Controller, change: str, message: str
) -> None:
    plan = plan_of_two(controller)
    target = plan["moves"][0]["to"]
    (other,) = {"pve2", "pve3"} - {target}
    large = {"vmid": 700, "name": "other", "cores": 1, "memory": 5120, "status": "running"}
    if change in ("moved", "gone"):
        cluster.remove_guest(102)
    if change == "moved":
        cluster.add_guest(**{**large, "vmid": 102, "name": "vm102", "memory": 4096}, node=other)
    elif change == "stopped":
        cluster.set_guest(102, status="stopped")
    elif change == "room":
        cluster.add_guest(**large, node=target)
    elif change == "lost":
        cluster.set_node(target, online=False)
    elif change == "taken":
        cluster.add_guest(**large, node="pve1")
    cluster.advance(30)

    result = controller.fail("PlanStale", **TWO, **ROOM, apply=plan)

    assert message.format(other=other, target=target) in result["msg"], result["msg"]
    assert result["msg"].endswith("nothing was written")
    assert not writes(cluster)


@both_versions
def test_plan__that_was_killed_is_completed_by_applying_it_again(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    plan = plan_of_two(controller)
    cluster.fault(method="POST", path="/migrate$", task_held=True, count=1)
    running = controller.start("qemu_schedule", **TWO, **ROOM, apply=plan)
    until(lambda: any(r["method"] == "GET" and "qmigrate" in r["path"] for r in cluster.requests()))
    running.kill()
    cluster.release()

    result = controller.schedule(**TWO, **ROOM, apply=plan)

    assert [vm["actions"] for vm in result["vms"]] == [["create", "start"], ["update"]]
    assert [call for call in posts(cluster) if call.endswith("/migrate")] == ["pve1/qemu/102/migrate"]
    assert result["moves"] == []


def test_plan__whose_move_was_killed_before_proxmox_took_it_is_completed_by_applying_it_again(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    plan = plan_of_two(controller)
    cluster.fault(method="POST", path="/migrate$", hang=True, count=1)
    running = controller.start("qemu_schedule", **TWO, **ROOM, apply=plan)
    until(lambda: posts(cluster))
    running.kill()

    # Its target has room for the guest once.
    result = controller.schedule(**TWO, **ROOM, apply=plan)

    assert [each["outcome"] for each in result["moves"]] == ["moved"]
    assert on(cluster, "pve1") == {101, result["vms"][0]["vmid"]}


def test_plan__whose_move_fails_creates_nothing_and_is_completed_later(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    plan = plan_of_two(controller)
    cluster.fault(method="POST", path="/migrate$", task_error="migration aborted", count=1)
    result = controller.fail("MoveFailed", **TWO, **ROOM, apply=plan)
    assert len(posts(cluster)) == 1
    assert [each["outcome"] for each in result["moves"]] == ["failed"]

    again = controller.schedule(**TWO, **ROOM, apply=plan)

    assert [each["outcome"] for each in again["moves"]] == ["moved"]


def test_plan__whose_move_fails_is_completed_by_another_try_of_the_same_process(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    cluster.fault(method="POST", path="/migrate$", task_error="migration aborted", count=1)
    options = {**TWO, **ROOM, "apply": plan_of_two(controller)}
    tries = {"register": "run", "until": "run is not failed", "retries": 1, "delay": 0}
    task = {"name": "apply", "qemu_scheduler.proxmox.qemu_schedule": options, **tries}

    run = run_tasks(tmp_path / "play", [task], cluster.environment())

    assert run.code == 0, run.output
    assert run.last["attempts"] == 2
    assert [vm["actions"] for vm in run.last["vms"]] == [["create", "start"], ["update"]]


def test_make_room__reserves_nothing_any_more_where_the_cluster_cannot_be_read_after_the_moves(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    plan = plan_of_two(controller)
    cluster.fault(method="POST", path="/migrate$", task_held=True)
    running = controller.start("qemu_schedule", **TWO, **ROOM, apply=plan)
    until(lambda: posts(cluster))
    cluster.fault(method="GET", path="/cluster/resources$", status=403, message="no reading today")
    cluster.release()

    result = running.result()

    assert (result["error_code"], result["changed"]) == ("PermissionDenied", True)
    with closing(sqlite3.connect(controller.folder / "state/qemu_scheduler/reservations.db")) as ledger:
        reserved = ledger.execute("SELECT vmid, phase FROM qemu_scheduler_reservations").fetchall()
    assert reserved == [(102, "created")], "the guest that has moved"


def test_make_room__says_which_move_failed(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.fault(method="POST", path="/migrate$", task_error="migration aborted")
    result = controller.run("qemu_schedule", **BIG, **ROOM)

    assert result["error_code"] == "NoNodesAvailable"
    assert "make_room: VM " in result["msg"]
    assert "could not be moved from" in result["msg"]
    assert not [call for call in posts(cluster) if call.endswith("/qemu")]
