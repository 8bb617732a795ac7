# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of one run: rounds that read, match, place, reserve and bind, and a report at the end."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial

from ..errors import CollectionError, GuestVanished, InternalError, Interrupted, VMNotKnown
from ..proxmox.creations import Creations
from ..proxmox.making import Created
from ..proxmox.tasks import Poller
from ..reservations.lease import LeaseLost
from .access import Access, OtherCluster
from .births import ask_if_proved
from .cautions import note_cautions
from .existing.matching import nameless_text
from .foresight import foresee
from .job import TRIES, Job, State, requeue
from .options.run_options import RunOptions
from .placement import Lessons, Placement
from .placing import FindSurplus, Placer
from .progress import Progress, VMStep, Wait
from .report import NodeUsage, VMReport, keep_before, note_after, note_change, report_of

if t.TYPE_CHECKING:
    from .applying import Approved
    from .existing.existing_vms import ExistingVMs
    from .moves.room import RoomMaker
    from .waiting import Waiting


class Run:
    """One run over the jobs of a task.

    Attributes:
        jobs: one per VM, in the order of the entries.
        nodes: the usage of the nodes before and after the run.
        warnings: those that concern no particular VM.
        lessons: what its rounds have learnt about the cluster.
        wrote: whether any request that writes was sent to Proxmox, successful or not.
        interrupted: whether the run ended early, see stopping.py.
        room: created as soon as a VM lacks room.
    """

    def __init__(
        self,
        options: RunOptions,
        access: Access,
        placer: Placer,
        jobs: Sequence[Job],
        progress: Progress | None = None,
        room_maker: Callable[[], RoomMaker] | None = None,
        *,
        approved: Approved | None = None,
        keep: Callable[[Sequence[Job]], None] | None = None,
        lessons: Lessons | None = None,
        placement: Placement | None = None,
        wait_for_others: Callable[[bool], bool] = lambda failed: True,
        surplus: FindSurplus | None = None,
    ) -> None:
        """room_maker is called at most once, when VMs lack room, so that other runs need not import the planner.
        approved is the plan that the run carries out, if there is one. keep receives the jobs before the first write,
        unless one of them has failed. placement is the first scheduling cycle, if it was gone through already.
        wait_for_others takes whether a job has failed. Called before the first write, it returns whether to write.
        surplus is that of Placer.place.
        """
        self._options = options
        self._access = access
        self._placer = placer
        self._room_maker = room_maker
        self._progress = progress or (lambda step: None)
        self._done = 0
        self._approved = approved
        self._keep = keep
        self._placement = placement
        self._wait_for_others = wait_for_others
        self._surplus = surplus
        self._began = time.monotonic()
        self._stop = access.stop
        self._creations = Creations(access.reader, options.timeout, Poller(sleep=self._stop.sleep))
        # Neither in check mode nor offline; known from execute on.
        self._writes = False
        self.jobs = list(jobs)
        self.nodes: list[NodeUsage] = []
        self.warnings: list[str] = []
        self.lessons = lessons or Lessons()
        self.wrote = False
        self.interrupted = False
        self.room: RoomMaker | None = None

    def execute(self, *, check_mode: bool) -> list[VMReport]:
        """Execute the run and return one report per job, in order.

        Each round reads the cluster, matches existing VMs, places the others, reserves their places and binds. The next
        one is about the jobs that returned to the queue, or about those that did not fit, as soon as another try may
        succeed. In check mode and offline, a run stops before the first write. A signal ends it early, and so does the
        end of the processes that it works for.
        """
        self._writes = not (check_mode or self._access.offline)
        due: Sequence[Job] = self.jobs
        placement: Placement | None = None
        first, surplus = self._placement, self._surplus
        lessons, stands, lost = self.lessons, False, 0
        with self._end_when_interrupted():
            while due or placement is None:
                try:
                    if self._approved is not None:
                        self._approved.check_cluster(self._access.identity())
                    placement = first or self._placer.place(
                        due,
                        replace(lessons, abandoned=frozenset(self._creations.abandoned)),
                        all_or_nothing=self._options.all_or_nothing and not self.wrote,
                        reserve=self._writes,
                        surplus=surplus,
                    )
                    if surplus is not None:
                        due = self.jobs = list(placement.jobs)
                    first = surplus = None
                    again = self._decide_rest(due, placement)
                except CollectionError as error:
                    # A run that only looks for VMs to remove has no jobs yet that count their tries.
                    lost += 1
                    if isinstance(error, (OtherCluster, LeaseLost)) and lost < TRIES and requeue(due, error):
                        continue
                    if placement is None:
                        # There is nothing to report.
                        raise
                    self._fail(due, error)
                    break
                if again is not None:
                    lessons = again
                    continue
                if self._keep is not None:
                    self._keep_plan(self._keep)
                # After the first write, all_or_nothing can no longer hold the other jobs back.
                stands = self.wrote or not (self._options.all_or_nothing and self.failed_jobs())
                if self._writes and stands and self.room is not None and self.room.is_due:
                    due, lessons = self._make_room(self.room, due), replace(lessons, moved={})
                    continue
                if self._writes and stands and (stands := self._wait_for_others(bool(self.failed_jobs()))):
                    lessons = self.lessons = self._bind(due, placement)
                else:
                    self._give_back(due)
                due = self._wait_for_next_round(due, placement, stands=stands)
            for job in self.jobs:
                job.held_back = not stands
            self._fail_unbound()
        return [report_of(job) for job in self.jobs]

    @contextmanager
    def _end_when_interrupted(self) -> Iterator[None]:
        """End the run when it is interrupted: give back what it has not begun, and note it in the jobs."""
        try:
            yield
        except (KeyboardInterrupt, Interrupted):
            self.interrupted = True
            # Reservations that cannot be released expire when this process ends.
            with suppress(CollectionError):
                self._give_back(self.jobs)
            for job in self.jobs:
                job.interrupt()

    def end_early(self) -> None:
        """End the run as a signal does. Another thread may call this."""
        self._stop.ask()

    def failed_jobs(self) -> list[Job]:
        """Return the jobs that have failed so far."""
        return [job for job in self.jobs if job.error is not None]

    # --- one round: what is to be done ---

    def _decide_rest(self, due: Sequence[Job], placement: Placement) -> Lessons | None:
        """Decide what to do with the existing VMs, and which guests move to make room for the others.

        Returns what the jobs have to be placed again with; None if all of them are decided, planned or failed.
        """
        self.warnings.extend(text for text in placement.doubts if text not in self.warnings)
        lasting = [job.entry.request for job in self.jobs if job.entry.state != "absent"]
        note_cautions(due, placement, self._placer.base_of, lasting)
        for job in due if not self._writes else ():
            if job.state is State.DECIDED and job.nameless:
                job.warn(nameless_text(job.nameless))
        approved = self._approved
        if approved is not None:
            again = self._take_over_moves(approved, due, placement.seen.lessons)
            if again is not None:
                return again
        self._plan_existing(due, placement)
        if approved is not None:
            self._hold_to_plan(approved, due, placement)
        vanished = [job for job in due if isinstance(job.error, GuestVanished)]
        if vanished and self._forget(vanished):
            self._give_back(due)
            return placement.seen.lessons
        self.nodes = keep_before(self.nodes, placement.nodes) if self.nodes else placement.nodes
        if self._options.room is None or self._is_pointless():
            return None
        room = self._room_for(due)
        return None if room is None else room.plan(due, placement, write=self._writes)

    def _take_over_moves(self, approved: Approved, due: Sequence[Job], lessons: Lessons) -> Lessons | None:
        """Take the moves from the plan that is applied, unless it has none or no VM is left to be created.

        Returns what the jobs have to be placed again with: the guests as moved.
        """
        if not approved.plan.moves or self.room is not None or self._room_maker is None:
            return None
        if all(job.guest is not None or job.state is State.DONE for job in due):
            return None
        self.room = self._room_maker()
        return self.room.hold_to(approved, due, lessons, write=self._writes)

    def _plan_existing(self, due: Sequence[Job], placement: Placement) -> None:
        """Plan the changes to existing VMs, and fail the jobs that would be refused."""
        existing = [job for job in due if job.state is State.PLANNED]
        if existing:
            self._existing_vms(placement).plan(existing, self._stop, wait=not self._writes)
            note_after(placement.nodes, placement.scheduler.cluster)
            for job, conflict in list(placement.claims.conflicts(due)):
                self._refuse(job, conflict)
        for job, objection in foresee(due, self._access, placement.before):
            self._refuse(job, objection)
        for job in existing:
            if job.plan is not None:
                job.state = State.PLANNED if job.plan.actions else State.DONE
                if job.plan.actions:
                    note_change(placement.nodes, job.plan.guest, job.plan.actions)

    def _existing_vms(self, placement: Placement) -> ExistingVMs:
        # Not imported by a run that finds none.
        from .existing.existing_vms import ExistingVMs

        return ExistingVMs(self._options, self._access, self._placer, placement, self._creations)

    def _hold_to_plan(self, approved: Approved, due: Sequence[Job], placement: Placement) -> None:
        """Refuse the jobs that deviate from the approved plan."""
        is_own = partial(ask_if_proved, self._access.reader, placement.seen.reservations)
        for job in due:
            if (objection := approved.objection(job, is_own)) is not None:
                self._refuse(job, objection)

    def _forget(self, vanished: Sequence[Job]) -> bool:
        """Return to the queue the jobs whose VMs are gone, and remove these VMs from the ledger, which still listed
        them. Returns whether the jobs may be tried again.
        """
        if not requeue(vanished, t.cast("GuestVanished", vanished[0].error)):
            return False
        vmids = [job.guest.vmid for job in vanished if job.guest is not None]
        self._access.ledger.forget(self._access.identity(), vmids)
        return True

    def _room_for(self, due: Sequence[Job]) -> RoomMaker | None:
        """Return what plans moves of other guests, if jobs lack room that moves may make."""
        may_plan = self.room is None and self._approved is None
        if may_plan and self._room_maker is not None and any(job.lacks_room for job in due):
            self.room = self._room_maker()
        return self.room

    def _keep_plan(self, keep: Callable[[Sequence[Job]], None]) -> None:
        """Keep the plan of all jobs, unless the run has already written or a job has failed."""
        if self.wrote or self.failed_jobs() or (self.room is not None and self.room.moved):
            return
        try:
            keep(self.jobs)
        except CollectionError:
            self._give_back(self.jobs)
            raise

    # --- one round: doing it ---

    def _make_room(self, room: RoomMaker, due: Sequence[Job]) -> Sequence[Job]:
        """Move guests as planned. Returns the jobs that have to be placed again: none if a move failed."""
        try:
            room.carry_out(due)
        except CollectionError as error:
            self._fail(due, error)
            return ()
        return due

    def _bind(self, due: Sequence[Job], placement: Placement) -> Lessons:
        """Create the decided VMs and carry out the plans for existing ones, many at a time. Returns what is known by
        then.
        """
        # Jobs that wait for other processes come last, so that they do not delay the others.
        work = sorted((job for job in due if job.state in (State.DECIDED, State.PLANNED)), key=Job.waits)
        if not work:
            return placement.seen.lessons
        # Not imported by a run that writes nothing.
        from .binding import BindingCycle

        self.wrote = self.wrote or any(job.plan or job.decision for job in work)
        exist = any(job.state is State.PLANNED for job in work)
        existing = self._existing_vms(placement) if exist else None
        cycle = BindingCycle(self._options, self._access, self._creations, existing)
        total = self._done + len(work)

        def report(job: Job, seconds: float) -> None:
            if job.state is not State.QUEUED:
                self._done += 1
                self._progress(VMStep(report_of(job), self._done, total, seconds))

        creates = any(job.state is State.DECIDED for job in work)
        lessons = cycle.carry_out(work, placement.seen.lessons, report)
        self.warnings.extend(cycle.warnings)
        # A bridge may be gone. That of a clone is not in its request.
        if any(job.error is not None for job in work):
            self._access.bridges.forget()
        if creates and not self._access.shared:
            self._placer.check_created([job for job in work if isinstance(job.bound, Created)])
        return lessons

    def _give_back(self, jobs: Sequence[Job]) -> None:
        """Release the reservations of jobs that are not bound."""
        if self._writes:
            self._placer.give_back(jobs)

    def _refuse(self, job: Job, error: CollectionError) -> None:
        """Fail a job before anything is done for it."""
        self._give_back([job])
        job.refuse(error)

    def _fail(self, jobs: Sequence[Job], error: CollectionError) -> None:
        """Note the error in all jobs, and release their reservations: unlike an error that is raised, this keeps the
        outcomes of the other jobs.
        """
        # The error matters more; the reservations expire by themselves.
        with suppress(CollectionError):
            self._give_back(jobs)
        for job in jobs:
            job.fail(error)

    def _fail_unbound(self) -> None:
        """Fail the jobs that were decided, neither bound nor held back: they would be reported as created."""
        unbound = [job for job in self.jobs if job.state is State.DECIDED and not job.held_back]
        if self._writes and unbound:
            labels = ", ".join(job.entry.label for job in unbound)
            self._fail(unbound, InternalError(f"{labels}: decided, but never created; please report this"))

    # --- the next round ---

    def _wait_for_next_round(self, due: Sequence[Job], placement: Placement, *, stands: bool) -> Sequence[Job]:
        """Return the jobs of the next round: those that returned to the queue, or else all that did not fit, as soon as
        another try may succeed for one of them. Empty if the run is done.
        """
        queued = [job for job in due if job.state is State.QUEUED]
        if queued:
            return queued
        if not self.failed_jobs():
            return ()
        unplaced = [job for job in self.jobs if job.is_unplaced]
        doubtful = [job for job in self.jobs if isinstance(job.error, VMNotKnown)]
        if self._writes and self._options.wait_for_capacity:
            try:
                if self._wait_for_names(doubtful) or self._wait_for_capacity(unplaced, placement):
                    return [*unplaced, *doubtful] if stands else due
            except CollectionError as error:
                self._fail(unplaced, error)
                return ()
        if hopeful := [job for job in due if job.is_hopeful]:
            self._advise(hopeful, due, placement)
        return ()

    def _wait_for_names(self, doubtful: Sequence[Job]) -> bool:
        """Wait until it is known whether the VMs of these jobs exist: they may be on a node that comes back. Returns
        False if that stays unknown, or if the run fails in any case.
        """
        if not doubtful or self._is_pointless(doubtful):
            return False
        try:
            return self._capacity_wait.wait_until_names_are_known(doubtful)
        finally:
            for job in doubtful:
                job.note_wait(self._capacity_wait.waited)

    def _wait_for_capacity(self, unplaced: Sequence[Job], placement: Placement) -> bool:
        """Wait until another try may succeed for one of the jobs that did not fit. Returns False if none can."""
        if not unplaced:
            return False
        try:
            return not self._is_pointless() and self._capacity_wait.wait_for_a_chance(unplaced, placement.seen.snapshot)
        finally:
            for job in unplaced:
                job.note_wait(self._capacity_wait.waited)

    def _is_pointless(self, besides: Collection[Job] = ()) -> bool:
        """Whether another try is pointless: with all_or_nothing, one job that cannot succeed fails the whole run.
        besides are failed jobs that may succeed nevertheless.
        """
        return self._options.all_or_nothing and not all(job.is_hopeful or job in besides for job in self.failed_jobs())

    @cached_property
    def _capacity_wait(self) -> Waiting:
        from .waiting import Waiting

        seconds, profile_of = self._options.wait_for_capacity, self._placer.profile_of
        return Waiting(seconds, profile_of, self._access.glance, tell=self._report_wait, began=self._began)

    def _report_wait(self, jobs: Collection[Job], waited: float) -> None:
        self._progress(Wait.of(jobs, waited, self._options.wait_for_capacity))

    def _advise(self, hopeful: Sequence[Job], due: Sequence[Job], placement: Placement) -> None:
        """Note what would help the jobs that fit nowhere."""
        room = self._room_for(due)
        advice = None if room is None else room.advice(due, placement)
        for job in hopeful:
            job.advice = advice
