# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run per cluster of a task about several clusters: its share. All shares run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import Interrupted
from ..access import Access
from ..job import Job
from ..options.run_options import RunOptions
from ..placing import Placement, Placer
from ..progress import Progress, Step, Wait
from ..run import Run


class Gate:
    """The point at which shares wait until all of them are planned: one that failed may hold back the others."""

    def __init__(self, shares: int, *, all_or_nothing: bool) -> None:
        self._missing = shares
        self._all_or_nothing = all_or_nothing
        self._failed = False
        self._changed = threading.Condition()

    def planned(self, *, failed: bool) -> None:
        """Note that one more share is planned. Called once by each share."""
        with self._changed:
            self._missing -= 1
            self._failed = self._failed or failed
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait for all shares. Returns whether they may write."""
        with self._changed:
            self._changed.wait_for(lambda: not self._missing)
            return not (self._all_or_nothing and self._failed)


class Steps:
    """Combines the progress of all shares. May be used from many threads."""

    def __init__(self, progress: Progress, expected: Mapping[str, int]) -> None:
        """expected is the number of VMs that each cluster will create, as far as known."""
        self._progress = progress
        self._lock = threading.Lock()
        self._done = dict.fromkeys(expected, 0)
        self._total = dict(expected)

    def of(self, cluster: str) -> Progress:
        """The progress function for the share of one cluster."""

        def tell(step: Step | Wait) -> None:
            if not isinstance(step, Step):
                return
            with self._lock:
                self._done[cluster], self._total[cluster] = step.done, step.total
                done, total = sum(self._done.values()), sum(self._total.values())
                self._progress(replace(step, done=done, total=max(done, total)))

        return tell


class Share(Run):
    """The run of one cluster. Its first scheduling cycle was gone through together with those of the other clusters."""

    def __init__(
        self,
        options: RunOptions,
        access: Access,
        placer: Placer,
        jobs: Sequence[Job],
        placement: Placement,
        gate: Gate,
        progress: Progress | None,
    ) -> None:
        super().__init__(options, access, placer, [], progress)
        placer.prepared = placement
        self.jobs = list(jobs)
        self._gate = gate
        self._at_gate = False

    def carry_out(self, *, write: bool) -> None:
        """Carry out the decisions and plans. The outcomes are noted in the jobs."""
        try:
            self.execute(check_mode=not write)
        finally:
            self._arrive()

    def stop(self) -> None:
        self._stop.ask()

    def _arrive(self) -> None:
        if not self._at_gate:
            self._at_gate = True
            self._gate.planned(failed=bool(self._failed()))

    def _fail_unbound(self) -> None:
        # A closed gate holds back the jobs of all shares.
        if self._at_gate and self._gate.wait():
            super()._fail_unbound()

    def _bind(self, due: Sequence[Job]) -> None:
        self._arrive()
        if not self._gate.wait():
            self._placer.give_back(due)
            return
        try:
            super()._bind(due)
        except Interrupted:
            # Signals reach only the first thread, which has told this one.
            raise KeyboardInterrupt from None
