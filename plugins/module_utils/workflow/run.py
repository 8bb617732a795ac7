# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of one run: read, match, schedule, reserve, bind, report. The one place that knows check mode."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import as_completed
from contextlib import suppress
from functools import cached_property, partial

from ..errors import CollectionError, GuestVanished, InternalError, Interrupted, VMNotKnown
from ..model import Guest
from ..proxmox.api.reader import Reader, ReadOnce, ReadWhereTheyAre
from ..proxmox.creations import BeingCreated, Creations
from ..proxmox.making import Created
from ..proxmox.options.contradictions import merged
from ..proxmox.options.request import device_cautions, ha_cautions, option_cautions
from ..reservations.lease import LeaseLost
from .access import Access, OtherCluster
from .existing.matching import unclear
from .foresight import Foresight
from .job import Job, State
from .options.entries import Entry
from .options.run_options import RunOptions
from .placing import Placement, Placer, decisions_of
from .progress import Progress, Step, Wait
from .report import NodeUsage, VMReport, keep_before, note_after, note_change, report_of
from .stopping import Stop

if t.TYPE_CHECKING:
    from ..proxmox.binder import Binder
    from .applying import Approved
    from .binding import BindingCycle
    from .existing.converger import Converger
    from .existing.plan import ExistingPlan
    from .moves.room import RoomMaker
    from .waiting import Waiting


class Run:
    """One run over the entries of a task.

    Attributes:
        jobs: one per VM, in the order of the entries.
        nodes: the usage of the nodes before and after the run.
        warnings: those that concern no particular VM.
        wrote: whether any request that writes was sent to Proxmox, successful or not.
        interrupted: whether the run ended early, see stopping.py.
        room: created as soon as a VM lacks room.
    """

    def __init__(
        self,
        options: RunOptions,
        access: Access,
        placer: Placer,
        entries: Sequence[Entry],
        progress: Progress | None = None,
        room_maker: Callable[[], RoomMaker] | None = None,
        *,
        approved: Approved | None = None,
        keep: Callable[[Sequence[Job]], None] = lambda jobs: None,
    ) -> None:
        """room_maker is called at most once, when VMs lack room, so that other runs need not import the planner.
        approved is the plan that the run carries out, if there is one. keep receives the jobs before the first write,
        unless one of them has failed.
        """
        self._options = options
        self._access = access
        self._placer = placer
        self._room_maker = room_maker
        self._progress = progress or (lambda step: None)
        self._done = 0
        self._approved = approved
        self._keep = keep
        self._began = time.monotonic()
        self._stop = Stop()
        self._creations = Creations(access.reader, options.timeout, sleep=self._stop.sleep)
        placer.creations = self._creations
        # Neither in check mode nor offline; known from execute on.
        self._writes = False
        self.jobs = [Job(entry) for entry in entries]
        self.nodes: list[NodeUsage] = []
        self.warnings: list[str] = []
        self.wrote = False
        self.interrupted = False
        self.room: RoomMaker | None = None

    def execute(self, *, check_mode: bool) -> list[VMReport]:
        """Execute the run and return one report per entry, in the order of the entries.

        In check mode and offline, the run stops before the first write. A signal ends it early, and so does the end of
        the processes that it works for.
        """
        self._writes = not (check_mode or self._access.offline)
        try:
            self._go()
            self._fail_unbound()
        except (KeyboardInterrupt, Interrupted):
            self.interrupted = True
            # Reservations that cannot be released expire when this process ends.
            with suppress(CollectionError):
                self._give_back(self.jobs)
            for job in self.jobs:
                job.interrupt()
        return [report_of(job) for job in self.jobs]

    def _go(self) -> None:
        """Read, match, schedule and reserve, then bind. Repeat this with the jobs that returned to the queue, or with
        those that did not fit, as soon as another try may succeed.
        """
        due: Sequence[Job] = self.jobs
        placement, stands = None, False
        while due or placement is None:
            placement = self._decide(due, placement)
            if placement is None:
                break
            self._keep_plan()
            # After the first write, all_or_nothing can no longer hold the other jobs back.
            stands = self.wrote or not (self._options.all_or_nothing and self._failed())
            if self._writes and stands and self.room is not None and self.room.is_due:
                due = self._make_room(self.room, due)
                continue
            if self._writes and stands:
                self._bind(due)
            else:
                self._give_back(due)
            due = self._due_next(due, placement, stands=stands)
        for job in self.jobs:
            job.held_back = not stands

    def _decide(self, due: Sequence[Job], earlier: Placement | None) -> Placement | None:
        """Run scheduling cycles until every job is decided, planned or failed. An error fails all of them, and None is
        returned; without an earlier placement, the error is raised, as there is nothing to report.
        """
        while True:
            if self._approved is not None:
                self._approved.check_cluster(self._access.identity())
            try:
                placement = earlier = self._schedule(due)
                if self._is_decided(due, placement):
                    return placement
            except CollectionError as error:
                if isinstance(error, (OtherCluster, LeaseLost)) and self._requeue(due, error):
                    continue
                if earlier is None:
                    raise
                self._fail(due, error)
                return None

    def _is_decided(self, due: Sequence[Job], placement: Placement) -> bool:
        """Decide what to do with the existing VMs, and which guests move to make room for the others.

        Returns False if the jobs have to be scheduled again.
        """
        if self._moves_are_held(due):
            return False
        self._plan(due, placement)
        self._hold_to_plan(due)
        if self._forget_vanished(due):
            self._give_back(due)
            return False
        self.nodes = keep_before(self.nodes, placement.nodes)
        return not self._room_is_planned(due, placement)

    def _fail_unbound(self) -> None:
        """Fail the jobs that were decided, neither bound nor held back: they would be reported as created."""
        unbound = [job for job in self.jobs if job.state is State.DECIDED and not job.held_back]
        if self._writes and unbound:
            labels = ", ".join(job.label for job in unbound)
            self._fail(unbound, InternalError(f"{labels}: decided, but never created; please report this"))

    def _make_room(self, room: RoomMaker, due: Sequence[Job]) -> Sequence[Job]:
        """Move guests as planned. Returns the jobs that have to be scheduled again: none if a move failed."""
        try:
            room.carry_out(due)
        except CollectionError as error:
            self._fail(due, error)
            return ()
        return due

    def _give_back(self, jobs: Sequence[Job]) -> None:
        """Release the reservations of jobs that are not bound."""
        if self._writes:
            self._placer.give_back(jobs)

    def _fail(self, jobs: Sequence[Job], error: CollectionError) -> None:
        """Note the error in all jobs, and release their reservations: unlike an error that is raised, this keeps the
        outcomes of the other jobs.
        """
        # The error matters more; the reservations expire by themselves.
        with suppress(CollectionError):
            self._give_back(jobs)
        for job in jobs:
            job.fail(error)

    def _due_next(self, due: Sequence[Job], placement: Placement, *, stands: bool) -> Sequence[Job]:
        """Return the jobs of the next round: those that returned to the queue, or else all that did not fit, as soon as
        another try may succeed for one of them. Empty if the run is done.
        """
        queued = [job for job in due if job.state is State.QUEUED]
        if queued:
            return queued
        unplaced = [job for job in self.jobs if job.is_unplaced]
        doubtful = [job for job in self.jobs if isinstance(job.error, VMNotKnown)]
        try:
            if self._wait_for_names(doubtful) or self._is_worth_a_try(unplaced, placement):
                return [*unplaced, *doubtful] if stands else due
        except CollectionError as error:
            self._fail(unplaced, error)
            return ()
        self._advise(due, placement)
        return ()

    def _wait_for_names(self, doubtful: Sequence[Job]) -> bool:
        """Wait until it is known whether the VMs of these jobs exist: they may be on a node that comes back. Returns
        False if that stays unknown, or if the run fails in any case.
        """
        others = [job for job in self._failed() if job not in doubtful]
        in_vain = self._options.all_or_nothing and not all(job.is_hopeful for job in others)
        if in_vain or not (doubtful and self._writes and self._options.wait_for_capacity):
            return False
        vmids = {vmid for job in doubtful if job.error is not None for vmid in job.error.details["vmids"]}
        try:
            return self._waiting.until_names_are_known(doubtful, vmids)
        finally:
            for job in doubtful:
                job.note_wait(self._waiting.waited)

    def _is_worth_a_try(self, unplaced: Sequence[Job], placement: Placement) -> bool:
        """Wait until another try may succeed for one of the jobs that did not fit. Returns False if none can."""
        if not (unplaced and self._writes and self._options.wait_for_capacity):
            return False
        try:
            return not self._in_vain() and self._waiting.until_worth_a_try(unplaced, placement.snapshot)
        finally:
            for job in unplaced:
                job.note_wait(self._waiting.waited)

    def _room_is_planned(self, due: Sequence[Job], placement: Placement) -> bool:
        """Plan moves of other guests if that makes the jobs fit. With all_or_nothing, nothing is planned if another job
        has failed for good. Returns whether the jobs have to be scheduled again.
        """
        room = self._room_for(due) if self._options.room is not None and not self._in_vain() else None
        return room is not None and room.plan(due, placement, write=self._writes)

    def _moves_are_held(self, due: Sequence[Job]) -> bool:
        """Take the moves from the plan that is applied, unless it has none or no VM is left to be created.

        Returns whether the jobs have to be scheduled again, as if the guests had moved.
        """
        approved = self._approved
        if approved is None or not approved.plan.moves or self.room is not None or self._room_maker is None:
            return False
        if all(job.guest is not None or job.state is State.DONE for job in due):
            return False
        self.room = self._room_maker()
        self.room.hold_to(approved, due, write=self._writes)
        return True

    def _advise(self, due: Sequence[Job], placement: Placement) -> None:
        """Note what would help the jobs that fit nowhere."""
        unplaced = [job for job in due if job.is_hopeful]
        room = self._room_for(due)
        advice = room.advice(due, placement) if room is not None and unplaced else None
        for job in unplaced:
            job.advice = advice

    def _keep_plan(self) -> None:
        """Keep the plan of all jobs, unless the run has already written or a job has failed."""
        if self.wrote or self._failed() or (self.room is not None and self.room.moved):
            return
        try:
            self._keep(self.jobs)
        except CollectionError:
            self._give_back(self.jobs)
            raise

    def _room_for(self, due: Sequence[Job]) -> RoomMaker | None:
        may_plan = self.room is None and self._approved is None
        if may_plan and self._room_maker is not None and any(job.lacks_room for job in due):
            self.room = self._room_maker()
        return self.room

    def _in_vain(self) -> bool:
        """Whether another try is pointless: with all_or_nothing, one job that cannot succeed fails the whole run."""
        return self._options.all_or_nothing and not all(job.is_hopeful for job in self._failed())

    def _failed(self) -> list[Job]:
        return [job for job in self.jobs if job.error is not None]

    # --- what is to be done ---

    @cached_property
    def _converger(self) -> Converger:
        """Plans and changes existing VMs. Not imported by a run that finds none."""
        from .existing.converger import Converger

        placer = self._placer
        reader = ReadWhereTheyAre(self._access.reader, lambda: placer.real_nodes)
        return Converger(reader, self._creations.abandoned, placer.addresses, placer.device_attributes)

    @cached_property
    def _waiting(self) -> Waiting:
        """The wait for capacity, of which few runs have need."""
        from .waiting import Waiting

        access, profile_of = self._access, self._placer.profile_of
        return Waiting(
            self._options.wait_for_capacity, profile_of, access.glance, tell=self._tell_wait, began=self._began
        )

    def _schedule(self, due: Sequence[Job]) -> Placement:
        """Run one scheduling cycle: read the cluster, match existing VMs, place the others and reserve their places."""
        all_or_nothing = self._options.all_or_nothing and not self.wrote
        placement = self._placer.place(due, all_or_nothing=all_or_nothing, reserve=self._writes)
        self.warnings.extend(text for text in placement.doubts if text not in self.warnings)
        self._warn_of_idle_selectors(due, placement)
        for job in due:
            if job.state is not State.DECIDED or job.decision is None:
                continue
            job.warn(*ha_cautions(job.decision, placement.snapshot.storages))
            job.warn(*device_cautions(job.decision.request))
            options = job.decision.request.options
            made_from = self._placer.base_of(job.decision.request, job.entry)
            attached = {device.option: device.value for device in job.decision.devices}
            job.warn(*option_cautions(options, merged(made_from, {**options, **attached})))
            if job.nameless and not self._writes:
                job.warn(unclear(job.nameless))
        return placement

    def _warn_of_idle_selectors(self, due: Sequence[Job], placement: Placement) -> None:
        ruled = [job for job in due if job.decision and (job.asked.affinity or job.asked.topology_spread)]
        if not ruled:
            return
        from .idle_selectors import IdleSelectors

        idle = IdleSelectors(placement.before.guests, [job.entry.request for job in self.jobs])
        for job in ruled:
            job.warn(*idle.cautions(job.entry.request))

    def _plan(self, due: Sequence[Job], placement: Placement) -> None:
        """Plan the changes to existing VMs, each from its current config, and fail those that would be refused."""
        existing = [job for job in due if job.state is State.PLANNED]
        if existing:
            from .births import check_birth
            from .existing.limits import check_limits, displaced, is_allowed_storage

            cluster = ReadOnce(self._access.reader)
            self._converger.pools = placement.snapshot.pools
            self._converger.check_birth = partial(check_birth, self._access.reader, placement.seen.reservations)
            self._converger.displaced = partial(displaced, placement.scheduler)
            self._converger.hints.is_allowed_storage = partial(is_allowed_storage, placement.scheduler)
            with self._stop.threads(self._options.parallel) as pool:
                for future in [pool.submit(self._plan_one, job, cluster, wait=not self._writes) for job in existing]:
                    future.result()
            if any(job.plan is not None and job.plan.clones for job in existing):
                from .existing.removals import check_clones

                check_clones(existing, placement.scheduler.cluster.get)
            check_limits(placement.scheduler, existing, time.time())
            note_after(placement.nodes, placement.scheduler.cluster)
            for job, conflict in self._placer.address_conflicts(due):
                self._give_back([job])
                job.refuse(conflict)
        self._foresee(due, placement)
        for job in existing:
            if job.plan is not None:
                note_change(placement.nodes, job.plan.guest, job.plan.actions)
                job.state = State.PLANNED if job.plan.actions else State.DONE

    def _foresee(self, due: Sequence[Job], placement: Placement) -> None:
        """Refuse, before anything is written, what Proxmox VE would refuse as far as that can be foreseen."""
        if not any(job.state is State.DECIDED or (job.plan and "update" in job.plan.actions) for job in due):
            return
        foresight = Foresight(ReadOnce(self._access.reader), placement.before, self._access.check_rights)
        for job in due:
            objection = foresight.objection(job)
            if objection is not None:
                self._give_back([job])
                job.refuse(objection)

    def _hold_to_plan(self, due: Sequence[Job]) -> None:
        """Refuse the jobs that deviate from the approved plan."""
        for job in due:
            objection = None if self._approved is None else self._approved.objection(job)
            if objection is not None:
                self._give_back([job])
                job.refuse(objection)

    def _plan_one(self, job: Job, cluster: Reader, *, wait: bool) -> None:
        """Plan the changes to an existing VM. With wait, first wait until others have created it."""
        from .existing.converger import check_lock

        guest = t.cast(Guest, job.guest)
        while True:
            try:
                plan = self._converger.plan(job.entry, guest, cluster)
                if self._options.respects_locks:
                    check_lock(plan)
                    self._converger.check_removal(plan)
                plan.check_shutdown(self._options.shutdown, self._options.timeout)
                job.plan = plan
            except BeingCreated as error:
                if wait and self._creations.wait(error.guests):
                    continue
                if wait:
                    job.fail(BeingCreated(error.message + self._creations.doubt(error.guests), error.guests))
            except CollectionError as error:
                job.fail(error)
            return

    def _forget_vanished(self, due: Sequence[Job]) -> bool:
        """Return to the queue the jobs whose VMs are gone, and remove these VMs from the ledger, which still listed
        them. Returns whether there were any.
        """
        vanished = [job for job in due if isinstance(job.error, GuestVanished)]
        if not vanished or not self._requeue(vanished, t.cast("GuestVanished", vanished[0].error)):
            return False
        vmids = [job.guest.vmid for job in vanished if job.guest is not None]
        self._access.ledger.forget(self._access.identity(), vmids)
        return True

    @staticmethod
    def _requeue(jobs: Sequence[Job], error: CollectionError) -> bool:
        """Return jobs to the queue, unless one of them has no tries left."""
        if not all(job.may_try_again for job in jobs):
            return False
        for job in jobs:
            job.requeue(error)
        return True

    def _tell_wait(self, jobs: Collection[Job], waited: float) -> None:
        self._progress(Wait.of(jobs, waited, self._options.wait_for_capacity))

    # --- doing it ---

    def _bind(self, due: Sequence[Job]) -> None:
        """Create the decided VMs and carry out the plans for existing ones, many at a time."""
        # Jobs that wait for other processes come last, so that they do not delay the others.
        work = sorted((job for job in due if job.state in (State.DECIDED, State.PLANNED)), key=Job.waits)
        if not work:
            return
        from ..proxmox.binder import Binder
        from ..proxmox.tasks import Poller, TaskFollower
        from .binding import BindingCycle, kept_alive

        self.wrote = self.wrote or any(job.plan or job.decision for job in work)
        access, session = self._access, self._access.writer()
        session.before_write = self._stop.check
        binder = Binder(
            session, TaskFollower(session, timeout=self._options.timeout, poller=Poller(sleep=self._stop.sleep))
        )
        cycle = BindingCycle(access, binder, self._placer)
        decided = decisions_of(due)
        cycle.in_progress.update(decision.vmid for decision in decided)
        total = self._done + len(work)
        with (
            kept_alive(access.ledger, access.identity(), cycle.in_progress, access.holder),
            self._stop.threads(self._options.parallel) as pool,
        ):
            for jobs in self._in_order(work):
                futures = {pool.submit(self._do, job, cycle, binder): job for job in jobs}
                for future in as_completed(futures):
                    job, seconds = futures[future], future.result()
                    if job.state is not State.QUEUED:
                        self._done += 1
                        self._progress(Step(report_of(job), self._done, total, seconds))
        self.warnings.extend(cycle.warnings)
        if decided and not access.shared:
            self._check_created([job for job in work if isinstance(job.bound, Created)])

    @staticmethod
    def _in_order(work: Sequence[Job]) -> Iterable[Sequence[Job]]:
        """The jobs in groups, one after the other. Only removals of templates have to wait for others."""
        if not any(job.plan is not None and job.plan.clones for job in work):
            return [work]
        from .existing.removals import in_order

        return in_order(work)

    def _do(self, job: Job, cycle: BindingCycle, binder: Binder) -> float:
        """Process one job and return the seconds that it took. Errors are noted in the job."""
        self._stop.check()
        began = time.monotonic()
        if job.state is State.DECIDED and job.decision is not None:
            cycle.bind(job, job.decision)
        elif job.plan is not None:
            self._carry_out(job, job.plan, binder)
        else:
            self._await(job)
        return time.monotonic() - began

    def _await(self, job: Job) -> None:
        """Wait until others have created the VM, or it is gone. A new scheduling cycle then decides what to do."""
        self._plan_one(job, self._access.reader, wait=True)
        if job.plan is not None:
            job.state = State.QUEUED
        elif isinstance(job.error, GuestVanished):
            self._requeue([job], job.error)

    def _carry_out(self, job: Job, plan: ExistingPlan, binder: Binder) -> None:
        job.carried = self._converger.carry_out(plan, binder, self._options.shutdown)
        if job.carried.error is not None:
            job.fail(job.carried.error)
            return
        job.state = State.DONE
        if "delete" in plan.actions:
            try:
                self._access.ledger.forget(self._access.identity(), [plan.guest.vmid])
            except CollectionError as error:
                # The VM is deleted; its entry in the ledger expires.
                job.warn(error.message)

    def _check_created(self, created: Sequence[Job]) -> None:
        """Check the limits of the nodes again: without a shared ledger, others may have chosen the same nodes."""
        try:
            self._placer.check_limits(created)
        except CollectionError as error:
            for job in created:
                job.warn(f"its node's limits could not be checked: {error.message}")
