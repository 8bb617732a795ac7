# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the runs of a task about several clusters, one per cluster, have in common: its shares. All run at the same
time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..progress import Progress, VMStep, Wait


class Gate:
    """The point at which shares wait until all of them are planned: one that failed may hold back the others."""

    def __init__(self, shares: Iterable[str], *, all_or_nothing: bool) -> None:
        self._missing = set(shares)
        self._all_or_nothing = all_or_nothing
        self._failed = False
        self._changed = threading.Condition()

    def arrive(self, share: str, *, failed: bool) -> None:
        """Note that a share is planned. Only its first arrival counts."""
        with self._changed:
            if share in self._missing:
                self._missing.remove(share)
                self._failed = self._failed or failed
                self._changed.notify_all()

    def wait(self) -> bool:
        """Wait for all shares. Returns whether they may write."""
        with self._changed:
            self._changed.wait_for(lambda: not self._missing)
            return not (self._all_or_nothing and self._failed)

    def pass_through(self, share: str, failed: bool) -> bool:
        """Arrive and wait. Returns whether the share may write."""
        self.arrive(share, failed=failed)
        return self.wait()


class Steps:
    """Combines the progress of all shares. May be used from many threads."""

    def __init__(self, progress: Progress, expected: Mapping[str, int]) -> None:
        """expected is the number of VMs that each cluster will create, as far as known."""
        self._progress = progress
        self._lock = threading.Lock()
        self._done = dict.fromkeys(expected, 0)
        self._total = dict(expected)

    def of(self, cluster: str) -> Progress:
        """Return the progress function for the share of one cluster."""

        def tell(step: VMStep | Wait) -> None:
            if not isinstance(step, VMStep):
                return
            with self._lock:
                self._done[cluster], self._total[cluster] = step.done, step.total
                done, total = sum(self._done.values()), sum(self._total.values())
                self._progress(replace(step, done=done, total=max(done, total)))

        return tell
