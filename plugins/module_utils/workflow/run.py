# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of one run: read and match, decide, reserve, bind, report. The one place that knows check mode."""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import suppress

from ..engine.diagnosis import Outcome
from ..errors import CollectionError, GuestVanished, Interrupted, InvalidRequest
from ..model import Decision, Guest
from ..proxmox.binder import Binder
from ..proxmox.creations import BeingCreated, Creations
from ..proxmox.options.cautions import option_cautions
from ..proxmox.polling import Poller
from ..proxmox.reader import Reader, ReadOnce
from ..proxmox.tasks import TaskFollower
from .access import Access
from .aftermath import Aftermath
from .binding import BindingCycle, ExistsAlready, kept_alive
from .entries import Entry
from .existing import Converger
from .existing_plan import ExistingPlan
from .foresight import Foresight
from .limits import check_limits
from .matching import unclear
from .placing import Placement, Placer
from .progress import Progress, Step, Wait
from .report import VMReport, planned_report
from .stopping import Stop
from .usage import NodeUsage, keep_before, note_after, note_change
from .waiting import Waiting

ATTEMPTS = 3
"""How often the cluster is looked at when guests vanish in between."""


KNOWN = frozenset({"running", "stopped", "paused"})
"""Statuses that the cluster's list shows of a VM; there are others while it is not known."""


class Run:
    """One run over the entries of a task.

    Attributes:
        nodes: how full the nodes were before the run, and are after it.
        warnings: what the user should know, of no VM in particular.
        interrupted: whether it was ended before its time.
    """

    def __init__(
        self,
        params: Mapping[str, t.Any],
        access: Access,
        placer: Placer,
        entries: Sequence[Entry],
        progress: Progress | None = None,
    ) -> None:
        self._access = access
        self._placer = placer
        self._entries = {entry.position: entry for entry in entries}
        self._progress = progress or (lambda step: None)
        self._done = 0
        self._all_or_nothing: bool = params["all_or_nothing"]
        self._parallel: int = params["parallel_creates"]
        self._timeout = float(params["timeout"])
        self._patience = float(params["wait_for_capacity"])
        self._force: bool = params["force"]
        self._stop = Stop()
        self._creations = Creations(access.reader, self._timeout, sleep=self._stop.sleep)
        placer.creations = self._creations
        self._converger = Converger(access.reader, self._creations.abandoned, placer.addresses)
        self._aftermath = Aftermath(access.reader, self._converger)
        self._reports: dict[int, VMReport] = {}
        self._existing: dict[int, Guest] = {}
        # Those with which nothing is left to do.
        self._settled: set[int] = set()
        # Those that exist and can only be planned for when others have created them.
        self._late: dict[int, Guest] = {}
        self._checking = threading.Lock()
        self.nodes: list[NodeUsage] = []
        self.warnings: list[str] = []
        self.interrupted = False

    def execute(self, *, check_mode: bool) -> list[VMReport]:
        """Go through the run and return a report per entry, in their order.

        In check mode, and offline, it ends where the first VM would be touched. A KeyboardInterrupt ends it early.
        """
        write = not (check_mode or self._access.offline)
        try:
            stands = self._go(write=write)
        except KeyboardInterrupt:
            self.interrupted = True
            if write:
                self._release_unsent()
            for position, entry in self._entries.items():
                report = self._reports.setdefault(position, VMReport(entry))
                if report.error is None and position not in self._settled:
                    report.error = Interrupted(f"{entry.label}: interrupted before it was processed")
                    self._hold_back(position)
        else:
            if not stands:
                for position in self._entries:
                    self._hold_back(position)
        return [self._reports[position] for position in self._entries]

    def _go(self, *, write: bool) -> bool:
        """Do the run, and return whether the plan is done, or would be: not where all are needed and one failed."""
        waiting = Waiting(
            self._patience if write else 0, self._placer.profile_of, self._access.glance, tell=self._tell_wait
        )
        undecided = list(self._entries.values())
        stands = False
        while True:
            try:
                placement, plans = self._look(undecided, reserve=write)
            except CollectionError as error:
                if not self._reports:
                    raise
                # What became of the others before the wait still has to be told.
                for entry in undecided:
                    self._reports[entry.position].error = error
                return stands
            for position, plan in plans.items():
                note_change(placement.nodes, placement.existing[position], plan.actions)
            self.nodes = keep_before(self.nodes, placement.nodes)
            failed = {p: o for p, o in placement.outcomes.items() if o.error is not None}
            stands = not (self._all_or_nothing and self._errors())
            if write and stands:
                self._write(placement, plans)
            else:
                self._give_back(placement)
            hopeful = {position: outcome for position, outcome in failed.items() if outcome.resolvable}
            # Where all are needed, one that will never be is the end.
            vain = not hopeful or (self._all_or_nothing and self._errors() - hopeful.keys())
            try:
                again = not vain and waiting.until_worth_a_try(hopeful, placement.snapshot)
            finally:
                self._note_wait(failed, waiting)
            if not again:
                return stands
            if stands:
                undecided = [self._entries[position] for position in failed]

    @property
    def wrote(self) -> bool:
        """Whether anything was sent to Proxmox that writes, successful or not."""
        return self._done > 0

    def _errors(self) -> set[int]:
        return {position for position, report in self._reports.items() if report.error is not None}

    # --- what is to be done ---

    def _look(self, entries: Sequence[Entry], *, reserve: bool) -> tuple[Placement, dict[int, ExistingPlan]]:
        """Decide, and plan for what exists; the reports are those of a run that will go well."""
        for _attempt in range(ATTEMPTS):
            placement = self._placer.place(entries, all_or_nothing=self._all_or_nothing, reserve=reserve)
            self._existing.update(placement.existing)
            self.warnings.extend(text for text in placement.doubts if text not in self.warnings)
            for entry in entries:
                before = self._reports.get(entry.position)
                report = planned_report(
                    entry, placement.outcomes.get(entry.position), placement.errors.get(entry.position)
                )
                cautions = [*placement.cautions.get(entry.position, ()), *_option_cautions(report)]
                if not reserve and entry.position in placement.nameless:
                    cautions.append(unclear(placement.nameless[entry.position]))
                report.warnings.extend(f"{entry.label}: {text}" for text in cautions)
                report.attempts = before.attempts + 1 if before else 1
                report.waited, report.waited_for = (before.waited, before.waited_for) if before else (0.0, [])
                self._reports[entry.position] = report
            plans = self._plans(placement.existing, placement.snapshot.pools, write=reserve)
            self._check_growth(placement, plans)
            if not reserve:
                self._foresee(placement, plans)
            errors = (self._reports[position].error for position in placement.existing)
            if not any(isinstance(error, GuestVanished) for error in errors):
                break
            # Somebody deleted a VM that the ledger still vouches for: look once more without its word.
            self._give_back(placement)
            vanished = [
                guest.vmid
                for position, guest in placement.existing.items()
                if isinstance(self._reports[position].error, GuestVanished)
            ]
            self._access.ledger.forget(self._access.identity(), vanished)
        reports = {entry.position: self._reports[entry.position] for entry in entries}
        done = {p for p, report in reports.items() if report.error is None and not report.actions}
        self._settled.update(done - self._late.keys())
        return placement, plans

    def _plans(self, existing: Mapping[int, Guest], pools: Collection[str], *, write: bool) -> dict[int, ExistingPlan]:
        """Plans for the VMs that exist, each from its own config; reports of those that fail are kept.

        pools are those that this user may see. In a run that writes, VMs that others are creating come late: nobody
        waits for them.
        """
        plans: dict[int, ExistingPlan] = {}
        self._late = {}
        self._converger.pools = pools
        cluster = ReadOnce(self._access.reader)
        with self._stop.threads(self._parallel) as pool:
            futures = {
                pool.submit(self._plan, self._entries[position], guest, cluster, wait=not write): position
                for position, guest in existing.items()
            }
            for future in as_completed(futures):
                position = futures[future]
                try:
                    plans[position] = future.result()
                except CollectionError as error:
                    guest = existing[position]
                    late = write and isinstance(error, BeingCreated)
                    if late:
                        self._late[position] = guest
                    self._reports[position] = VMReport(
                        self._entries[position], error=None if late else error, node=guest.node, vmid=guest.vmid
                    )
        return plans

    def _plan(self, entry: Entry, guest: Guest, cluster: Reader | None = None, *, wait: bool) -> ExistingPlan:
        """The plan for a VM that exists; with wait once others have created it."""
        while True:
            try:
                return self._converger.plan(entry, guest, cluster)
            except BeingCreated as error:
                if not (wait and self._creations.wait(error.guests)):
                    raise

    def _check_growth(self, placement: Placement, plans: dict[int, ExistingPlan]) -> None:
        """Drop the plans whose VMs may not grow or start on their nodes, and report on all."""
        refused = check_limits(placement.scheduler, plans, time.time())
        for position, plan in list(plans.items()):
            self._reports[position] = plan.report()
            if position in refused:
                self._drop(plans, position, refused[position])
        note_after(placement.nodes, placement.scheduler.cluster)

    def _foresee(self, placement: Placement, plans: dict[int, ExistingPlan]) -> None:
        """Find what Proxmox VE would refuse, in place of sending it."""
        foresight = Foresight(ReadOnce(self._access.reader), placement.snapshot)
        for position, outcome in placement.outcomes.items():
            if outcome.decision is not None:
                report = self._reports[position]
                try:
                    report.warnings.extend(foresight.of_new(report.entry.label, outcome.decision))
                except InvalidRequest as error:
                    report.error = error
                    report.nothing_made()
        for position, plan in list(plans.items()):
            try:
                plan.cautions.extend(foresight.of_existing(plan))
                self._reports[position] = plan.report()
            except InvalidRequest as error:
                self._drop(plans, position, error)

    def _drop(self, plans: dict[int, ExistingPlan], position: int, error: CollectionError) -> None:
        """Do not carry a plan out, for error."""
        plan = plans.pop(position)
        report = VMReport(plan.entry, error=error, found_name=plan.guest.name)
        report.node, report.vmid, report.status = plan.guest.node, plan.guest.vmid, plan.status
        self._reports[position] = report

    def _give_back(self, placement: Placement) -> None:
        decided = [o.decision.vmid for o in placement.outcomes.values() if o.decision is not None]
        self._access.ledger.release(self._access.identity(), decided, self._access.holder)

    def _release_unsent(self) -> None:
        """Give back what this run has reserved and not begun to create."""
        ledger, holder = self._access.ledger, self._access.holder
        # They expire by themselves, and here as soon as this process ends.
        with suppress(CollectionError):
            cluster = self._access.identity()
            mine = [r for r in ledger.reservations(cluster) if r.holder == holder and r.phase == "reserved"]
            ledger.release(cluster, [reservation.vmid for reservation in mine], holder)

    def _hold_back(self, position: int) -> None:
        """Say of a VM that nothing was done with it."""
        report, guest = self._reports[position], self._existing.get(position)
        if guest is not None:
            status = guest.status if report.before is None else report.before["status"]
            report.ended_with([], status if status in KNOWN else None)
            report.node, report.vmid, report.after = guest.node, guest.vmid, report.before
        elif report.actions:
            report.nothing_made()

    def _note_wait(self, failed: Mapping[int, Outcome], waiting: Waiting) -> None:
        if waiting.patience == 0:
            return
        for position, outcome in failed.items():
            report = self._reports[position]
            report.waited, report.hopeless = waiting.waited, not outcome.resolvable
            report.waited_for = sorted({*report.waited_for, *outcome.rejected_by})

    def _tell_wait(self, outcomes: Collection[Outcome], waited: float) -> None:
        names = [outcome.request.name for outcome in outcomes]
        plugins = sorted({plugin for outcome in outcomes for plugin in outcome.rejected_by})
        self._progress(Wait(names, plugins, waited, self._patience))

    # --- doing it ---

    def _write(self, placement: Placement, plans: Mapping[int, ExistingPlan]) -> None:
        access = self._access
        session = access.writer()
        session.before_write = self._stop.check
        binder = Binder(session, TaskFollower(session, timeout=self._timeout, poller=Poller(sleep=self._stop.sleep)))
        cycle = BindingCycle(access, binder, self._placer)
        decisions = {p: o.decision for p, o in placement.outcomes.items() if o.decision is not None}
        cycle.in_progress.update(decision.vmid for decision in decisions.values())
        work: dict[Future[float], int] = {}

        def settle(position: int, do: Callable[..., VMReport], *args: t.Any) -> float:
            self._stop.check()
            began = time.monotonic()
            self._reports[position] = do(*args)
            self._settled.add(position)
            return time.monotonic() - began

        with (
            kept_alive(access.ledger, access.identity(), cycle.in_progress, access.holder),
            self._stop.threads(self._parallel) as pool,
        ):
            # Those that wait for others come last, so that nobody waits with them.
            for position in sorted(decisions, key=placement.nameless.__contains__):
                args = cycle, binder, placement, position, decisions[position]
                work[pool.submit(settle, position, self._bind, *args)] = position
            for position, plan in plans.items():
                if plan.actions:
                    work[pool.submit(settle, position, self._converge, binder, plan)] = position
            for position, guest in self._late.items():
                found = binder, placement, self._entries[position], guest
                work[pool.submit(settle, position, self._take_as_it_is, *found)] = position
            total = self._done + len(work)
            for future in as_completed(work):
                seconds = future.result()
                self._done += 1
                self._progress(Step(self._reports[work[future]], self._done, total, seconds))
        self.warnings.extend(cycle.warnings)
        if decisions and not access.shared:
            self._check_limits([self._reports[position] for position in decisions])

    def _bind(
        self, cycle: BindingCycle, binder: Binder, placement: Placement, position: int, decision: Decision
    ) -> VMReport:
        """Create a VM, and report what came of it, be it an error."""
        report = self._reports[position]
        try:
            decision, result = cycle.bind(report.entry, decision, placement.nameless.get(position, ()))
        except ExistsAlready as found:
            return self._take_as_it_is(binder, placement, report.entry, found.guest)
        except CollectionError as error:
            return self._aftermath.of_new(report, error)
        report.fill_in(decision)
        report.node = result.node
        report.warnings.extend(f"{report.entry.label}: {line}" for line in result.warnings)
        return report

    def _take_as_it_is(self, binder: Binder, placement: Placement, entry: Entry, guest: Guest) -> VMReport:
        """Go on with a VM that somebody else is creating, or has just created."""
        try:
            plans = {entry.position: self._plan(entry, guest, wait=True)}
        except CollectionError as error:
            return VMReport(entry, error=error, node=guest.node, vmid=guest.vmid)
        with self._checking:
            self._check_growth(placement, plans)
        plan = plans.get(entry.position)
        return self._reports[entry.position] if plan is None else self._converge(binder, plan)

    def _converge(self, binder: Binder, plan: ExistingPlan) -> VMReport:
        """Do what is to be done with a VM that exists, and report what came of it, be it an error."""
        try:
            report = self._converger.carry_out(plan, binder, force=self._force)
        except CollectionError as error:
            return self._aftermath.of_existing(plan, error)
        if report.status == "absent":
            try:
                self._access.ledger.forget(self._access.identity(), [plan.guest.vmid])
            except CollectionError as error:
                # The VM is gone. What the ledger still says of it expires.
                report.warnings.append(f"{report.entry.label}: {error.message}")
        return report

    def _check_limits(self, reports: Sequence[VMReport]) -> None:
        """Without a shared ledger others may have chosen the same nodes at the same moment: look at what came of it."""
        created = [report for report in reports if report.error is None and report.decision is not None]
        try:
            broken = self._placer.broken_limits([report.decision for report in created if report.decision])
        except CollectionError as error:
            for report in created:
                report.warnings.append(f"{report.entry.label}: its node's limits could not be checked: {error.message}")
            return
        for report in created:
            if report.vmid in broken:
                report.limit_broken = broken[report.vmid]
                report.warnings.append(f"{report.entry.label} on {report.node} {report.limit_broken}")


def _option_cautions(report: VMReport) -> list[str]:
    """What to warn of in the config that a new VM gets. A clone has more than what is asked for."""
    if report.decision is None or report.entry.clone is not None:
        return []
    return option_cautions(report.decision.request.options, report.after or {})
