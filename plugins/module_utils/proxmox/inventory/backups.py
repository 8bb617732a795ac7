# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the backups of VMs on the cluster's storages, and the VM config in a backup."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from ...errors import ApiError
from ...model import Snapshot, Storage
from ..api.failures import UNREADABLE
from ..api.reader import Reader, in_parallel
from ..api.shapes import WrongShape, check_shape
from ..options.drives import is_drive, is_medium, kind_of
from .rows import Row

# The line for a disk that the backup contains. A disk with backup=0 has no such line, and is not restored.
_MAPPED = re.compile(r"#qmdump#map:([^:]+):.*")
_COMMENT = re.compile(r"#(?!qmdump#|vzdump#)(.*)")


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """One backup of a VM.

    Attributes:
        volume: its volume identifier.
        made: when it was made, in seconds since the epoch.
        nodes: the nodes that can read it.
    """

    volume: str
    made: int
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Backups:
    """The backups that were found, and the reason for each storage whose backups could not be read."""

    found: tuple[StoredBackup, ...]
    unread: Mapping[str, str]


def read_backups(reader: Reader, snapshot: Snapshot, storage: str | None, vmid: int | None) -> Backups:
    """Return the backups that this user may restore, of one VM (None: of all) and on one storage (None: on all).

    Takes one call for each shared storage for backups, and one per online node for each local one. Proxmox leaves out
    backups for which the user lacks VM.Backup on the VM or Datastore.AllocateSpace on the storage.
    """
    online = {node.name for node in snapshot.nodes if node.online}
    # The storage entries with the same backups: those of a shared storage together, each local one alone. The first
    # available one is read.
    places: dict[str, list[Storage]] = {}
    for each in sorted(snapshot.storages, key=lambda each: each.node):
        if "backup" in each.content and storage in (None, each.name):
            seen = places.setdefault(each.name if each.shared else f"{each.name} on {each.node}", [])
            if each.active and each.node in online:
                seen.append(each)
    lists = in_parallel(lambda place: _read_list(reader, places[place], vmid), places)
    found: dict[str, StoredBackup] = {}
    for place, rows in lists.items():
        for row in rows if isinstance(rows, list) else ():
            volume, nodes = str(row["volid"]), frozenset(each.node for each in places[place])
            others = found[volume].nodes if volume in found else frozenset[str]()
            found[volume] = StoredBackup(volume, int(row.get("ctime") or 0), nodes | others)
    return Backups(tuple(found.values()), {place: rows for place, rows in lists.items() if isinstance(rows, str)})


def read_archived_config(reader: Reader, node: str, volume: str) -> dict[str, object]:
    """Return the config in a backup as a restored VM has it, except that its disks have their former volumes. Disks
    that the backup does not contain are left out.

    Raises ApiError, PermissionDenied, ConnectionFailed, NotRecorded.
    """
    text = str(reader.get(f"/nodes/{node}/vzdump/extractconfig", volume=volume))
    config: dict[str, str] = {}
    mapped: set[str] = set()
    description: list[str] = []
    for line in text.splitlines():
        if found := _MAPPED.fullmatch(line):
            mapped.add(found[1])
        elif found := _COMMENT.fullmatch(line):
            description.append(unquote(found[1]))
        elif not line.startswith("#"):
            key, _colon, value = line.partition(":")
            config[key] = value.strip()
    if description:
        config["description"] = "\n".join(description)
    restored = {key: value for key, value in config.items() if _is_restored(key, value, mapped)}
    try:
        numbers: dict[str, object] = check_shape(f"/nodes/{node}/qemu/0/config", restored)
    except WrongShape as error:
        raise ApiError(f"the config in {volume} cannot be read: {error}") from error
    return numbers


def _is_restored(key: str, value: str, mapped: Collection[str]) -> bool:
    if not is_drive(key):
        return key not in ("", "lock", "parent") and not key.startswith("unused")
    return key in mapped or is_medium(kind_of(key).read(value))


def _read_list(reader: Reader, seen: Sequence[Storage], vmid: int | None) -> list[Row] | str:
    """Return the rows of VM backups on the storage with these entries, or the reason why they cannot be read."""
    if not seen:
        return "it is not available"
    path = f"/nodes/{seen[0].node}/storage/{seen[0].name}/content"
    try:
        rows: list[Row] = reader.get(path, content="backup", vmid=vmid)
    except UNREADABLE as error:
        return error.message
    return [row for row in rows if row.get("vmid") and row.get("subtype", "qemu") == "qemu"]
