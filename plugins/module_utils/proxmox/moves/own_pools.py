# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Empty pools that keep a text in their comments: the marks of drained nodes, the records of a tour and of a shutdown.

All functions raise what the API answers otherwise: PermissionDenied without Pool.Allocate.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

from ...errors import ApiError
from ..api.session import Session


def read_comment(session: Session, pool: str) -> str | None:
    """Return the comment of a pool; None if there is no such pool. One request."""
    try:
        found = session.get(f"/pools/{pool}")
    except ApiError as error:
        if "does not exist" not in error.message:
            raise
        return None
    return str(found.get("comment") or "")


def create_pool(session: Session, pool: str, comment: str) -> bool:
    """Create a pool with a comment. Returns False if it exists already: another controller has just created it."""
    try:
        session.post("/pools", poolid=pool, comment=comment)
    except ApiError as error:
        if "already exists" not in error.message:
            raise
        return False
    return True


def read_record(session: Session, pool: str, head: str) -> Mapping[str, t.Any] | None:
    """Return the JSON object that stands behind head in the comment of a pool; None if there is no such pool. One that
    was edited by hand may be anything, also thousands of brackets: then the object is empty. One request.
    """
    comment = read_comment(session, pool)
    if comment is None:
        return None
    try:
        data = json.loads(comment.removeprefix(head))
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def write_record(session: Session, pool: str, comment: str, *, there: bool) -> None:
    """Write the comment of a pool. there: whether the pool was there when it was read."""
    if there or not create_pool(session, pool, comment):
        write_comment(session, pool, comment)


def write_comment(session: Session, pool: str, comment: str) -> None:
    """Replace the comment of a pool."""
    session.put(f"/pools/{pool}", comment=comment)


def remove_pool(session: Session, pool: str) -> None:
    """Remove a pool. One that is gone is not an error."""
    try:
        session.delete(f"/pools/{pool}")
    except ApiError as error:
        if "does not exist" not in error.message:
            raise
