# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole simulated cluster: what a handler may read and change."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from .access import Access, Tickets
from .clock import Clock
from .errors import ApiError, TaskError, die
from .faults import Faults
from .ha import HighAvailability
from .model import Guest, Node, Storage
from .pvestatd import Statistics
from .request_log import RequestLog
from .schema import Schema, Validator
from .tasks import Task, Tasks
from .volumes import Volumes

RELEASES = {"8.4": ("8.4.21", "2606ac850d46da29"), "9.2": ("9.2.11", "14a22df35955d97d")}
# Real seconds in which requests for one VMID count as simultaneous, and how many of the losers fail only in their task.
RACE_SECONDS = 0.05
RACE_SHARE = 0.3


@dataclass
class Timing:
    """How long things take, in Proxmox seconds."""

    create_seconds: float = 0.2
    disk_seconds: float = 0.1
    import_seconds_per_gib: float = 2.0
    clone_seconds: float = 0.4
    clone_seconds_per_gib: float = 2.0
    start_seconds: float = 1.0
    stop_seconds: float = 1.0
    shutdown_seconds: float = 5.0
    delete_seconds: float = 0.3
    resize_seconds: float = 0.3
    template_seconds: float = 0.5
    migrate_seconds: float = 2.0
    migrate_start_seconds: float = 1.5
    migrate_memory_seconds_per_gib: float = 1.0
    migrate_switch_seconds: float = 1.0
    migrate_cleanup_seconds: float = 3.0
    switched_seconds: float = 0.2
    restore_seconds: float = 1.0
    restore_seconds_per_gib: float = 2.0
    agent_seconds: float = 10.0
    pvestatd_seconds: float = 10.0
    worker_cache_seconds: float = 2.0
    ha_seconds: float = 8.0
    lrm_seconds: float = 3.0
    maintenance_seconds: float = 12.0
    maintenance_end_seconds: float = 18.0
    offline_seconds: float = 8.0
    expires_seconds: float = 300.0
    fence_after_seconds: float = 60.0
    fence_seconds: float = 60.0
    node_down_seconds: float = 3.0
    unauthorized_seconds: float = 3.0
    lock_seconds: float = 10.0
    noquorum_seconds: float = 9.0
    request_seconds: float = 0.0

    @classmethod
    def names(cls) -> set[str]:
        return {entry.name for entry in fields(cls)}


class Cluster:
    """State, time and bookkeeping of one simulated cluster."""

    def __init__(self, version: str, clock: Clock, seed: int) -> None:
        self.version = version
        self.clock = clock
        self.rng = random.Random(seed)
        self.timing = Timing()
        self.schema = Schema.load(version)
        self.name = "lab"
        # Made when a cluster is installed: no two have the same, whatever else they share.
        self.authority = uuid.uuid4()
        self.nodes: dict[str, Node] = {}
        self.guests: dict[int, Guest] = {}
        self._births = itertools.count(1)
        self.storages: dict[str, Storage] = {}
        self.options: dict[str, Any] = {}
        self.backup_jobs: list[dict[str, Any]] = []
        self.replication: list[dict[str, Any]] = []
        self.mappings: dict[str, dict[str, dict[str, Any]]] = {"pci": {}, "usb": {}, "dir": {}}
        self.custom_cpus: dict[str, dict[str, Any]] = {}
        self.quorate = True
        self.ceph_health: dict[str, Any] | None = None
        self.ceph_flags: set[str] = set()
        self.ceph_pools: list[dict[str, Any]] = []
        self.qdevice: dict[str, str] = {}
        self.access = Access(version)
        self.tickets = Tickets()
        self.tasks = Tasks(self.clock)
        self.volumes = Volumes(self)
        self.ha = HighAvailability(self)
        self.faults = Faults()
        self.log = RequestLog()
        self.validator = Validator(self.custom_cpus)
        self._statistics: Statistics | None = None

    @property
    def modern(self) -> bool:
        """True from release 9 on."""
        return not self.version.startswith("8")

    @property
    def statistics(self) -> Statistics:
        if self._statistics is None:
            raise RuntimeError("the cluster has not been started")
        return self._statistics

    def start(self) -> None:
        """Start the clock, when everything in the description exists."""
        self._statistics = Statistics(self, self.rng)
        self._statistics.publish_all()

    def statistics_settle(self) -> None:
        """Let rounds that are due see the state before a change; nothing while the cluster is being built."""
        if self._statistics is not None:
            self._statistics.settle()

    def touch(self, guest: Guest) -> None:
        if self._statistics is not None:
            self._statistics.touch(guest)

    @property
    def local_node(self) -> Node:
        """The node that answers on the API port: the first that is online."""
        return next((node for node in self.nodes.values() if node.online), next(iter(self.nodes.values())))

    def switch_node(self, node: Node, online: bool, *, known: bool = False) -> None:
        """Take a node off the cluster, or bring it back. ``known`` skips the seconds in which the others have not
        noticed yet.
        """
        self.statistics_settle()
        now = self.clock.now()
        node.online = online
        if online and node.offline_since is not None:
            node.down.append((node.offline_since, now))
        node.offline_since = None if online else now - (self.timing.offline_seconds if known else 0.0)
        if online:
            node.booted_at = now
            return
        # Nobody publishes that these guests are gone: their rows stay as they were.
        for guest in self.guests.values():
            if guest.node == node.name and guest.running:
                self.touch(guest)
                guest.status = guest.qmpstatus = "stopped"

    def guest(self, kind: str, node: str, vmid: int | str) -> Guest:
        """The guest of that kind on that node; the error that Proxmox gives for every other case."""
        found = self.guests.get(int(vmid))
        if found is None or found.node != node or found.kind != kind:
            folder = "qemu-server" if kind == "qemu" else "lxc"
            raise die(f"Configuration file 'nodes/{node}/{folder}/{vmid}.conf' does not exist")
        return found

    def bear(self, guest: Guest) -> None:
        """Make it a guest that nobody has seen before, whatever VMID it has."""
        guest.birth = next(self._births)

    def add_guest(self, guest: Guest) -> None:
        self.statistics_settle()
        self.bear(guest)
        guest.measured_since = self.clock.now()
        self.guests[guest.vmid] = guest
        self.touch(guest)

    def remove_guest(self, guest: Guest) -> None:
        """Remove the config; the last published figures remain until a new guest with that VMID replaces them."""
        self.touch(guest)
        self.guests.pop(guest.vmid, None)
        pool = self.access.pool_of(guest.vmid)
        if pool is not None:
            self.access.pools[pool]["vms"].discard(guest.vmid)
            self.access.changed()

    def set_config(self, guest: Guest, **values: Any) -> None:
        """Write options of a guest; ``None`` removes one."""
        self.touch(guest)
        for key, value in values.items():
            if value is None:
                guest.config.pop(key, None)
            else:
                guest.config[key] = value

    def in_use(self, vmid: int, node: str) -> str | None:
        """Who has a VMID, in the words of ``check_vmid_unused``, or of the file system when two nodes race for it."""
        guest = self.guests.get(vmid)
        if guest is None:
            return None
        if guest.node != node and self.just_made(guest) and self.rng.random() < RACE_SHARE:
            return f"close (rename) atomic file '/etc/pve/nodes/{node}/qemu-server/{vmid}.conf' failed: File exists"
        return f"{'VM' if guest.kind == 'qemu' else 'CT'} {vmid} already exists on node '{guest.node}'"

    def just_made(self, guest: Guest) -> bool:
        """True while another request for the same VMID may have passed its first check already."""
        return guest.config_lock in ("create", "clone") and time.monotonic() - guest.made_at < RACE_SECONDS

    def need_quorum(self) -> None:
        if not self.quorate:
            raise die("cluster not ready - no quorum?")

    async def need_quorum_for(self, what: str, file: str = "file-user_cfg") -> None:
        """Fail without quorum. As in Proxmox, a write to a cluster file blocks for a while before it fails."""
        if not self.quorate:
            await self.clock.sleep(self.timing.noquorum_seconds)
            raise die(f"{what} failed: cfs-lock '{file}' error: no quorum!")

    def need_writable(self, guest: Guest, error: Callable[[str], Exception] = die) -> None:
        """A config file cannot be replaced while the cluster file system is read-only."""
        if not self.quorate:
            file = f"/etc/pve/nodes/{guest.node}/qemu-server/{guest.vmid}.conf.tmp.{self.rng.randrange(900, 30000)}"
            raise error(f"unable to open file '{file}' - Permission denied")

    async def hold(self, guest: Guest, error: type[Exception] = TaskError, task: Task | None = None) -> None:
        """Take the guest's file lock, as every writer of its config does; the caller releases it."""
        told = task if guest.lock.locked() else None
        if told is not None:
            told.say("trying to acquire lock...")
        try:
            await asyncio.wait_for(guest.lock.acquire(), max(0.05, self.timing.lock_seconds * self.clock.scale))
        except TimeoutError:
            file = f"/var/lock/qemu-server/lock-{guest.vmid}.conf"
            if guest.kind == "lxc":
                file = f"/run/lock/lxc/pve-config-{guest.vmid}.lock"
            text = f"can't lock file '{file}' - got timeout"
            raise (ApiError(500, text) if error is ApiError else TaskError(text)) from None
        if told is not None:
            told.say(" OK")

    def random_mac(self) -> str:
        prefix = str(self.options.get("mac_prefix", "BC:24:11"))
        return prefix + "".join(f":{self.rng.randrange(256):02X}" for _ in range(5 - prefix.count(":")))

    def random_uuid(self) -> str:
        text = f"{self.rng.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def shuffled(self, rows: list[Any]) -> list[Any]:
        """Rows in the random order in which Perl's hashes come out."""
        self.rng.shuffle(rows)
        return rows
