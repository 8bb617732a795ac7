# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools that a task names and that do not exist."""

from __future__ import annotations

from ..engine.texts import known_names
from ..errors import ApiError, PermissionDenied
from ..model import Snapshot
from ..proxmox.api.failures import NotRecorded
from ..proxmox.api.reader import Reader
from ..proxmox.inventory.rows import mark_of


def unknown_pool(reader: Reader, snapshot: Snapshot, pool: str | None) -> str | None:
    """Return the error text, with the pools that this user sees, if a pool does not exist; None if it exists, or if
    this user cannot tell.
    """
    if pool is None or pool in snapshot.pools:
        return None
    missing = missing_pool(reader, pool)
    if missing is None:
        return None
    marks = {mark_of(node.name) for node in snapshot.nodes}
    return f"pool: {missing}; known: {known_names(snapshot.pools - marks, pool)}"


def missing_pool(reader: Reader, pool: str) -> str | None:
    """Return the error text if a pool does not exist; None if it exists, or if this user cannot tell."""
    try:
        reader.get(f"/pools/{pool}")
    except (PermissionDenied, NotRecorded):
        return None
    except ApiError as error:
        if "does not exist" not in error.message and "invalid format" not in error.message:
            raise
        return f"pool {pool!r} does not exist, or this user cannot see it"
    return None
