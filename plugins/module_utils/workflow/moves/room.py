# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes room for VMs that fit nowhere by moving other guests first. If moves are not permitted, suggests them.

The moves are planned first, and the VMs are scheduled as if the guests had moved. Then the guests move, and the VMs are
scheduled again.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...engine.cache import ClusterState
from ...engine.planner.planner import make_plan
from ...engine.profiles import Profile
from ...engine.texts import first, join_words
from ...errors import CollectionError, InvalidRequest
from ...plans import Bounds, Goals, Move
from ...proxmox.inventory.snapshot import complete_snapshot
from ...proxmox.moves.mobility_ha import Surroundings
from ...proxmox.moves.mobility_rules import Permitted, presume
from ...proxmox.moves.mover import label
from ..access import Access
from ..job import Job, State
from ..options.run_options import RunOptions
from ..placement import Lessons, Placement, decisions_of
from ..placing import Placer
from .ha_cautions import ha_cautions
from .moving import move_progress
from .plan_run import PlanRun
from .premises import Premises
from .results import MovesOutcome, add_moves, error_of
from .sight import Sight, busy_guests, live_look, needs_of_moves

if t.TYPE_CHECKING:
    from ..applying import Approved

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
        is_due: whether there are moves that have not been carried out.
    """

    def __init__(
        self,
        access: Access,
        placer: Placer,
        profiles: Mapping[str, Profile],
        default_profile: str,
        options: RunOptions,
    ) -> None:
        self._access = access
        self._placer = placer
        self._profiles = profiles
        self._default = default_profile
        # How guests may be moved; None for not at all.
        self._options = None if access.offline else options.room
        self._progress = move_progress(options.progress_file)
        self._run: PlanRun | None = None
        self._held = self._exhausted = False
        self._cautions: tuple[str, ...] = ()
        self.outcome: MovesOutcome | None = None
        self.is_due = False

    @property
    def warnings(self) -> list[str]:
        """What the user must know of the HA manager, which may be why no moves were found, and of the moves."""
        return list(self._cautions) if self.outcome is None else self.outcome.warnings

    @property
    def moved(self) -> bool:
        return self.outcome is not None and bool(self.outcome.moved)

    def plan(self, jobs: Sequence[Job], placement: Placement, *, write: bool) -> Lessons | None:
        """Plan moves so that the jobs fit. Returns what to schedule them again with: these guests as moved.

        placement is the scheduling cycle in which some jobs did not fit; write: whether it has reserved the others.
        Plans nothing, and returns None, unless after the moves all jobs fit that a change in the cluster can help.
        """
        options, access = self._options, self._access
        if options is None or self.outcome is not None or not any(job.lacks_room for job in jobs):
            return None
        # The jobs that fit have reservations, except with all_or_nothing.
        access.claim(decision.vmid for decision in decisions_of(jobs) if write)
        lessons, seen = placement.seen.lessons, [(placement, jobs)]
        run = PlanRun(
            access,
            self._profiles,
            self._default,
            options,
            lambda: self._look(*(seen.pop() if seen else self._place_again(jobs, lessons))),
            progress=self._progress,
        )
        outcome = run.prepare()
        self._exhausted, self._cautions = outcome.plan.exhausted, outcome.cautions
        after = replace(lessons, moved=_by_guest(outcome.plan.moves))
        if not (outcome.plan.feasible and outcome.plan.moves and self._suffices(after, jobs)):
            access.claim(())
            return None
        # It was planned with the guests as this run leaves them: with the sizes and the status that it gives them.
        outcome.premises = Premises.of(outcome.plan, placement.seen.snapshot)
        return self._begin(run, outcome, lessons)

    def hold_to(self, approved: Approved, jobs: Sequence[Job], lessons: Lessons, *, write: bool) -> Lessons:
        """Take the moves from the plan that is applied, in place of a plan of its own. Returns what plan returns.

        Raises PlanStale when they cannot be made as planned, and InvalidRequest when the task permits no moves.
        """
        options, access = self._options, self._access
        if options is None:
            raise InvalidRequest("apply: this plan moves guests, expected a task with make_room")
        access.claim(decision.vmid for decision in decisions_of(jobs) if write)
        exactly = replace(options, apply=approved.document)
        look = live_look(access, lambda snapshot: Goals())
        run = PlanRun(access, self._profiles, self._default, exactly, look, progress=self._progress)
        self._held = True
        return self._begin(run, run.hold_to(approved.plan.room, approved.plan.premises, wait=write), lessons)

    def carry_out(self, jobs: Sequence[Job]) -> None:
        """Make the moves. The places that are reserved for jobs stay theirs.

        Raises what went wrong with a move of a plan that is applied, and KeyboardInterrupt if the run was interrupted.
        """
        run, outcome = self._run, self.outcome
        if run is None or outcome is None:
            raise AssertionError("there is no plan")
        self.is_due = False
        self._access.claim(decision.vmid for decision in decisions_of(jobs))
        run.execute()
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.error is not None:
            raise outcome.error
        error = error_of(outcome.reports)
        if error is not None and self._held:
            raise error

    def advice(self, jobs: Sequence[Job], placement: Placement) -> str | None:
        """Return the advice to add to the errors of jobs that fit nowhere after placement. Sends no request."""
        if self.outcome is not None:
            error = error_of(self.outcome.reports)
            return None if error is None else f"make_room: {error.message}"
        if not any(job.lacks_room for job in jobs):
            return None
        if self._options is not None:
            bounds = self._options.bounds
            limits = ["max_moves"] * (bounds.max_moves is not None) + ["max_transfer"] * (bounds.max_bytes is not None)
            limits += ["search_time"] * self._exhausted
            return f"make_room: no moves make it fit{f' within {join_words(limits)}' if limits else ''}"
        return self._suggestion(jobs, placement)

    def add_moves(self, result: dict[str, t.Any], *, wrote: bool) -> None:
        """Add to a result which guests have moved, or would move."""
        if self.outcome is not None:
            add_moves(result, self.outcome, wrote=wrote)

    # --- inside ---

    def _begin(self, run: PlanRun, outcome: MovesOutcome, lessons: Lessons) -> Lessons:
        self._run, self.outcome, self.is_due = run, outcome, bool(outcome.last.moves)
        return replace(lessons, moved=_by_guest(outcome.last.moves))

    def _place_again(self, jobs: Sequence[Job], lessons: Lessons) -> tuple[Placement, Sequence[Job]]:
        """Schedule the jobs as of now, without reservations."""
        again = [Job(job.entry, vmid=job.vmid) for job in jobs]
        return self._placer.place(again, lessons, all_or_nothing=False, reserve=False), again

    def _look(self, placement: Placement, jobs: Sequence[Job]) -> Sight:
        """Return the cluster without the decisions about the jobs; the goal is to place them, unless all fit by now."""
        state = placement.without_decisions(decisions_of(jobs))
        snapshot = complete_snapshot(self._access.reader, state.snapshot, needs_of_moves(state.snapshot))
        busy, goals = busy_guests(placement.seen.counted, ()), _goals(jobs)
        return Sight(ClusterState(snapshot), goals, busy, cautions=ha_cautions(self._access.reader, snapshot, goals))

    def _suffices(self, after: Lessons, jobs: Sequence[Job]) -> bool:
        """Whether all VMs for which a plan makes room are placed after its moves."""
        _placement, again = self._place_again(jobs, after)
        wanted = {job.entry.position for job in jobs if job.is_hopeful}
        return all(job.state is State.DECIDED for job in again if job.entry.position in wanted)

    def _suggestion(self, jobs: Sequence[Job], placement: Placement) -> str | None:
        """Return the moves that would make the jobs fit, as far as the data read so far tells which guests can move."""
        state = placement.without_decisions(
            [decision for job in jobs if not job.begun for decision in decisions_of([job])]
        )
        guests = state.snapshot.guests
        if len(state.nodes) > SUGGESTED_FOR[0] or len(guests) > SUGGESTED_FOR[1]:
            return None
        around = Surroundings.of(state.snapshot, {})
        permitted = Permitted(tag_rules=self._access.standing.tags)
        # The HA rules were not read, so it is unknown where guests under HA may move.
        mobility = {
            guest.vmid: presume(guest, around, permitted)
            for guest in guests
            if guest.vmid > 0 and guest.status != "assumed" and not guest.ha_managed
        }
        try:
            goals = _goals([job for job in jobs if not job.begun])
            plan = make_plan(state, self._profiles, goals, mobility, SUGGESTION, self._default)
        except CollectionError:
            return None
        return _list_moves(plan.moves) if plan.feasible and plan.moves else None


def _goals(jobs: Sequence[Job]) -> Goals:
    """Return the goal to place all jobs that are or may be placed; no goal if all of them are placed."""
    due = [job for job in jobs if job.state is State.DECIDED or job.is_hopeful]
    if not any(job.is_hopeful for job in due):
        return Goals()
    return Goals(place=tuple(job.outcome.request for job in due if job.outcome is not None))


def _by_guest(moves: Sequence[Move]) -> dict[int, Move]:
    """Return the last move of each guest, by its VMID."""
    return {vmid: move for move in moves for vmid in move.vmids}


def _list_moves(moves: Sequence[Move]) -> str:
    each = first([f"{label(move)} from {move.source} to {move.target}" for move in moves], MOVES_TOLD)
    return f"it may fit after {len(moves)} move(s), which make_room checks and makes: {', '.join(each)}"
