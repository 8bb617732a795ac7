# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disk images on storages: names, allocation, linked and full copies, and what they occupy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .errors import TaskError, die
from .model import THICK_TYPES, Guest, Storage, Volume
from .property_strings import GIB
from .recorded import recorded_volumes

if TYPE_CHECKING:
    from .cluster import Cluster

MAX_IMAGE = 2**63 - 1
EXTENT = 4 * 1024**2


class Volumes:
    """Every volume of the cluster, by storage, pool (node or shared) and name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._volumes: dict[tuple[str | None, str], Volume] = {}
        self._by_guest: dict[int, dict[tuple[str | None, str], Volume]] = {}

    def __iter__(self) -> Iterator[Volume]:
        return iter(self._volumes.values())

    def storage(self, volid: str) -> Storage:
        name = volid.partition(":")[0]
        storage = self._cluster.storages.get(name)
        if storage is None:
            raise die(f"storage '{name}' does not exist")
        return storage

    def find(self, volid: str, node: str) -> Volume | None:
        storage = self._cluster.storages.get(volid.partition(":")[0])
        return self._volumes.get((storage.place(node), volid)) if storage else None

    def add(self, volume: Volume) -> Volume:
        """Register a volume as it is, and count its size."""
        self._cluster.statistics_settle()
        self._volumes[volume.place, volume.volid] = volume
        if volume.vmid is not None:
            self._by_guest.setdefault(volume.vmid, {})[volume.place, volume.volid] = volume
        storage = self._cluster.storages[volume.storage]
        storage.allocated[volume.place] = storage.allocated.get(volume.place, 0) + volume.size
        return volume

    def add_missing(self, guest: Guest, config: dict[str, Any]) -> list[Volume]:
        """Register the disks that a config of a guest names and that are not there. Returns them."""
        added = []
        for volid, size in recorded_volumes(config):
            storage = self._cluster.storages.get(volid.partition(":")[0])
            if storage is not None and self.find(volid, guest.node) is None:
                added.append(self.add(Volume(volid, storage.name, storage.place(guest.node), size, vmid=guest.vmid)))
        return added

    def remove(self, volume: Volume) -> None:
        self._cluster.statistics_settle()
        if self._volumes.pop((volume.place, volume.volid), None) is not None:
            if volume.vmid is not None:
                del self._by_guest[volume.vmid][volume.place, volume.volid]
            storage = self._cluster.storages[volume.storage]
            storage.allocated[volume.place] -= volume.size

    def grow(self, volume: Volume, size: int) -> None:
        self._cluster.statistics_settle()
        storage = self._cluster.storages[volume.storage]
        storage.allocated[volume.place] += size - volume.size
        volume.size = size

    def of_guest(self, vmid: int) -> list[Volume]:
        return list(self._by_guest.get(vmid, {}).values())

    def dependants(self, volume: Volume) -> list[Volume]:
        """Linked clones that stand on a base image."""
        return [other for other in self._volumes.values() if other.base == volume.volid and other.place == volume.place]

    def check_usable(self, storage: Storage, node: str) -> None:
        """Raise the error of a worker for a storage that is disabled or not on the node."""
        if not storage.enabled:
            raise TaskError(f"storage '{storage.name}' is disabled")
        if not storage.on_node(node):
            raise TaskError(f"storage '{storage.name}' is not available on node '{node}'")

    def check_space(self, storage: Storage, node: str, size: int) -> None:
        """Fail if a thick storage lacks the space, or any storage is set to full. Thin storages accept any size."""
        if size > MAX_IMAGE:
            raise TaskError(
                "unable to create image: qemu-img: Invalid image size specified. "
                f"Must be between 0 and {MAX_IMAGE}."
            )
        free = storage.available(node)
        if storage.full or (storage.type in THICK_TYPES and size > free):
            raise TaskError(_no_space(storage, size, free))

    def name(self, storage: Storage, vmid: int, node: str, image_format: str, prefix: str = "vm") -> str:
        """The next free volume name of a guest on a storage, as that node sees it."""
        place = storage.place(node)
        taken = {volume.volid for volume in self.of_guest(vmid) if volume.place == place}
        number = 0
        while True:
            volid = self._volid(storage, vmid, f"{prefix}-{vmid}-disk-{number}", image_format)
            others = {f"vm-{vmid}-disk-{number}", f"base-{vmid}-disk-{number}"}
            used = any(
                existing.startswith(f"{storage.name}:") and other in existing
                and existing.split(other)[-1].partition(".")[0] == ""
                for existing in taken for other in others
            )
            if not used:
                return volid
            number += 1

    @staticmethod
    def _volid(storage: Storage, vmid: int, stem: str, image_format: str) -> str:
        if storage.block:
            return f"{storage.name}:{stem}"
        return f"{storage.name}:{vmid}/{stem}.{image_format}"

    def allocate(self, storage: Storage, node: str, vmid: int, size: int, image_format: str | None = None) -> Volume:
        """A new image for a guest; TaskError where Proxmox's worker would fail."""
        self.check_usable(storage, node)
        chosen = self.choose_format(storage, image_format)
        self.check_space(storage, node, size)
        volid = self.name(storage, vmid, node, chosen)
        return self.add(self._volume(volid, storage, node, size, chosen, vmid))

    def allocate_cloudinit(self, storage: Storage, node: str, vmid: int) -> Volume:
        self.check_usable(storage, node)
        volid = self._volid(storage, vmid, f"vm-{vmid}-cloudinit", "qcow2")
        if self.find(volid, node):
            raise TaskError(f"volume '{volid}' already exists")
        return self.add(self._volume(volid, storage, node, 4 * 1024**2, "raw" if storage.block else "qcow2", vmid))

    def link(self, base: Volume, node: str, vmid: int) -> Volume:
        """A linked clone. Its provisioned size counts, as that much may be written to it."""
        storage = self._cluster.storages[base.storage]
        self.check_usable(storage, node)
        own = self.name(storage, vmid, node, base.format)
        stem = base.volid.partition(":")[2]
        volid = f"{storage.name}:{stem}/{own.partition(':')[2]}"
        volume = self._volume(volid, storage, node, base.size, base.format, vmid)
        volume.base = base.volid
        volume.parent = stem.rpartition("/")[2] if storage.block else f"../{stem}"
        return self.add(volume)

    def _volume(self, volid: str, storage: Storage, node: str, size: int, image_format: str, vmid: int) -> Volume:
        return Volume(
            volid, storage.name, storage.place(node), size, "images", image_format, vmid,
            ctime=int(self._cluster.clock.now()),
        )

    @staticmethod
    def choose_format(storage: Storage, wanted: str | None) -> str:
        if storage.block:
            if wanted not in (None, "raw"):
                raise TaskError(f"unsupported format '{wanted}'")
            return "raw"
        return wanted or str(storage.options.get("default_format", "raw"))

    @staticmethod
    def formatting_line(volume: Volume, storage: Storage) -> str | None:
        """What a directory storage logs when it makes an image; block storages are silent or brief."""
        name = volume.volid.partition(":")[2].rpartition("/")[2]
        if storage.block:
            return f'  Logical volume "{name}" created.' if storage.type in ("lvm", "lvmthin") else None
        tail = "preallocation=off" if volume.format == "raw" else (
            "cluster_size=65536 extended_l2=off preallocation=metadata compression_type=zlib"
        )
        return (
            f"Formatting '{storage.path}/images/{volume.vmid}/{name}', fmt={volume.format} size={volume.size} {tail}"
        )


def _no_space(storage: Storage, size: int, free: int) -> str:
    name = storage.name
    if storage.type in ("lvm", "lvmthin"):
        return (
            f"lvcreate '{storage.options.get('vgname', name)}' error:   Volume group has insufficient free space "
            f"({free // EXTENT} extents): {-(-size // EXTENT)} required."
        )
    if storage.type == "zfspool":
        return f"zfs error: cannot create '{storage.options.get('pool', name)}/vm-disk': out of space"
    if storage.type == "rbd":
        return "rbd create error: rbd: create error: (28) No space left on device"
    return f"unable to create image: qemu-img: {storage.path}: No space left on device ({free / GIB:.1f} GiB free)"
