# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads how much can be written to storages on which not all of the free space is available."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import ApiError, ConnectionFailed, PermissionDenied
from ...model import Node, Storage
from ..api.failures import NotRecorded
from ..api.reader import Reader, in_parallel
from .rows import Row

FILE_SYSTEMS = frozenset({"btrfs", "cephfs", "cifs", "dir", "glusterfs", "nfs"})
"""Types on which less than the unused space may be available, because of a quota, blocks reserved for root, or data of
other users.
"""

_LARGE_PART = 10
_NEARLY_FULL = 4
_UNREADABLE = (ApiError, ConnectionFailed, PermissionDenied, NotRecorded)


def with_available(
    reader: Reader, nodes: Sequence[Node], storages: Sequence[Storage], size: int
) -> tuple[Storage, ...]:
    """Return storages with space that is not available counted as used, for those that size bytes of new disks may
    fill.

    C(/cluster/resources) shows only total and used. Takes one call per node with a file system that is three quarters
    full, or of whose free space size is more than a tenth; for a shared one, only one node is asked. Storages that
    cannot be read are not changed.
    """
    online = {node.name for node in nodes if node.online}
    doubtful = [each for each in storages if each.node in online and _is_doubtful(each, size)]
    doubtful.sort(key=lambda each: each.node)
    # The first node of each shared storage.
    shared = {each.name: each.node for each in reversed(doubtful) if each.shared}
    asked = {shared.get(each.name, each.node) for each in doubtful}
    lists = in_parallel(lambda node: _available(reader, node), sorted(asked))

    def corrected(storage: Storage) -> Storage:
        available = lists.get(shared.get(storage.name, storage.node), {}).get(storage.name)
        if available is None or available >= storage.total - storage.used:
            return storage
        return replace(storage, used=storage.total - available)

    names = {(each.node, each.name) for each in doubtful}
    return tuple(corrected(each) if (each.node, each.name) in names else each for each in storages)


def _is_doubtful(storage: Storage, size: int) -> bool:
    if storage.type not in FILE_SYSTEMS or "images" not in storage.content or not storage.active:
        return False
    free = storage.total - storage.used
    return size * _LARGE_PART > free or free * _NEARLY_FULL < storage.total


def _available(reader: Reader, node: str) -> dict[str, int]:
    try:
        rows: list[Row] = reader.get(f"/nodes/{node}/storage", content="images")
    except _UNREADABLE:
        return {}
    return {row["storage"]: int(row["avail"]) for row in rows if row.get("avail") is not None}
