# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What there is of a VM after something went wrong with it: what was done, and what its status is, if that is known."""

from __future__ import annotations

import typing as t
from contextlib import suppress
from dataclasses import replace

from ..errors import CollectionError, ConnectionFailed, Interrupted, TaskTimeout
from ..proxmox.failures import AnswerLost
from ..proxmox.reader import Reader
from .existing import Converger
from .existing_plan import ExistingPlan
from .report import VMReport


class Aftermath:
    """Makes the reports of VMs that failed while something was done with them. Only reads."""

    def __init__(self, reader: Reader, converger: Converger) -> None:
        self._reader = reader
        self._converger = converger

    def of_new(self, report: VMReport, error: CollectionError) -> VMReport:
        """Change the report of a VM that was to be created, and return it."""
        report.error = error
        there = error.details.get("created") or error.details.get("left_behind")
        under_way = isinstance(error, TaskTimeout) and "upid" in error.details
        if there is not None:
            report.node, report.vmid = there["node"], there["vmid"]
        status = None
        if there is not None or (isinstance(error, TaskTimeout) and not under_way):
            status = self._status_of(report.node, report.vmid)
        begun = there is not None or under_way or status is not None
        nobody_knows = isinstance(error, (TaskTimeout, AnswerLost)) and not isinstance(error, Interrupted)
        if not begun and not nobody_knows:
            report.nothing_made()
            return report
        made = report.actions[:1] if begun else []
        report.ended_with([*made, "start"] if status == "running" else made, status)
        whole = "created" in error.details and status is not None
        report.after = {**report.after, "status": status} if whole and report.after is not None else None
        return report

    def of_existing(self, plan: ExistingPlan, error: CollectionError) -> VMReport:
        """The report of a VM of whose plan not everything was done: some of it may be in force."""
        report = plan.report()
        report.error, report.node, report.after = error, plan.guest.node, report.before
        applied: list[str] = list(error.details.get("applied", []))
        found = self._found(plan, error)
        if found is None:
            report.ended_with(applied, None)
            return report
        changed = _as_it_was(found) != _as_it_was(plan) or found.ha != plan.ha
        done = {
            "finish": changed or "finish" not in found.actions,
            "update": changed,
            "start": found.status == "running" != plan.status,
            "stop": found.status == "stopped" != plan.status,
        }
        stopped_in_vain = ["stop"] if {"delete", "reboot"} & set(report.actions) and done["stop"] else []
        report.ended_with([a for a in report.actions if a in applied or done.get(a)] + stopped_in_vain, found.status)
        report.node = found.guest.node
        in_force = {key: value for key, value in plan.changes.after.items() if key not in found.changes.changes}
        report.after = {**in_force, **(found.report().before or {})}
        return report

    def _found(self, plan: ExistingPlan, error: CollectionError) -> ExistingPlan | None:
        """The VM as it is now; None when that cannot be told."""
        if isinstance(error, ConnectionFailed) and not isinstance(error, AnswerLost):
            return None
        with suppress(CollectionError):
            entry = replace(plan.entry, state="present", update=False)
            return self._converger.plan(entry, replace(plan.guest, status="unknown"))
        return None

    def _status_of(self, node: str | None, vmid: int | None) -> str | None:
        """The VM's status; None when it cannot be told, or there is no such VM."""
        with suppress(CollectionError):
            answer: t.Mapping[str, t.Any] = self._reader.get(f"/nodes/{node}/qemu/{vmid}/status/current")
            return str(answer["status"])
        return None


def _as_it_was(plan: ExistingPlan) -> dict[str, t.Any]:
    """What is to be changed, with its values before that."""
    return {key: change["old"] for key, change in plan.changes.changes.items()}
