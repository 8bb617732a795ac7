# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups whose VMs are placed together or not at all: what Permit rejects in the end is rolled back and barred, and the
others are placed again without it.
"""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Sequence

from .diagnosis import not_permitted
from .framework.status import Code
from .queue import Batch, Queued

if t.TYPE_CHECKING:
    from .scheduling_cycle import Scheduler


def place_without_rejected(scheduler: Scheduler, batch: Batch, now: float) -> None:
    """Place a batch again without the groups that Permit rejected when no request was left to decide."""
    groups: list[list[Queued]] = []
    at_once = 1
    while barred := list(itertools.islice(iter(lambda: _bar_one(scheduler, batch), []), at_once)):
        groups += barred
        # If one group lacks room, others probably do, too. Barring one group per round would take quadratic time.
        at_once *= 2
        for queued in [queued for queued in batch.queue if queued.arrival in batch.placed]:
            scheduler.take_back(batch, queued)
            del batch.outcomes[queued.arrival]
        scheduler.place_in_order(batch, [each for each in batch.queue if each.arrival not in batch.barred], now)
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
        if queued.arrival in batch.placed and (status := scheduler.final_status(batch, queued.request)) is not None
    ]
    hopeful = [q.request for q in batch.queue if q.arrival in batch.unplaced and q.arrival not in batch.barred]
    out = batch.barred | batch.held
    hopeless = [request for arrival, request in batch.unplaced.items() if arrival in out]
    group: list[Queued] = []
    for queued, status in reversed(refused):
        again = scheduler.run_permit(batch, queued.request, hopeful, hopeless) if group else status
        if again is not None and (again.code is not Code.WAIT or not group):
            scheduler.take_back(batch, queued)
            batch.outcomes[queued.arrival] = not_permitted(batch.outcomes[queued.arrival], again)
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
    scheduler.place_in_order(batch, _with_members(batch, group), now)
    if scheduler.stand(batch.placed.values(), batch.unplaced.values()):
        return
    for queued in batch.queue:
        if queued.arrival in batch.placed and queued.arrival not in placed:
            scheduler.take_back(batch, queued)
    batch.unplaced, batch.outcomes = unplaced, outcomes
    batch.barred.update(queued.arrival for queued in group)


def _with_members(batch: Batch, group: Sequence[Queued]) -> list[Queued]:
    """A barred group, and members of its groups that failed without being barred."""
    arrivals = {queued.arrival for queued in group}
    names = {queued.request.gang.name for queued in group if queued.request.gang is not None}
    return [
        queued
        for queued in batch.queue
        if queued.arrival in batch.unplaced
        and queued.arrival not in batch.barred
        and (queued.arrival in arrivals or (queued.request.gang is not None and queued.request.gang.name in names))
    ]
