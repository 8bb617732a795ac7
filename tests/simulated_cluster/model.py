# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The things a cluster is made of: nodes, guests, storages and volumes, with the figures Proxmox derives from them."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from .load import Load
from .property_strings import DRIVE_ORDER, MIB, is_cdrom, is_drive, parse, parse_size

BLOCK_TYPES = frozenset({"lvm", "lvmthin", "zfspool", "rbd", "zfs", "iscsi", "iscsidirect"})
SHARED_TYPES = frozenset({"rbd", "cephfs", "nfs", "cifs", "iscsi", "iscsidirect", "pbs", "zfs", "esxi"})
THICK_TYPES = frozenset({"lvm"})

CLOUD_INIT = frozenset(
    {"cicustom", "cipassword", "citype", "ciupgrade", "ciuser", "nameserver", "searchdomain", "sshkeys"}
)


def is_cloud_init(option: str) -> bool:
    """Whether an option is data for the cloud-init drive."""
    return option in CLOUD_INIT or option.startswith("ipconfig")


def fingerprint(text: str) -> str:
    """Something that looks like a certificate's fingerprint, always the same for one text."""
    digest = hashlib.sha256(text.encode()).hexdigest().upper()
    return ":".join(digest[i : i + 2] for i in range(0, 64, 2))


@dataclass
class Node:
    """A host. Memory in bytes; ``cpu_use`` and ``memory_use`` are the host's own load as fractions.

    ``pressure`` has the percentages of time in which something waited for cpu, io and memory; ``dead_services`` are
    services that do not run; ``clock_offset`` is how many seconds the node's clock is ahead of the others';
    ``dbus_vmstate`` is whether the node has what carries connections over in a live migration. ``votes`` are its votes
    in corosync, ``updates`` the packages that have updates, ``kernels`` the releases of the kernels that are installed
    besides ``kernel``, which runs. ``wakeonlan`` is the MAC address to which a packet wakes it.
    """

    name: str
    number: int
    cores: int
    memory: int
    online: bool = True
    maintenance: bool = False
    cpu_use: float = 0.02
    memory_use: float = 0.1
    pressure: dict[str, float] = field(default_factory=dict)
    load: Load = field(default_factory=Load)
    dead_services: list[str] = field(default_factory=list)
    clock_offset: float = 0.0
    dbus_vmstate: bool = True
    votes: int = 1
    updates: list[str] = field(default_factory=list)
    kernel: str = ""
    kernels: list[str] = field(default_factory=list)
    wakeonlan: str = ""
    disk: int = 64 * 1024**3
    bridges: list[str] = field(default_factory=lambda: ["vmbr0"])
    vnets: list[str] = field(default_factory=list)
    cpu: dict[str, Any] = field(default_factory=dict)
    pci: list[dict[str, Any]] = field(default_factory=list)
    usb: list[dict[str, Any]] = field(default_factory=list)
    booted_at: float = 0.0
    offline_since: float | None = None
    down: list[tuple[float, float]] = field(default_factory=list)
    maintenance_since: float | None = None
    maintenance_ended: float | None = None

    @property
    def address(self) -> str:
        return f"10.99.{self.number // 250}.{self.number % 250}"

    @functools.cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.name)


@dataclass
class Storage:
    """A storage definition. Sizes in bytes, per node; ``None`` as node is the one pool of a shared storage."""

    name: str
    type: str
    content: list[str]
    shared: bool = False
    nodes: list[str] | None = None
    enabled: bool = True
    sizes: dict[str | None, int] = field(default_factory=dict)
    base_used: dict[str | None, int] = field(default_factory=dict)
    reserved: dict[str | None, int] = field(default_factory=dict)
    allocated: dict[str | None, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    full: bool = False

    @property
    def block(self) -> bool:
        return self.type in BLOCK_TYPES

    @property
    def path(self) -> str:
        fallback = f"/mnt/pve/{self.name}" if self.shared else f"/var/lib/{self.name}"
        return str(self.options.get("path", "/var/lib/vz" if self.name == "local" else fallback))

    def place(self, node: str) -> str | None:
        """The key of the pool that ``node`` uses."""
        return None if self.shared else node

    def on_node(self, node: str) -> bool:
        return self.nodes is None or node in self.nodes

    def usable(self, node: str) -> bool:
        return self.enabled and self.on_node(node)

    def total(self, node: str) -> int:
        return self.sizes.get(self.place(node), 0)

    def used(self, node: str) -> int:
        place = self.place(node)
        if self.full:
            return self.total(node)
        return min(self.total(node), self.base_used.get(place, 0) + self.allocated.get(place, 0))

    def available(self, node: str) -> int:
        """The bytes that can be written: less than total - used if a file system or a quota reserves some."""
        return max(0, self.total(node) - self.used(node) - self.reserved.get(self.place(node), 0))


@dataclass
class Volume:
    """A disk image, ISO file or the like; size in bytes as provisioned. ``backup`` is the config in an archive."""

    volid: str
    storage: str
    place: str | None
    size: int
    content: str = "images"
    format: str = "raw"
    vmid: int | None = None
    parent: str | None = None
    ctime: int = 0
    base: str | None = None
    backup: dict[str, Any] | None = None
    notes: str = ""


@dataclass
class Guest:
    """A VM or container: the content of its config file and its running state.

    ``birth`` is the number of its creation, clone or restore: the one thing that is never the same for two guests, and
    that no change of the guest changes. Proxmox has nothing like it, so the API never shows it. ``strays`` are nodes
    where a killed migration left a paused QEMU; ``half_mirrored`` tells that it left a block device in the guest's own.
    ``cloud_init`` is the data on its cloud-init drive; ``cloud_init_before`` are the values with which that was
    written, of options that have changed since, and ``cloud_init_added`` the options that were not set then.
    ``left`` are the nodes that it left, and when.
    """

    vmid: int
    node: str
    kind: str = "qemu"
    config: dict[str, Any] = field(default_factory=dict)
    status: str = "stopped"
    qmpstatus: str = "stopped"
    pending: dict[str, Any] = field(default_factory=dict)
    started_at: float = 0.0
    cpu_use: float = 0.05
    memory_use: float = 0.5
    agent: dict[str, Any] | None = None
    acpi: bool = True
    snapshots: dict[str, Any] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    pid: int = 0
    load: Load = field(default_factory=Load)
    moved_at: float = 0.0
    measured_since: float = 0.0
    left: list[tuple[float, str]] = field(default_factory=list)
    strays: set[str] = field(default_factory=set)
    half_mirrored: bool = False
    birth: int = 0
    cloud_init: dict[str, Any] = field(default_factory=dict)
    cloud_init_before: dict[str, Any] = field(default_factory=dict)
    cloud_init_added: set[str] = field(default_factory=set)
    made_at: float = field(default_factory=lambda: time.monotonic())

    @property
    def has_cloud_init_drive(self) -> bool:
        return any("cloudinit" in drive.get("file", "") for drive in self.drives().values())

    def write_cloud_init(self) -> None:
        """Write the data of the config to the cloud-init drive, if there is one."""
        if self.has_cloud_init_drive:
            self.cloud_init = {key: self.config[key] for key in self.config if is_cloud_init(key)}
            self.cloud_init_before, self.cloud_init_added = {}, set()

    def note_cloud_init(self, option: str, old: Any, new: Any) -> None:
        """Note a change of what cloud-init gets, which its drive does not have yet; None is for what is not set."""
        concerned = is_cloud_init(option) or re.fullmatch(r"name|net\d+", option)
        if not concerned or old == new or not self.has_cloud_init_drive:
            return
        if option in self.cloud_init_before:
            if new == self.cloud_init_before[option]:
                del self.cloud_init_before[option]
        elif option in self.cloud_init_added:
            if new is None:
                self.cloud_init_added.remove(option)
        elif old is None:
            self.cloud_init_added.add(option)
        else:
            self.cloud_init_before[option] = old

    @property
    def running(self) -> bool:
        return self.status == "running"

    @property
    def name(self) -> str:
        if self.kind == "lxc":
            return str(self.config.get("hostname", f"CT{self.vmid}"))
        return str(self.config.get("name", f"VM {self.vmid}"))

    @property
    def template(self) -> bool:
        return bool(self.config.get("template"))

    @property
    def tags(self) -> str | None:
        return self.config.get("tags") or None

    @property
    def config_lock(self) -> str | None:
        """The ``lock`` in the config (create, clone, backup, ...)."""
        return self.config.get("lock")

    @property
    def maxmem(self) -> int:
        return int(parse(str(self.config.get("memory", 512)), "current")["current"]) * MIB

    def maxcpu(self, host_cores: int) -> int:
        """Virtual CPUs as Proxmox reports them: never more than the host has, unless ``vcpus`` says so."""
        if self.kind == "lxc":
            return int(self.config.get("cores", host_cores))
        if self.config.get("vcpus"):
            return int(self.config["vcpus"])
        return min(int(self.config.get("sockets", 1)) * int(self.config.get("cores", 1)), host_cores)

    @property
    def maxdisk(self) -> int:
        """Size of the boot disk, 0 without one."""
        if self.kind == "lxc":
            return _size_of(parse(str(self.config.get("rootfs", "")), "volume"))
        boot = str(self.config.get("boot", ""))
        order = boot.removeprefix("order=").split(";") if boot.startswith("order=") else list(DRIVE_ORDER)
        for key in order:
            if key in self.config and is_drive(key):
                drive = parse(str(self.config[key]))
                if not is_cdrom(drive):
                    return _size_of(drive)
        return 0

    def drives(self) -> dict[str, dict[str, str]]:
        """Drive name to its parts, cloud-init and CD drives included."""
        return {key: parse(str(value)) for key, value in self.config.items() if is_drive(key)}

    def config_after_start(self) -> dict[str, Any]:
        """The config with what is pending: what Proxmox shows unless the current one is asked for."""
        whole = {**self.config, **self.pending}
        return {key: value for key, value in whole.items() if value is not None}

    def pending_rows(self) -> list[dict[str, Any]]:
        """The rows of C(GET .../pending): each option with its value and with what is pending."""
        rows: list[dict[str, Any]] = [{"key": "digest", "value": self.digest()}]
        for key in dict.fromkeys([*self.config, *self.pending]):
            row: dict[str, Any] = {"key": key}
            if key in self.config:
                row["value"] = self.config[key]
            if key in self.pending:
                row |= {"delete": 1} if self.pending[key] is None else {"pending": self.pending[key]}
            if key == "cipassword":
                row |= {field: "**********" for field in ("value", "pending") if field in row}
            rows.append(row)
        return rows

    def digest(self) -> str:
        """Of the whole config file: what is pending and the snapshots are parts of it."""
        file = [self.config, self.pending, self.snapshots, self.cloud_init_before, sorted(self.cloud_init_added)]
        return hashlib.sha1(json.dumps(file, sort_keys=True).encode()).hexdigest()


def _size_of(drive: dict[str, str]) -> int:
    return parse_size(drive["size"]) if "size" in drive else 0
