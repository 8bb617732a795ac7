# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new VM inherits from the config of its template or backup: sizes and drives."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import InvalidRequest
from ..model import MIB
from ..proxmox.options.contradictions import check_contradictions
from ..proxmox.options.drive_changes import compare_drive
from ..proxmox.options.drives import SIZE_EXPECTED, SMALL_VOLUME, Drive, is_cloudinit, is_drive
from ..proxmox.options.request import drives_of, pluggable_vcpus
from ..proxmox.options.values import size_in_config
from .options.entries import Entry

if t.TYPE_CHECKING:
    from .options.source_options import Clone

Config = Mapping[str, t.Any]

_CPU_OPTIONS = frozenset({"cores", "sockets", "vcpus"})


class Sizes(t.TypedDict):
    """Fields of a request."""

    cores: float
    cores_max: float
    memory: int


def sizes_from(entry: Entry, configs: Sequence[Config]) -> Sizes:
    """Return the sizes of the VM. Where the entry sets none, they come from the configs: of several, the largest."""
    own = {key: entry.request.options[key] for key in _CPU_OPTIONS & entry.given.keys()}
    sizes = [{**config, **own} for config in configs]
    memory = entry.request.memory
    if "memory" not in entry.given:
        memory = max((config.get("memory") or 512) * MIB for config in configs)
    return {
        "cores": max(float(size.get("vcpus") or pluggable_vcpus(size)) for size in sizes),
        "cores_max": max(map(pluggable_vcpus, sizes)),
        "memory": memory,
    }


@dataclass(frozen=True, slots=True)
class SourceDrives:
    """The drives of a config: volumes, as (slot, storage, bytes), of which cloudinit are the slots of those that
    hold no data of their own; and media, the images in CD-ROM drives, as (slot, storage).
    """

    volumes: tuple[tuple[str, str, int], ...]
    cloudinit: frozenset[str]
    media: tuple[tuple[str, str], ...]


def drives_from(config: Config) -> SourceDrives:
    """Return the drives of a config that hold something."""
    volumes: list[tuple[str, str, int]] = []
    cloudinit: list[str] = []
    media: list[tuple[str, str]] = []
    for slot, value in sorted(config.items()):
        if not is_drive(slot):
            continue
        volume, _separator, rest = str(value).partition(",")
        storage, separator, _name = volume.partition(":")
        options = dict(part.partition("=")[::2] for part in rest.split(","))
        size = size_in_config(options.get("size", "")) or 0
        if not separator:
            continue
        if is_cloudinit(volume):
            volumes.append((slot, storage, max(size, SMALL_VOLUME)))
            cloudinit.append(slot)
        elif options.get("media") == "cdrom":
            media.append((slot, storage))
        else:
            volumes.append((slot, storage, size))
    return SourceDrives(tuple(volumes), frozenset(cloudinit), tuple(media))


def with_drives_of(entry: Entry, clone: Clone, config: Config) -> Entry:
    """Return the entry of a clone that is made already, with the storage or storage class of the task for each drive
    that the clone has from its template: another run may have stopped before it moved them all.
    """
    if not (clone.storage or clone.storage_class):
        return entry
    request, found = entry.request, drives_from(config)
    drives = {}
    for slot, _storage, _size in found.volumes:
        drive = request.options.get(slot, Drive(slot, cloudinit=slot in found.cloudinit))
        if isinstance(drive, Drive) and not (drive.storage or drive.storage_class or drive.volume):
            drives[slot] = replace(drive, storage=clone.storage, storage_class=clone.storage_class)
    kept = [disk for disk in request.disks if disk.slot not in drives]
    disks = [disk for drive in drives.values() if (disk := drive.to_disk()) is not None]
    return replace(entry, request=replace(request, options={**request.options, **drives}, disks=(*kept, *disks)))


def check_options(entry: Entry, config: Config, made: str) -> None:
    """Refuse options that are impossible in a VM that is made from this config, and drives whose slots hold other or
    larger ones. made is what the VM is called in messages.
    """
    check_contradictions(entry.request.options, config, f", for {entry.label}, {made}")
    for slot, drive in drives_of(entry.request.options).items():
        reasons = _obstacles(drive, config.get(slot))
        if reasons:
            raise InvalidRequest(f"{slot}: is not possible in {made}: {'; '.join(reasons)}", option=slot)


def _obstacles(drive: Drive, current: t.Any) -> Sequence[str]:
    """Return why a VM with current in the slot cannot have the drive. Its storage does not matter: the scheduler
    decides.
    """
    if current is None:
        return [f"it has none, and a new one needs {SIZE_EXPECTED}"] if drive.unsized else []
    change = compare_drive(replace(drive, storage=None), str(current), "any")
    if change is not None and change.reasons:
        return change.reasons
    return ["this disk exists already, and import-from is for new disks"] if drive.source is not None else []
