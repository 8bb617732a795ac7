# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a VM is made from, as the user wrote it: a VM or template to clone, or a backup to restore."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import InvalidRequest

_STORAGE = r"[A-Za-z][\w.-]*"
_LATEST = re.compile(rf"(?:({_STORAGE}):)?([1-9]\d{{2,8}})")
_VOLUME = re.compile(rf"({_STORAGE}):backup/\S+")


@dataclass(frozen=True, slots=True)
class Clone:
    """What to clone, as the user wrote it: a name or a VMID, and how."""

    source: str
    full: bool = True
    storage: str | None = None
    format: str | None = None
    snapname: str | None = None


@dataclass(frozen=True, slots=True)
class Backup:
    """What to restore, as the user wrote it: a volume, or the latest backup of a VM on its storage or on any; and how.

    Attributes:
        kept_on: the storage that holds the backup; None for any.
        storage: the storage for the disks; None if the scheduler chooses.
    """

    volume: str | None = None
    vmid: int | None = None
    kept_on: str | None = None
    storage: str | None = None
    unique: bool = True


def clone_of(body: Mapping[str, t.Any]) -> Clone:
    """What C(clone) says. Raises InvalidRequest."""
    if str(body["clone"]) == body.get("name"):
        raise InvalidRequest(f"clone: {body['clone']!r} is the VM's own name, expected that of another VM or template")
    full = body.get("full")
    clone = Clone(
        source=str(body["clone"]),
        full=True if full is None else full,
        storage=body.get("storage"),
        format=None if body.get("format") == "unspecified" else body.get("format"),
        snapname=body.get("snapname"),
    )
    if not clone.full and (clone.storage or clone.format):
        option = "storage" if clone.storage else "format"
        raise InvalidRequest(
            f"{option}: {body[option]!r} is for full clones only; a linked clone stays with its template"
        )
    return clone


def backup_of(where: str, body: Mapping[str, t.Any]) -> Backup:
    """What C(archive) says; where is the prefix of option names in messages. Raises InvalidRequest."""
    archive = body["archive"]
    if body.get("clone") is not None:
        raise InvalidRequest(f"{where}archive: {archive!r} contradicts clone: {body['clone']!r}; set one of them")
    unique = body.get("unique") is not False
    latest = _LATEST.fullmatch(str(archive))
    if latest:
        return Backup(vmid=int(latest[2]), kept_on=latest[1], storage=body.get("storage"), unique=unique)
    volume = _VOLUME.fullmatch(str(archive))
    if volume is None:
        expected = "a backup such as nas:backup/vzdump-qemu-100-2026_01_01-00_00_00.vma.zst, or 100 or nas:100 for the "
        raise InvalidRequest(f"{where}archive: {archive!r} is not valid, expected {expected}latest backup of VM 100")
    return Backup(volume=str(archive), kept_on=volume[1], storage=body.get("storage"), unique=unique)
