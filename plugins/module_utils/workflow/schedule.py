# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of one task: read and match, decide, reserve, bind, report. The one place that knows check mode."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from ..errors import CollectionError, GuestVanished
from ..model import Decision, Guest
from ..proxmox.binder import Binder
from ..proxmox.options.request import create_parameters
from ..proxmox.options.table import conversion_of
from ..proxmox.tasks import TaskFollower
from .access import Access
from .binding import BindingCycle, ExistsAlready, kept_alive
from .entries import Entry, build_entries
from .existing import Converger, ExistingPlan
from .placing import Placement, Placer
from .plugin_config import profiles_of
from .report import VMReport, failure_of, result_of

ATTEMPTS = 3
"""How often the cluster is looked at when guests vanish in between."""

NO_PROGRESS: Callable[[VMReport], None] = lambda report: None  # noqa: E731


class RunFailed(CollectionError):
    """Some VMs of a task failed.

    Cure: see the code and message of each in C(vms).
    """

    def __init__(self, message: str, code: str, result: Mapping[str, t.Any]) -> None:
        super().__init__(message)
        self.failed_code = code
        self.result = dict(result)


def schedule(
    params: Mapping[str, t.Any],
    per_vm: Iterable[str],
    *,
    check_mode: bool,
    warn: Callable[[str], None],
    progress: Callable[[VMReport], None] = NO_PROGRESS,
) -> dict[str, t.Any]:
    """Do what a qemu_schedule task says, and return the module's result.

    per_vm names the options of one VM; warn takes texts for the user; progress is told of every VM as it is done.
    Raises RunFailed with the result when a VM failed, and other CollectionErrors when nothing was looked at.
    """
    entries = build_entries(params, per_vm, time.time())
    profiles, profile = profiles_of(params)
    access = Access.open(params, lambda nodes: {})
    try:
        run = _Run(params, access, Placer(access, profiles, profile), entries, progress)
        reports = run.execute(write=not (check_mode or access.offline))
    finally:
        access.close()
    for report in reports:
        for text in report.warnings:
            warn(text)
    result = result_of(reports, single=params.get("vms") is None)
    if any(report.error is not None for report in reports):
        message, code = failure_of(reports)
        raise RunFailed(message, code, result)
    return result


class _Run:
    def __init__(
        self,
        params: Mapping[str, t.Any],
        access: Access,
        placer: Placer,
        entries: Sequence[Entry],
        progress: Callable[[VMReport], None],
    ) -> None:
        self._params = params
        self._access = access
        self._placer = placer
        self._entries = entries
        self._progress = progress
        self._all_or_nothing = bool(params["all_or_nothing"])
        self._converger = Converger(access.reader, patience=float(params["timeout"]))

    def execute(self, *, write: bool) -> list[VMReport]:
        """Go through the run; without write up to where the first VM would be touched."""
        for _attempt in range(ATTEMPTS):
            placement = self._placer.place(self._entries, all_or_nothing=self._all_or_nothing, reserve=write)
            reports = {entry.position: self._planned(entry, placement) for entry in self._entries}
            plans = self._plans(placement, reports)
            vanished = {r.vmid for r in reports.values() if isinstance(r.error, GuestVanished) and r.vmid is not None}
            if not vanished:
                break
            # Somebody deleted a VM that the ledger still vouches for: the entry is looked at once more without it.
            self._give_back(placement)
            self._access.ledger.forget(self._access.identity(), vanished)
        failed = any(report.error is not None for report in reports.values())
        if failed and self._all_or_nothing:
            self._give_back(placement)
            for report in reports.values():
                report.done = False
        elif write:
            self._write(placement, plans, reports)
        return [reports[entry.position] for entry in self._entries]

    # --- what would be done ---

    def _planned(self, entry: Entry, placement: Placement) -> VMReport:
        """The report of an entry as decided; those of existing VMs are still empty."""
        report = VMReport(entry)
        error = placement.errors.get(entry.position)
        outcome = placement.outcomes.get(entry.position)
        if error is not None:
            report.error = error
        elif outcome is not None:
            report.outcome = outcome
            report.error = outcome.error
            if outcome.decision is not None:
                _fill_in(report, outcome.decision)
        elif entry.position not in placement.existing:
            report.status = "absent"
        return report

    def _plans(self, placement: Placement, reports: dict[int, VMReport]) -> dict[int, ExistingPlan]:
        """Plans for the VMs that exist, each from its own config; their reports are put into reports."""
        plans: dict[int, ExistingPlan] = {}
        entries = {entry.position: entry for entry in self._entries}

        def plan(position: int, guest: Guest) -> ExistingPlan:
            return self._converger.plan(entries[position], guest)

        with ThreadPoolExecutor(self._params["parallel_creates"]) as pool:
            futures = {pool.submit(plan, position, guest): position for position, guest in placement.existing.items()}
            for future in as_completed(futures):
                position = futures[future]
                try:
                    plans[position] = future.result()
                    reports[position] = plans[position].report()
                except CollectionError as error:
                    guest = placement.existing[position]
                    reports[position] = VMReport(entries[position], node=guest.node, vmid=guest.vmid, error=error)
        return plans

    def _give_back(self, placement: Placement) -> None:
        decided = [o.decision.vmid for o in placement.outcomes.values() if o.decision is not None]
        self._access.ledger.release(self._access.identity(), decided, self._access.holder)

    # --- doing it ---

    def _write(self, placement: Placement, plans: Mapping[int, ExistingPlan], reports: dict[int, VMReport]) -> None:
        access = self._access
        tasks = TaskFollower(access.writer(), timeout=float(self._params["timeout"]))
        binder = Binder(access.writer(), tasks)
        cycle = BindingCycle(access, binder, self._placer)
        decisions = {p: o.decision for p, o in placement.outcomes.items() if o.decision is not None}
        work: dict[Future[VMReport], int] = {}
        with (
            kept_alive(access.ledger, access.identity(), cycle.in_progress, access.holder),
            ThreadPoolExecutor(self._params["parallel_creates"]) as pool,
        ):
            for entry in self._entries:
                position = entry.position
                if position in decisions:
                    cycle.in_progress.add(decisions[position].vmid)
                    work[pool.submit(self._bind, cycle, binder, reports[position], decisions[position])] = position
                elif position in plans and plans[position].actions:
                    work[pool.submit(self._converge, binder, plans[position])] = position
            for future in as_completed(work):
                position = work[future]
                try:
                    reports[position] = future.result()
                except CollectionError as error:
                    reports[position].error = error
                    reports[position].done = False
                self._progress(reports[position])

    def _bind(self, cycle: BindingCycle, binder: Binder, report: VMReport, decision: Decision) -> VMReport:
        try:
            decision, result = cycle.bind(report.entry, decision)
        except ExistsAlready as found:
            return self._converge(binder, self._converger.plan(report.entry, found.guest))
        _fill_in(report, decision)
        report.node = result.node
        report.warnings.extend(f"{report.entry.label}: {line}" for line in result.warnings)
        return report

    def _converge(self, binder: Binder, plan: ExistingPlan) -> VMReport:
        report = self._converger.carry_out(plan, binder, force=bool(self._params.get("force")))
        if report.status == "absent":
            self._access.ledger.forget(self._access.identity(), [plan.guest.vmid])
        return report


def _fill_in(report: VMReport, decision: Decision) -> None:
    """Put a decision into the report of a VM that is to be created."""
    request = decision.request
    report.actions = ["create" if report.entry.clone is None else "clone"]
    if request.running:
        report.actions.append("start")
    report.node, report.vmid, report.storages = decision.node, decision.vmid, decision.storages
    report.status = "running" if request.running else "stopped"
    shown = {key: conversion_of(key).shown(value) for key, value in create_parameters(request, decision).items()}
    report.after = {**shown, "node": decision.node, "status": report.status}
