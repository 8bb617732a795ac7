# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and sets the flags of Ceph, and recognizes a cluster without Ceph."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping

from ..errors import ApiError
from .api.failures import UNREADABLE
from .api.reader import Reader, in_parallel
from .api.session import Session
from .inventory.rows import Row

FLAGS = (
    "nobackfill", "nodeep-scrub", "nodown", "noin", "noout", "norebalance", "norecover", "noscrub", "notieragent",
    "noup", "pause",
)  # fmt: skip
"""The flags that the API of Proxmox VE can set."""

_NO_CEPH = ("binary not installed", "not initialized", "ceph not", "no such file")


def lacks_ceph(error: ApiError) -> bool:
    """Whether the node that answers does not have Ceph."""
    return any(text in error.message.lower() for text in _NO_CEPH)


def read_flag(session: Session, flag: str) -> bool | None:
    """Whether the flag is set; None without Ceph."""
    try:
        return bool(session.get(f"/cluster/ceph/flags/{flag}"))
    except ApiError as error:
        if lacks_ceph(error):
            return None
        raise


def set_flag(session: Session, flag: str, value: bool) -> None:
    """Set the flag, or clear it."""
    session.put(f"/cluster/ceph/flags/{flag}", {"value": int(value)})


def pools_that_stop(reader: Reader, node: str, away: int) -> list[str]:
    """Return the pools that allow no reads and writes while so many hosts are away, each with the reason; nothing
    without Ceph. One request to a node.
    """
    try:
        rows: list[Row] = reader.get(f"/nodes/{node}/ceph/pool")
    except ApiError as error:
        if lacks_ceph(error):
            return []
        raise
    return [
        f"pool {row.get('pool_name')} has size {row['size']} and min_size {row['min_size']}"
        for row in rows
        if int(row.get("size") or 0) - away < int(row.get("min_size") or 0)
    ]


def nodes_with_ceph(reader: Reader, nodes: Collection[str]) -> frozenset[str]:
    """Return those of these nodes on which Ceph is set up, and those that do not tell. One request to each node."""

    def has_ceph(node: str) -> bool:
        try:
            reader.get(f"/nodes/{node}/ceph/pool")
        except UNREADABLE as error:
            return not (isinstance(error, ApiError) and lacks_ceph(error))
        return True

    return frozenset(name for name, there in in_parallel(has_ceph, nodes).items() if there)


SHUTDOWN_FLAGS = ("noout", "nobackfill", "norecover", "norebalance", "nodown", "pause")
"""What keeps the data where it is, and clients out, while all nodes are off, in the order in which they are set."""


def read_monitors(reader: Reader) -> frozenset[str]:
    """Return the nodes with a monitor; empty without Ceph. One request."""
    try:
        status: Mapping[str, t.Any] = reader.get("/cluster/ceph/status")
    except ApiError as error:
        if lacks_ceph(error):
            return frozenset()
        raise
    return frozenset(str(name) for name in status.get("quorum_names") or ())


def monitors_lost(reader: Reader, nodes: Collection[str]) -> list[str]:
    """Return the nodes without whose monitor Ceph has no majority of monitors; nothing without Ceph. One request.

    Proxmox VE gives a monitor the name of its node.
    """
    try:
        status: Mapping[str, t.Any] = reader.get("/cluster/ceph/status")
    except ApiError as error:
        if lacks_ceph(error):
            return []
        raise
    there = {str(name) for name in status.get("quorum_names") or ()}
    known = {str(row.get("name")) for row in (status.get("monmap") or {}).get("mons") or ()} or there
    return [name for name in nodes if name in there and 2 * (len(there) - 1) <= len(known)]
