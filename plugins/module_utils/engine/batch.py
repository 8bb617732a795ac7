# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requests of one run, from the queue to their outcomes: each is placed when its turn comes, and what Permit
plugins do not let stand is taken back.

One run may make several passes, each with a scheduler of its own, when the cluster was read again in between.
"""

from __future__ import annotations

import math
import typing as t
from collections import Counter
from collections.abc import Collection, Iterable

from ..errors import CollectionError, SchedulingGated
from ..model import Decision, Request
from .diagnosis import Outcome, not_permitted
from .framework.interface import Event, PermitPlugin, QueueSortPlugin
from .framework.profile import Profile
from .framework.status import Code, Status
from .guard import asked
from .queue import Queued, SchedulingQueue

_TAKEN_BACK_MOST = 2
"""How often in one pass a request may be placed and taken back: two groups could else take turns for ever."""


class Places(t.Protocol):
    """What a batch asks of a scheduler."""

    @property
    def sorter(self) -> QueueSortPlugin | None:
        """The plugin that orders the queue."""

    def profile(self, request: Request) -> Profile:
        """The profile that a request is placed by."""

    def schedule(self, request: Request, now: float) -> Outcome:
        """Place a request, and assume the decision."""

    def undo(self, decision: Decision) -> None:
        """Take an assumed decision back."""


class Batch:
    """The requests of one run and what became of them so far."""

    def __init__(self, requests: Iterable[Request], scheduler: Places, present: Iterable[Request] = ()) -> None:
        """present are VMs of the same run that exist already: they count as placed members of their groups."""
        self._queue = SchedulingQueue(scheduler.profile, scheduler.sorter)
        self._outcomes: dict[int, Outcome] = {}
        self._placed: dict[int, Request] = {-1 - number: request for number, request in enumerate(present)}
        self._undecided: dict[int, Request] = {}
        self._unplaced: dict[int, Request] = {}
        self._waiting: dict[int, Queued] = {}
        self._failed: dict[int, Queued] = {}
        self._taken_back: Counter[int] = Counter()
        # How many requests had been placed when each was tried last.
        self._tried_after: dict[int, int] = {}
        self._placements = 0
        # What this pass has placed, and how many placements came before the first that was taken back.
        self._decided: dict[int, Queued] = {}
        self._gap = math.inf
        for arrival, request in enumerate(requests):
            self._add(arrival, request)

    def run(self, scheduler: Places, now: float) -> list[Outcome]:
        """Try every request that is due, and return the outcomes as of now, in the order of the requests.

        now is in seconds, on the clock of Request.created.
        """
        self._taken_back.clear()
        self._decided.clear()
        while True:
            due: list[Queued] = []
            while (queued := self._queue.pop(now)) is not None:
                due.append(queued)
                self._unplaced.pop(queued.arrival, None)
                self._undecided[queued.arrival] = queued.request
            for queued in due:
                self._place(queued, scheduler, now)
            if not (self._try_again() or self._settle(scheduler) or self._decide_again(scheduler)):
                break
        for queued in self._failed.values():
            outcome = self._outcomes[queued.arrival]
            if outcome.resolvable:
                self._queue.put_back(queued, now, outcome.rejected_by, outcome.until)
        self._failed.clear()
        return self.outcomes

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of each request so far, in the order of the requests."""
        return [self._outcomes[arrival] for arrival in sorted(self._outcomes)]

    def wake(self, events: Collection[Event]) -> None:
        """Say what happened in the cluster since the last pass: requests that it may help are due again."""
        self._queue.wake(events)

    def next_time(self) -> float | None:
        """When the next pass has something to do even if nothing happens; None when every outcome is final."""
        return self._queue.next_time()

    # --- inside ---

    def _add(self, arrival: int, request: Request) -> None:
        try:
            held = self._queue.add(request, arrival)
        except CollectionError as error:
            self._outcomes[arrival] = Outcome(request, error=error)
        else:
            if held is None:
                return
            message = f'VM "{request.name}" is held back: {held.plugin}: {held.text}'
            self._outcomes[arrival] = Outcome(
                request, error=SchedulingGated(message), rejected_by=frozenset({held.plugin})
            )
        self._unplaced[arrival] = request

    def _place(self, queued: Queued, scheduler: Places, now: float) -> None:
        before = self._outcomes.get(queued.arrival)
        self._tried_after[queued.arrival] = self._placements
        outcome = scheduler.schedule(queued.request, now)
        outcome.attempts = queued.attempts + 1
        self._outcomes[queued.arrival] = outcome
        del self._undecided[queued.arrival]
        if outcome.decision is None:
            self._fail(queued)
            return
        self._placed[queued.arrival] = queued.request
        rejection = self._permit(queued, scheduler, self._undecided.values())
        if rejection is None or rejection.code is Code.WAIT:
            self._placements += 1
            self._decided[queued.arrival] = queued
            if rejection is not None:
                self._waiting[queued.arrival] = queued
            return
        self._take_back(queued, scheduler, rejection)
        if before is not None and before.attempts == outcome.attempts:
            # Why it failed by itself in this pass says more than that its group failed with it.
            self._outcomes[queued.arrival] = before

    def _try_again(self) -> bool:
        """Have those that failed before others were placed tried once more, as these may be what they must be with;
        tell whether there are any.
        """
        again = [
            queued
            for arrival, queued in self._failed.items()
            if self._outcomes[arrival].resolvable
            and self._tried_after[arrival] < self._placements
            and self._taken_back[arrival] < _TAKEN_BACK_MOST
        ]
        for queued in again:
            del self._failed[queued.arrival]
            self._queue.activate(queued)
        return bool(again)

    def _settle(self, scheduler: Places) -> bool:
        """Ask those that wait again, now that no other is left; tell whether there may be something to try again.

        When some are still not permitted, the last in order and those that cannot do without it are taken back, and
        what they held is offered to the others that failed.
        """
        refused: dict[int, Status] = {}
        for queued in list(self._waiting.values()):
            rejection = self._permit(queued, scheduler, ())
            if rejection is None:
                del self._waiting[queued.arrival]
            else:
                refused[queued.arrival] = rejection
        if not self._waiting:
            return False
        again = {a: queued for a, queued in self._failed.items() if self._taken_back[a] < _TAKEN_BACK_MOST}
        for arrival in again:
            del self._failed[arrival], self._unplaced[arrival]
        last = max(self._waiting.values(), key=lambda queued: (queued.key, queued.arrival))
        self._take_back(last, scheduler, refused[last.arrival])
        hopes = [queued.request for queued in again.values()]
        for queued in list(self._waiting.values()):
            rejection = self._permit(queued, scheduler, hopes)
            if rejection is not None and rejection.code is not Code.WAIT:
                self._take_back(queued, scheduler, rejection)
        for queued in again.values():
            self._queue.activate(queued)
        return True

    def _decide_again(self, scheduler: Places) -> bool:
        """Take back what was placed after one that did not stay, to be decided without it: it may be where it is
        because of that one. Tell whether there is any.
        """
        gap, self._gap = self._gap, math.inf
        later = [queued for arrival, queued in self._decided.items() if self._tried_after[arrival] > gap]
        for queued in later:
            error = self._undo(queued, scheduler)
            if error is None:
                del self._outcomes[queued.arrival]
                self._queue.activate(queued)
            else:
                self._outcomes[queued.arrival] = Outcome(queued.request, error=error)
                self._fail(queued)
        if later:
            # What was placed before may have been permitted because of what is open again now.
            self._waiting.update(self._decided)
        return bool(later)

    def _permit(self, queued: Queued, scheduler: Places, undecided: Collection[Request]) -> Status | None:
        """The first answer of a Permit plugin that is not a yes; one that raises says no."""
        plugins: list[PermitPlugin] = scheduler.profile(queued.request).plugins("permits")
        placed, failed = self._placed.values(), self._unplaced.values()
        for plugin in plugins:
            try:
                status = asked(plugin, plugin.permit, queued.request, placed, undecided, failed)
            except CollectionError as error:
                status = Status(Code.ERROR, error.message, plugin=plugin.name)
            if status is not None and status.code is not Code.SKIP:
                return status
        return None

    def _take_back(self, queued: Queued, scheduler: Places, rejection: Status) -> None:
        self._taken_back[queued.arrival] += 1
        if queued.arrival in self._decided:
            self._gap = min(self._gap, self._tried_after[queued.arrival])
        error = self._undo(queued, scheduler)
        outcome = self._outcomes[queued.arrival] = not_permitted(self._outcomes[queued.arrival], rejection)
        outcome.error = error or outcome.error
        self._fail(queued)

    def _undo(self, queued: Queued, scheduler: Places) -> CollectionError | None:
        """Give up what was decided; the error of a plugin that raised meanwhile."""
        self._waiting.pop(queued.arrival, None)
        self._decided.pop(queued.arrival, None)
        del self._placed[queued.arrival]
        decision = self._outcomes[queued.arrival].decision
        try:
            if decision is not None:
                scheduler.undo(decision)
        except CollectionError as error:
            return error
        return None

    def _fail(self, queued: Queued) -> None:
        self._unplaced[queued.arrival] = queued.request
        self._failed[queued.arrival] = queued
