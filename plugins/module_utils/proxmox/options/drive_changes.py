# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a drive of an existing VM differs from the requested one, and what can be changed without losing data.

Proxmox names the volumes, so a volume's name never differs. A volume is never replaced, shrunk or moved, only grown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...engine.volumes import ROUNDING
from .drives import CREATION_ONLY, Drive, is_cloudinit, is_medium, kind_of
from .values import format_size, size_in_config

MOVED = "it is on storage {0} and is not moved to {1}; move it with Proxmox VE, or request storage {0}"


@dataclass(frozen=True, slots=True)
class DriveChange:
    """What has to change of one drive.

    new is the drive as it should be, for people. value is what to set it to (None: nothing), resize the bytes to grow
    to (None: no growth), before it is set or, where an image is imported, afterwards. reasons say what cannot be
    changed and why. unplaced: it is new, and its storage is still to be chosen.
    """

    new: str
    value: str | None = None
    resize: int | None = None
    reasons: tuple[str, ...] = ()
    unplaced: bool = False


def compare_drive(drive: Drive, current: str | None, storage: str | None) -> DriveChange | None:
    """Return what has to change, None when nothing has to.

    current is the value in the VM's config, None when it has no such drive. storage is where a missing drive is made,
    None when that was not decided. Properties of a drive that are not requested stay as they are.
    """
    if current is None and drive.unsized:
        return DriveChange("a new drive", reasons=("it does not exist, and no size is given to create it with",))
    if current is None:
        return _add(drive, storage)
    present = kind_of(drive.slot).read(current)
    file = present.pop("file", "")
    present = {key: value for key, value in present.items() if key not in CREATION_ONLY}
    reason = _occupied(drive, current)
    if reason is not None:
        return DriveChange(_shown(drive, storage), reasons=(reason,))
    if drive.cdrom or drive.cloudinit:
        return _compare_medium(drive, file, present, storage)
    return _compare_disk(drive, file, present)


def _occupied(drive: Drive, current: str) -> str | None:
    """Return why a drive cannot come to be in a slot that holds another one; None when it can, or when it is that one.

    current is the slot's value in a config. A medium can be changed; a disk or a cloud-init drive holds data.
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


def _compare_disk(drive: Drive, file: str, present: dict[str, str]) -> DriveChange | None:
    kind = kind_of(drive.slot)
    size = size_in_config(present.pop("size", ""))
    wanted = {**present, **{key: value for key, value in drive.options.items() if key not in CREATION_ONLY}}
    differ = not kind.same(wanted, present)
    reasons = _fixed(drive, file, size, differ=differ)
    grows = bool(drive.size and size and drive.size > size and not drive.small)
    if not (differ or grows or reasons):
        return None

    value = kind.format({**wanted, "file": file, **_size(size)})
    if reasons:
        new = _shown(drive, file.partition(":")[0])
    else:
        new = kind.format({**wanted, "file": file, **_size(drive.size if grows else size)})
    return DriveChange(
        new=new,
        value=value if differ and not drive.small else None,
        resize=drive.size if grows else None,
        reasons=tuple(reasons),
    )


def _fixed(drive: Drive, file: str, size: int | None, *, differ: bool) -> list[str]:
    """Return why a part of the request cannot be applied."""
    storage = file.partition(":")[0]
    reasons = []
    if drive.storage is not None and drive.storage != storage:
        reasons.append(MOVED.format(storage, drive.storage))
    if drive.small:
        if differ:
            reasons.append("its properties are fixed when it is created")
    elif drive.size and size and size - drive.size >= ROUNDING:
        reasons.append(
            f"it has {format_size(size)} and cannot shrink to {format_size(drive.size)}; request at least its size"
        )
    return reasons


def _compare_medium(drive: Drive, file: str, present: Mapping[str, str], storage: str | None) -> DriveChange | None:
    """Compare CD-ROM and cloud-init drives: a medium can be changed freely, but for a cloud-init drive."""
    if drive.cloudinit and is_cloudinit(file):
        there = file.partition(":")[0]
        if drive.storage in (None, there):
            return None
        return DriveChange(_shown(drive, there), reasons=(MOVED.format(there, drive.storage),))
    if drive.cloudinit:
        return _add(drive, storage)
    given = {key: value for key, value in present.items() if key != "size"}
    wanted = replace(drive, options={**given, **drive.options})
    if drive.volume == file and kind_of(drive.slot).same(wanted.options, given):
        return None
    return _add(wanted, storage)


def _add(drive: Drive, storage: str | None) -> DriveChange:
    if storage is None and drive.volume is None:
        return DriveChange("a new drive", unplaced=True)
    value = drive.to_api(storage)
    if drive.source is None or not drive.size:
        return DriveChange(value, value)
    return DriveChange(f"{value},size={format_size(drive.size)}", value, resize=drive.size)


def _shown(drive: Drive, storage: str | None) -> str:
    return drive.to_api(drive.storage or storage or "(any storage)")


def _size(size: int | None) -> dict[str, str]:
    return {"size": format_size(size)} if size else {}
