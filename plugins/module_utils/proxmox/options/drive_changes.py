# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a drive of an existing VM with the request, and returns what can be changed without losing data.

Proxmox chooses the names of volumes, so names are not compared. A volume is moved and grown, never replaced or shrunk.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ...engine.volumes import ROUNDING
from .drives import CREATION_ONLY, Drive, is_cloudinit, is_medium, kind_of
from .values import boolean, format_size, size_in_config

_MS_CERT = "ms-cert"
_LINKED = re.compile(r"[:/](base-\d+-[^/]+)/")


@dataclass(frozen=True, slots=True)
class DriveChange:
    """The change of one drive.

    Attributes:
        new: the requested drive, for display.
        value: the value to set, with the present volume of the drive; None if it is not set.
        resize: the bytes to grow the disk to, before value is set, or for an imported image afterwards; None: nothing.
        move: the storage to move the disk to before all other changes; None: no move.
        reasons: what cannot be changed, and why.
        unplaced: whether the drive is new or has to be moved, and its storage has not been chosen yet.
    """

    new: str
    value: str | None = None
    resize: int | None = None
    move: str | None = None
    reasons: tuple[str, ...] = ()
    unplaced: bool = False


def compare_drive(
    drive: Drive, current: str | None, storage: str | None, *, displaced: bool = False
) -> DriveChange | None:
    """Return the change of a drive, None if nothing has to change. Properties that are not requested are kept.

    Args:
        current: the value in the VM's config; None if the VM has no such drive.
        storage: the required storage of a drive for which the request names none; None if any will do or none has been
            chosen yet.
        displaced: whether the drive has to be moved, even if its storage has not been chosen yet.
    """
    if current is None and drive.unsized:
        return DriveChange("a new drive", reasons=("it does not exist, and no size is given to create it with",))
    if current is None:
        return _add(drive, storage)
    present = kind_of(drive.slot).read(current)
    file = present.pop("file", "")
    present = {key: value for key, value in present.items() if key not in CREATION_ONLY}
    reason = _slot_conflict(drive, current)
    if reason is not None:
        return DriveChange(_as_text(drive, storage), reasons=(reason,))
    target = drive.storage or storage
    if drive.cloudinit and is_cloudinit(file):
        return _move(drive, file, target, displaced=displaced)
    if drive.cdrom or drive.cloudinit:
        return _compare_medium(drive, file, present, storage)
    return _compare_disk(drive, file, present, _move(drive, file, target, displaced=displaced))


def obstacle_to_move(slot: str, config: Mapping[str, t.Any], pending: Collection[str], *, runs: bool) -> str | None:
    """Return why a drive of a VM cannot be moved to another storage without a loss; None if it can.

    pending are the keys of the config with pending changes.
    """
    linked = _LINKED.search(str(config[slot]))
    if config.get("template"):
        return (
            "it is a template, whose disks are not moved, as linked clones may stand on them; move those of its clones"
        )
    if linked:
        return f"it is a linked clone of {linked[1]} and stays with it; make a full clone instead"
    if config.get("parent"):
        return "the VM has snapshots, which Proxmox VE does not move; remove them first"
    if slot in pending:
        return "it has pending changes, which name the present volume; stop and start the VM first"
    medium = is_medium(kind_of(slot).read(str(config[slot])))
    if runs and (medium or slot.startswith("tpmstate")):
        return "the VM runs, and Proxmox VE copies this drive only while it is stopped; set state=stopped to stop it"
    return None


def _slot_conflict(drive: Drive, current: str) -> str | None:
    """Return why a drive cannot take the place of the one in its slot; None if it can, or if they are the same.

    current is the slot's value in the config. The medium of a CD-ROM drive can be changed; a disk or a cloud-init drive
    contains data and is not replaced.
    """
    present = kind_of(drive.slot).read(current)
    file = present.get("file", "")
    medium = is_medium(present)
    if medium != (drive.cdrom or drive.cloudinit):
        there = "a CD-ROM or cloud-init drive" if medium else "a disk"
        return f"{there} exists ({file}) and is not replaced"
    if medium and is_cloudinit(file) and not drive.cloudinit:
        return f"the cloud-init drive exists ({file}) and is not replaced"
    if not medium and drive.volume not in (None, file):
        return f"the volume {file} exists and is not replaced by {drive.volume}"
    return None


def _move(drive: Drive, file: str, target: str | None, *, displaced: bool) -> DriveChange | None:
    """Return the move of a drive to the target; None if it is there, or is not displaced and has no target."""
    here = file.partition(":")[0]
    if target == here or not (target or displaced):
        return None
    return DriveChange(_as_text(drive, target), move=target, unplaced=target is None)


def _compare_disk(drive: Drive, file: str, present: dict[str, str], move: DriveChange | None) -> DriveChange | None:
    """Return the change of a disk that stays on its storage or is moved; None if nothing differs. present is emptied of
    what was compared.
    """
    kind = kind_of(drive.slot)
    size = size_in_config(present.pop("size", ""))
    wanted = {**present, **{key: value for key, value in drive.options.items() if key not in CREATION_ONLY}}
    if present.get(_MS_CERT) == "2023k" and wanted.get(_MS_CERT, "").startswith("2023"):
        # Proxmox VE enrolls all certificates of 2023, and notes 2023k, whichever of their values it is given.
        wanted[_MS_CERT] = present[_MS_CERT]
    differ = not kind.same(wanted, present)
    kept = {key: value for key, value in wanted.items() if key != _MS_CERT}
    enrolls = differ and kind.same(kept, present)
    reasons = _not_enrolled(wanted) if enrolls else _fixed_parts(drive, size, differ=differ)
    grows = bool(drive.size and size and drive.size > size and not drive.small)
    if not (differ or grows or reasons):
        return move

    value = kind.format({**wanted, "file": file, **_size(size)})
    if reasons:
        new = _as_text(drive, file.partition(":")[0])
    else:
        new = kind.format({**wanted, "file": file, **_size(drive.size if grows else size)})
    return replace(
        move or DriveChange(new),
        value=value if enrolls or (differ and not drive.small) else None,
        resize=drive.size if grows else None,
        reasons=tuple(reasons),
    )


def _not_enrolled(wanted: Mapping[str, str]) -> list[str]:
    """Return why Proxmox VE would not enroll certificates: it drops ms-cert of a disk without enrolled keys."""
    if boolean(wanted.get("pre-enrolled-keys", "0")) or not wanted[_MS_CERT].startswith("2023"):
        return []
    return ["certificates are only enrolled in a disk that was created with pre_enrolled_keys"]


def _fixed_parts(drive: Drive, size: int | None, *, differ: bool) -> list[str]:
    """Return why a part of the request cannot be applied."""
    reasons = []
    if drive.small:
        if differ:
            reasons.append("its properties are fixed when it is created")
    elif drive.size and size and size - drive.size >= ROUNDING:
        reasons.append(
            f"it has {format_size(size)} and cannot shrink to {format_size(drive.size)}; request at least its size"
        )
    return reasons


def _compare_medium(drive: Drive, file: str, present: Mapping[str, str], storage: str | None) -> DriveChange | None:
    """Compare a CD-ROM drive with the requested one, or with a requested cloud-init drive, which may replace it."""
    if drive.cloudinit:
        return _add(drive, storage)
    given = {key: value for key, value in present.items() if key != "size"}
    wanted = replace(drive, options={**given, **drive.options})
    if drive.volume == file and kind_of(drive.slot).same(wanted.options, given):
        return None
    return _add(wanted, storage)


def _add(drive: Drive, storage: str | None) -> DriveChange:
    """Return the change that adds a drive. Without a storage, one has to be chosen first."""
    if storage is None and drive.volume is None:
        return DriveChange("a new drive", unplaced=True)
    value = drive.to_api(storage)
    if drive.source is None or not drive.size:
        return DriveChange(value, value)
    return DriveChange(f"{value},size={format_size(drive.size)}", value, resize=drive.size)


def _as_text(drive: Drive, storage: str | None) -> str:
    return drive.to_api(drive.storage or storage or f"(storage class {drive.storage_class})")


def _size(size: int | None) -> dict[str, str]:
    return {"size": format_size(size)} if size else {}
