# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place a batch of new VMs: one by one first, and all together by the planner where some found no place.

One by one means the largest first: small VMs then fill the gaps that large ones leave, and loads come out even. Only
where that leaves VMs without a place, the order of the task decides which of them these are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ..errors import CollectionError, NoNodesAvailable, NoStorageAvailable
from ..model import Decision, Request
from .batch_cycle import are_all_permitted, schedule_all
from .cache import assumed_guest
from .framework.interface import QueueSortPlugin
from .scheduling_cycle import Scheduler
from .verdicts import Outcome


def place_batch(
    scheduler: Scheduler,
    requests: Sequence[Request],
    now: float = 0.0,
    present: Collection[Request] = (),
    steps: int | None = None,
) -> list[Outcome]:
    """Schedule the requests by schedule_all, largest first; where some find no place, in the order of the
    task; and where some still find none, search places for all together: by the planner, and of few VMs in all orders.

    The result of a search counts only if every VM has a place and the Permit plugins allow all of them. Otherwise the
    outcomes are those of schedule_all in the order of the task. VMIDs follow the order of the task in all cases. steps
    limits the search; None: the default. If it reaches the limit, the outcomes of VMs without a place are marked as
    exhausted.
    """
    if not requests:
        return []
    order = _packing_order(scheduler, requests)
    if order is not None:
        found = schedule_all(scheduler, [requests[position] for position in order], now, present)
        if not any(outcome.resolvable for outcome in found):
            _note_turns(found)
            packed = sorted(zip(order, found, strict=True), key=lambda each: each[0])
            outcomes = [outcome for _position, outcome in packed]
            _number_again(scheduler, outcomes)
            return outcomes
        # A change in the cluster would help a VM: the order of the task decides.
        _undo_all(scheduler, _decisions(found))
    outcomes = schedule_all(scheduler, requests, now, present)
    _note_turns(outcomes)
    homeless = {n for n, o in enumerate(outcomes) if isinstance(o.error, (NoNodesAvailable, NoStorageAvailable))}
    if homeless and len(outcomes) > 1 and all(outcomes[number].resolvable for number in homeless):
        _place_together(scheduler, outcomes, homeless, now, present, steps)
    return outcomes


def _place_together(
    scheduler: Scheduler,
    outcomes: list[Outcome],
    homeless: Collection[int],
    now: float,
    present: Collection[Request],
    steps: int | None,
) -> None:
    """Search places for all VMs, where those at some positions found none. Replaces the outcomes if all get a place."""
    placed = _decisions(outcomes)
    _undo_all(scheduler, placed)
    numbers = [number for number, o in enumerate(outcomes) if o.decision is not None or number in homeless]
    wanted = [outcomes[number].request for number in numbers]
    failed = [outcome.request for number, outcome in enumerate(outcomes) if number not in numbers]
    exhausted = False
    for search in (_search, _try_all_orders):
        found, ended = search(scheduler, wanted, now, steps)
        exhausted |= ended
        if len(found) == len(wanted) and are_all_permitted(scheduler, [*present, *wanted], failed):
            _number_again(scheduler, found)
            for number, outcome in zip(numbers, found, strict=True):
                outcomes[number] = outcome
            return
        _undo_all(scheduler, _decisions(found))
    for decision in placed:
        scheduler.cluster.assume(assumed_guest(decision))
    for number in homeless:
        outcomes[number].exhausted = exhausted


def _packing_order(scheduler: Scheduler, requests: Sequence[Request]) -> list[int] | None:
    """Return the positions of the requests, largest first; None if that is their order already, or if the queue is
    sorted by a plugin that does not pack.

    The size of a request is its dominant share of what the nodes may allocate. VMs that must share a node count as one,
    and stay next to each other. VMs of a gang, which may be on different nodes, count one by one, because more batches
    fit that way. Requests of one size keep their order.
    """
    profile = scheduler.profiles[scheduler.default_profile]
    sorters: list[QueueSortPlugin] = profile.sections["queue"]
    if not (sorters and sorters[0].packs):
        return None
    nodes = [info.node for info in scheduler.cluster.nodes if info.node.online]
    cores = sum(profile.policy.cpu.allocatable(node) for node in nodes) or 1.0
    memory = sum(profile.policy.memory.allocatable(node) for node in nodes) or 1.0
    sizes = [max(request.cores / cores, request.memory / memory) for request in requests]
    groups: list[tuple[int, ...]] = []
    if any(request.affinity for request in requests):
        # Few runs need the planner.
        from .planner.items import requests_together

        groups = requests_together(requests)
    keys = [(-size, position) for position, size in enumerate(sizes)]
    for group in groups:
        room = sum(sizes[position] for position in group)
        for position in group:
            keys[position] = (-room, group[0])
    order = sorted(range(len(requests)), key=lambda position: (keys[position], -sizes[position]))
    return None if order == list(range(len(requests))) else order


def _note_turns(outcomes: Iterable[Outcome]) -> None:
    """Number the decisions in the order in which they were made."""
    decided = [(outcome.decision.turn, outcome) for outcome in outcomes if outcome.decision is not None]
    for number, (_turn, outcome) in enumerate(sorted(decided, key=lambda each: each[0]), 1):
        outcome.turn = number


def _number_again(scheduler: Scheduler, outcomes: Sequence[Outcome]) -> None:
    """Choose the VMIDs of the decisions again, in the order of the outcomes. If some VM gets none that way, all keep
    those that they have.
    """
    before = _decisions(outcomes)
    _undo_all(scheduler, before)
    after: list[Decision] = []
    try:
        for decision in before:
            after.append(replace(decision, vmid=scheduler.pick_vmid(decision.request)))
            scheduler.cluster.assume(assumed_guest(after[-1]))
    except CollectionError:
        _undo_all(scheduler, after)
        for decision in before:
            scheduler.cluster.assume(assumed_guest(decision))
        return
    decided = (outcome for outcome in outcomes if outcome.decision is not None)
    for outcome, decision in zip(decided, after, strict=True):
        outcome.decision = decision


def _decisions(outcomes: Iterable[Outcome]) -> list[Decision]:
    return [outcome.decision for outcome in outcomes if outcome.decision is not None]


def _undo_all(scheduler: Scheduler, decisions: Sequence[Decision]) -> None:
    """Take assumed decisions back, the latest first."""
    for decision in reversed(decisions):
        scheduler.undo(decision)


def _search(
    scheduler: Scheduler, requests: Sequence[Request], now: float, steps: int | None
) -> tuple[list[Outcome], bool]:
    """Return the outcomes of the joint placement, in the order of the requests; fewer than those if it fails. Also
    return whether the search reached its limit.
    """
    # Few runs need the planner, which is a tenth of the code that a module would load.
    from ..plans import Bounds, Goals
    from .planner.planner import make_plan

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


def _try_all_orders(
    scheduler: Scheduler, requests: Sequence[Request], now: float, steps: int | None
) -> tuple[list[Outcome], bool]:
    """Return what _search returns, by trying every order and every node. It is short, and reaching its limit says
    nothing.
    """
    from .planner.backtracking import TRIES, Backtracking

    return Backtracking(scheduler, requests, now, TRIES if steps is None else min(steps, TRIES)).outcomes(), False
