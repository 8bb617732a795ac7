# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run tells: one report per VM, and the module's result made of them. Data first, text last."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..engine.diagnosis import Outcome
from ..engine.texts import first
from ..engine.verdicts import NodeVerdict
from ..errors import CollectionError, Interrupted
from ..model import Decision
from ..proxmox.options.request import create_parameters
from ..proxmox.options.table import conversion_of
from .entries import Entry
from .usage import NodeUsage

NOTHING = "none"

LABELS_TOLD = 20
"""How many VMs the message of a run that was interrupted names of each kind."""


@dataclass(slots=True)
class VMReport:
    """What became, or in check mode would become, of one VM.

    Attributes:
        actions: create, clone, finish, update, start, stop, reboot, delete: what is to be done, after the run what was
            done.
        not_done: what was to be done besides and was not: the VM failed, or another one for which it was held back.
        found_name: that of a VM that exists, which need not be asked for.
        node, vmid, status: as they are after the run; None while there is no VM.
        storages: for each drive's slot its storage, of a VM that was decided in this run.
        drift: for each parameter that differs from the request C(old) and C(new).
        pending: for each parameter whose new value waits for the VM to be stopped and started C(old) and C(new).
        decision: what was bound in the end; its VMID may be another one than that of outcome.
    before, after: the VM for --diff; None where it does not exist.
    attempts, waited, waited_for: how often it was tried to place it, how long that took in seconds, and which plugins
        had to change their mind.
    hopeless: whether it would have been waited, had there been any hope.
    limit_broken: the limit that the VM broke as another scheduler chose the same node.
    """

    entry: Entry
    actions: list[str] = field(default_factory=list)
    not_done: list[str] = field(default_factory=list)
    found_name: str | None = None
    node: str | None = None
    vmid: int | None = None
    status: str | None = None
    storages: Mapping[str, str] = field(default_factory=dict)
    outcome: Outcome | None = None
    decision: Decision | None = None
    drift: Mapping[str, Mapping[str, t.Any]] = field(default_factory=dict)
    pending: Mapping[str, Mapping[str, t.Any]] = field(default_factory=dict)
    before: Mapping[str, t.Any] | None = None
    after: Mapping[str, t.Any] | None = None
    warnings: list[str] = field(default_factory=list)
    error: CollectionError | None = None
    attempts: int = 1
    waited: float = 0.0
    waited_for: list[str] = field(default_factory=list)
    hopeless: bool = False
    limit_broken: str | None = None

    @property
    def name(self) -> str | None:
        """The VM's name, as asked for or found."""
        return self.entry.request.name or self.found_name

    @property
    def changed(self) -> bool:
        return bool(self.actions)

    @property
    def was_tried(self) -> bool:
        """Whether nodes were looked at for it."""
        return self.outcome is not None and self.outcome.looked is not None

    @property
    def failure(self) -> str | None:
        """Why it failed, and how long it was waited for that to change."""
        if self.error is None:
            return None
        if self.hopeless:
            return f"{self.error.message}; not retried, as no cluster change can make it fit"
        return f"{self.error.message}; gave up after {self.waited:.0f} s" if self.waited >= 1 else self.error.message

    def fill_in(self, decision: Decision) -> None:
        """Take over a decision to create the VM."""
        request = decision.request
        self.decision = decision
        self.actions = ["create" if self.entry.clone is None else "clone"]
        if request.running:
            self.actions.append("start")
        self.node, self.vmid, self.storages = decision.node, decision.vmid, decision.storages
        self.status = "running" if request.running else "stopped"
        shown = {key: conversion_of(key).shown(value) for key, value in create_parameters(request, decision).items()}
        self.after = {**decision.storages, **shown, "node": decision.node, "status": self.status}
        template = decision.template
        if template is not None:
            self.after = {**self.after, "clone": f"{template.name} ({template.vmid} on {template.node})"}

    def nothing_made(self) -> None:
        """Take a decision to create the VM back: there is none."""
        self.ended_with([], "absent")
        self.node, self.vmid, self.storages, self.after = None, None, {}, None

    def ended_with(self, done: Sequence[str], status: str | None) -> None:
        """Say that of the actions only these were done, and what the VM's status is then."""
        self.not_done = [action for action in self.actions if action not in done]
        self.actions, self.status = list(done), status

    def as_result(self) -> dict[str, t.Any]:
        """The entry of C(vms) in the module's result."""
        result: dict[str, t.Any] = {
            "name": self.name,
            "vmid": self.vmid,
            "node": self.node,
            "status": self.status,
            "changed": self.changed,
            "action": self.actions[0] if self.actions else NOTHING,
            "actions": list(self.actions),
            "not_done": list(self.not_done),
            "tags": sorted(self.entry.request.tags),
            "storages": dict(self.storages),
            "drift": {key: dict(values) for key, values in self.drift.items()},
            "pending": {key: dict(values) for key, values in self.pending.items()},
            "decision": decision_result(self.outcome) if self.outcome is not None else None,
            "attempts": self.attempts,
            "waited": round(self.waited, 1),
            "waited_for": list(self.waited_for),
            "limit_broken": self.limit_broken,
        }
        if self.error is not None:
            result["error"] = {"code": self.error.code, "message": self.failure, **self.error.details}
        return result


def planned_report(entry: Entry, outcome: Outcome | None, error: CollectionError | None) -> VMReport:
    """The report of an entry that was decided about, as it will be when all goes well.

    Without an outcome and an error there is no such VM and none is wanted.
    """
    report = VMReport(entry, outcome=outcome, error=error)
    if outcome is not None:
        report.error = outcome.error
    if error is None:
        report.status = "absent"
    if outcome is not None and outcome.decision is not None:
        report.fill_in(outcome.decision)
    return report


def decision_result(outcome: Outcome) -> dict[str, t.Any]:
    """A decision, or the lack of one, as the module returns it."""
    decision: Decision | None = outcome.decision
    return {
        "node": decision.node if decision else None,
        "vmid": decision.vmid if decision else None,
        "score": round(decision.score, 2) if decision else None,
        "storages": dict(decision.storages) if decision else {},
        "devices": [
            {
                "claim": device.claim,
                "device": device.device,
                "node": device.node,
                "option": device.option,
                "value": device.value,
            }
            for device in (decision.devices if decision else ())
        ],
        "runner_up": _runner_up(outcome),
        "message": outcome.message,
        "findings": dict(outcome.findings),
        "nodes": [_node_result(verdict) for verdict in outcome.verdicts()],
    }


def _runner_up(outcome: Outcome) -> dict[str, t.Any] | None:
    second = outcome.runner_up
    return None if second is None else {"node": second.node, "distance": round(second.distance, 2)}


def _node_result(verdict: NodeVerdict) -> dict[str, t.Any]:
    return {
        "node": verdict.node,
        "feasible": verdict.feasible,
        "score": None if verdict.score is None else round(verdict.score, 2),
        "scores": {
            plugin: {
                "raw": round(score.raw, 4),
                "normalized": round(score.normalized, 2),
                "weight": score.weight,
            }
            for plugin, score in verdict.scores.items()
        },
        "rejected_by": verdict.rejected_by,
        "reason": verdict.reason,
    }


def failure_of(
    reports: Sequence[VMReport], *, all_or_nothing: bool, wrote: bool, interrupted: bool = False
) -> tuple[str, str]:
    """The message and the error code of a run of which some VMs failed. The code is that of the first.

    wrote: whether anything was written, in vain or not. interrupted: the run was, which then counts as the first error.
    """
    failed = [(report.entry.label, report.failure, report.error) for report in reports if report.error is not None]
    lines = [
        text if text and label in text else f"{label}: {text}"
        for label, text, error in failed
        if not (interrupted and isinstance(error, Interrupted))
    ]
    if interrupted:
        return "; ".join([_interruption(reports), *lines]), Interrupted.code
    if all_or_nothing and len(reports) > 1 and not wrote:
        lines.append("nothing was written")
    return "; ".join(lines), failed[0][2].code


def _interruption(reports: Sequence[VMReport]) -> str:
    """How far a run came that was interrupted."""
    groups: dict[str, list[str]] = {"done": [], "under way": [], "not begun": []}
    for report in reports:
        if report.error is None:
            groups["done"].append(report.entry.label)
        elif isinstance(report.error, Interrupted):
            begun = bool(report.actions) or "upid" in report.error.details
            where = f" ({report.failure})" if begun else ""
            groups["under way" if begun else "not begun"].append(report.entry.label + where)
    told = [f"{what}: {', '.join(first(labels, LABELS_TOLD))}" for what, labels in groups.items() if labels]
    return "; ".join(["interrupted", *told])


def result_of(reports: Sequence[VMReport], nodes: Sequence[NodeUsage], *, single: bool) -> dict[str, t.Any]:
    """The module's result.

    single: the task names one VM by its own options, whose facts then stand at the top as well.
    """
    result: dict[str, t.Any] = {
        "changed": any(report.changed for report in reports),
        "vms": [report.as_result() for report in reports],
    }
    # A mistake in what was asked for says nothing about the nodes.
    if not any(report.error for report in reports) or any(report.changed or report.was_tried for report in reports):
        result["nodes"] = [node.as_result() for node in nodes]
    diffs = [diff for report in reports if (diff := _diff(report)) is not None]
    if diffs:
        result["diff"] = diffs
    if single:
        report = reports[0]
        result.update(name=report.name, vmid=report.vmid, node=report.node)
    return result


def _diff(report: VMReport) -> dict[str, t.Any] | None:
    if report.before == report.after or not report.actions:
        return None
    title = f"{report.entry.label} ({report.vmid})" if report.entry.request.name else report.entry.label
    absent = f"{title}, absent"
    return {
        "before_header": absent if report.before is None else title,
        "after_header": absent if report.after is None else title,
        "before": _text(report.before),
        "after": _text(report.after),
    }


def _text(facts: Mapping[str, t.Any] | None) -> str:
    """One line per fact; nothing for a VM that does not exist."""
    return "".join(f"{key}: {facts[key]}\n" for key in sorted(facts)) if facts else ""
