# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the cluster has quorum, asked before what Proxmox begins without it and cannot end.

It refuses at once to create, clone, start and change VMs. It stops and shuts them down, and grows their disks, and then
can neither start them nor write their sizes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import NoQuorum, PermissionDenied
from .reader import Reader
from .rows import Row

# Seconds for which an answer holds: many VMs may be changed at the same time.
_HOLDS = 2.0


class Quorum:
    """Asks at most once every two seconds, and not where it was shown otherwise. May be used from many threads."""

    def __init__(self, reader: Reader, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock
        self._lock = threading.Lock()
        self._holds_until = float("-inf")

    def shown(self) -> None:
        """Note that something was just done that Proxmox refuses without quorum."""
        with self._lock:
            self._holds_until = self._clock() + _HOLDS

    def require(self, otherwise: str, *, fresh: bool = False) -> None:
        """Raise NoQuorum, with what was not done otherwise, unless the cluster has quorum. With fresh, an answer of a
        moment ago does not do.

        A user without Sys.Audit on C(/) cannot see it; then nothing is raised.
        """
        with self._lock:
            if not fresh and self._clock() < self._holds_until:
                return
            try:
                rows: list[Row] = self._reader.get("/cluster/status")
            except PermissionDenied:
                return
            if any(row.get("type") == "cluster" and row.get("quorate") == 0 for row in rows):
                raise NoQuorum(f"the cluster has no quorum: {otherwise}")
            self._holds_until = self._clock() + _HOLDS
