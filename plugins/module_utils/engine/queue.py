# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling queue: requests that could not be placed, and when to try each of them again.

It has no clock: every method receives the time, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..model import Request
from .framework.interface import Event
from .framework.profile import Profile

BACKOFF_FIRST = 1.0
BACKOFF_MOST = 10.0
LONGEST_WAIT = 300.0
"""Seconds after which a request is tried again even without an event."""


@dataclass(slots=True)
class Queued:
    """One request that waits.

    Attributes:
        not_before: the end of its backoff.
        wake_at: when it is tried again even without an event.
        rejected_by: the plugins whose events make another try worthwhile; if empty, every event does.
        woken: whether there was such an event.
    """

    request: Request
    not_before: float
    wake_at: float
    rejected_by: frozenset[str]
    woken: bool = False

    @property
    def due(self) -> float:
        """When it is tried again if nothing more happens."""
        return self.not_before if self.woken else max(self.wake_at, self.not_before)


class SchedulingQueue:
    """The unschedulable pool and the backoff queue of kube-scheduler in one: an event makes a request due after its
    backoff.
    """

    def __init__(self, profile_of: Callable[[Request], Profile]) -> None:
        self._profile_of = profile_of
        self._waiting: dict[int, Queued] = {}
        # How often each request failed, by number.
        self._attempts: dict[int, int] = {}

    def put_back(
        self,
        number: int,
        request: Request,
        now: float,
        rejected_by: Collection[str] = (),
        until: float | None = None,
    ) -> None:
        """Wait, after a failed try, for an event of one of the rejecting plugins, or until a given time.

        Each failed attempt doubles the backoff, from 1 s to 10 s; a request with a given time has no backoff. number
        identifies the request in later calls.
        """
        attempts = self._attempts.get(number, 0) + (until is None)
        backoff = min(BACKOFF_FIRST * 2 ** (attempts - 1), BACKOFF_MOST)
        not_before, wake_at = (now + backoff, now + LONGEST_WAIT) if until is None else (until, until)
        self._attempts[number] = attempts
        self._waiting[number] = Queued(request, not_before, wake_at, frozenset(rejected_by))

    def wake(self, events: Collection[Event]) -> None:
        """Make the requests that these events may help due after their backoff."""
        for queued in self._waiting.values():
            queued.woken = queued.woken or self._may_help(queued, events)

    def next_time(self) -> float | None:
        """When the next request is due if nothing happens; None when none waits."""
        return min((queued.due for queued in self._waiting.values()), default=None)

    def pop(self, now: float) -> list[int]:
        """Return the numbers of the requests to try now; empty while none is due.

        When one is due, all are returned: trying them costs no further reading, and some may be in the same group.
        """
        if all(queued.due > now for queued in self._waiting.values()):
            return []
        numbers = sorted(self._waiting)
        self._waiting.clear()
        return numbers

    def __len__(self) -> int:
        return len(self._waiting)

    def _may_help(self, queued: Queued, events: Collection[Event]) -> bool:
        if not queued.rejected_by:
            return bool(events)
        plugins = self._profile_of(queued.request).all()
        return any(plugin.events & set(events) for plugin in plugins if plugin.name in queued.rejected_by)
