# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of one run: read and match, decide, reserve, bind, report. The one place that knows check mode."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from ..engine.diagnosis import Outcome
from ..errors import CollectionError, GuestVanished
from ..model import Decision, Guest
from ..proxmox.binder import Binder
from ..proxmox.tasks import TaskFollower
from .access import Access
from .binding import BindingCycle, ExistsAlready, kept_alive
from .entries import Entry
from .existing import Converger, ExistingPlan
from .placing import Placement, Placer
from .progress import Progress, Step, Wait
from .report import VMReport, planned_report
from .usage import NodeUsage, keep_before, note_change
from .waiting import Waiting

ATTEMPTS = 3
"""How often the cluster is looked at when guests vanish in between."""

PARTLY_DONE = frozenset({"created", "applied"})
"""Details of errors that say that a VM was changed before it failed."""


class Run:
    """One run over the entries of a task.

    Attributes:
        nodes: how full the nodes were before the run, and are after it.
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
        self._converger = Converger(access.reader, patience=self._timeout)
        self._reports: dict[int, VMReport] = {}
        self.nodes: list[NodeUsage] = []

    def execute(self, *, check_mode: bool) -> list[VMReport]:
        """Go through the run and return a report per entry, in their order.

        In check mode, and offline, it ends where the first VM would be touched.
        """
        write = not (check_mode or self._access.offline)
        waiting = Waiting(
            self._patience if write else 0, self._placer.profile_of, self._access.glance, tell=self._tell_wait
        )
        undecided = list(self._entries.values())
        while True:
            try:
                placement, plans = self._look(undecided, reserve=write)
            except CollectionError as error:
                if not self._reports:
                    raise
                # What became of the others before the wait still has to be told.
                for entry in undecided:
                    self._reports[entry.position].error = error
                break
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
            again = not vain and waiting.until_worth_a_try(hopeful, placement.snapshot)
            self._note_wait(failed, waiting)
            if not again:
                break
            if stands:
                undecided = [self._entries[position] for position in failed]
        for report in self._reports.values():
            report.done = stands and (report.error is None or bool(PARTLY_DONE & report.error.details.keys()))
        return [self._reports[position] for position in self._entries]

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
            for entry in entries:
                before = self._reports.get(entry.position)
                report = planned_report(
                    entry, placement.outcomes.get(entry.position), placement.errors.get(entry.position)
                )
                report.warnings.extend(f"{entry.label}: {text}" for text in placement.cautions.get(entry.position, ()))
                report.attempts = before.attempts + 1 if before else 1
                report.waited, report.waited_for = (before.waited, before.waited_for) if before else (0.0, [])
                self._reports[entry.position] = report
            plans = self._plans(placement.existing)
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
        return placement, plans

    def _plans(self, existing: Mapping[int, Guest]) -> dict[int, ExistingPlan]:
        """Plans for the VMs that exist, each from its own config; their reports are kept."""
        plans: dict[int, ExistingPlan] = {}
        with ThreadPoolExecutor(self._parallel) as pool:
            futures = {
                pool.submit(self._converger.plan, self._entries[position], guest): position
                for position, guest in existing.items()
            }
            for future in as_completed(futures):
                position = futures[future]
                try:
                    plans[position] = future.result()
                    self._reports[position] = plans[position].report()
                except CollectionError as error:
                    report = VMReport(self._entries[position], error=error)
                    report.node, report.vmid = existing[position].node, existing[position].vmid
                    self._reports[position] = report
        return plans

    def _give_back(self, placement: Placement) -> None:
        decided = [o.decision.vmid for o in placement.outcomes.values() if o.decision is not None]
        self._access.ledger.release(self._access.identity(), decided, self._access.holder)

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
        binder = Binder(session, TaskFollower(session, timeout=self._timeout))
        cycle = BindingCycle(access, binder, self._placer)
        decisions = {p: o.decision for p, o in placement.outcomes.items() if o.decision is not None}
        cycle.in_progress.update(decision.vmid for decision in decisions.values())
        work: dict[Future[VMReport], int] = {}
        began: dict[int, float] = {}

        def timed(position: int, do: Callable[..., VMReport], *args: t.Any) -> VMReport:
            began[position] = time.monotonic()
            return do(*args)

        with (
            kept_alive(access.ledger, access.identity(), cycle.in_progress, access.holder),
            ThreadPoolExecutor(self._parallel) as pool,
        ):
            for position, decision in decisions.items():
                report = self._reports[position]
                work[pool.submit(timed, position, self._bind, cycle, binder, report, decision)] = position
            for position, plan in plans.items():
                if plan.actions:
                    work[pool.submit(timed, position, self._converge, binder, plan)] = position
            total = self._done + len(work)
            for future in as_completed(work):
                position = work[future]
                try:
                    self._reports[position] = future.result()
                except CollectionError as error:
                    report = self._reports[position]
                    report.error = error
                    report.actions = error.details.get("applied", report.actions)
                self._done += 1
                self._progress(Step(self._reports[position], self._done, total, time.monotonic() - began[position]))
        if decisions and not access.shared:
            self._check_limits([self._reports[position] for position in decisions])

    def _bind(self, cycle: BindingCycle, binder: Binder, report: VMReport, decision: Decision) -> VMReport:
        try:
            decision, result = cycle.bind(report.entry, decision)
        except ExistsAlready as found:
            return self._converge(binder, self._converger.plan(report.entry, found.guest))
        report.fill_in(decision)
        report.node = result.node
        report.warnings.extend(f"{report.entry.label}: {line}" for line in result.warnings)
        return report

    def _converge(self, binder: Binder, plan: ExistingPlan) -> VMReport:
        report = self._converger.carry_out(plan, binder, force=self._force)
        if report.status == "absent":
            self._access.ledger.forget(self._access.identity(), [plan.guest.vmid])
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
