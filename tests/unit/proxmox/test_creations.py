# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A creation that nobody works on any more is told from one that only takes long."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import ConnectionFailed, PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.creations import Creations

ENDED = {"endtime": 5, "type": "qmcreate", "id": "100", "node": "pve1"}
AUDITOR = {"mac_prefix": "BC:24:11"}


class World:
    """A clock, the list of tasks, and what the user sees of the cluster's options."""

    def __init__(self, tasks: t.Any, options: Mapping[str, t.Any] = AUDITOR) -> None:
        self.now = 0.0
        self.tasks = tasks
        self._options = options
        self.creations = Creations(self, lambda: self.now)

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        answer = self.tasks if path == "/cluster/tasks" else self._options
        if isinstance(answer, Exception):
            raise answer
        return answer

    def server_time(self) -> float | None:
        return None

    def is_abandoned_after(self, seconds: float) -> bool:
        self.creations.is_abandoned(100)
        self.now += seconds
        return self.creations.is_abandoned(100)


def test_is_abandoned__no_task_has_worked_on_the_vm_for_some_seconds():
    world = World([ENDED])

    assert world.is_abandoned_after(1) is False
    assert world.is_abandoned_after(10) is True


@pytest.mark.parametrize(
    "task",
    [
        {"type": "qmcreate", "id": "100", "node": "pve1"},
        {"type": "qmrestore", "id": "100", "node": "pve1"},
        # It names its source.
        {"type": "qmclone", "id": "9000", "node": "pve2"},
    ],
)
def test_is_abandoned__a_running_task_may_be_making_it(task):
    assert World([task]).is_abandoned_after(100) is False


def test_is_abandoned__another_vm_is_made():
    assert World([{"type": "qmcreate", "id": "101", "node": "pve1"}]).is_abandoned_after(100) is True


def test_is_abandoned__a_task_that_was_seen_in_between_begins_the_time_anew():
    world = World([])
    world.creations.is_abandoned(100)
    world.tasks = [{"type": "qmcreate", "id": "100", "node": "pve1"}]
    world.is_abandoned_after(10)
    world.tasks = []

    assert world.creations.is_abandoned(100) is False


@pytest.mark.parametrize(
    "world",
    [
        World([], options={"registered-tags": ""}),
        World([], options=PermissionDenied("no")),
        World(PermissionDenied("no")),
        World(ConnectionFailed("no")),
    ],
)
def test_is_abandoned__who_does_not_see_all_tasks_cannot_tell(world):
    assert world.is_abandoned_after(100) is False
