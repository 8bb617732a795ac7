# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a VM that is locked by its creation is still being made.

A task that is killed, or a node that crashes, leaves the VM locked for good. The list of running tasks tells, to a user
with Sys.Audit.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..errors import ApiError, ConnectionFailed, PermissionDenied
from .failures import NotRecorded
from .freshness import CLONING, is_auditor
from .reader import Reader

# A task is in the list some moments after it was begun.
_CERTAIN_AFTER = 3.0


class Creations:
    """Looks again and again whether VMs are still being made. May be used from many threads."""

    def __init__(self, reader: Reader, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock = clock
        self._idle_since: dict[int, float] = {}

    def is_abandoned(self, vmid: int) -> bool:
        """Tell whether for some seconds no task has been making the VM. False for a user who does not see all tasks."""
        if self._may_be_made(vmid):
            self._idle_since.pop(vmid, None)
            return False
        return self._clock() - self._idle_since.setdefault(vmid, self._clock()) >= _CERTAIN_AFTER

    def _may_be_made(self, vmid: int) -> bool:
        try:
            rows = self._reader.get("/cluster/tasks")
            running = [row for row in rows if "endtime" not in row]
            # The task of a clone names its source.
            if any(row.get("type") in CLONING or row.get("id") == str(vmid) for row in running):
                return True
            return not is_auditor(self._reader)
        except (ApiError, ConnectionFailed, PermissionDenied, NotRecorded):
            return True
