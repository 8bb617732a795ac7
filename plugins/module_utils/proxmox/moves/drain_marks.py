# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mark of a drained node: an empty pool with the node's name in its own.

Proxmox has no such mark except HA maintenance, which its API cannot set. A pool is persistent, belongs to the whole
cluster, is visible in the GUI and in the list that every placement reads anyway, and needs no privilege but
Pool.Allocate on its own path. Its comment lists the guests that return when the node is active again.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ...errors import ApiError
from ..api.session import Session
from ..inventory.rows import mark_of

_COMMENT = "qemu_scheduler.proxmox keeps {} free of guests; guests that come back: {}"
_GUESTS = re.compile(r"guests that come back: ([\d, ]*)$")


class DrainMarks:
    """Reads and writes the marks of nodes. Raises what the API answers: PermissionDenied without Pool.Allocate."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def guests(self, node: str) -> frozenset[int] | None:
        """Return the VMIDs of the guests that return to a marked node; None for a node without a mark."""
        try:
            pool = self._session.get(f"/pools/{mark_of(node)}")
        except ApiError as error:
            if "does not exist" not in error.message:
                raise
            return None
        match = _GUESTS.search(str(pool.get("comment") or ""))
        return frozenset(map(int, re.findall(r"\d{1,9}", match[1]))) if match else frozenset()

    def set(self, node: str, guests: Collection[int], *, marked: bool) -> bool:
        """Mark a node and add guests to those that return to it. Returns whether the mark changed.

        marked: whether it had a mark when the cluster was read.
        """
        before = self.guests(node) if marked else None
        if before is None:
            try:
                self._session.post("/pools", poolid=mark_of(node), comment=_comment(node, guests))
                return True
            except ApiError as error:
                if "already exists" not in error.message:
                    raise
            # Another controller has just marked it.
            before = self.guests(node) or frozenset()
        kept = before.union(guests)
        if kept != before:
            self._session.put(f"/pools/{mark_of(node)}", comment=_comment(node, kept))
        return kept != before

    def clear(self, node: str) -> None:
        """Remove a node's mark. A node without one is not an error."""
        try:
            self._session.delete(f"/pools/{mark_of(node)}")
        except ApiError as error:
            if "does not exist" not in error.message:
                raise


def _comment(node: str, guests: Collection[int]) -> str:
    return _COMMENT.format(node, ", ".join(map(str, sorted(guests))))
