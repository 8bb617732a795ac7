# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for capacity: VMs that could not be placed are tried again after an event that may help them.

The scheduling queue decides which events may help and how long each VM backs off. In between, only the list of the
cluster's resources is read, at growing intervals.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Sequence

from ..engine.events import events_between
from ..engine.framework.interface import Event
from ..engine.profiles import Profile
from ..engine.queue import SchedulingQueue
from ..engine.verdicts import Outcome
from ..errors import ApiError, ConnectionFailed
from ..model import Request, Snapshot
from .existing.matching import is_silent
from .job import Job

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
GROWTH = 1.5

TOLD_EVERY = 10.0
TOLD_MOST = 20
"""Seconds between the reports of a wait, and the approximate maximum number of reports of a long wait."""


class Waiting:
    """The wait of one run.

    Attributes:
        waited: seconds waited so far.
        C(patience): the longest total wait in seconds.
    """

    def __init__(
        self,
        seconds: float,
        profile_of: Callable[[Request], Profile],
        read: Callable[[], Snapshot],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        tell: Callable[[Collection[Job], float], None] = lambda jobs, waited: None,
        began: float | None = None,
    ) -> None:
        """seconds is the longest total wait, from began or else from now on; read reads the cluster as cheaply as
        possible; tell is called at intervals with the waiting jobs and the seconds waited so far.
        """
        self._clock = clock
        self._sleep = sleep
        self._read = read
        self._queue = SchedulingQueue(profile_of)
        self._began = clock() if began is None else began
        self.patience = seconds
        self._deadline = self._began + seconds
        self._tell = tell
        self._tell_every = max(TOLD_EVERY, seconds / TOLD_MOST)
        self._tell_next = self._began

    @property
    def waited(self) -> float:
        return self._clock() - self._began

    def wait_for_a_chance(self, jobs: Sequence[Job], seen: Snapshot) -> bool:
        """Wait until another try may succeed for one of the jobs; seen is the cluster in which they failed. Returns
        False if time is up, or if no change can help any of them.
        """
        jobs = [job for job in jobs if job.is_hopeful]
        if not jobs:
            return False
        now = self._clock()
        wall = time.time() - now
        for job in jobs:
            position, outcome = job.entry.position, t.cast(Outcome, job.outcome)
            until = None if outcome.until is None else outcome.until - wall
            self._queue.put_back(position, outcome.request, now, outcome.rejected_by, until)
        pause = FIRST_PAUSE
        while len(self._queue):
            now = self._clock()
            if self._queue.pop(now):
                return True
            if now >= self._deadline:
                return False
            self._report(jobs, now)
            due = self._queue.next_time()
            soonest = self._deadline if due is None else min(due, self._deadline)
            self._sleep(max(min(pause, soonest - now), 0.05))
            pause = min(pause * GROWTH, LONGEST_PAUSE)
            try:
                after = self._read()
            except (ApiError, ConnectionFailed):
                # The wait goes on if the cluster does not answer for a while, for example during an update of its
                # nodes.
                continue
            events = events_between(seen, after)
            # The holders of devices are not read here: any changed guest may have released one.
            self._queue.wake(events | {Event.DEVICE} if Event.GUEST in events else events)
            seen = after
        return False

    def wait_until_names_are_known(self, jobs: Sequence[Job]) -> bool:
        """Wait until Proxmox VE tells the names of the guests again that may be the VMs of the jobs, or no longer shows
        them. Returns False if time is up. The jobs failed with VMNotKnown.
        """
        vmids = {vmid for job in jobs if job.error is not None for vmid in job.error.details["vmids"]}
        pause = FIRST_PAUSE
        while (now := self._clock()) < self._deadline:
            self._report(jobs, now)
            self._sleep(min(pause, self._deadline - now))
            pause = min(pause * GROWTH, LONGEST_PAUSE)
            try:
                guests = self._read().guests
            except (ApiError, ConnectionFailed):
                continue
            if not any(is_silent(guest) and guest.vmid in vmids for guest in guests):
                return True
        return False

    def _report(self, jobs: Sequence[Job], now: float) -> None:
        if now >= self._tell_next:
            self._tell(jobs, now - self._began)
            self._tell_next = now + self._tell_every
