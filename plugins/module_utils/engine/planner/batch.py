# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place a batch of new VMs: one by one first, and all together by the planner where some found no place."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...errors import CollectionError, NoNodesAvailable, NoStorageAvailable
from ...model import Request
from ..diagnosis import Outcome
from ..scheduling_cycle import Scheduler


def place_batch(
    scheduler: Scheduler,
    requests: Sequence[Request],
    now: float = 0.0,
    present: Collection[Request] = (),
    steps: int | None = None,
) -> list[Outcome]:
    """Schedule the requests by Scheduler.schedule_all; where some find no place, search places for all together.

    The result of the search counts only if every VM has a place and the Permit plugins allow all of them. Otherwise the
    outcomes are those of schedule_all. VMIDs follow the order of the requests in both cases. steps limits the search;
    None: the default. If it reaches the limit, the outcomes of VMs without a place are marked as exhausted.
    """
    outcomes = scheduler.schedule_all(requests, now, present)
    homeless = {n for n, o in enumerate(outcomes) if isinstance(o.error, (NoNodesAvailable, NoStorageAvailable))}
    hopeless = any(not outcomes[number].resolvable for number in homeless)
    if not homeless or hopeless or len(outcomes) < 2:
        return outcomes
    placed = [outcome.decision for outcome in outcomes if outcome.decision is not None]
    for decision in reversed(placed):
        scheduler.undo(decision)
    numbers = [number for number, o in enumerate(outcomes) if o.decision is not None or number in homeless]
    wanted = [outcomes[number].request for number in numbers]
    failed = [outcome.request for number, outcome in enumerate(outcomes) if number not in numbers]
    found, exhausted = _searched(scheduler, wanted, now, steps)
    if len(found) == len(wanted) and scheduler.stand([*present, *wanted], failed):
        for number, outcome in zip(numbers, found, strict=True):
            outcomes[number] = outcome
        return outcomes
    for outcome in reversed(found):
        if outcome.decision is not None:
            scheduler.undo(outcome.decision)
    for decision in placed:
        scheduler.cluster.assume(decision)
    for number in homeless:
        outcomes[number].exhausted = exhausted
    return outcomes


def _searched(
    scheduler: Scheduler, requests: Sequence[Request], now: float, steps: int | None
) -> tuple[list[Outcome], bool]:
    """Return the outcomes of the joint placement, in the order of the requests; fewer than those if it fails. Also
    return whether the search reached its limit.
    """
    # Few runs need the planner, which is a tenth of the code that a module would load.
    from ...plans import Bounds, Goals
    from .planner import make_plan

    named = {id(request): number for number, request in enumerate(requests)}
    goals, bounds = Goals(place=tuple(requests)), Bounds() if steps is None else Bounds(steps=steps)
    try:
        plan = make_plan(scheduler.cluster, scheduler.profiles, goals, {}, bounds, scheduler.default_profile, now)
    except CollectionError:
        return [], False
    found: dict[int, Outcome] = {}
    for creation in plan.creations if plan.feasible else ():
        decision = creation.decision
        outcome = scheduler.schedule(decision.request, now, (decision.node, decision.vmid))
        if outcome.decision is None:
            break
        found[named[id(decision.request)]] = outcome
    return [found[number] for number in sorted(found)], plan.exhausted
