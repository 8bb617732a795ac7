# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling queue: the requests that are decided together, in their order; and those that could not be placed,
with the time when each of them is tried again.

It has no clock: every method receives the time, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from ..model import Request
from .framework.interface import Event
from .framework.status import Category
from .profiles import Profile
from .selectors import attracts
from .verdicts import Outcome

BACKOFF_FIRST = 1.0
BACKOFF_MOST = 10.0
LONGEST_WAIT = 300.0
"""Seconds after which a request is tried again even without an event."""


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    """A request of a batch, with its number in order of arrival."""

    request: Request
    arrival: int


@dataclass(slots=True)
class Batch:
    """The requests that are decided together and their outcomes so far, by their number in order of arrival.

    Attributes:
        placed: the requests placed so far; those of VMs that exist already have negative numbers.
        undecided, unplaced: those still to be decided; those that failed or are held back.
        barred: requests that Permit rejected in the end, which are tried again after all others; held: those that never
            entered the queue.
        queue: the requests in the order in which they are tried.
    """

    placed: dict[int, Request]
    undecided: dict[int, Request] = field(default_factory=dict)
    unplaced: dict[int, Request] = field(default_factory=dict)
    barred: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    queue: list[Queued] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    def turns(self, due: Sequence[Queued], profile_of: Callable[[Request], Profile]) -> Iterator[Queued]:
        """Yield the requests whose turn it is, in order, and failed ones again as long as later placements may make
        them fit. The outcome of each has to be noted before the next turn.
        """
        placements: list[Request] = []
        seen: dict[int, int] = {}
        while due:
            self.undecided = {queued.arrival: queued.request for queued in due}
            for queued in due:
                self.unplaced.pop(queued.arrival, None)
            for queued in due:
                seen[queued.arrival] = len(placements)
                yield queued
                if queued.arrival in self.placed:
                    placements.append(queued.request)
            due = []
            for queued in self.queue:
                if queued.arrival in self.unplaced and queued.arrival not in self.barred:
                    since = placements[seen.get(queued.arrival, 0) :]
                    seen[queued.arrival] = len(placements)
                    if self.may_fit(queued, profile_of(queued.request), since):
                        due.append(queued)

    def may_fit(self, queued: Queued, profile: Profile, placements: Sequence[Request]) -> bool:
        """Whether one of the placements of other VMs may make a failed request fit. A placement can satisfy a rule, but
        never adds capacity. Rules of selective plugins are satisfied only by VMs that the request's own rules select.
        """
        outcome = self.outcomes[queued.arrival]
        if not (placements and outcome.resolvable):
            return False
        by = outcome.rejected_by
        rules = [plugin for plugin in profile.plugins if plugin.name in by and plugin.category is Category.RULE]
        if rules and all(plugin.selective for plugin in rules):
            return any(attracts(queued.request, other) for other in placements)
        return bool(rules) or not by


@dataclass(slots=True)
class Unplaced:
    """A request that waits until it is tried again.

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
        self._waiting: dict[int, Unplaced] = {}
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
        self._waiting[number] = Unplaced(request, not_before, wake_at, frozenset(rejected_by))

    def wake(self, events: Collection[Event]) -> None:
        """Make the requests that these events may help due after their backoff."""
        for waiting in self._waiting.values():
            waiting.woken = waiting.woken or self._may_help(waiting, events)

    def next_time(self) -> float | None:
        """Return when the next request is due if nothing happens; None if none waits."""
        return min((waiting.due for waiting in self._waiting.values()), default=None)

    def pop(self, now: float) -> list[int]:
        """Return the numbers of the requests to try now; empty while none is due.

        When one is due, all are returned: trying them costs no further reading, and some may be in the same group.
        """
        if all(waiting.due > now for waiting in self._waiting.values()):
            return []
        numbers = sorted(self._waiting)
        self._waiting.clear()
        return numbers

    def __len__(self) -> int:
        return len(self._waiting)

    def _may_help(self, waiting: Unplaced, events: Collection[Event]) -> bool:
        if not waiting.rejected_by:
            return bool(events)
        plugins = self._profile_of(waiting.request).plugins
        return any(plugin.events & set(events) for plugin in plugins if plugin.name in waiting.rejected_by)
