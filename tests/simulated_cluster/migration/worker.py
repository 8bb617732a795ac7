# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The migration worker of a VM: its checks, copies, log lines and clean-up, phase by phase."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ..access import Identity
from ..errors import TaskError
from ..model import Guest, Volume
from ..property_strings import GIB, format_size, human_size, parse, render
from ..tasks import Killed, OrderedFailure, Task
from .live import LiveMove
from .needs import LocalDisk, devices, local_disks, mapping_of, missing_mappings
from .terms import Aborted, Options, TargetLost, ssh

if TYPE_CHECKING:
    from ..cluster import Cluster

POLL_SECONDS = 0.5
# How long ssh tries a node that has just died, and one that the cluster knows to be gone.
JUST_DIED_SECONDS, UNREACHABLE_SECONDS = 23.0, 2.0
SCAN = "Problem found while scanning volumes - "


REPLICATED_PART = 50
"""Of a disk that is replicated, one part in this many has changed since."""


class Migration:
    """One VM on its way to another node."""

    folder, word = "qemu-server", "VM"

    def __init__(self, cluster: Cluster, guest: Guest, target: str, who: Identity, options: Options) -> None:
        self.cluster, self.guest, self.who, self.options = cluster, guest, who, options
        self.source, self.target = guest.node, cluster.nodes[target]
        self.made: list[tuple[LocalDisk, Volume]] = []
        self._task: Task | None = None
        self._began = 0.0

    @property
    def task(self) -> Task:
        assert self._task is not None
        return self._task

    async def run(self, task: Task) -> None:
        """The worker's body."""
        self._task, self._began = task, self.cluster.clock.now()
        if self.options.by_manager:
            task.say("task started by HA resource agent")
        await self.cluster.hold(self.guest, task=task)
        try:
            if self.cluster.guests.get(self.guest.vmid) is not self.guest or self.guest.node != self.source:
                raise TaskError(
                    f"Configuration file 'nodes/{self.source}/{self.folder}/{self.guest.vmid}.conf' does not exist")
            await self._prepare()
            where = f"node '{self.target.name}' ({self.target.address})"
            self.say(f"starting migration of {self.word} {self.guest.vmid} to {where}")
            self.cluster.set_config(self.guest, lock="migrate")
            await self._move()
            self.say(f"migration finished successfully (duration {self.duration})")
        finally:
            self.guest.lock.release()

    def say(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.cluster.clock.now()))
        self.task.say(f"{stamp} {text}")

    @property
    def duration(self) -> str:
        seconds = int(self.cluster.clock.now() - self._began)
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    async def _prepare(self) -> None:
        guest, target = self.guest, self.target
        nodes = (self.cluster.nodes[guest.node], target)
        kept = self.options.conntrack and all(node.dbus_vmstate for node in nodes)
        if self.options.online and self.cluster.modern and not kept:
            self.say("conntrack state migration not supported or disabled, active connections might get dropped")
        if guest.config_lock:
            self._give_up(f"VM is locked ({guest.config_lock})")
        targets = self._replicated_to()
        if self.options.online and targets and target.name not in targets:
            if not self.options.by_manager:
                self._give_up(f"Cannot live-migrate replicated VM to node '{target.name}' - not a replication target."
                              " Use 'force' to override.")
            self.say(f"WARNING: Node '{target.name}' is not a replication target. Existing replication jobs will fail"
                     " after migration!")
        found = devices(self.cluster, guest)
        raw = [key for key in found.local if key not in found.mapped]
        if raw:
            self._give_up(f"can't migrate VM which uses local devices: {', '.join(raw)}")
        if found.mapped:
            missing = missing_mappings(self.cluster, guest, target.name)
            if missing:
                self._give_up(f"can't migrate to '{target.name}': missing mapped devices {', '.join(missing)}")
            stuck = [key for key, name in found.mapped.items()
                     if not mapping_of(self.cluster, key, name).get("live-migration-capable")]
            if self.options.online and stuck:
                self._give_up(f"can't migrate running VM which uses following mapped devices: {', '.join(stuck)}")
            self.say("migrating VM which uses mapped local devices")
        await self._reach_target()

    def _replicated_to(self) -> set[str]:
        """The nodes to which the guest's disks are replicated; one of them sends what has changed only."""
        return {str(job["target"]) for job in self.cluster.replication if job["guest"] == self.guest.vmid}

    async def _reach_target(self) -> None:
        target = self.target
        if not target.online:
            known = self.cluster.statistics.offline_known(target)
            await self.cluster.clock.sleep(UNREACHABLE_SECONDS if known else JUST_DIED_SECONDS)
            self.say(f"# {ssh(target)} /bin/true")
            self.say(f"ssh: connect to host {target.address} port 22: No route to host")
            self._give_up("Can't connect to destination address using public key")

    def _give_up(self, cause: str) -> None:
        self.say(f"ERROR: migration aborted (duration {self.duration}): {cause}")
        raise TaskError("migration aborted")

    async def _move(self) -> None:
        try:
            disks = self._scan()
        except Aborted as cause:
            self._abort(str(cause))
        live = LiveMove(self, [disk for disk in disks if not disk.unused and not disk.cloudinit])
        still = disks if not self.options.online else [disk for disk in disks if disk not in live.disks]
        try:
            await self._copy(still)
        except (Aborted, TargetLost, asyncio.CancelledError) as cause:
            self._abort(str(cause) or "interrupted by signal")
        except OrderedFailure:
            self.clean_up()
            raise
        if self.options.online:
            await live.run()
        else:
            await self._finish_offline()

    def _abort(self, cause: str) -> None:
        """Fail in phase 1: nothing runs on the target, but copied parts of offline disks remain there."""
        self.say(f"ERROR: {cause}")
        self.say("aborting phase 1 - cleanup resources")
        self.cluster.set_config(self.guest, lock=None)
        self._give_up(cause)

    def _scan(self) -> list[LocalDisk]:
        """Return the local disks to copy. Raises Aborted if one cannot be copied."""
        disks, stuck = local_disks(self.cluster, self.guest), []
        for disk in disks:
            self.say(self._found(disk))
            if disk.volume is not None and disk.volume.base is not None:
                stem = disk.volume.base.rpartition("/")[2]
                raise Aborted(f"{SCAN}can't migrate '{disk.volid}' as it's a clone of '{stem}'"
                              " at /usr/share/perl5/PVE/QemuMigrate.pm line 586.")
            why = self._stuck(disk)
            if why is not None:
                stuck.append(disk)
                self.say(f"can't migrate local disk '{disk.volid}': {why}")
        if stuck:
            raise Aborted(f"{SCAN}can't migrate VM - check log")
        for disk in disks:
            if disk.cloudinit and "size" not in disk.drive and disk.volume is not None:
                size = format_size(disk.volume.size)
                self.say(f"drive '{disk.key}': size of disk '{disk.volid}' updated from 0T to {size}")
                self._rewrite(disk, {**disk.drive, "size": size})
        return disks

    def _found(self, disk: LocalDisk) -> str:
        if self.guest.kind == "lxc":
            return f"found local volume '{disk.volid}' (in current VM config)"
        if disk.cloudinit:
            return f"found generated disk '{disk.volid}' (in current VM config)"
        return f"found local disk '{disk.volid}' ({'unused' if disk.unused else 'attached'})"

    def _stuck(self, disk: LocalDisk) -> str | None:
        if self.options.online and not disk.unused and not disk.cloudinit and not self.options.local_disks:
            return "can't live migrate attached local disks without with-local-disks option"
        if disk.iso:
            return "local cdrom image"
        if disk.volume is None:
            return f"volume '{disk.volid}' does not exist"
        if self.cluster.volumes.dependants(disk.volume):
            return "referenced by linked clone(s)"
        return self._stuck_in_snapshots(disk)

    def _stuck_in_snapshots(self, disk: LocalDisk) -> str | None:
        if not disk.snapshots or self.guest.kind != "qemu":
            return None
        if self.options.online and self.target.name not in self._replicated_to():
            return "online storage migration not possible if non-replicated snapshot exists"
        moves = disk.storage.type in ("zfspool", "btrfs") or disk.volid.endswith(".qcow2")
        return None if moves else "non-migratable snapshot exists"

    async def _copy(self, disks: list[LocalDisk]) -> None:
        """Copy the disks that are not in use."""
        if disks and self.guest.kind == "qemu":
            self.say("copying local disk images")
        for disk in disks:
            assert disk.volume is not None
            if self.options.bwlimit:
                self.say(f"using a bandwidth limit of {self.options.bwlimit * 1024} bytes per second"
                         f" for transferring '{disk.volid}'")
            prefix = "" if self.options.secure else f"[{self.target.name}] "
            try:
                volume = self.allocate(disk)
                line = self.cluster.volumes.formatting_line(volume, self.cluster.storages[volume.storage])
                if line:
                    self.say(prefix + line)
                self.check_room(volume)
                await self.spend(self.copying_seconds(volume.size))
            except OrderedFailure:
                raise
            except TaskError as error:
                self.clean_up()
                raise Aborted(self._failed_copy(disk, str(error))) from None
            except (TargetLost, asyncio.CancelledError):
                raise Aborted(self._failed_copy(disk, "interrupted by signal")) from None
            self.say(f"{volume.size} bytes ({human_size(volume.size)}) copied")
            self.say(f"{prefix}successfully imported '{volume.volid}'")
            self.say(f"volume '{disk.volid}' is '{volume.volid}' on the target")

    def _failed_copy(self, disk: LocalDisk, why: str) -> str:
        storage = self.options.storage(disk.storage.name)
        return f"storage migration for '{disk.volid}' to storage '{storage}' failed - {why}"

    def allocate(self, disk: LocalDisk) -> Volume:
        """The disk's image on the target, still empty."""
        assert disk.volume is not None
        volumes, node = self.cluster.volumes, self.target.name
        storage = self.cluster.storages[self.options.storage(disk.storage.name)]
        volumes.check_usable(storage, node)
        if disk.cloudinit:
            volume = volumes.allocate_cloudinit(storage, node, self.guest.vmid)
        else:
            wanted = None if storage.block else disk.volume.format
            volume = volumes.allocate(storage, node, self.guest.vmid, disk.volume.size, wanted)
        if "base-" in disk.volid:
            volumes.remove(volume)
            volume.volid = volume.volid.replace(f"vm-{self.guest.vmid}-disk", f"base-{self.guest.vmid}-disk")
            volumes.add(volume)
        self.made.append((disk, volume))
        return volume

    def check_room(self, volume: Volume) -> None:
        """Fail if the storage is full: a sparse image needs its space only when it is written."""
        storage = self.cluster.storages[volume.storage]
        if storage.base_used.get(volume.place, 0) + storage.allocated[volume.place] > storage.total(self.target.name):
            raise TaskError("No space left on device")

    def copying_seconds(self, size: int) -> float:
        size = size // REPLICATED_PART if self.target.name in self._replicated_to() else size
        seconds = self.cluster.timing.clone_seconds_per_gib * size / GIB
        return max(seconds, size / (self.options.bwlimit * 1024)) if self.options.bwlimit else seconds

    async def _finish_offline(self) -> None:
        seconds = self.cluster.timing.migrate_seconds / 2
        try:
            await self.spend(0.0 if self.made else seconds)
        except TargetLost as cause:
            self._abort(str(cause))
        self.arrive()
        await self.cluster.clock.sleep(seconds)
        self.leave()

    async def spend(self, seconds: float) -> None:
        """Work for a time. Raises TargetLost as soon as the target is lost, and Killed when the worker's node is."""
        await self._unless_lost(self.task.work(self.cluster.clock, seconds))

    async def _unless_lost(self, work: Awaitable[None]) -> None:
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._until_lost())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            if not working.done():
                working.cancel()
        self._survive()
        if not working.done() or working.cancelled():
            raise TargetLost("target node is gone")
        working.result()

    async def _until_lost(self) -> None:
        while self.target.online and self.cluster.nodes[self.source].online:
            await asyncio.sleep(max(0.005, POLL_SECONDS * self.cluster.clock.scale))

    def _survive(self) -> None:
        """Raise Killed if the worker's node is lost."""
        if not self.cluster.nodes[self.source].online:
            raise Killed

    def arrive(self) -> None:
        """Move the config file, with the new disks, to the target's folder."""
        self._survive()
        cluster, guest = self.cluster, self.guest
        cluster.touch(guest)
        for disk, volume in self.made:
            live = {"format": volume.format} if guest.running and not disk.cloudinit else {}
            self._rewrite(disk, {**disk.drive, "file": volume.volid, **live})
        guest.left.append((cluster.clock.now(), guest.node))
        guest.node, guest.moved_at = self.target.name, cluster.clock.now()
        # Whoever moved it: the HA manager looks whether a rule keeps it elsewhere.
        cluster.ha.manager.nudge()
        cluster.touch(guest)

    def leave(self) -> None:
        """Remove the guest from the source, and release its lock."""
        for disk, _volume in self.made:
            if disk.volume is not None:
                self.cluster.volumes.remove(disk.volume)
        self.cluster.set_config(self.guest, lock=None)

    def clean_up(self) -> None:
        """Undo what was made on the target."""
        self.cluster.set_config(self.guest, lock=None)
        for _disk, volume in self.made:
            self.cluster.volumes.remove(volume)

    def _rewrite(self, disk: LocalDisk, drive: dict[str, str]) -> None:
        changed = {name: text for name, text in drive.items() if disk.drive.get(name) != text}
        for config in (self.guest.config, *self.guest.snapshots.values()):
            for key, value in list(config.items()):
                own = parse(str(value)) if str(value).startswith(disk.volid) else {}
                if own.get("file") == disk.volid:
                    config[key] = render({**own, **changed})
        disk.drive = drive if drive.get("file") == disk.volid else disk.drive
