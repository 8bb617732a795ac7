# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining nodes of a simulated cluster, undisturbed and disturbed in every way."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.playbook import run_tasks
from support.versions import both_versions
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access

from .conftest import NODES, TIME_SCALE, VMS, container, description, on, writes

DRAIN = {"name": ["pve1"]}
MIGRATIONS = "/(qemu|lxc)/\\d+/migrate$"


def posts(cluster: SimulatedCluster) -> list[str]:
    return [call for call in writes(cluster) if call.endswith("/migrate")]


def drain(controller: Controller, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = controller.run("node_drain", **{**DRAIN, **options})
    return result


# --- undisturbed ---


def test_drain__empties_the_node_in_a_playbook_and_then_changes_nothing(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    task = {"name": "drain", "qemu_scheduler.proxmox.node_drain": {"name": "pve1"}}
    planned = run_tasks(tmp_path, [task], cluster.environment(), "--check", "--diff")
    assert planned.code == 0, planned.output
    assert not writes(cluster)

    run = run_tasks(tmp_path, [task, task], cluster.environment())
    assert run.code == 0, run.output
    first, again = (each.result for each in run.tasks)

    assert on(cluster, "pve1") == set()
    assert {m["vmid"] for m in first["moves"]} == {m["vmid"] for m in planned.last["plan"]["moves"]}
    assert (planned.last["changed"], first["changed"], again["changed"]) == (True, True, False)
    assert planned.last["diff"]["before"]["101 vm101"] == "pve1"


def test_drain__has_its_plan_proved_on_request(cluster: SimulatedCluster, controller: Controller) -> None:
    pytest.importorskip("highspy")
    plain = drain(controller, check=True)["plan"]
    assert (plain["optimal"], plain["moves_lower_bound"], plain["impossible"]) == (None, None, None)
    plan = drain(controller, check=True, prove=True)["plan"]
    assert plan["moves"] == plain["moves"]
    assert (plan["optimal"], plan["moves_lower_bound"], plan["impossible"]) == (True, len(plan["moves"]), False)


def test_drain__takes_four_requests_for_a_move_beside_the_polls(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    def paths() -> list[str]:
        return [r["path"] for r in cluster.requests(reset=True) if "/tasks/UPID" not in r["path"]]

    drain(controller, check=True)
    planned = paths()
    result = drain(controller)
    calls = paths()
    moves = result["moves"]
    assert len(planned) <= 2 * len(moves) + len(NODES) + 10
    # Beside the moves: whether each target can take connections, the mark of the node, and a last look at the cluster.
    targets = {move["to"] for move in moves}
    assert calls.count("/nodes/pve2/capabilities/qemu/migration") == 1
    assert len(calls) - len(planned) <= 4 * len(moves) + len(targets) + 2
    assert (planned.count("/cluster/tasks"), calls.count("/cluster/tasks")) == (1, 1)
    assert calls.count("/nodes/pve1/qemu/101/migrate") == 3
    # For the plan, and for the proof right before the move.
    assert calls.count("/nodes/pve1/qemu/101/config") == 2


def test_drain__of_an_empty_node_reads_no_node(cluster: SimulatedCluster, controller: Controller) -> None:
    drain(controller)
    cluster.advance(60)
    cluster.reset_requests()
    assert drain(controller)["changed"] is False
    assert not [r for r in cluster.requests() if r["path"].startswith("/nodes/")]


def test_drain__moves_as_many_at_once_as_it_may(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.fault(method="POST", path=MIGRATIONS, task_held=True)
    running = controller.start("node_drain", **DRAIN, parallel={"cluster": 4, "per_node_out": 3})
    until(lambda: len(posts(cluster)) == 3)
    running.interrupt(signal.SIGINT)
    cluster.release()
    running.result()

    assert len(posts(cluster)) == 3


def test_drain__keeps_new_vms_off_the_node_until_it_is_active(
    cluster: SimulatedCluster, controller: Controller, control: Callable[[], Controller]
) -> None:
    drain(controller)

    refused = control().run("qemu_schedule", name="new", memory=512, node="pve1")
    assert "pve1 was drained" in refused["msg"] or "were drained" in refused["msg"]
    assert drain(controller, state="active")["changed"]
    assert control().run("qemu_schedule", name="new", memory=512, node="pve1")["changed"]
    assert not drain(controller, state="active")["changed"]


@both_versions
def test_drain__restarts_containers_only_when_it_may(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.add_guest(**container())

    partly = drain(controller)
    assert partly["error_code"] == "GoalsNotReached"
    assert partly["stuck"] == [
        {
            "vmid": 110,
            "name": "ct110",
            "node": "pve1",
            "why": "it is a running container, which moves only by being restarted",
            "cure": "permit restarts of containers (containers: restart)",
        }
    ]
    assert on(cluster, "pve1") == {110}

    assert not drain(controller, containers="restart").get("failed")
    assert on(cluster, "pve1") == set()


@both_versions
def test_drain__follows_guests_of_the_ha_manager_until_they_arrive(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    controller.schedule(vmid=101, name="vm101", ha={"state": "started"}, update=True)
    cluster.advance(30)
    result = drain(controller)

    assert not result.get("failed"), result["msg"]
    assert [m["via"] for m in result["plan"]["moves"] if m["vmid"] == 101] == ["ha"]
    assert on(cluster, "pve1") == set()


def test_drain__names_what_stays_with_a_cure(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_guest(102, config={"ide2": "local:iso/boot.iso,media=cdrom"})
    planned = controller.run("node_drain", check=True, **DRAIN)
    result = drain(controller)

    assert planned["error_code"] == result["error_code"] == "GoalsNotReached"
    assert on(cluster, "pve1") == {102}
    assert [each["vmid"] for each in result["stuck"]] == [102]
    assert "vm102 (102) on pve1: ide2 holds the image local:iso/boot.iso" in result["msg"]
    assert "cure: eject it: set ide2 to none,media=cdrom" in result["msg"]


def test_drain__of_a_node_that_there_is_not(cluster: SimulatedCluster, controller: Controller) -> None:
    result = drain(controller, name=["pve9"])

    assert result["error_code"] == "InvalidRequest"
    assert result["msg"].startswith("name: 'pve9' is not a node; the cluster's nodes: pve1, pve2, pve3")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parallel": {"cluster": 0}}, "parallel.cluster: 0 is not possible"),
        ({"timeout": 0}, "timeout: 0 is not possible"),
        ({"max_transfer": -1.0}, "max_transfer: -1 is not possible"),
        ({"name": []}, "name: is empty"),
        ({"apply": "/nonexistent"}, "apply: cannot read '/nonexistent'"),
    ],
)
def test_drain__with_options_that_make_no_sense(
    cluster: SimulatedCluster, controller: Controller, options: dict[str, Any], message: str
) -> None:
    result = drain(controller, **options)

    assert (result["error_code"], result["msg"][: len(message)]) == ("InvalidRequest", message)
    assert not writes(cluster)


# --- kept plans ---


def test_plan_file__is_written_in_check_mode_and_carried_out_exactly(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    file = str(tmp_path / "plan.json")
    planned = controller.run("node_drain", check=True, **DRAIN, plan_file=file)
    assert json.loads(Path(file).read_text(encoding="utf-8")) == planned["plan"]
    assert not writes(cluster)

    result = drain(controller, apply=file)

    assert not result.get("failed"), result["msg"]
    assert result["plan"]["digest"] == planned["plan"]["digest"]
    assert [(m["vmid"], m["to"]) for m in result["moves"]] == [(m["vmid"], m["to"]) for m in planned["plan"]["moves"]]


def test_apply__fails_before_anything_is_written_when_the_cluster_changed(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    file = str(tmp_path / "plan.json")
    controller.run("node_drain", check=True, **DRAIN, plan_file=file)
    cluster.remove_guest(103)
    cluster.set_guest(104, status="stopped")
    cluster.advance(30)

    result = drain(controller, apply=file)

    assert result["error_code"] == "PlanStale"
    assert result["error_details"]["changed"] == ["guest 103 (vm103) is gone", "guest 104 (vm104) was stopped"]
    assert not writes(cluster)


@both_versions
def test_apply__goes_on_where_a_killed_run_has_left_the_plan(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    file = str(tmp_path / "plan.json")
    planned = controller.run("node_drain", check=True, **DRAIN, plan_file=file)["plan"]
    cluster.fault(method="POST", path=MIGRATIONS, task_held=True, after=1)
    running = controller.start("node_drain", **DRAIN, apply=file, parallel={"cluster": 1})
    until(lambda: len(posts(cluster)) == 2)
    running.kill()
    cluster.clear_faults()

    result = drain(controller, apply=file)

    assert not result.get("failed"), result["msg"]
    assert (on(cluster, "pve1"), result["plan"]) == (set(), planned)
    assert len(posts(cluster)) == len(planned["moves"])
    assert not drain(controller, apply=file)["changed"]


def test_apply__brings_guests_back_that_a_killed_run_has_not(cluster: SimulatedCluster, controller: Controller) -> None:
    before = on(cluster, "pve1")
    drain(controller)
    plan = controller.run("node_drain", check=True, **DRAIN, state="active")["plan"]
    drain(controller, state="active", max_moves=2)
    assert on(cluster, "pve1") < before

    result = drain(controller, state="active", apply=plan)

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == before


def test_apply__is_refused_for_other_nodes(cluster: SimulatedCluster, controller: Controller, tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")
    controller.run("node_drain", check=True, **DRAIN, plan_file=file)

    result = drain(controller, name=["pve2"], apply=file)

    assert result["msg"] == "apply: the plan is to drain pve1, but this task is to drain pve2"
    assert not writes(cluster)


# --- disturbed ---


def test_drain__plans_anew_after_a_move_that_failed(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.fault(method="POST", path="/qemu/101/migrate$", task_error="migration aborted", count=1)

    result = drain(controller)

    assert not result.get("failed"), result["msg"]
    first, second = [m for m in result["moves"] if m["vmid"] == 101]
    assert len({m["id"] for m in result["moves"]}) == len(result["moves"])
    assert (first["outcome"], first["error_code"], second["outcome"]) == ("failed", "MoveFailed", "moved")
    assert first["to"] != second["to"]
    assert on(cluster, "pve1") == set()


def test_drain__a_guest_whose_moves_all_fail_stays_and_is_named(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.fault(method="POST", path="/qemu/101/migrate$", task_error="migration aborted")

    result = drain(controller)

    assert result["error_code"] == "GoalsNotReached"
    assert on(cluster, "pve1") == {101}
    assert len([m for m in result["moves"] if m["vmid"] == 101]) == 2
    assert "migration aborted" in result["stuck"][0]["why"]


def test_drain__stops_after_a_failure_when_it_shall(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.fault(method="POST", path=MIGRATIONS, task_error="migration aborted")

    result = drain(controller, on_failure="stop", parallel={"cluster": 1})

    assert result["error_code"] == "MoveFailed"
    assert len(posts(cluster)) == 1


def test_drain__names_every_guest_that_stays_after_a_failure(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_guest(102, config={"ide2": "local:iso/boot.iso,media=cdrom"})
    cluster.fault(method="POST", path=MIGRATIONS, task_error="migration aborted")

    result = drain(controller, on_failure="stop", parallel={"cluster": 1})

    assert {each["vmid"] for each in result["stuck"]} == on(cluster, "pve1")
    failed, *_rest = [move["vmid"] for move in result["moves"]]
    why = {each["vmid"]: each["why"] for each in result["stuck"]}
    assert "migration aborted" in why.pop(failed)
    assert "ide2 holds the image" in why.pop(102)
    assert set(why.values()) == {"its move was not begun, as another one failed"}
    assert f"{len(why) + 2} guest(s) stay" in result["msg"]


def test_drain__that_can_plan_no_further_says_what_has_moved(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.fault(method="POST", path=MIGRATIONS, task_held=True)
    running = controller.start("node_drain", **DRAIN, parallel={"cluster": 1})
    until(lambda: posts(cluster))
    cluster.fault(method="GET", path="/cluster/resources$", status=403, message="no reading today")
    cluster.release()

    result = running.result()

    (moved,) = set(cluster.state()["guests"]) - {201} - on(cluster, "pve1")
    assert (result["error_code"], result["changed"]) == ("PermissionDenied", True)
    assert "no reading today" in result["msg"]
    assert [move["vmid"] for move in result["moves"] if move["outcome"] == "moved"] == [moved]
    assert f"{moved} vm{moved}" in result["diff"]["after"]


def test_drain__that_cannot_mark_all_nodes_has_changed_those_that_it_marked(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.fault(method="POST", path="/pools$", status=403, message="no pools today", after=1)

    result = drain(controller, name=["pve1", "pve2"])

    assert (result["error_code"], result["changed"], result["moves"]) == ("PermissionDenied", True, [])
    assert list(cluster.state()["pools"]) == ["drained-node-pve1"]


def test_drain__moves_guests_that_must_be_together_one_after_the_other(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    for vmid in (102, 103):
        cluster.set_guest(vmid, config={"tags": "plb_affinity_pair"})
    cluster.advance(30)

    result = drain(controller)

    assert not result.get("failed"), result["msg"]
    assert {move["outcome"] for move in result["moves"]} == {"moved"}
    assert on(cluster, "pve1") == set()
    assert len({move["to"] for move in result["moves"] if move["vmid"] in (102, 103)}) == 1


def test_drain__a_guest_that_is_started_meanwhile_is_planned_anew(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.fault(method="POST", path=MIGRATIONS, task_held=True, count=1)
    running = controller.start("node_drain", **DRAIN, parallel={"cluster": 1})
    until(lambda: posts(cluster))
    cluster.set_guest(105, status="running")
    cluster.release()
    result = running.result()

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == set()
    assert {m["outcome"] for m in result["moves"] if m["vmid"] == 105} == {"stale", "moved"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_drain__that_is_interrupted_starts_nothing_new_and_goes_on_when_run_again(
    cluster: SimulatedCluster, controller: Controller, number: signal.Signals
) -> None:
    cluster.fault(method="POST", path=MIGRATIONS, task_held=True, count=1)
    running = controller.start("node_drain", **DRAIN, parallel={"cluster": 1})
    until(lambda: posts(cluster))
    running.interrupt(number)
    cluster.release()
    result = running.result()

    assert result["error_code"] == "Interrupted"
    assert len(posts(cluster)) == 1
    cluster.clear_faults()
    assert not drain(controller).get("failed")
    assert on(cluster, "pve1") == set()


def test_drain__that_is_interrupted_between_two_marks_has_changed_one(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.fault(method="POST", path="/pools$", held=True, after=1)
    running = controller.start("node_drain", name=["pve1", "pve2"])
    until(lambda: len(writes(cluster)) == 2)
    running.interrupt(signal.SIGINT)
    cluster.release()

    result = running.result()

    assert (result["error_code"], result["changed"]) == ("Interrupted", True)
    assert result["msg"] == "interrupted after 0 moves; run again to go on"


def test_drain__that_is_interrupted_before_a_move_is_sent_does_not_say_that_it_continues(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.fault(method="GET", path="/qemu/101/migrate$", held=True, after=1)
    running = controller.start("node_drain", **DRAIN, parallel={"cluster": 1})
    until(lambda: sum(r["path"].endswith("/qemu/101/migrate") for r in cluster.requests()) == 2)
    running.interrupt(signal.SIGINT)
    cluster.release()

    result = running.result()

    assert not posts(cluster)
    assert (result["msg"], result["moves"]) == ("interrupted after 0 moves; run again to go on", [])
    with contextlib.closing(sqlite3.connect(controller.folder / "state/qemu_scheduler/reservations.db")) as ledger:
        assert not ledger.execute("SELECT * FROM qemu_scheduler_reservations").fetchall()


def test_drain__that_is_killed_goes_on_when_run_again(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.fault(method="POST", path=MIGRATIONS, task_seconds=20)
    running = controller.start("node_drain", **DRAIN)
    until(lambda: len(posts(cluster)) >= 2)
    running.kill()
    cluster.clear_faults()
    until(lambda: not any(guest["config"].get("lock") for guest in cluster.state()["guests"].values()))

    result = drain(controller)

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == set()


def test_drains__of_one_node_by_two_controllers_share_its_guests(
    cluster: SimulatedCluster, control: Callable[[], Controller], tmp_path: Path
) -> None:
    ledger = str(tmp_path / "ledger.db")
    running = [control().start("node_drain", **DRAIN, reservations=ledger) for _number in range(2)]
    results = [each.result() for each in running]

    assert [result.get("msg") for result in results] == [None, None]
    assert on(cluster, "pve1") == set()
    moved = [move["vmid"] for result in results for move in result["moves"] if move["outcome"] == "moved"]
    assert sorted(moved) == sorted(set(moved))


SLOW = 300
"""Seconds of the cluster that a migration takes, where another controller has to meet it under way."""


@both_versions
def test_drain__waits_for_the_moves_of_another_controller_and_then_ends_well(
    cluster: SimulatedCluster, control: Callable[[], Controller], tmp_path: Path
) -> None:
    """One knows of the other from the ledger, one from the tasks of the cluster alone."""
    ledger = str(tmp_path / "ledger.db")
    cluster.fault(method="POST", path=MIGRATIONS, task_seconds=SLOW, count=4)
    first = control().start("node_drain", **DRAIN, reservations=ledger, parallel={"per_node_out": 4})
    until(lambda: len(posts(cluster)) == 4)
    others = [control().start("node_drain", **DRAIN, reservations=ledger), control().start("node_drain", **DRAIN)]
    results = [first.result(), *(each.result() for each in others)]

    assert [result.get("msg") for result in results] == [None, None, None]
    assert [result["stuck"] for result in results] == [[], [], []]
    assert on(cluster, "pve1") == set()
    # Who does not share the ledger may begin the other two once more, and finds that somebody else was quicker.
    begun = Counter(int(call.split("/")[4]) for call in posts(cluster))
    assert [begun[vmid] for vmid in VMS] == [1] * len(VMS)


def test_drain__waits_for_a_migration_by_hand_and_no_longer_than_its_timeout(
    cluster: SimulatedCluster, controller: Controller, access: Access
) -> None:
    cluster.fault(method="POST", path="/101/migrate$", task_held=True)
    access.writer().post("/nodes/pve1/qemu/101/migrate", target="pve3", online=1)
    impatient = drain(controller, timeout=2)
    cluster.reset_requests()
    patient = controller.start("node_drain", **DRAIN)
    until(lambda: sum(r["path"] == "/cluster/tasks" for r in cluster.requests()) > 2)
    cluster.clear_faults()
    result = patient.result()

    assert impatient["error_code"] == "GoalsNotReached"
    assert impatient["stuck"] == [
        {
            "vmid": 101,
            "name": "vm101",
            "node": "pve1",
            "why": "it is being moved",
            "cure": "wait until that has ended",
        }
    ]
    assert (result.get("msg"), on(cluster, "pve1")) == (None, set())


def test_drain__does_not_wait_for_a_lock_that_a_dead_migration_left(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.set_guest(101, config={"lock": "migrate"})
    result = drain(controller)

    assert result["error_code"] == "GoalsNotReached"
    assert [(each["vmid"], each["why"]) for each in result["stuck"]] == [(101, "it is locked (migrate)")]
    assert on(cluster, "pve1") == {101}


def test_drain__moves_away_what_arrives_while_it_is_under_way(
    cluster: SimulatedCluster, control: Callable[[], Controller], tmp_path: Path
) -> None:
    """pve2 is drained while a guest is on its way there."""
    ledger = str(tmp_path / "ledger.db")
    cluster.set_node("pve3", online=False)
    cluster.advance(30)
    cluster.fault(method="POST", path=MIGRATIONS, task_seconds=SLOW, count=1)
    first = control().start("node_drain", **DRAIN, reservations=ledger, parallel={"cluster": 1}, max_moves=1)
    until(lambda: posts(cluster))
    cluster.set_node("pve3", online=True)
    cluster.advance(30)
    result = control().run("node_drain", name=["pve2"], reservations=ledger)
    first.result()

    assert (result.get("msg"), on(cluster, "pve2")) == (None, set())


def test_drain__whose_guest_leaves_although_its_move_failed_warns(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    """A move that the HA manager begins too late is one."""
    cluster.fault(method="POST", path="/qemu/101/migrate$", task_error="migration problems")
    cluster.fault(method="POST", path="/qemu/10[2-4]/migrate$", task_held=True)
    progress = tmp_path / "progress"
    running = controller.start("node_drain", **DRAIN, progress_file=str(progress), parallel={"cluster": 2})
    until(lambda: progress.exists() and '"failed"' in progress.read_text(encoding="utf-8"))
    cluster.remove_guest(101)
    cluster.release()
    result = running.result()

    assert not result.get("failed"), result["msg"]
    assert any("migration problems" in warning for warning in result["warnings"])


def test_drains__of_two_controllers_at_once_do_not_overfill_a_node(
    cluster: SimulatedCluster, control: Callable[[], Controller], tmp_path: Path
) -> None:
    """pve3 has room for the guests of one of them alone."""
    ledger = str(tmp_path / "ledger.db")
    for vmid in (202, 203, 204):
        cluster.add_guest(
            vmid=vmid,
            node="pve2",
            name=f"vm{vmid}",
            cores=1,
            memory=3072,
            status="running",
            disks={"scsi0": "shared:8"},
        )
    cluster.advance(30)
    one = control().start("node_drain", name=["pve1"], reservations=ledger)
    other = control().start("node_drain", name=["pve2"], reservations=ledger)
    results = [one.result(), other.result()]

    taken = Counter[str]()
    for guest in cluster.state()["guests"].values():
        taken[guest["node"]] += int(guest["config"].get("memory", 0)) if guest["status"] == "running" else 0
    assert max(taken.values()) <= 16384, taken
    assert any(result.get("error_code") for result in results)


def test_a_vm_that_is_created_during_a_drain__finds_the_room_that_is_left(
    cluster: SimulatedCluster, control: Callable[[], Controller], tmp_path: Path
) -> None:
    """A move under way counts on its target, for those who create as well."""
    ledger = str(tmp_path / "ledger.db")
    cluster.fault(method="POST", path=MIGRATIONS, task_held=True)
    draining = control().start("node_drain", **DRAIN, reservations=ledger, parallel={"per_node_out": 4})
    until(lambda: len(posts(cluster)) == 4)
    probe = control().run(
        "qemu_schedule", check=True, name="new", memory=12 * 1024, reservations=ledger, state="started"
    )
    draining.kill()

    assert probe["error_code"] == "NoNodesAvailable"
    assert set(VMS) <= on(cluster, "pve1")


# --- users with few privileges ---

MOVER = ("VM.Audit", "VM.Migrate", "Sys.Audit", "Datastore.Audit", "Pool.Allocate", "Pool.Audit")
SECRET = "33333333-3333-3333-3333-333333333333"
AS_MOVER = {"api_user": "mover@pve", "api_token_id": "tok", "api_token_secret": SECRET}


@pytest.fixture
def may(version: str) -> Iterator[Callable[..., SimulatedCluster]]:
    """Start a cluster whose user mover@pve has these privileges everywhere; vm107 has a network card."""
    networked = {"vmid": 107, "node": "pve1", "name": "vm107", "cores": 1, "memory": 1024, "status": "running"}
    with contextlib.ExitStack() as running:

        def start(*privileges: str) -> SimulatedCluster:
            cluster = description()
            cluster["guests"].append({**networked, "config": {"net0": "virtio,bridge=vmbr0"}})
            cluster["roles"] = {"Mover": list(privileges)}
            cluster["users"] = [{"name": "mover@pve"}]
            cluster["tokens"] = [{"id": "mover@pve!tok", "secret": SECRET, "privsep": False}]
            cluster["acl"] = [{"path": "/", "user": "mover@pve", "role": "Mover"}]
            return running.enter_context(SimulatedCluster.start(cluster, version=version, time_scale=TIME_SCALE))

        yield start


@both_versions
def test_drain__needs_no_privilege_to_see_bridges(
    may: Callable[..., SimulatedCluster], modules: ModuleServer, tmp_path: Path
) -> None:
    cluster = may(*MOVER)

    result = drain(Controller(modules, tmp_path, cluster.environment()), **AS_MOVER)

    assert (result.get("msg"), on(cluster, "pve1")) == (None, set())


@both_versions
def test_drain__of_guests_that_may_be_hidden_is_refused(
    may: Callable[..., SimulatedCluster], modules: ModuleServer, tmp_path: Path
) -> None:
    cluster = may(*(privilege for privilege in MOVER if privilege != "VM.Audit"))

    result = drain(Controller(modules, tmp_path, cluster.environment()), **AS_MOVER)

    assert result["error_code"] == "PermissionDenied"
    assert "guests that this user cannot see" in result["msg"]
    assert "grant VM.Audit on /vms" in result["msg"]
    assert writes(cluster) == []


# --- active again ---


@both_versions
def test_active__brings_the_guests_of_the_node_back(cluster: SimulatedCluster, controller: Controller) -> None:
    before = on(cluster, "pve1")
    drain(controller)
    assert on(cluster, "pve1") == set()

    result = drain(controller, state="active")

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == before
    assert not drain(controller, state="active")["changed"]


def test_active__brings_back_whom_any_of_several_drains_has_moved(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    before = on(cluster, "pve1")
    drain(controller)
    cluster.add_guest(vmid=150, name="late", node="pve1", memory=512)
    assert [move["vmid"] for move in drain(controller)["moves"]] == [150]

    drain(controller, state="active")

    assert on(cluster, "pve1") == before | {150}


def test_active__moves_no_guest_away_again_that_is_back(cluster: SimulatedCluster, controller: Controller) -> None:
    drain(controller)
    cluster.fault(method="POST", path="/103/migrate$", status=500, message="not now", count=1)

    result = drain(controller, state="active", rules=[{"type": "anti-affinity", "name": "vm10[12]"}])

    assert result["error_code"] == "GoalsNotReached", result
    assert len(on(cluster, "pve1") & {101, 102}) == 1
    assert {move["to"] for move in result["moves"] if move["outcome"] == "moved"} == {"pve1"}
    assert len(result["plan"]["stuck"]) == 1
