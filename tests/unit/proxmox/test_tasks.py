# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks are followed to their real end, however long the way."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    AuthenticationFailed,
    ConnectionFailed,
    PermissionDenied,
    TaskFailed,
    TaskTimeout,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import NodeUnreachable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import (
    Fate,
    Poller,
    TaskFollower,
    Upid,
    ask_fate_since,
)

UPID = "UPID:pve2:00000650:0005621F:6B0150A8:qmcreate:400:op@pve!tok:"
OK = {"status": "stopped", "exitstatus": "OK"}
RUNNING = {"status": "running"}


class World:
    """A clock that only sleeping moves, and a task whose status and log are given."""

    def __init__(self, *statuses: t.Any, log: list[str] | None = None) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.calls: list[str] = []
        self._statuses = list(statuses)
        self._log = log or []
        self.members: t.Any = []
        self.follower = TaskFollower(self, timeout=100, poller=Poller(lambda: self.now, self.sleep))

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        self.calls.append(path)
        if path.endswith("/log"):
            start, limit = more.get("start", 0), more.get("limit", 50)
            return [{"n": start + i + 1, "t": line} for i, line in enumerate(self._log[start : start + limit])]
        if path == "/cluster/status":
            if isinstance(self.members, Exception):
                raise self.members
            return self.members
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        if isinstance(status, Exception):
            raise status
        return status

    def server_time(self) -> float | None:
        return None


def test_upid__tells_node_start_kind_and_user():
    upid = Upid.parse(UPID)

    assert (upid.node, upid.started, upid.type, upid.id, upid.user) == (
        "pve2",
        1795248296,
        "qmcreate",
        "400",
        "op@pve!tok",
    )


@pytest.mark.parametrize("text", [None, "", "UPID:pve1", {"a": 1}])
def test_what_is_no_upid__is_an_error(text):
    with pytest.raises(ApiError, match="UPID"):
        Upid.parse(text)


def test_task__is_looked_at_soon_and_then_ever_more_rarely():
    world = World(*[RUNNING] * 30, OK)

    assert world.follower.wait(UPID).warnings == 0
    assert world.pauses[0] == 0.1
    assert world.pauses == sorted(world.pauses)
    assert max(world.pauses) == 2.0


def test_status__is_asked_for_on_the_node_of_the_task():
    world = World(OK)
    world.follower.wait(UPID)

    assert world.calls == [f"/nodes/pve2/tasks/{UPID}/status"]


def test_warnings__are_a_good_end_and_are_returned_with_the_log():
    result = World({"status": "stopped", "exitstatus": "WARNINGS: 2"}, log=["a", "b"]).follower.wait(UPID)

    assert (result.warnings, result.log) == (2, ("a", "b"))


def test_failed_task__is_told_with_the_end_of_a_log_of_any_length():
    log = [f"line {number}" for number in range(1234)]
    world = World({"status": "stopped", "exitstatus": "disk full"}, log=[*log, "TASK ERROR: disk full"])

    with pytest.raises(TaskFailed) as raised:
        world.follower.wait(UPID)

    assert "qmcreate 400 on node pve2 failed: disk full" in raised.value.message
    assert raised.value.message.endswith("line 1232 | line 1233")
    assert raised.value.details["exitstatus"] == "disk full"
    assert raised.value.details["log"][-1] == "TASK ERROR: disk full"
    assert len(raised.value.details["log"]) == 10


def test_recorded_failure__is_told_in_its_own_words(recording):
    status = recording("8.4", "task-status-stopped-by-user")["body"]["data"]
    log = [line["t"] for line in recording("8.4", "task-log-finished")["body"]["data"]]

    with pytest.raises(TaskFailed, match="failed: interrupted by signal"):
        World(status, log=log).follower.wait(status["upid"])


def test_task_that_outlasts_its_time__is_named_with_its_node():
    world = World(RUNNING)
    world.follower.timeout = 5

    with pytest.raises(TaskTimeout) as raised:
        world.follower.wait(UPID)

    assert world.now == 5
    assert raised.value.details == {"upid": UPID, "node": "pve2"}
    assert UPID in raised.value.message


def test_end__is_seen_although_the_node_was_out_of_reach_on_the_way():
    world = World(RUNNING, NodeUnreachable("595"), ConnectionFailed("dropped"), OK)

    assert world.follower.wait(UPID).upid == UPID


def test_node_that_stays_out_of_reach__ends_the_waiting_in_time():
    with pytest.raises(TaskTimeout, match="No route to host"):
        World(NodeUnreachable("No route to host")).follower.wait(UPID)


def members(*, online: int, quorate: int = 1) -> list[dict[str, t.Any]]:
    return [{"type": "cluster", "quorate": quorate}, {"type": "node", "name": "pve2", "online": online}]


def test_node_that_the_cluster_shows_as_offline__ends_the_waiting_early():
    world = World(RUNNING, NodeUnreachable("No route to host"))
    world.members = members(online=0)

    with pytest.raises(TaskTimeout, match="cannot be followed to its end: the cluster shows the node as offline") as it:
        world.follower.wait(UPID)
    assert it.value.details == {"upid": UPID, "node": "pve2"}
    assert 30 <= world.now < 35
    assert world.calls.count("/cluster/status") == 1


@pytest.mark.parametrize(
    "shown",
    [
        members(online=1),
        members(online=0, quorate=0),
        PermissionDenied("Sys.Audit"),
        ConnectionFailed("dropped"),
        AuthenticationFailed("401"),
    ],
)
def test_node_that_may_be_online__is_waited_for_until_the_end(shown):
    world = World(NodeUnreachable("No route to host"))
    world.members = shown

    with pytest.raises(TaskTimeout, match="has not ended within 100 s"):
        world.follower.wait(UPID)
    assert world.calls.count("/cluster/status") == 3


def test_offline_node__is_not_asked_about_while_reads_fail_only_now_and_then():
    world = World(*[NodeUnreachable("595"), RUNNING] * 20, OK)
    world.members = members(online=0)

    assert world.follower.wait(UPID).upid == UPID
    assert "/cluster/status" not in world.calls


@pytest.mark.parametrize("refusal", [ApiError("500"), AuthenticationFailed("401"), PermissionDenied("403")])
def test_end__is_seen_although_the_status_was_refused_on_the_way(refusal):
    world = World(RUNNING, refusal, refusal, RUNNING, refusal, OK)

    assert world.follower.wait(UPID).upid == UPID


def test_task_whose_status_is_refused_for_good__goes_on_and_is_named():
    world = World(ApiError("no such task"))

    with pytest.raises(TaskTimeout, match="cannot be followed to its end: no such task") as raised:
        world.follower.wait(UPID)
    assert raised.value.details == {"upid": UPID, "node": "pve2"}
    assert 1 < world.now < 10


@pytest.mark.parametrize(
    ("made", "destroyed", "since"),
    [
        ("pve2:00000650:00000100:6B0150A8", "pve2:00000651:00000101:6B0150A8", None),
        ("pve2:00000650:00000100:6B0150A8", "pve2:00000011:00000001:6B0150A9", None),
        ("pve1:00000650:00000100:6B0150A8", "pve2:00000651:00000001:6B0150A9", None),
        ("", "pve2:00000651:00000100:6B0150A8", float(0x6B0150A8)),
        ("", "pve2:00000651:00000100:6B0150A8", None),
    ],
)
def test_vm_that_was_destroyed__is_known_by_a_task_after_that_of_its_creation(
    made: str, destroyed: str, since: float | None
) -> None:
    assert _is_destroyed(made, destroyed, since)


@pytest.mark.parametrize(
    ("made", "destroyed", "since"),
    [
        ("pve2:00000650:00000100:6B0150A8", "pve2:00000649:000000FF:6B0150A8", None),
        ("pve2:00000650:00000100:6B0150A8", "pve2:00000649:00000101:6B0150A7", None),
        ("pve1:00000650:00000100:6B0150A8", "pve2:00000651:00000101:6B0150A8", None),
        ("", "pve2:00000651:00000100:6B0150A8", float(0x6B0150A8 + 60)),
    ],
)
def test_vm_that_had_the_vmid_before__was_another(made: str, destroyed: str, since: float | None) -> None:
    assert not _is_destroyed(made, destroyed, since)


@pytest.mark.parametrize(
    ("status", "is_destroyed"),
    [
        ("VM is locked (clone)", False),
        ("can't lock file '/var/lock/qemu-server/lock-400.conf' - got timeout", False),
        ("unexpected status", True),
        ("OK", True),
        ("can't lock file '/var/lock/pve-manager/pve-storage-ceph' - got timeout", True),
    ],
)
@pytest.mark.parametrize("made", ["pve2:00000650:00000100:6B0150A8", ""])
def test_removal_that_a_lock_refused__has_destroyed_nothing(made: str, status: str, is_destroyed: bool) -> None:
    assert _is_destroyed(made, "pve2:00000651:00000101:6B0150A8", None, status) == is_destroyed


def _is_destroyed(made: str, destroyed: str, since: float | None, status: str | None = None) -> bool:
    removal = {"type": "qmdestroy", "upid": f"UPID:{destroyed}:qmdestroy:400:op@pve:", "status": status}
    rows = [removal, {"type": "qmcreate", "upid": ""}]
    fate = ask_fate_since(World(rows), "pve2", 400, made and f"UPID:{made}:qmcreate:400:op@pve!tok:", since)
    assert fate in {Fate.KEPT, Fate.DESTROYED}
    return fate is Fate.DESTROYED


@pytest.mark.parametrize(("where", "expected"), [("pve1", Fate.DESTROYED), ("nowhere", Fate.MOVED)])
def test_vm_that_was_moved__is_looked_for_on_all_nodes(where: str, expected: Fate) -> None:
    made = "UPID:pve2:00000650:00000100:6B0150A8:qmcreate:400:op@pve:"
    moved = [{"type": "qmigrate", "upid": "UPID:pve2:00000651:00000101:6B0150A8:qmigrate:400:op@pve:"}]
    nodes = [
        {"node": "pve1", "status": "online"},
        {"node": "pve2", "status": "online"},
        {"node": "pve3", "status": "offline"},
    ]
    destroyed = [{"type": "qmdestroy", "upid": f"UPID:{where}:00000652:00000102:6B0150B8:qmdestroy:400:op@pve:"}]
    world = World(moved, nodes, destroyed if where == "pve1" else [], moved)

    assert ask_fate_since(world, "pve2", 400, made, None) is expected
    again = ["/nodes/pve2/tasks"] if expected is Fate.MOVED else []
    assert world.calls == ["/nodes/pve2/tasks", "/nodes", "/nodes/pve1/tasks", *again]


def test_vm_that_returns_and_is_destroyed_meanwhile__is_noticed() -> None:
    made = "UPID:pve2:00000650:00000100:6B0150A8:qmcreate:400:op@pve:"
    moved = [{"type": "qmigrate", "upid": "UPID:pve2:00000651:00000101:6B0150A8:qmigrate:400:op@pve:"}]
    destroyed = [{"type": "qmdestroy", "upid": "UPID:pve2:00000652:00000102:6B0150B8:qmdestroy:400:op@pve:"}]
    nodes = [{"node": "pve1", "status": "online"}, {"node": "pve2", "status": "online"}]

    assert ask_fate_since(World(moved, nodes, [], destroyed), "pve2", 400, made, None) is Fate.DESTROYED
