# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phase 2 of a migration: QEMU starts on the target, receives disks and memory, and stops on the source."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from ..cpu_models import crashes, misfit
from ..errors import TaskError
from ..model import Volume
from ..property_strings import GIB, human_size, parse
from ..tasks import Killed, OrderedFailure, Task
from .needs import LocalDisk
from .terms import Aborted, TargetLost

if TYPE_CHECKING:
    from .worker import Migration

# How long the mirror, and then the clean-up, tries to reach a lost target.
MIRROR_TIMEOUT_SECONDS, CLEAN_UP_TIMEOUT_SECONDS = 22.0, 40.0


class LiveMove:
    """The running part of a move; ``disks`` are mirrored while the guest writes to them."""

    def __init__(self, move: Migration, disks: list[LocalDisk]) -> None:
        self.move, self.disks = move, disks
        self._paused = move.guest.qmpstatus == "paused"
        self._source = move.cluster.nodes[move.guest.node]

    async def run(self) -> None:
        move = self.move
        try:
            await self._run()
        except (Aborted, TaskError) as cause:
            await self._clean_up(f"online migrate failure - {cause}")
            if isinstance(cause, OrderedFailure):
                raise
            self._end()
        except asyncio.CancelledError:
            why = "block job (mirror) error: interrupted by signal" if move.made else "interrupted by signal"
            await self._clean_up(f"online migrate failure - {why}")
            self._end()
        except TargetLost:
            await move.cluster.clock.sleep(MIRROR_TIMEOUT_SECONDS)
            job = "block job (mirror) error: Input/output error (io-status: ok)" if move.made else "tunnel broke"
            move.say(f"ERROR: online migrate failure - {job}")
            move.say("aborting phase 2 - cleanup resources")
            move.say("migrate_cancel")
            move.cluster.set_config(move.guest, lock=None)
            await move.cluster.clock.sleep(CLEAN_UP_TIMEOUT_SECONDS)
            move.say("ERROR: writing to tunnel failed: broken pipe")
            self._end()
        except Killed:
            move.guest.strays.add(move.target.name)
            move.guest.half_mirrored = bool(self.disks)
            raise

    def _end(self) -> None:
        self.move.say(f"ERROR: migration finished with problems (duration {self.move.duration})")
        raise TaskError("migration problems")

    async def _run(self) -> None:
        move, timing = self.move, self.move.cluster.timing
        guest, target = move.guest, move.target
        move.say(f"starting VM {guest.vmid} on remote node '{target.name}'")
        await self._start_there()
        volumes = [(disk, move.allocate(disk)) for disk in self.disks]
        for disk, volume in volumes:
            move.say(f"volume '{disk.volid}' is '{volume.volid}' on the target")
        move.say("start remote tunnel")
        move.say("ssh tunnel ver 1")
        if volumes:
            await self._mirror(volumes)
        where = f"unix:/run/qemu-server/{guest.vmid}.migrate" if move.options.secure else f"tcp:{target.address}:60000"
        move.say(f"starting online/live migration on {where}")
        for step in ("set migration capabilities", "migration downtime limit: 100 ms",
                     "migration cachesize: 4.0 MiB", "set migration parameters"):
            move.say(step)
        move.say(f"start migrate command to {where}")
        await move.spend(timing.migrate_memory_seconds_per_gib * guest.maxmem / GIB)
        move.say("average migration speed: 32.5 MiB/s - downtime 7 ms")
        move.say("migration completed, transferred 800.1 KiB VM-state")
        move.say("migration status: completed")
        await self._switch(volumes)
        await move.cluster.clock.sleep(timing.migrate_cleanup_seconds)
        move.leave()

    async def _start_there(self) -> None:
        """Run a task qmstart on the target; its error is the cause of the failure."""
        move, cluster = self.move, self.move.cluster
        guest, target = move.guest, move.target

        async def start(task: Task) -> None:
            await cluster.clock.sleep(cluster.timing.migrate_start_seconds)
            if target.name in guest.strays:
                raise TaskError(f"VM {guest.vmid} already running")
            for key, value in guest.config.items():
                bridge = parse(str(value), "model").get("bridge") if re.fullmatch(r"net\d+", key) else None
                if bridge and bridge not in target.bridges and bridge not in target.vnets:
                    raise TaskError(f"bridge '{bridge}' does not exist")
            problem = misfit(guest.config, target.cpu, self._source.cpu.get("machine", "x86_64"))
            if problem is not None:
                task.say(f"kvm: {problem}")
                raise TaskError("start failed: QEMU exited with code 1")
            if int(guest.config.get("sockets", 1)) * int(guest.config.get("cores", 1)) > target.cores:
                raise TaskError(f"MAX {target.cores} vcpus allowed per VM on this node")

        task = cluster.tasks.find(cluster.tasks.start(target.name, "qmstart", guest.vmid, move.who, start))
        assert task is not None
        assert task.runner is not None
        await asyncio.shield(task.runner)
        if task.exitstatus != "OK":
            move.say(f"[{target.name}] {task.exitstatus}")
            raise TaskError("remote command failed with exit code 255")

    async def _mirror(self, volumes: list[tuple[LocalDisk, Volume]]) -> None:
        move, task = self.move, self.move.task
        move.say("starting storage migration")
        limit = f" with bandwidth limit: {move.options.bwlimit} KiB/s" if move.options.bwlimit else ""
        for disk, volume in volumes:
            move.say(f"{disk.key}: start migration to nbd:{move.target.address}:60001:exportname=drive-{disk.key}")
            if move.guest.half_mirrored:
                node = "e77392efa839c552c69d2e6b86863d9"
                raise TaskError(
                    f"adding blockdev '{node}' failed : VM {move.guest.vmid} qmp command 'blockdev-add' failed"
                    f" - Duplicate nodes with node-name='{node}'")
            task.say(f"drive mirror is starting for drive-{disk.key}{limit}")
            size = human_size(volume.size)
            task.say(f"mirror-{disk.key}: transferred 0.0 B of {size} (0.00%) in 0s")
            seconds = move.copying_seconds(volume.size)
            try:
                move.check_room(volume)
            except TaskError as error:
                raise TaskError(f"block job (mirror) error: mirror-{disk.key}: {error} (io-status: ok)") from None
            await move.spend(seconds)
            task.say(f"mirror-{disk.key}: transferred {size} of {size} (100.00%) in {seconds:.0f}s, ready")
        task.say("all 'mirror' jobs are ready")
        move.say("switching mirror jobs to actively synced mode")
        for disk, _volume in volumes:
            task.say(f"mirror-{disk.key}: switching to actively synced mode")
            task.say(f"mirror-{disk.key}: successfully switched to actively synced mode")

    async def _switch(self, volumes: list[tuple[LocalDisk, Volume]]) -> None:
        """Hand over to the target: the source's QEMU shows for a moment that it has stopped, then the config moves."""
        move, guest, clock = self.move, self.move.guest, self.move.cluster.clock
        move.cluster.touch(guest)
        guest.qmpstatus = "postmigrate"
        await clock.sleep(move.cluster.timing.migrate_switch_seconds)
        move.arrive()
        guest.qmpstatus = "paused" if self._paused else "running"
        guest.started_at, guest.pid = clock.now(), move.cluster.rng.randrange(1000, 30000)
        if crashes(guest.config, self._source.cpu, move.target.cpu):
            guest.status = guest.qmpstatus = "stopped"
        if volumes:
            move.task.say("all 'mirror' jobs are ready")
            for disk, _volume in volumes:
                for text in ("Completing block job...", "Completed successfully.", "mirror-job finished"):
                    move.task.say(f"mirror-{disk.key}: {text}")
            move.say("stopping NBD storage migration server on target.")

    async def _clean_up(self, cause: str) -> None:
        """Keep the guest running on the source; stop its QEMU on the target and remove the disks there."""
        move, cluster = self.move, self.move.cluster
        move.say(f"ERROR: {cause}")
        move.say("aborting phase 2 - cleanup resources")
        move.say("migrate_cancel")
        move.guest.qmpstatus = "paused" if self._paused else "running"
        cluster.set_config(move.guest, lock=None)

        async def stop(task: Task) -> None:
            await cluster.clock.sleep(cluster.timing.stop_seconds)

        cluster.tasks.start(move.target.name, "qmstop", move.guest.vmid, move.who, stop)
        await cluster.clock.sleep(cluster.timing.migrate_cleanup_seconds)
        move.guest.strays.discard(move.target.name)
        move.clean_up()
