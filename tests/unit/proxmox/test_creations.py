# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting for VMs that others are creating; a creation that was broken off is told from one that only takes long."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

import pytest
from support.small_cluster import guest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    ConnectionFailed,
    PermissionDenied,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.creations import Creations
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Poller

CREATING = {"type": "qmcreate", "id": "100", "node": "pve1"}
GUEST = guest(100, "pve1", name=None, lock="create")
OTHER = guest(101, "pve1", name=None, lock="create")


class World:
    """A clock, VMs that are locked until they are made, the tasks of their node, and what the user may see of it."""

    def __init__(self, tasks: t.Any = (CREATING,), status: t.Any = None, patience: float = 600) -> None:
        self.now = 0.0
        self.tasks = tasks
        self.made_at: dict[int, float] = {}
        self.gone: set[int] = set()
        self.unwritten: dict[str, str] = {"lock": "create"}
        self._status = status or {}
        self.creations = Creations(self, patience, Poller(lambda: self.now, self.sleep))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        if path.endswith("/config"):
            vmid = int(path.split("/")[-2])
            if vmid in self.gone:
                raise ApiError(f"Configuration file 'nodes/pve1/qemu-server/{vmid}.conf' does not exist")
            return {"name": "made"} if self.now >= self.made_at.get(vmid, float("inf")) else self.unwritten
        tasks = self.tasks(self.now) if callable(self.tasks) else self.tasks
        answer = {"/nodes/pve1/tasks": tasks, "/nodes/pve1/status": self._status}[path]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def server_time(self) -> float | None:
        return None


def test_wait__the_vm_has_its_config():
    world = World()
    world.made_at = {100: 20}

    assert world.creations.wait([GUEST]) is True
    assert 20 <= world.now < 23
    assert world.creations.abandoned == set()


@pytest.mark.parametrize(("task", "waited"), [({}, 20), ({"endtime": 5}, 0), ({"type": "qmstart"}, 0)])
def test_wait__a_vm_that_is_restored_has_no_lock_and_no_name(task: dict[str, t.Any], waited: int):
    world = World([{**CREATING, "type": "qmrestore", **task}])
    world.made_at, world.unwritten = {100: 20}, {}

    assert world.creations.wait([GUEST]) is True
    assert waited <= world.now < waited + 3


def test_wait__the_vm_is_gone():
    world = World()
    world.gone = {100}

    assert world.creations.wait([GUEST]) is True
    assert world.now == 0


def test_wait__one_of_several_is_enough():
    world = World([CREATING, {**CREATING, "id": "101"}])
    world.made_at = {101: 5}

    assert world.creations.wait([GUEST, OTHER]) is True
    assert world.now < 8


def test_wait__all_waits_end_at_one_time():
    world = World(patience=60)

    assert world.creations.wait([GUEST]) is False
    assert world.now == pytest.approx(60)
    assert world.creations.wait([GUEST]) is False
    assert world.now == pytest.approx(60)


def test_wait__there_is_nothing_to_wait_for():
    assert World().creations.wait([]) is False


@pytest.mark.parametrize(
    "tasks",
    [
        [],
        [{**CREATING, "id": "101"}],
        [{**CREATING, "endtime": 5}],
    ],
)
def test_wait__no_task_has_been_creating_the_vm_for_some_seconds(tasks):
    world = World(tasks)

    assert world.creations.wait([GUEST]) is True
    assert 3 <= world.now < 6
    assert world.creations.abandoned == {100}


@pytest.mark.parametrize(
    "task",
    [
        CREATING,
        {**CREATING, "type": "qmrestore"},
        # It names its source.
        {"type": "qmclone", "id": "9000", "node": "pve1"},
    ],
)
def test_wait__a_running_task_may_be_creating_it(task):
    world = World([task], patience=60)

    assert world.creations.wait([GUEST]) is False
    assert world.creations.abandoned == set()


def test_wait__a_task_that_was_seen_in_between_begins_the_time_anew():
    world = World(lambda now: [CREATING] if 2 <= now < 4 else [])

    assert world.creations.wait([GUEST]) is True
    assert 7 <= world.now < 10


KILLED = {**CREATING, "starttime": 90, "endtime": 100, "status": "unexpected status"}


@pytest.mark.parametrize(
    ("world", "doubt"),
    [
        (lambda: World([], status=PermissionDenied("no"), patience=60), True),
        # Its own task for the VMID ended as it should, and the VM that it made is not the one that is locked now.
        (lambda: World([KILLED, {**KILLED, "starttime": 95, "status": "OK"}], PermissionDenied("no"), 60), True),
        (lambda: World(PermissionDenied("no"), patience=60), True),
        (lambda: World(ConnectionFailed("no"), patience=60), False),
    ],
)
def test_wait__a_user_who_does_not_see_all_tasks_cannot_tell(world: Callable[[], World], doubt: bool):
    shown = world()

    assert shown.creations.wait([GUEST]) is False
    assert shown.creations.abandoned == set()
    assert ("without Sys.Audit on /nodes/pve1" in shown.creations.doubt([GUEST])) is doubt


def test_wait__a_user_who_sees_only_its_own_tasks_learns_that_the_one_which_created_the_vm_was_killed():
    world = World([KILLED], status=PermissionDenied("no"))

    assert world.creations.wait([GUEST]) is True
    assert 3 <= world.now < 6
    assert world.creations.abandoned == {100}
