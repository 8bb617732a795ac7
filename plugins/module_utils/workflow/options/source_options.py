# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a VM is made from, as the user wrote it: a VM or template to clone, or a backup to restore."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ...engine.texts import hint, whole_number
from ...errors import InvalidRequest
from ...model import Guest
from ...proxmox.options.values import check_length

LONGEST_ARCHIVE, LONGEST_SNAPSHOT = 255, 40
"""The most characters that the schema of the API allows."""

_STORAGE = r"[A-Za-z][\w.-]*"
_LATEST = re.compile(rf"(?:({_STORAGE}):)?([1-9]\d{{2,8}})")
_VOLUME = re.compile(rf"({_STORAGE}):backup/\S+")


_CLONE_EXPECTED = "a name, a VMID, a list of them, or a mapping such as {name: debian-13, pool: templates}"
_CLONE_KEYS = ("name", "vmid", "pool", "node")


@dataclass(frozen=True, slots=True)
class Clone:
    """What to clone, as the user wrote it: a name or a VMID, and how.

    Attributes:
        vmid: that of the source; None if it is identified by its name.
        others: the names and VMIDs of further templates, which are copies of the source on other nodes.
        pool, node: where the source is; None for anywhere.
    """

    name: str = ""
    vmid: int | None = None
    pool: str | None = None
    node: str | None = None
    full: bool = True
    storage: str | None = None
    storage_class: str | None = None
    format: str | None = None
    snapname: str | None = None
    others: tuple[str | int, ...] = ()

    @property
    def called(self) -> str:
        """How messages call the source."""
        return " or ".join(repr(str(each)) for each in (self.name or self.vmid, *self.others))

    @property
    def place(self) -> str:
        """Where the source has to be, for messages."""
        pool = f" in pool {self.pool}" if self.pool else ""
        return pool + (f" on {self.node}" if self.node else "")

    def names(self, guest: Guest) -> bool:
        """Whether a guest has the VMID or the name of the source."""
        own = guest.vmid == self.vmid if self.vmid is not None else guest.name == self.name
        return own or guest.vmid in self.others or guest.name in self.others

    def allows(self, guest: Guest) -> bool:
        """Whether a guest is where the source has to be."""
        return self.pool in (None, guest.pool) and self.node in (None, guest.node)


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
    """Return what C(clone) requests. Raises InvalidRequest."""
    given, *others = (body["clone"] or [""]) if isinstance(body["clone"], list) else [body["clone"]]
    name, vmid, pool, node = _source_of(given)
    further = [_source_of(other) for other in others if not isinstance(other, Mapping)]
    if len(further) < len(others) or (others and isinstance(given, Mapping)):
        raise InvalidRequest(f"clone: {body['clone']!r} is not valid, expected {_CLONE_EXPECTED}", option="clone")
    own = body.get("name")
    # A template per node may be copied from the one on another node.
    if own is not None and own in (name, str(vmid), *others) and not body.get("per_node"):
        raise InvalidRequest(f"clone: {own!r} is the VM's own name, expected that of another VM or template")
    full = body.get("full")
    check_length("snapname", str(body.get("snapname") or ""), LONGEST_SNAPSHOT)
    clone = Clone(
        name=name,
        vmid=vmid,
        pool=pool,
        node=node,
        full=True if full is None else full,
        storage=body.get("storage"),
        storage_class=body.get("storage_class"),
        format=None if body.get("format") == "unspecified" else body.get("format"),
        snapname=body.get("snapname"),
        others=tuple(each for other, number, *_place in further if (each := other or number)),
    )
    for option in ("storage", "storage_class", "format"):
        if not clone.full and getattr(clone, option):
            raise InvalidRequest(
                f"{option}: {body[option]!r} is for full clones only; a linked clone stays with its template"
            )
    if clone.storage and clone.storage_class:
        raise InvalidRequest(
            f"storage_class: {clone.storage_class!r} contradicts storage: {clone.storage!r}; set one of them"
        )
    return clone


def _source_of(given: t.Any) -> tuple[str, int | None, str | None, str | None]:
    """Return the name, VMID, pool and node of a source. A text of digits is a VMID."""
    if not isinstance(given, Mapping):
        if isinstance(given, bool) or not isinstance(given, (str, int)) or given == "":
            raise InvalidRequest(f"clone: {given!r} is not valid, expected {_CLONE_EXPECTED}", option="clone")
        vmid = whole_number(given)
        return ("" if vmid is not None else str(given)), vmid, None, None
    for key, value in given.items():
        if key not in _CLONE_KEYS:
            raise InvalidRequest(
                f"clone.{key}: unknown key, known: {', '.join(_CLONE_KEYS)}{hint(_CLONE_KEYS, str(key))}",
                option="clone",
            )
        if value is not None and (isinstance(value, bool) or not isinstance(value, (str, int)) or value == ""):
            raise InvalidRequest(f"clone.{key}: {value!r} is not valid, expected a text", option="clone")
    name, vmid = given.get("name"), given.get("vmid")
    if (name is None) == (vmid is None):
        raise InvalidRequest(f"clone: expected either name or vmid in {dict(given)!r}", option="clone")
    number = None if vmid is None else whole_number(vmid)
    if vmid is not None and number is None:
        raise InvalidRequest(f"clone.vmid: {vmid!r} is not valid, expected a VMID", option="clone")
    pool, node = (None if given.get(key) is None else str(given[key]) for key in ("pool", "node"))
    return ("" if name is None else str(name)), number, pool, node


def backup_of(where: str, body: Mapping[str, t.Any]) -> Backup:
    """Return the backup that C(archive) names; where is the prefix of option names in messages. Raises InvalidRequest.
    """
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
    check_length(f"{where}archive", str(archive), LONGEST_ARCHIVE)
    return Backup(volume=str(archive), kept_on=volume[1], storage=body.get("storage"), unique=unique)
