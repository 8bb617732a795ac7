# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling queue: which request is tried next, and when one that failed is worth another try.

It has no clock: every method takes the time, in seconds.
"""

from __future__ import annotations

import heapq
import math
import operator
import typing as t
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..model import Request
from .framework.interface import Event, QueueSortPlugin
from .framework.profile import Profile
from .framework.status import Status
from .guard import asked, guarded

BACKOFF_FIRST = 1.0
BACKOFF_MOST = 10.0
LONGEST_WAIT = 300.0
"""Seconds after which a request is tried again though no event spoke for it."""


@dataclass(slots=True)
class Queued:
    """One request on its way through the queue.

    Attributes:
        arrival: its number in order of arrival; unique.
        key: by which the active queue is ordered.
        attempts: the number of failed attempts.
        not_before: the end of its backoff.
        wake_at: when it is tried again though nothing happened.
        rejected_by: the plugins whose events are worth another try; empty: any event is.
    """

    request: Request
    arrival: int
    key: t.Any
    attempts: int = 0
    not_before: float = 0.0
    wake_at: float = 0.0
    rejected_by: frozenset[str] = frozenset()


class SchedulingQueue:
    """kube-scheduler's three queues: active (by the QueueSort plugin), backoff (by time), and the unschedulable pool.

    What PreEnqueue plugins hold back never gets in.
    """

    def __init__(self, profile_of: Callable[[Request], Profile], sorter: QueueSortPlugin | None = None) -> None:
        """profile_of tells a request's profile; without a sorter the order is that of arrival."""
        self._profile_of = profile_of
        self._sorter = sorter
        self._active: list[tuple[t.Any, int, Queued]] = []
        self._backoff: dict[int, Queued] = {}
        self._unschedulable: dict[int, Queued] = {}
        self._next_due: float | None = None

    def add(self, request: Request, arrival: int) -> Status | None:
        """Let a new request in; or say which PreEnqueue plugin holds it back, and why.

        Raises InvalidRequest and PluginFailed.
        """
        for plugin in self._profile_of(request).checking:
            status = asked(plugin, plugin.pre_enqueue, request)
            if status is not None:
                return status
        self.activate(Queued(request, arrival, self._sort_key(request, arrival)))
        return None

    def pop(self, now: float) -> Queued | None:
        """The request to try next; None when none is due."""
        self._let_in_what_is_due(now)
        return heapq.heappop(self._active)[2] if self._active else None

    def activate(self, queued: Queued) -> None:
        """Have a request tried at once."""
        heapq.heappush(self._active, (queued.key, queued.arrival, queued))

    def put_back(
        self, queued: Queued, now: float, rejected_by: Collection[str] = (), until: float | None = None
    ) -> None:
        """A try failed: wait for an event that concerns one of the rejecting plugins, or until a given time.

        Each failed attempt doubles the backoff, from 1 s to 10 s; a request that waits for a given time has none.
        """
        if until is not None:
            queued.not_before = queued.wake_at = until
        else:
            queued.attempts += 1
            queued.not_before = now + min(BACKOFF_FIRST * 2 ** (queued.attempts - 1), BACKOFF_MOST)
            queued.wake_at = now + LONGEST_WAIT
        queued.rejected_by = frozenset(rejected_by)
        self._unschedulable[queued.arrival] = queued
        self._next_due = None

    def wake(self, events: Collection[Event]) -> None:
        """Something happened in the cluster: what it may help leaves the unschedulable pool, due when its backoff
        is over.
        """
        for queued in list(self._unschedulable.values()):
            if self._may_help(queued, events):
                self._backoff[queued.arrival] = self._unschedulable.pop(queued.arrival)
        self._next_due = None

    def next_time(self) -> float | None:
        """When the next request that is not active yet is due if nothing happens; None when none waits."""
        times = [queued.not_before for queued in self._backoff.values()]
        times += [max(queued.wake_at, queued.not_before) for queued in self._unschedulable.values()]
        return min(times, default=None)

    def __len__(self) -> int:
        return len(self._active) + len(self._backoff) + len(self._unschedulable)

    # --- inside ---

    def _sort_key(self, request: Request, arrival: int) -> t.Any:
        if self._sorter is None:
            return arrival
        key = guarded(self._sorter, self._sorter.sort_key, request, arrival)
        if self._active:
            guarded(self._sorter, operator.lt, key, self._active[0][0])
        return key

    def _let_in_what_is_due(self, now: float) -> None:
        if self._next_due is None:
            earliest = self.next_time()
            self._next_due = math.inf if earliest is None else earliest
        if now < self._next_due:
            return
        due = [queued for queued in self._backoff.values() if queued.not_before <= now]
        due += [queued for queued in self._unschedulable.values() if max(queued.wake_at, queued.not_before) <= now]
        gangs = {queued.request.gang.name for queued in due if queued.request.gang}
        for queued in due:
            self._leave_pools(queued)
        # Permit would let a single member wait for the others.
        for queued in [*self._backoff.values(), *self._unschedulable.values()]:
            if queued.request.gang and queued.request.gang.name in gangs:
                self._leave_pools(queued)
        self._next_due = None

    def _leave_pools(self, queued: Queued) -> None:
        self._backoff.pop(queued.arrival, None)
        self._unschedulable.pop(queued.arrival, None)
        self.activate(queued)

    def _may_help(self, queued: Queued, events: Collection[Event]) -> bool:
        if not queued.rejected_by:
            return bool(events)
        plugins = self._profile_of(queued.request).all()
        return any(plugin.events & set(events) for plugin in plugins if plugin.name in queued.rejected_by)
