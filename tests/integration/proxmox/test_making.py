# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A decision is made true, once, or nothing is left behind."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    CollectionError,
    InvalidRequest,
    NotTheSameGuest,
    PermissionDenied,
    TaskFailed,
    TaskTimeout,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    Decision,
    HAIntent,
    Request,
    Template,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import (
    AnswerLost,
    NodeUnreachable,
    VMIDTaken,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.binder import Adjustment, Binder
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.identity import identity_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.making import (
    LeftBehind,
    NotStarted,
    Unknown,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import TaskFollower, Upid
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import ReservationLost

from .conftest import calls

CREATE = r"^/nodes/[^/]+/qemu$"
CLONE = r"/clone$"
TPL = Template(9000, "pve1", "tpl")


def decision(vmid: int = 200, name: str = "web", node: str = "pve1", running: bool = False) -> Decision:
    return Decision(Request(name=name, running=running), node, vmid)


def template(binder: Binder) -> Template:
    """The template, as it is now."""
    config = binder._session.get("/nodes/pve1/qemu/9000/config")
    return replace(TPL, identity=identity_of(config, "pve1"))


def params(decided: Decision, **options: t.Any) -> dict[str, t.Any]:
    named = {"name": decided.request.name} if decided.request.name else {}
    return {"vmid": decided.vmid, **named, "memory": "512", "scsi0": "local-lvm:4", **options}


def create(binder: Binder, decided: Decision | None = None, **options: t.Any) -> t.Any:
    decided = decided or decision()
    return binder.create(decided, params(decided, **options))


def clone(binder: Binder, decided: Decision | None = None, **adjustment: t.Any) -> t.Any:
    decided = decided or decision()
    return binder.clone(decided, template(binder), {"full": 1}, lambda config: Adjustment(**adjustment))


def make(binder: Binder, how: str) -> t.Any:
    return create(binder) if how == "create" else clone(binder)


@pytest.fixture(params=["create", "clone"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_many_vms__are_made_at_once_through_a_bad_connection(cluster, binder):
    for when in ("before", "after"):
        cluster.fault(method="POST", path=CREATE, after=3, count=4, drop=when)
    cluster.fault(method="GET", path="/status$", after=5, count=10, drop="after")
    cluster.fault(method="GET", path="/tasks", after=20, count=5, status=596)

    def one(number: int) -> int:
        return create(binder, decision(200 + number, f"vm{number}", f"pve{number % 3 + 1}")).vmid

    with ThreadPoolExecutor(max_workers=12) as threads:
        made = list(threads.map(one, range(24)))

    guests = cluster.state()["guests"]
    assert made == list(range(200, 224))
    assert {vmid: guests[vmid]["name"] for vmid in made} == {200 + number: f"vm{number}" for number in range(24)}
    assert cluster.state()["running_tasks"] == []


def test_create__costs_one_request_and_the_polls_of_its_task(cluster, binder):
    result = create(binder)

    assert (result.vmid, result.node, result.warnings) == (200, "pve1", ())
    assert calls(cluster) == ["POST /nodes/pve1/qemu"]
    assert cluster.state()["guests"][200]["config"]["memory"] == "512"


def test_create__a_started_vm_costs_one_request_more_and_the_proof_of_its_identity(cluster, binder):
    create(binder, decision(running=True))

    assert cluster.state()["guests"][200]["status"] == "running"
    assert calls(cluster) == [
        "POST /nodes/pve1/qemu",
        "GET /nodes/pve1/qemu/200/config",
        "GET /nodes/pve1/tasks",
        "POST /nodes/pve1/qemu/200/status/start",
    ]


def test_create__a_vm_that_runs_for_a_moment_only_is_told_and_kept(cluster, binder):
    bound = create(binder, decision(running=True), net0="virtio,bridge=nosuch")

    assert isinstance(bound, NotStarted)
    assert (bound.vmid, bound.node) == (200, "pve1")
    assert isinstance(bound.error, TaskFailed)
    assert "bridge 'nosuch' does not exist" in bound.error.message
    assert cluster.state()["guests"][200]["status"] == "stopped"


def test_imported_disks__are_grown_before_the_vm_runs(cluster, binder):
    decided = decision(running=True)
    options = params(decided, scsi0="local-lvm:0,import-from=local:import/debian.qcow2")

    binder.create(decided, options, resizes={"scsi0": 8 * GIB})

    assert "size=8G" in cluster.state()["guests"][200]["config"]["scsi0"]
    assert cluster.state()["guests"][200]["status"] == "running"
    asked = calls(cluster)
    assert asked.index("PUT /nodes/pve1/qemu/200/resize") < asked.index("POST /nodes/pve1/qemu/200/status/start")


@pytest.mark.parametrize("vmid", [100, 110, 101])
def test_vmid_of_another_guest__is_taken_and_that_guest_is_left_alone(cluster, binder, how, vmid):
    before = cluster.state()["guests"][vmid]

    with pytest.raises(VMIDTaken) as raised:
        create(binder, decision(vmid)) if how == "create" else clone(binder, decision(vmid))

    assert (raised.value.vmid, raised.value.code) == (vmid, "VMIDConflict")
    assert cluster.state()["guests"][vmid] == before


def test_vmid_that_was_taken_a_moment_before__is_taken(cluster, binder, how):
    cluster.fault(method="POST", path=CREATE if how == "create" else CLONE, vmid_taken=True)

    with pytest.raises(VMIDTaken):
        make(binder, how)
    assert cluster.state()["guests"][200]["name"] == "other-200"


def test_many_creates_with_one_vmid__have_one_winner_and_all_others_know(cluster, binder, how):
    def one(number: int) -> str:
        try:
            decided = decision(name=f"vm{number}", node=f"pve{number % 3 + 1}")
            create(binder, decided) if how == "create" else clone(binder, decided)
        except VMIDTaken:
            return "taken"
        return decided.request.name

    with ThreadPoolExecutor(max_workers=6) as threads:
        outcomes = list(threads.map(one, range(6)))

    (winner,) = {outcome for outcome in outcomes if outcome != "taken"}
    assert outcomes.count("taken") == 5
    assert cluster.state()["guests"][200]["name"] == winner


@pytest.mark.parametrize("when", ["before", "after"])
def test_lost_answer__makes_one_vm_whether_or_not_the_request_came_through(cluster, binder, how, when):
    cluster.fault(method="POST", path=CREATE if how == "create" else CLONE, count=1, drop=when)

    result = make(binder, how)

    sent = [call for call in calls(cluster) if call.startswith("POST") and not call.endswith("status/start")]
    assert len(sent) == (1 if when == "after" else 2)
    assert result.vmid == 200
    assert cluster.state()["guests"][200]["name"] == "web"
    assert cluster.state()["running_tasks"] == []


def test_lost_answer__is_followed_to_the_end_of_a_long_task(cluster, binder, how):
    path = CREATE if how == "create" else CLONE
    cluster.fault(method="POST", path=path, count=1, drop="after", task_seconds=100)

    make(binder, how)

    assert cluster.state()["running_tasks"] == []
    assert "lock" not in cluster.state()["guests"][200]["config"]


def test_request_that_came_through_late__is_recognized_when_it_is_sent_again(cluster, binder):
    cluster.fault(method="POST", path=CREATE, count=1, drop="before")
    cluster.fault(method="POST", path=CREATE, after=1, held=True)

    with ThreadPoolExecutor() as thread:
        making = thread.submit(create, binder)
        until(lambda: calls(cluster).count("POST /nodes/pve1/qemu") == 2)
        cluster.add_guest(vmid=200, name="web", node="pve1")
        cluster.release()

        assert making.result().vmid == 200


def test_clone_for_another_node__is_found_after_a_lost_answer(cluster, binder):
    cluster.fault(method="POST", path=CLONE, count=1, drop="after", task_seconds=50)

    clone(binder, decision(node="pve2"), changes={"memory": "2048"})

    guest = cluster.state()["guests"][200]
    assert (guest["node"], guest["config"]["memory"]) == ("pve2", "2048")


def test_task_that_failed_behind_a_lost_answer__is_the_failure(cluster, session, binder):
    cluster.fault(method="POST", path=CREATE, drop="after", task_held=True, task_error="disk full")
    session.get("/version")

    with ThreadPoolExecutor() as thread:
        making = thread.submit(create, binder)
        until(lambda: any("/tasks/UPID:" in request["path"] for request in cluster.requests()))
        cluster.release()
        with pytest.raises(TaskFailed, match="disk full"):
            making.result()
    assert 200 not in cluster.state()["guests"]


def test_task_of_another_user_with_the_same_vmid__is_not_taken_for_ours(cluster, session, operator, binder):
    cluster.fault(method="POST", path=CREATE, count=1, task_seconds=100, task_error="disk full")
    cluster.fault(method="POST", path=CREATE, after=1, count=1, drop="before")
    # Only with the time of the server are tasks looked for.
    session.get("/version")

    def let_the_other_begin() -> None:
        if not theirs:
            theirs.append(operator.post("/nodes/pve1/qemu", {"vmid": 200, "name": "web", "pool": "web"}))

    theirs: list[str] = []
    decided = decision()
    result = binder.create(decided, params(decided), fence=let_the_other_begin)

    assert result.vmid == 200
    assert cluster.state()["guests"][200]["name"] == "web"
    assert cluster.state()["guests"][200]["config"]["memory"] == "512"


def test_guest_of_another__name_found_after_a_lost_answer_is_not_ours(cluster, binder, how):
    cluster.fault(method="POST", path=CREATE if how == "create" else CLONE, drop="before")
    cluster.add_guest(vmid=200, name="theirs", node="pve1")

    with pytest.raises(VMIDTaken):
        make(binder, how)
    assert cluster.state()["guests"][200]["name"] == "theirs"


def test_answers_lost_every_time__end_in_an_error_and_no_vm(cluster, binder, how):
    cluster.fault(method="POST", path=CREATE if how == "create" else CLONE, drop="before")

    bound = make(binder, how)

    assert isinstance(bound, Unknown)
    assert isinstance(bound.error, AnswerLost)
    assert not bound.begun
    assert len([call for call in calls(cluster) if call.startswith("POST")]) == 3
    assert 200 not in cluster.state()["guests"]


def test_lost_answer__leaves_the_vm_unknown_when_the_cluster_cannot_be_read(cluster, binder):
    cluster.fault(method="POST", path=CREATE, drop="after")
    cluster.fault(method="GET", path="^/cluster/resources$", drop="after")

    bound = create(binder)

    assert isinstance(bound, Unknown)
    assert isinstance(bound.error, AnswerLost)
    assert "cannot determine whether VM 200 was created" in bound.error.message


def test_task_that_fails__is_told_with_its_reason_and_leaves_nothing(cluster, binder, how):
    cluster.fault(method="POST", path=CREATE if how == "create" else CLONE, task_error="no space left on device")

    with pytest.raises(TaskFailed, match="no space left on device"):
        make(binder, how)
    assert 200 not in cluster.state()["guests"]
    assert [volume for volume in cluster.state()["volumes"] if volume["vmid"] == 200] == []


def test_task_whose_process_was_killed__leaves_a_locked_vm_that_is_told_and_kept(cluster, binder, how):
    cluster.fault(method="POST", path=CREATE if how == "create" else CLONE, task_killed=True)
    cure = "remove it there as root with 'qm destroy 200 --skiplock --destroy-unreferenced-disks'"

    bound = make(binder, how)

    assert isinstance(bound, LeftBehind)
    assert isinstance(bound.error, TaskFailed)
    assert f"VM 200 was left behind on node pve1: its creation was broken off; {cure}" in bound.message
    assert 200 in cluster.state()["guests"]


def test_refused_create__is_told_at_once_and_sent_once(cluster, binder):
    with pytest.raises(ApiError, match="cores"):
        create(binder, cores=0)
    assert calls(cluster) == ["POST /nodes/pve1/qemu"]


def test_lock_that_was_busy__is_tried_for_again(cluster, binder, how):
    busy = "cfs-lock 'storage-local-lvm' error: got lock request timeout"
    cluster.fault(method="POST", path=CREATE if how == "create" else CLONE, count=2, task_error=busy)

    assert make(binder, how).vmid == 200


def test_create__proves_its_reservation_before_each_sending(cluster, binder):
    busy = "cfs-lock 'storage-local-lvm' error: got lock request timeout"
    cluster.fault(method="POST", path=CREATE, count=9, task_error=busy)
    proofs = iter([None, ReservationLost("it has expired")])

    def fence() -> None:
        lost = next(proofs)
        if lost is not None:
            raise lost

    with pytest.raises(ReservationLost):
        binder.create(decision(), params(decision()), fence=fence)
    assert calls(cluster).count("POST /nodes/pve1/qemu") == 1


@pytest.mark.parametrize("name", ["web", "db"])
def test_vm_that_was_replaced_while_it_was_started__joins_ha_for_nobody(cluster, binder, name):
    """While the process was paused, the VM may have been removed, and its VMID may have been reused."""
    vm = Decision(Request(name="web", running=True, ha=HAIntent(state="started")), "pve1", 200)
    cluster.fault(method="POST", path="/status/start$", count=1, held=True)

    with ThreadPoolExecutor() as thread:
        making = thread.submit(binder.create, vm, params(vm))
        until(lambda: "POST /nodes/pve1/qemu/200/status/start" in calls(cluster))
        cluster.remove_guest(200)
        cluster.add_guest(vmid=200, name=name, node="pve1", status="running")
        cluster.release()
        with pytest.raises(VMIDTaken, match="VMID 200: it belongs to another guest now"):
            making.result()

    assert cluster.state()["ha"]["resources"] == {}


def test_node_that_cannot_be_reached__has_not_made_anything(cluster, binder):
    cluster.set_node("pve3", online=False)

    with pytest.raises(NodeUnreachable):
        create(binder, decision(node="pve3"))


def test_task_that_outlasts_its_time__leaves_the_vm_to_go_on(cluster, session, poller):
    cluster.fault(method="POST", path=CREATE, task_held=True)
    binder = Binder(session, TaskFollower(session, timeout=20, poller=poller))

    bound = create(binder)

    assert isinstance(bound, Unknown)
    assert isinstance(bound.error, TaskTimeout)
    assert "UPID:pve1" in bound.error.message
    assert bound.begun
    assert 200 in cluster.state()["guests"]


def test_warnings_of_a_task__are_passed_on(cluster, binder):
    cluster.fault(method="POST", path=CREATE, task_error="WARNINGS: 1")

    assert create(binder).warnings != ()


def test_tags_that_a_create_may_not_set__are_set_afterwards(cluster, version, operator, poller):
    binder = Binder(operator, TaskFollower(operator, timeout=30_000, poller=poller))

    create(binder, pool="web", tags="free")
    create(binder, decision(201, "web-2"), pool="web", tags="free")

    guests = cluster.state()["guests"]
    assert (guests[200]["config"]["tags"], guests[201]["config"]["tags"]) == ("free", "free")
    assert calls(cluster).count("POST /nodes/pve1/qemu") == (3 if version == "9.2" else 2)


def test_vm_whose_tags_are_refused_for_good__is_not_left_behind(cluster, version, operator, poller, root):
    binder = Binder(operator, TaskFollower(operator, timeout=30_000, poller=poller))
    root.put("/cluster/options", {"registered-tags": "core"})

    if version == "8.4":
        create(binder, pool="web", tags="core")
    else:
        with pytest.raises(PermissionDenied, match="core"):
            create(binder, pool="web", tags="core")
    assert (200 in cluster.state()["guests"]) is (version == "8.4")


def test_clone__is_adjusted_by_what_its_own_config_says(cluster, binder):
    seen: list[t.Any] = []

    def adjust(config: t.Any) -> Adjustment:
        seen.append(config)
        return Adjustment({"memory": "4096", "delete": "description"}, {"scsi0": 10 * GIB})

    result = binder.clone(
        decision(node="pve2", running=True), template(binder), {"full": 1, "storage": "shared"}, adjust
    )

    guest = cluster.state()["guests"][200]
    assert (result.node, guest["node"], guest["name"], guest["status"]) == ("pve2", "pve2", "web", "running")
    assert guest["config"]["memory"] == "4096"
    assert "size=10G" in guest["config"]["scsi0"]
    assert seen[0]["scsi0"].startswith("shared:")


def test_clone__keeps_its_disks_when_the_quorum_is_lost_before_it_is_adjusted(cluster, binder):
    def adjust(config: t.Any) -> Adjustment:
        cluster.set_quorum(False)
        return Adjustment({"memory": "4096"})

    result = binder.clone(decision(), template(binder), {"full": 1}, adjust)

    assert isinstance(result, LeftBehind)
    assert "no quorum" in result.reason
    assert [volume for volume in cluster.state()["volumes"] if volume["vmid"] == 200]


def test_clone_that_needs_no_adjustment__is_not_written_to(cluster, binder):
    binder.clone(decision(), template(binder), {"full": 1}, None)

    assert [call for call in calls(cluster) if not call.startswith("GET")] == ["POST /nodes/pve1/qemu/9000/clone"]


@pytest.mark.parametrize(
    "adjustment",
    [
        {"changes": {"cores": 0}},
        {"resizes": {"scsi0": GIB}},
        {"changes": {"protection": 1}, "resizes": {"scsi9": GIB}},
    ],
)
def test_clone_that_cannot_be_adjusted__is_removed_again(cluster, binder, adjustment):
    with pytest.raises(CollectionError):
        clone(binder, **adjustment)

    assert 200 not in cluster.state()["guests"]


def test_clone__is_removed_although_its_uuid_was_changed_before_the_adjustment_failed(cluster, binder):
    cluster.fault(method="PUT", path="/qemu/200/resize", status=500, message="storage is out of order")
    changes = {
        "smbios1": "uuid=4b5a1f0e-5b0a-4e3c-9c1e-6d2f7a8b9c0d",
        "scsi1": "shared:0,import-from=local:import/debian.qcow2",
    }

    with pytest.raises(ApiError, match="out of order"):
        clone(binder, changes=changes, resizes={"scsi1": 5 * GIB})

    assert 200 not in cluster.state()["guests"]


def test_clone__is_removed_when_the_adjustment_cannot_be_worked_out(cluster, binder):
    def adjust(config: t.Any) -> Adjustment:
        raise InvalidRequest("scsi0: smaller than the template's")

    with pytest.raises(InvalidRequest):
        binder.clone(decision(), template(binder), {"full": 1}, adjust)
    assert 200 not in cluster.state()["guests"]


def test_guest_that_took_the_place_of_ours__is_never_removed(cluster, binder):
    def adjust(config: t.Any) -> Adjustment:
        cluster.remove_guest(200)
        cluster.add_guest(vmid=200, name="web", node="pve1")
        return Adjustment({"cores": 0})

    with pytest.raises(ApiError):
        binder.clone(decision(), template(binder), {"full": 1}, adjust)
    assert cluster.state()["guests"][200]["name"] == "web"


def test_guest_of_the_same_name_that_took_the_place_of_ours__is_neither_changed_nor_removed(cluster, binder):
    def adjust(config: t.Any) -> Adjustment:
        cluster.remove_guest(200)
        cluster.add_guest(vmid=200, name="web", node="pve1", cores=1)
        return Adjustment({"cores": 4})

    with pytest.raises(VMIDTaken, match="VMID 200: it belongs to another guest now"):
        binder.clone(decision(), template(binder), {"full": 1}, adjust)
    assert int(cluster.state()["guests"][200]["config"]["cores"]) == 1


@pytest.mark.parametrize(
    ("name", "make_it"),
    [
        ("other", lambda binder: clone(binder, changes={"memory": 512})),
        ("web", lambda binder: clone(binder, changes={"memory": 512})),
        ("other", lambda binder: create(binder, decision(running=True))),
    ],
)
def test_guest_that_took_the_place_of_ours__is_never_changed(cluster, binder, monkeypatch, name, make_it):
    wait = binder._tasks.wait

    def replaced(upid: str) -> t.Any:
        result = wait(upid)
        cluster.remove_guest(200)
        cluster.add_guest(vmid=200, name=name, node="pve1", memory=64)
        return result

    monkeypatch.setattr(binder._tasks, "wait", replaced)
    with pytest.raises(VMIDTaken):
        make_it(binder)
    theirs = cluster.state()["guests"][200]
    assert (theirs["config"]["memory"], theirs["status"]) == ("64", "stopped")


@pytest.mark.parametrize(
    "make_it",
    [
        lambda binder: create(binder, decision(running=True)),
        lambda binder: clone(binder, changes={"memory": 512}),
    ],
)
def test_guest_that_looks_like_ours__is_not_taken_for_it(cluster, session, binder, monkeypatch, make_it):
    """Its owner has removed ours before its config was read for the first time, and has copied its notes."""
    wait = binder._tasks.wait

    def replaced(upid: str) -> t.Any:
        result = wait(upid)
        config = {"description": cluster.state()["guests"][200]["config"].get("description", "")}
        wait(session.delete("/nodes/pve1/qemu/200"))
        cluster.add_guest(vmid=200, name="web", node="pve1", memory=64, config=config)
        monkeypatch.setattr(binder._tasks, "wait", wait)
        return result

    monkeypatch.setattr(binder._tasks, "wait", replaced)
    with pytest.raises(VMIDTaken):
        make_it(binder)
    theirs = cluster.state()["guests"][200]
    assert (theirs["config"]["memory"], theirs["status"]) == ("64", "stopped")


def test_new_vm_that_was_moved__is_proved_once_more_before_its_start(cluster, session, binder, monkeypatch):
    """Others move it away and back, and replace it right after the tasks of all nodes were read."""
    wait, get, own_lists = binder._tasks.wait, session.get, []

    def moved(upid: str) -> t.Any:
        result = wait(upid)
        monkeypatch.setattr(binder._tasks, "wait", wait)
        for node, target in (("pve1", "pve2"), ("pve2", "pve1")):
            wait(session.post(f"/nodes/{node}/qemu/200/migrate", {"target": target}))
        return result

    def replaced(path: str, *args: t.Any, **params: t.Any) -> t.Any:
        answer = get(path, *args, **params)
        if path == "/nodes/pve1/tasks":
            own_lists.append(path)
            if len(own_lists) == 2:
                wait(session.delete("/nodes/pve1/qemu/200"))
                cluster.add_guest(vmid=200, name="web", node="pve1", memory=64)
        return answer

    monkeypatch.setattr(binder._tasks, "wait", moved)
    monkeypatch.setattr(session, "get", replaced)
    with pytest.raises(VMIDTaken):
        create(binder, decision(running=True))
    theirs = cluster.state()["guests"][200]
    assert (theirs["config"]["memory"], theirs["status"]) == ("64", "stopped")


def test_new_vm_that_was_replaced_while_the_ledger_was_asked__is_not_started(cluster, session, binder):
    """The process was paused there: the reservation is still valid, or could be renewed."""
    asked = []

    def fence() -> None:
        asked.append(fence)
        if len(asked) == 2:
            binder._tasks.poller.sleep(10)
            binder._tasks.wait(session.delete("/nodes/pve1/qemu/200"))
            cluster.add_guest(vmid=200, name="payroll", node="pve1", memory=64)

    with pytest.raises(VMIDTaken):
        binder.create(decision(running=True), params(decision()), fence=fence)
    theirs = cluster.state()["guests"][200]
    assert (theirs["config"]["memory"], theirs["status"]) == ("64", "stopped")


def test_vmid_that_was_in_use_a_moment_before__does_no_harm(cluster, session, binder):
    create(binder)
    binder._tasks.wait(session.delete("/nodes/pve1/qemu/200"))

    create(binder, decision(running=True))

    assert cluster.state()["guests"][200]["status"] == "running"


def test_reservation__is_proved_last_before_a_clone_and_its_start(cluster, binder):
    sent: list[int] = []
    first = len(calls(cluster))

    binder.clone(
        decision(running=True), template(binder), {"full": 1}, None, fence=lambda: sent.append(len(calls(cluster)))
    )

    writes = [position for position, call in enumerate(calls(cluster)) if position >= first and call.startswith("POST")]
    assert sent[-2:] == writes, "the clone and the start follow a proof at once"


@pytest.mark.parametrize("name", ["tpl", "theirs"])
def test_template_that_was_replaced__is_not_cloned(cluster, binder, name):
    planned = template(binder)
    cluster.remove_guest(9000)
    cluster.add_guest(vmid=9000, name=name, node="pve1", template=True, disks={"scsi0": "shared:4"})

    with pytest.raises(NotTheSameGuest, match=f'VM "tpl" on pve1, found VM "{name}" on pve1'):
        binder.clone(decision(), planned, {"full": 1}, None)
    assert [call for call in calls(cluster) if call.startswith("POST")] == []


def test_what_could_not_be_removed__is_told(cluster, binder):
    cluster.fault(method="DELETE", path="/qemu/200", status=500, message="storage is out of order")

    bound = clone(binder, changes={"cores": 0})

    assert isinstance(bound, LeftBehind)
    assert (bound.vmid, bound.node, type(bound.error)) == (200, "pve1", ApiError)
    assert "out of order" in bound.reason
    assert "VM 200 was left behind on node pve1: DELETE" in bound.message


def fail_and_find(cluster, binder, name: str, made: int | None = None, **config: t.Any) -> None:
    """Let a create fail, and a guest be there when the binder looks what was left; made: seconds after its begin."""
    cluster.fault(method="POST", path=CREATE, task_error="went wrong")
    cluster.fault(method="GET", path="/qemu/200/config$", held=True)
    with ThreadPoolExecutor() as thread:
        failing = thread.submit(create, binder)
        until(lambda: "GET /nodes/pve1/qemu/200/config" in calls(cluster))
        log = next(request["path"] for request in cluster.requests() if request["path"].endswith("/log"))
        if made is not None:
            config["meta"] = f"creation-qemu=9.2.0,ctime={Upid.parse(log.split('/')[4]).started + made}"
        cluster.add_guest(vmid=200, node="pve1", name=name, config=config)
        cluster.release()
        with pytest.raises(TaskFailed, match="went wrong"):
            failing.result()


def test_partly_made_vm_that_proxmox_left__is_removed_when_it_is_ours(cluster, binder):
    fail_and_find(cluster, binder, "web", made=0)

    assert 200 not in cluster.state()["guests"]


@pytest.mark.parametrize(
    "theirs",
    [
        {"name": "theirs", "made": 0},
        {"name": "web", "made": -1},
        {"name": "web", "made": 0, "lock": "create"},
        {"name": "web"},
    ],
    ids=["another-name", "made-before", "being-made", "made-afterwards"],
)
def test_vm_that_others_made__is_not_removed_after_a_failed_create(cluster, binder, theirs):
    fail_and_find(cluster, binder, **theirs)

    assert cluster.state()["guests"][200]["name"] == theirs["name"]


def test_vm_that_others_made_anew__is_not_removed_after_a_failed_create(cluster, session, binder):
    """Within one second, so that only the list of tasks tells it from ours."""
    cluster.fault(method="POST", path=CREATE, task_error="went wrong", count=1)
    cluster.fault(method="GET", path="/qemu/200/config$", held=True)
    with ThreadPoolExecutor() as thread:
        failing = thread.submit(create, binder)
        until(lambda: "GET /nodes/pve1/qemu/200/config" in calls(cluster))
        log = next(request["path"] for request in cluster.requests() if request["path"].endswith("/log"))
        cluster.advance(2)
        session.post("/nodes/pve1/qemu", params(decision()))
        until(lambda: cluster.state()["guests"].get(200, {}).get("name") == "web")
        began = Upid.parse(log.split("/")[4]).started
        cluster.set_guest(200, config={"meta": f"creation-qemu=9.2.0,ctime={began}"})
        cluster.release()
        with pytest.raises(TaskFailed, match="went wrong"):
            failing.result()

    assert cluster.state()["guests"][200]["name"] == "web"


def test_create__root_removes_the_empty_vm_of_a_task_that_could_not_be_started_and_makes_it(cluster, root, poller):
    cluster.fault(method="POST", path=CREATE, count=1, no_worker=True)

    result = create(Binder(root, TaskFollower(root, timeout=30_000, poller=poller)))

    assert result.vmid == 200
    assert cluster.state()["guests"][200]["name"] == "web"


def test_create__a_task_that_could_not_be_started_leaves_an_empty_vm_that_is_told(cluster, binder):
    cluster.fault(method="POST", path=CREATE, no_worker=True)

    bound = create(binder)

    assert isinstance(bound, LeftBehind)
    assert bound.stub
    assert isinstance(bound.error, VMIDTaken)
    assert "the empty VM 200 was left behind on node pve1" in bound.message
    assert calls(cluster).count("POST /nodes/pve1/qemu") == 1


def test_clone__a_task_that_could_not_be_started_is_started_again(cluster, binder):
    cluster.fault(method="POST", path=CLONE, count=1, no_worker=True)

    assert clone(binder).vmid == 200


def test_vm_without_a_name__can_be_made(cluster, binder):
    create(binder, decision(name=""))

    assert 200 in cluster.state()["guests"]
