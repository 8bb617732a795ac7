# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One read of the cluster's list of tasks stands for the statuses of many, as far as the list can be believed."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    PermissionDenied,
    TaskFailed,
    TaskTimeout,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import NodeUnreachable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.task_list import LATEST, SOONEST, Pace
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Poller, TaskFollower

LIST = "/cluster/tasks"


def upid(vmid: int) -> str:
    return f"UPID:pve2:00000650:0005621F:6B0150A8:qmcreate:{vmid}:op@pve:"


class Cluster:
    """Tasks that end after so many seconds, with these texts; what the list shows may be limited. Only sleeping moves
    the clock.
    """

    def __init__(self, *, seconds: float = 3.0, text: str = "OK") -> None:
        self.now = 0.0
        self.calls: list[str] = []
        self.seconds = seconds
        self.text = text
        self.listed: list[int] | Exception = [100, 101, 102, 103]
        self.stuck = False
        self.status_fails: Exception | None = None
        self.follower = TaskFollower(self, timeout=100, poller=Poller(lambda: self.now, self.sleep))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        self.calls.append(path)
        ended = self.now >= self.seconds
        if path == LIST:
            if isinstance(self.listed, Exception):
                raise self.listed
            end = {"endtime": 1, "status": self.text} if ended and not self.stuck else {"pid": 7}
            return [{"upid": upid(vmid), **end} for vmid in self.listed]
        if path.endswith("/log"):
            return [{"n": 1, "t": "disk full"}]
        if path == "/cluster/status":
            return [{"type": "cluster", "quorate": 1}, {"type": "node", "name": "pve2", "online": 0}]
        if self.status_fails is not None:
            raise self.status_fails
        return {"status": "stopped", "exitstatus": self.text} if ended else {"status": "running"}

    def server_time(self) -> float | None:
        return None

    def wait_among(self, others: int, vmid: int = 100) -> t.Any:
        """Wait for a task while so many others are followed."""
        with ExitStack() as stack:
            for _ in range(others):
                stack.enter_context(self.follower.tasks.one_more())
            return self.follower.wait(upid(vmid))


def test_task_among_few__is_asked_about_itself() -> None:
    cluster = Cluster()
    cluster.wait_among(1)
    assert LIST not in cluster.calls


def test_tasks_among_many__are_all_seen_in_the_list() -> None:
    cluster = Cluster()
    for vmid in (100, 101, 102, 103):
        cluster.wait_among(3, vmid)
    assert set(cluster.calls) == {LIST}
    # The others had ended when the list was read for the first one.
    reads = len(cluster.calls)
    cluster.wait_among(3, 103)
    assert len(cluster.calls) == reads


def test_warnings_in_the_list__are_a_good_end_with_their_log() -> None:
    cluster = Cluster(text="WARNINGS: 2")
    result = cluster.wait_among(3)
    assert (result.warnings, result.log) == (2, ("disk full",))
    assert not any(path.endswith("/status") for path in cluster.calls)


@pytest.mark.parametrize("text", ["disk full", "unexpected status", "", "WARNINGS: many"])
def test_failure_in_the_list__is_told_by_the_task_itself(text: str) -> None:
    cluster = Cluster(text=text)
    with pytest.raises(TaskFailed):
        cluster.wait_among(3)
    assert cluster.calls[-2:] == [f"/nodes/pve2/tasks/{upid(100)}/status", f"/nodes/pve2/tasks/{upid(100)}/log"]


def test_task_that_the_list_has_dropped__is_asked_about_itself() -> None:
    cluster = Cluster()
    cluster.wait_among(3)
    cluster.listed, cluster.seconds = [101], cluster.now + 3
    assert cluster.wait_among(3, 104).upid == upid(104)
    assert cluster.calls[-1] == f"/nodes/pve2/tasks/{upid(104)}/status"


@pytest.mark.parametrize(
    "shown", [[], [900], PermissionDenied("403"), ConnectionFailed("dropped"), AuthenticationFailed("401")]
)
def test_list_that_shows_nothing_of_this_user__is_read_once(shown: t.Any) -> None:
    cluster = Cluster()
    cluster.listed = shown
    for vmid in (100, 101):
        cluster.wait_among(3, vmid)
    assert cluster.calls.count(LIST) == 1


def test_list_of_a_node_that_is_lost__does_not_keep_the_task_running() -> None:
    cluster = Cluster()
    cluster.stuck, cluster.status_fails = True, NodeUnreachable("No route to host")
    with pytest.raises(TaskTimeout, match="shows the node as offline"):
        cluster.wait_among(3)
    assert cluster.now < 60


def test_pace__follows_what_tasks_have_taken() -> None:
    pace = Pace()
    assert pace.first_look("qmcreate") == SOONEST
    pace.learn("qmcreate", 3.0, 5.0)
    assert pace.first_look("qmcreate") == 4.0
    assert pace.first_look("qmstart") == SOONEST
    # It takes longer now, and one task alone takes very long.
    for _ in range(2):
        pace.learn("qmcreate", 30.0, 50.0)
    assert 4.0 < pace.first_look("qmcreate") <= 6.25
    pace.learn("qmcreate", 0.0, 1.0)
    assert pace.first_look("qmcreate") < 1.0
    pace.learn("qmigrate", 50.0, 70.0)
    assert pace.first_look("qmigrate") == LATEST


def test_second_task__is_looked_at_when_the_first_had_ended() -> None:
    cluster = Cluster(seconds=3.0)
    cluster.follower.wait(upid(100))
    looks = len(cluster.calls)
    cluster.calls.clear()
    cluster.seconds, began = cluster.now + 3, cluster.now
    cluster.follower.wait(upid(101))
    assert len(cluster.calls) <= 2 < looks
    assert cluster.now - began < 4
