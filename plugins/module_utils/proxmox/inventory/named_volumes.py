# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads which nodes have the volumes that requests name, such as ISO images and imported images, and their sizes."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ...model import Node, Storage
from ..api.reader import Reader, in_parallel
from .rows import read_rows

# On a directory storage, the name of a disk image follows the VMID of its VM and a slash.
_IMAGE = re.compile(r"(?:\d+/)?(?:base|vm)-(\d{1,9})-\S+")
_IN_ARCHIVE = re.compile(r"(import/[^/]+\.ova)/.+")


class _List(t.NamedTuple):
    """One list to read: the volumes with one type of content on a storage, as a node sees them."""

    node: str
    storage: str
    content: str
    vmid: int | None


def read_volumes(
    reader: Reader, nodes: Sequence[Node], storages: Sequence[Storage], volumes: Iterable[str]
) -> dict[tuple[str, str], int | None]:
    """Return the size of each volume in bytes by (node, volume); None if the node does not have it. Volumes about which
    nothing is known are left out.

    Takes one call per type of content on a shared storage, and one per node on a local one. Nothing is known about
    volumes that this user may not list, that are on nodes that are offline, or whose type of content is not enabled on
    the storage.
    """
    kinds = {volume: kind for volume in volumes if (kind := _kind_of(volume)) is not None}
    online = {node.name for node in nodes if node.online}
    usable = [storage for storage in storages if storage.active and storage.node in online]
    usable.sort(key=lambda storage: (storage.name, storage.node))
    tellers: dict[str, str] = {}
    for storage in usable:
        tellers.setdefault(storage.name, storage.node)
    asked: dict[tuple[str, str], _List] = {}
    for volume, (content, vmid) in kinds.items():
        for storage in usable:
            if storage.name == volume.partition(":")[0] and content in storage.content:
                node = tellers[storage.name] if storage.shared else storage.node
                asked[storage.node, volume] = _List(node, storage.name, content, vmid)
    lists = in_parallel(lambda each: _read(reader, each), asked.values())
    found: dict[tuple[str, str], int | None] = {}
    for (node, volume), each in asked.items():
        sizes = lists[each]
        if sizes is not None:
            looked_up = dict(_look_up(node, volume, each.content, sizes))
            if looked_up.get((node, volume), 0) is None:
                # The message names the volumes that exist instead.
                found.update(((node, other), size) for other, size in sizes.items())
            found.update(looked_up)
    return found


def _kind_of(volume: str) -> tuple[str, int | None] | None:
    """Return the content type of a volume and the VM that owns it, if any; None if neither can be derived."""
    name = volume.partition(":")[2]
    folder = name.partition("/")[0]
    if folder in ("iso", "import"):
        return folder, None
    image = _IMAGE.fullmatch(name.rpartition("/")[2]) if name else None
    return ("images", int(image[1])) if image else None


def _look_up(
    node: str, volume: str, content: str, sizes: Mapping[str, int]
) -> Iterable[tuple[tuple[str, str], int | None]]:
    """Yield the size of a volume on a node, or None if it is surely missing; nothing if that is not known."""
    storage, _separator, name = volume.partition(":")
    archive = _IN_ARCHIVE.fullmatch(name)
    if volume in sizes:
        yield (node, volume), sizes[volume]
    elif content != "images" and (archive is None or f"{storage}:{archive[1]}" not in sizes):
        # A missing disk image proves nothing: those of VMs that this user cannot see are not listed.
        yield (node, volume), None


def _read(reader: Reader, each: _List) -> dict[str, int] | None:
    path = f"/nodes/{each.node}/storage/{each.storage}/content"
    rows = read_rows(reader, path, content=each.content, vmid=each.vmid)
    return None if rows is None else {str(row["volid"]): int(row.get("size") or 0) for row in rows}
