# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The migration worker of a container: stopped, or shut down, moved and started again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..tasks import Task
from .needs import volumes_of
from .terms import TargetLost, ssh
from .worker import Migration

if TYPE_CHECKING:
    from .needs import LocalDisk


class ContainerMigration(Migration):
    """One container on its way to another node."""

    folder, word = "lxc", "CT"

    async def _prepare(self) -> None:
        if self.guest.config_lock:
            self._give_up(f"CT is locked ({self.guest.config_lock})")
        await self._reach_target()

    async def _move(self) -> None:
        cluster, guest, timing = self.cluster, self.guest, self.cluster.timing
        was_running = guest.running
        if was_running:
            self.say(f"shutdown CT {guest.vmid}")
            with suppress(TargetLost):
                await self.spend(timing.shutdown_seconds)
            cluster.touch(guest)
            guest.status = guest.qmpstatus = "stopped"
        await super()._move()
        if was_running:
            self.say("start container on target node")

            async def start(_task: Task) -> None:
                await cluster.clock.sleep(timing.start_seconds)
                cluster.touch(guest)
                guest.status = guest.qmpstatus = "running"
                guest.started_at = cluster.clock.now()

            cluster.tasks.start(guest.node, "vzstart", guest.vmid, self.who, start)

    def _scan(self) -> list[LocalDisk]:
        for volid, storage in volumes_of(self.cluster, self.guest):
            if storage.shared:
                self.say(f"volume '{volid}' is on shared storage '{storage.name}'")
        return super()._scan()

    async def _finish_offline(self) -> None:
        if self.made:
            quoted = r"\''{}'\'"
            self.say(f"# {ssh(self.target)} pvesr set-state {self.guest.vmid} {quoted}")
        self.say("start final cleanup")
        await super()._finish_offline()
