# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes room for VMs that fit nowhere by moving other guests first. If moves are not permitted, suggests them."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..engine.cache import ClusterState
from ..engine.framework.profile import Profile
from ..engine.planner.planner import make_plan
from ..engine.texts import first
from ..errors import CollectionError, PlanUnlawful
from ..plans import Bounds, Goals, Move, Plan
from ..proxmox.mobility_rules import Permitted, Surroundings, presumed
from ..proxmox.mover import label
from ..proxmox.snapshot import completed
from ..reservations.ledger import AlreadyReserved
from .access import Access
from .counting import reservation_of
from .job import Job, State
from .move_options import MoveOptions
from .move_progress import move_progress
from .move_results import add_moves
from .placing import Placer, decisions_of
from .plan_run import Outcome, PlanRun, Sight, error_of, needs_of_moves
from .scene import Placement

SUGGESTED_FOR = (32, 1000)
"""The largest number of nodes and of guests for which the error about a VM that fits nowhere suggests moves."""

SUGGESTION = Bounds(max_moves=10, steps=20_000)
"""The bounds of the search for these moves, which takes at most some tenths of a second."""

MOVES_TOLD = 5
"""How many moves a message names."""


class RoomMaker:
    """Makes room for the VMs of one run, once.

    Attributes:
        outcome: the plan of moves, and what came of it; None as long as no guest has to move.
    """

    def __init__(
        self,
        access: Access,
        placer: Placer,
        profiles: Mapping[str, Profile],
        default_profile: str,
        options: MoveOptions | None,
        progress_file: str | None,
    ) -> None:
        """options says how guests may be moved; None: not at all."""
        self._access = access
        self._placer = placer
        self._profiles = profiles
        self._default = default_profile
        self._options = None if access.offline else options
        self._progress = move_progress(progress_file)
        self.outcome: Outcome | None = None

    @property
    def moved(self) -> bool:
        """Whether any guest has moved."""
        return self.outcome is not None and bool(self.outcome.moved)

    def make(self, jobs: Sequence[Job], placement: Placement, *, write: bool) -> bool:
        """Move guests so that the jobs fit. Without write, only have the placer treat these guests as moved.

        placement is the scheduling cycle in which some of the jobs did not fit. Nothing moves unless, after the moves,
        all jobs fit that a change in the cluster can help. Returns whether the jobs have to be scheduled again.

        Raises what reading raises, PlanUnlawful, and KeyboardInterrupt when the run was interrupted.
        """
        options, access = self._options, self._access
        if options is None or self.outcome is not None or not any(job.lacks_room for job in jobs):
            return False
        # The jobs that fit have reservations, except with all_or_nothing.
        access.claimed = frozenset(decision.vmid for decision in decisions_of(jobs) if write)
        seen = [(placement, jobs)]
        run = PlanRun(
            access,
            self._profiles,
            self._default,
            options,
            lambda: self._look(*(seen.pop() if seen else self._decided_again(jobs))),
            progress=self._progress,
        )
        outcome = run.prepare()
        if not (outcome.plan.feasible and outcome.plan.moves and self._suffices(outcome.plan, jobs)):
            access.claimed = frozenset()
            return False
        self.outcome = outcome
        if write:
            self._placer.moved = {}
            self._claim(outcome.plan)
            run.execute()
            if outcome.interrupted:
                raise KeyboardInterrupt
            error = error_of(outcome.reports)
            if isinstance(error, PlanUnlawful):
                raise error
        return True

    def advice(self, jobs: Sequence[Job], placement: Placement) -> str | None:
        """The advice to add to the errors of jobs that fit nowhere after placement. Sends no request."""
        if self.outcome is not None:
            error = error_of(self.outcome.reports)
            return None if error is None else f"make_room: {error.message}"
        if not any(job.lacks_room for job in jobs):
            return None
        if self._options is not None:
            bounds = self._options.bounds
            bounded = bounds.max_moves is not None or bounds.max_bytes is not None
            return f"make_room: no moves make it fit{' within max_moves and max_transfer' if bounded else ''}"
        return self._suggestion(jobs, placement)

    def add_moves(self, result: dict[str, t.Any], *, wrote: bool) -> None:
        """Add to a result which guests have moved, or would move."""
        if self.outcome is not None:
            add_moves(result, self.outcome, wrote=wrote)

    # --- inside ---

    def _decided_again(self, jobs: Sequence[Job]) -> tuple[Placement, Sequence[Job]]:
        """Schedule the jobs as of now, without reservations."""
        again = [Job(job.entry, vmid=job.vmid) for job in jobs]
        return self._placer.place(again, all_or_nothing=False, reserve=False), again

    def _look(self, placement: Placement, jobs: Sequence[Job]) -> Sight:
        """The cluster without the decisions about the jobs, and the goal to place all jobs, unless all of them fit by
        now.
        """
        state = placement.undecided(decisions_of(jobs))
        snapshot = completed(self._access.reader, state.snapshot, needs_of_moves(state.snapshot))
        return Sight(ClusterState(snapshot), _goals(jobs))

    def _suffices(self, plan: Plan, jobs: Sequence[Job]) -> bool:
        """Whether all VMs for which a plan makes room are placed after its moves."""
        self._placer.moved = {vmid: move for move in plan.moves for vmid in move.vmids}
        _placement, again = self._decided_again(jobs)
        wanted = {job.entry.position for job in jobs if job.is_hopeful}
        if all(job.state is State.DECIDED for job in again if job.entry.position in wanted):
            return True
        self._placer.moved = {}
        return False

    def _claim(self, plan: Plan) -> None:
        """Reserve the places of the new VMs, so that no other controller takes the room that is being made."""
        access, cluster = self._access, self._access.identity()
        wanted = [reservation_of(creation.decision, cluster) for creation in plan.creations]
        with access.ledger.scheduling_cycle(cluster, holder=access.holder) as cycle:
            access.give_up_claims()
            with suppress(AlreadyReserved):
                access.claimed = frozenset(reservation.vmid for reservation in cycle.reserve(wanted))

    def _suggestion(self, jobs: Sequence[Job], placement: Placement) -> str | None:
        """The moves that would make the jobs fit, as far as the data read so far tells which guests can move."""
        state = placement.undecided([decision for job in jobs if not job.begun for decision in decisions_of([job])])
        guests = state.snapshot.guests
        if len(state.nodes) > SUGGESTED_FOR[0] or len(guests) > SUGGESTED_FOR[1]:
            return None
        around = Surroundings.of(state.snapshot, {})
        permitted = Permitted(tag_rules=self._access.standing.tags)
        # The HA rules were not read, so it is unknown where guests under HA may move.
        mobility = {
            guest.vmid: presumed(guest, around, permitted)
            for guest in guests
            if guest.vmid > 0 and guest.status != "assumed" and not guest.ha_managed
        }
        try:
            goals = _goals([job for job in jobs if not job.begun])
            plan = make_plan(state, self._profiles, goals, mobility, SUGGESTION, self._default)
        except CollectionError:
            return None
        return _told(plan.moves) if plan.feasible and plan.moves else None


def _goals(jobs: Sequence[Job]) -> Goals:
    """The goal to place all jobs that are or may be placed; no goal if all of them are placed."""
    due = [job for job in jobs if job.state is State.DECIDED or job.is_hopeful]
    if not any(job.is_hopeful for job in due):
        return Goals()
    return Goals(place=tuple(job.outcome.request for job in due if job.outcome is not None))


def _told(moves: Sequence[Move]) -> str:
    each = first([f"{label(move)} from {move.source} to {move.target}" for move in moves], MOVES_TOLD)
    return f"it fits after {len(moves)} move(s), which make_room permits: {', '.join(each)}"
