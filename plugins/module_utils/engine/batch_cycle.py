# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling cycle of a batch, from top to bottom: PreEnqueue and QueueSort, then one request after the other, and
Permit.

Groups are placed together or not at all: what Permit rejects in the end is rolled back and barred, and the others are
placed again without it.
"""

from __future__ import annotations

import itertools
import operator
import typing as t
from collections.abc import Collection, Iterable, Sequence

from ..errors import CollectionError, SchedulingGated
from ..model import Request
from .diagnosis import not_permitted_outcome
from .framework.interface import QueueSortPlugin, Requests
from .framework.status import Code, Status
from .guard import ask, call_plugin, check_request
from .queue import Batch, Queued
from .scheduling_cycle import Scheduler
from .verdicts import Outcome


def schedule_all(
    scheduler: Scheduler, requests: Iterable[Request], now: float = 0.0, present: Iterable[Request] = ()
) -> list[Outcome]:
    """Place all requests; each decision counts for the following ones.

    present are the requests of VMs of the same run that exist already. now is in seconds, on the clock of
    Request.created. The outcomes are in the order of the requests.
    """
    batch = Batch({-1 - number: request for number, request in enumerate(present)})
    _run_queue_sort(scheduler, batch, requests)
    for queued in batch.turns(batch.queue, scheduler.profile):
        _run_permit(scheduler, batch, queued, scheduler.schedule(queued.request, now))
    if any(_permit_status(scheduler, batch, each.request) for each in batch.queue if each.arrival in batch.placed):
        _place_without_rejected(scheduler, batch, now)
    return [batch.outcomes[arrival] for arrival in sorted(batch.outcomes)]


def are_all_permitted(scheduler: Scheduler, placed: Iterable[Request], failed: Iterable[Request]) -> bool:
    """Whether Permit accepts all placed requests when no other request is left to decide."""
    batch = Batch(dict(enumerate(placed)), unplaced=dict(enumerate(failed)))
    return all(_permit_status(scheduler, batch, request) is None for request in batch.placed.values())


# --- PreEnqueue, QueueSort ---


def _run_queue_sort(scheduler: Scheduler, batch: Batch, requests: Iterable[Request]) -> None:
    """Sort the requests into the queue. Requests that a PreEnqueue plugin holds back, or that have no valid sort key,
    get their outcome here.
    """
    sorters: list[QueueSortPlugin] = scheduler.profiles[scheduler.default_profile].sections["queue"]
    keys: dict[int, t.Any] = {}
    for arrival, request in enumerate(requests):
        by = frozenset[str]()
        try:
            held = check_request(scheduler.profile(request).plugins_about(request), request)
            if held is not None:
                by = frozenset({held.plugin})
                raise SchedulingGated(f'VM "{request.name}" is held back: {held.plugin}: {held.text}')
            key: t.Any = call_plugin(sorters[0], sorters[0].sort_key, request, arrival) if sorters else arrival
            for other in itertools.islice(keys.values(), 1 if sorters else 0):
                call_plugin(sorters[0], operator.lt, key, other)
            keys[arrival] = key
        except CollectionError as error:
            batch.outcomes[arrival] = Outcome(request, error=error, rejected_by=by)
            batch.unplaced[arrival] = request
            batch.held.add(arrival)
        else:
            batch.queue.append(Queued(request, arrival))
    batch.queue.sort(key=lambda queued: (keys[queued.arrival], queued.arrival))


# --- Permit ---


def _run_permit(scheduler: Scheduler, batch: Batch, queued: Queued, outcome: Outcome) -> None:
    """Note the outcome of a request, and take its decision back if Permit rejects it."""
    arrival, request = queued.arrival, queued.request
    before = batch.outcomes.get(arrival)
    batch.outcomes[arrival] = outcome
    del batch.undecided[arrival]
    if outcome.decision is None:
        batch.unplaced[arrival] = request
        return
    batch.placed[arrival] = request
    refused = _permit_status(scheduler, batch, request, batch.undecided.values())
    if refused is None or refused.code is Code.WAIT:
        return
    _take_back(scheduler, batch, queued)
    # An earlier failure of the request itself explains more than the failure of its group.
    batch.outcomes[arrival] = before or not_permitted_outcome(outcome, refused)


def _permit_status(
    scheduler: Scheduler,
    batch: Batch,
    request: Request,
    waiting: Collection[Request] = (),
    failed: Collection[Request] | None = None,
) -> Status | None:
    """Return the first status with which a Permit plugin does not accept the request. If a plugin raises, that rejects
    the request.

    waiting are the requests that are left to decide, failed by default all that found no place.
    """
    failed = batch.unplaced.values() if failed is None else failed
    for plugin in scheduler.profile(request).plugins_about(request).permits:
        try:
            others = (Requests(batch.placed.values()), Requests(waiting), Requests(failed))
            status = ask(plugin, plugin.permit, request, *others)
        except CollectionError as error:
            return Status(Code.ERROR, error.message, plugin=plugin.name)
        if status is not None and status.code is not Code.SKIP:
            return status
    return None


def _take_back(scheduler: Scheduler, batch: Batch, queued: Queued) -> None:
    decision = batch.outcomes[queued.arrival].decision
    batch.placed.pop(queued.arrival, None)
    batch.unplaced[queued.arrival] = queued.request
    if decision is not None:
        scheduler.undo(decision)


# --- groups that Permit rejects in the end ---


def _place_without_rejected(scheduler: Scheduler, batch: Batch, now: float) -> None:
    """Place a batch again without the groups that Permit rejected when no request was left to decide."""
    groups: list[list[Queued]] = []
    at_once = 1
    while barred := list(itertools.islice(iter(lambda: _bar_one(scheduler, batch), []), at_once)):
        groups += barred
        # If one group lacks room, others probably do, too. Barring one group per round would take quadratic time.
        at_once *= 2
        for queued in [queued for queued in batch.queue if queued.arrival in batch.placed]:
            _take_back(scheduler, batch, queued)
            del batch.outcomes[queued.arrival]
        for queued in batch.turns(
            [each for each in batch.queue if each.arrival not in batch.barred], scheduler.profile
        ):
            _run_permit(scheduler, batch, queued, scheduler.schedule(queued.request, now))
    # A barred group may fit now, if the requests that took its place were barred later.
    position = {queued.arrival: number for number, queued in enumerate(batch.queue)}
    for group in sorted(groups, key=lambda group: min(position[queued.arrival] for queued in group)):
        _try_again(scheduler, batch, group, now)


def _bar_one(scheduler: Scheduler, batch: Batch) -> list[Queued]:
    """Bar the last placed request that Permit finally rejects, and all others that Permit rejects without it. Returns
    the barred requests; empty if Permit accepts all.
    """
    refused = [
        (queued, status)
        for queued in batch.queue
        if queued.arrival in batch.placed and (status := _permit_status(scheduler, batch, queued.request)) is not None
    ]
    hopeful = [q.request for q in batch.queue if q.arrival in batch.unplaced and q.arrival not in batch.barred]
    out = batch.barred | batch.held
    hopeless = [request for arrival, request in batch.unplaced.items() if arrival in out]
    group: list[Queued] = []
    for queued, status in reversed(refused):
        again = _permit_status(scheduler, batch, queued.request, hopeful, hopeless) if group else status
        if again is not None and (again.code is not Code.WAIT or not group):
            _take_back(scheduler, batch, queued)
            batch.outcomes[queued.arrival] = not_permitted_outcome(batch.outcomes[queued.arrival], again)
            batch.barred.add(queued.arrival)
            hopeless.append(queued.request)
            group.append(queued)
    return group


def _try_again(scheduler: Scheduler, batch: Batch, group: Sequence[Queued], now: float) -> None:
    """Try to place a barred group beside the VMs that are placed, and then the failed requests that this may help. If
    Permit rejects any of them, restore the state before.
    """
    placed, unplaced, outcomes = set(batch.placed), dict(batch.unplaced), dict(batch.outcomes)
    batch.barred.difference_update(queued.arrival for queued in group)
    for queued in batch.turns(_with_members(batch, group), scheduler.profile):
        _run_permit(scheduler, batch, queued, scheduler.schedule(queued.request, now))
    if are_all_permitted(scheduler, batch.placed.values(), batch.unplaced.values()):
        return
    for queued in batch.queue:
        if queued.arrival in batch.placed and queued.arrival not in placed:
            _take_back(scheduler, batch, queued)
    batch.unplaced, batch.outcomes = unplaced, outcomes
    batch.barred.update(queued.arrival for queued in group)


def _with_members(batch: Batch, group: Sequence[Queued]) -> list[Queued]:
    """Return a barred group, with other members of its groups that failed without being barred."""
    arrivals = {queued.arrival for queued in group}
    names = {queued.request.gang.name for queued in group if queued.request.gang is not None}
    return [
        queued
        for queued in batch.queue
        if queued.arrival in batch.unplaced
        and queued.arrival not in batch.barred
        and (queued.arrival in arrivals or (queued.request.gang is not None and queued.request.gang.name in names))
    ]
