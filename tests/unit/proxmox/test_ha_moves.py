# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves that the HA manager takes up late, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import TaskFailed
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import HA, Move
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.freshness import HA_BEGINS_WITHIN
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.ha_moves import HAMoves
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import Poller, TaskFollower

MOVE = Move(1, 101, "web", "pve1", "pve2", "", via=HA)


class Cluster:
    """A clock, and one guest that goes to the target when the HA manager has been asked so many times, or else at a
    given time. In that case its node is offline until a few seconds before.
    """

    def __init__(self, needed: int, at: float | None = None) -> None:
        self.needed = needed
        self.at = at
        self.asked: list[float] = []
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def get(self, path: str, **params: Any) -> list[dict[str, Any]]:
        arrived = len(self.asked) >= self.needed if self.at is None else self.now >= self.at
        lost = self.at is not None and 1 < self.now < self.at - HA_BEGINS_WITHIN / 2
        guest = {"type": "qemu", "vmid": 101, "node": "pve2" if arrived else "pve1", "hastate": "started"}
        return [guest, {"type": "node", "node": "pve1", "status": "offline" if lost else "online"}]

    def follow(self) -> None:
        self.asked.append(self.now)
        tasks = TaskFollower(self, 300, Poller(lambda: self.now, self.sleep))  # type: ignore[arg-type]
        HAMoves(self, tasks).follow(MOVE, None, lambda: self.asked.append(self.now))  # type: ignore[arg-type]


def test_follow__requests_once_more_what_the_manager_has_lost() -> None:
    cluster = Cluster(needed=2)
    cluster.follow()
    assert len(cluster.asked) == 2
    assert HA_BEGINS_WITHIN <= cluster.asked[1] <= HA_BEGINS_WITHIN + 2


def test_follow__gives_up_on_a_manager_that_loses_it_twice() -> None:
    cluster = Cluster(needed=3)
    with pytest.raises(TaskFailed, match="accepted the move twice and did not begin it within 30 s"):
        cluster.follow()
    assert len(cluster.asked) == 2
    assert cluster.now < 3 * HA_BEGINS_WITHIN


def test_follow__waits_for_a_node_that_is_offline() -> None:
    cluster = Cluster(needed=0, at=10 * HA_BEGINS_WITHIN)
    cluster.follow()
    assert len(cluster.asked) == 1
    assert cluster.now >= cluster.at
