# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What prevents a move, and what must be copied for it: the answers of Proxmox's precondition check."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..model import Guest, Storage, Volume
from ..property_strings import is_cdrom, is_drive, parse, parse_size

if TYPE_CHECKING:
    from ..cluster import Cluster

_DEVICE = re.compile(r"(?:usb|hostpci|serial|parallel|virtiofs)\d+")
_CLOUDINIT = ("cloudinit", "cloudinit.qcow2", "cloudinit.raw")


@dataclass
class LocalDisk:
    """A volume that only the guest's node has. ``key`` is its drive or ``unused0``; None if only snapshots name it."""

    volid: str
    storage: Storage
    key: str | None
    drive: dict[str, str]
    volume: Volume | None
    snapshots: list[str] = field(default_factory=list)

    @property
    def unused(self) -> bool:
        return self.key is None or self.key.startswith("unused")

    @property
    def cloudinit(self) -> bool:
        return self.volid.endswith(_CLOUDINIT)

    @property
    def iso(self) -> bool:
        return is_cdrom(self.drive) and not self.cloudinit

    def row(self, modern: bool) -> dict[str, Any]:
        """The row of ``local_disks``."""
        row: dict[str, Any] = {
            "volid": self.volid, "cdrom": int(is_cdrom(self.drive)), "shared": 0, "replicate": 1,
            "is_attached": int(not self.unused), "is_unused": int(self.unused), "is_vmstate": 0,
            "is_tpmstate": int(self.key == "tpmstate0"),
        }
        if modern:
            row["is_cloudinit"] = int(self.cloudinit)
        if not self.unused:
            row["drivename"] = self.key
        if "size" in self.drive:
            row["size"] = self.volume.size if self.volume is not None else parse_size(self.drive["size"])
        if self.snapshots:
            row["referenced_in_snapshot"] = dict.fromkeys(self.snapshots, 1)
        return row


def volumes_of(cluster: Cluster, guest: Guest) -> list[tuple[str, Storage]]:
    """The volumes that the guest's config names, with their storages."""
    found = []
    for _key, _drive, volid in _files(guest.config):
        storage = cluster.storages.get(volid.partition(":")[0])
        if storage is not None:
            found.append((volid, storage))
    return found


def storages_of(cluster: Cluster, guest: Guest) -> list[Storage]:
    """The storages of the guest's drives."""
    return list({storage.name: storage for _volid, storage in volumes_of(cluster, guest)}.values())


def local_disks(cluster: Cluster, guest: Guest) -> list[LocalDisk]:
    """What a move to another node has to copy."""
    found: dict[str, LocalDisk] = {}
    for key, drive, volid in _files(guest.config):
        storage = cluster.storages.get(volid.partition(":")[0])
        if storage is not None and not storage.shared:
            found[volid] = LocalDisk(volid, storage, key, drive, cluster.volumes.find(volid, guest.node))
    for name, config in guest.snapshots.items():
        for _key, drive, volid in _files(config):
            storage = cluster.storages.get(volid.partition(":")[0])
            if storage is None or storage.shared:
                continue
            volume = cluster.volumes.find(volid, guest.node)
            disk = found.setdefault(volid, LocalDisk(volid, storage, None, drive, volume))
            disk.snapshots.append(name)
    return list(found.values())


def _files(config: dict[str, Any]) -> list[tuple[str, dict[str, str], str]]:
    """Drives of a config that name a volume: key, parts, volume."""
    drives = []
    for key, value in config.items():
        if is_drive(key) or re.fullmatch(r"(?:unused|rootfs|mp)\d*", key):
            drive = parse(str(value), "volume" if key.startswith(("rootfs", "mp")) else "file")
            volid = drive.get("volume") or drive.get("file", "")
            if ":" in volid and not volid.startswith("/"):
                drives.append((key, drive, volid))
    return drives


@dataclass
class Devices:
    """Devices of the host: raw ones (and mapped ones that Proxmox names with these), those of mappings, and their
    mappings' names by drive.
    """

    local: list[str]
    mapped: dict[str, str]


def devices(cluster: Cluster, guest: Guest) -> Devices:
    found = Devices(_only_while_running(cluster, guest) if guest.running else [], {})
    for key, value in guest.config.items():
        text = str(value)
        if not _DEVICE.fullmatch(key) or text == "socket" or text.startswith("spice"):
            continue
        parts = parse(text, "dirid" if key.startswith("virtiofs") else "host")
        mapping = parts.get("dirid") or parts.get("mapping")
        if mapping is not None:
            found.mapped[key] = mapping
            live = mapping_of(cluster, key, mapping).get("live-migration-capable")
            if key.startswith("hostpci") and (live or not guest.running):
                continue
        found.local.append(key)
    found.local.sort(key=lambda key: not key.startswith("usb"))
    return found


def _only_while_running(cluster: Cluster, guest: Guest) -> list[str]:
    found = [key for key in ("amd-sev", "intel-tdx") if guest.config.get(key)]
    if any(key.startswith("virtiofs") for key in guest.config):
        found.append("virtiofs")
    if "clipboard=vnc" in str(guest.config.get("vga", "")):
        version = re.search(r"-(\d+)\.(\d+)", str(guest.config.get("machine", "")))
        if not cluster.modern or (version is not None and (int(version[1]), int(version[2])) < (10, 1)):
            found.append("clipboard=vnc")
    return found


def mapping_of(cluster: Cluster, key: str, name: str) -> dict[str, Any]:
    kind = "pci" if key.startswith("hostpci") else "usb" if key.startswith("usb") else "dir"
    return cluster.mappings[kind].get(name, {})


def missing_mappings(cluster: Cluster, guest: Guest, node: str) -> list[str]:
    """Devices whose mapping has no entry for that node."""
    return [
        key for key, name in devices(cluster, guest).mapped.items()
        if not any(parse(text, "node")["node"] == node for text in mapping_of(cluster, key, name).get("map", []))
    ]
