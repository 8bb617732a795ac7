# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of the module, made of the reports of a run. Data first, text last."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from ..engine.texts import first
from ..engine.verdicts import NodeVerdict, Outcome
from ..errors import CollectionError, Interrupted, PluginFailed
from ..foreign_text import on_one_line
from ..model import Decision
from ..proxmox.making import LeftBehind, NotStarted, Unknown
from ..proxmox.options.values import static_addresses
from .job import Job
from .report import NodeUsage, VMReport

NOTHING = "none"

LABELS_TOLD = 20
"""How many VMs a message lists."""


NODES_IN_FULL = 50
"""The largest cluster for which decisions report every node, unless the task requests otherwise."""

BEST_TOLD = 5
"""On larger clusters: the number of nodes that a decision reports, and of names for each reason of a rejection."""


ALIKE_IN_FULL = 20
"""How many VMs that fit nowhere for the same reasons are reported with every node, and with what would help them. Of
the others the reasons are reported, with the number of nodes: nobody reads thousands of equal lists.
"""


class RunFailed(CollectionError):
    """Some VMs of a task failed.

    Cure: see the code and message of each in C(vms).
    """

    def __init__(self, message: str, code: str, result: Mapping[str, t.Any]) -> None:
        super().__init__(message)
        self.failed_code = code
        self.result = dict(result)


def result_of(
    reports: Sequence[VMReport],
    nodes: Sequence[NodeUsage],
    *,
    single: bool,
    in_full: int = NODES_IN_FULL,
    with_guests: bool = False,
) -> dict[str, t.Any]:
    """Return the module's result.

    single: the task describes one VM by the module's own options, so that its name, VMID and node stand at the top
    level as well. in_full: the largest number of nodes for which each decision reports every node. with_guests: whether
    each node lists its guests.
    """
    result: dict[str, t.Any] = {
        "changed": any(report.actions for report in reports),
        "vms": list(_vm_results(reports, in_full)),
    }
    # If requests failed before any node was evaluated, the usage of the nodes does not matter.
    if not any(report.job.error for report in reports) or any(
        report.actions or _was_tried(report.job) for report in reports
    ):
        result["nodes"] = [node.as_result(with_guests=with_guests) for node in nodes]
    diffs = [diff for report in reports if (diff := _diff(report)) is not None]
    if diffs:
        result["diff"] = diffs
    if single:
        report = reports[0]
        result.update(name=report.name, vmid=report.vmid, node=report.node)
    return result


def _vm_results(reports: Iterable[VMReport], in_full: int) -> Iterator[dict[str, t.Any]]:
    """Yield the entries of C(vms), in brief for VMs that fit nowhere if many others do not for the same reasons."""
    alike: Counter[frozenset[tuple[str, str, int]]] = Counter()
    for report in reports:
        outcome = report.job.outcome
        brief = False
        if outcome is not None and outcome.decision is None and outcome.looked is not None:
            reasons = frozenset((*reason, len(nodes)) for reason, nodes in outcome.looked.rejected_nodes().items())
            alike[reasons] += 1
            brief = alike[reasons] > ALIKE_IN_FULL
        yield vm_result(report, in_full, brief=brief)


def vm_result(report: VMReport, in_full: int = NODES_IN_FULL, *, brief: bool = False) -> dict[str, t.Any]:
    """Return the entry of C(vms) in the module's result; brief: without what differs between nodes."""
    job = report.job
    result: dict[str, t.Any] = {
        **({} if job.cluster is None else {"cluster": job.cluster}),
        "name": report.name,
        "vmid": report.vmid,
        "node": report.node,
        "status": report.status,
        "changed": bool(report.actions),
        "action": report.actions[0] if report.actions else NOTHING,
        "actions": list(report.actions),
        "not_done": list(report.not_done),
        "tags": sorted(job.entry.request.tags),
        "storages": dict(report.storages),
        "drift": {key: dict(values) for key, values in report.drift.items()},
        "pending": {key: dict(values) for key, values in report.pending.items()},
        "decision": None if job.outcome is None else decision_result(job.outcome, in_full, brief=brief),
        "attempts": max(job.attempts, 1),
        "waited": round(job.waited, 1),
        "waited_for": sorted(job.waited_for),
        "limit_broken": job.limit_broken,
        **({"why": job.entry.planned_why} if job.entry.planned_why else {}),
        "host": _host_facts(report),
    }
    if job.tried and result["decision"] is not None:
        result["decision"]["clusters"] = [asdict(verdict) for verdict in job.tried]
    if job.error is not None:
        details = {**job.error.details, **_remains(job)}
        result["error"] = {"code": job.error.code, "message": report.failure, **details}
    return result


def _remains(job: Job) -> dict[str, t.Any]:
    """Return what remains after a failure, or was done before it, for the error in the module's result."""
    bound = job.bound
    if isinstance(bound, NotStarted):
        return {"created": {"vmid": bound.vmid, "node": bound.node}}
    if isinstance(bound, LeftBehind):
        return {"left_behind": {"vmid": bound.vmid, "node": bound.node, "reason": bound.reason}}
    return {"applied": job.carried.done} if job.carried is not None and job.carried.done else {}


def decision_result(outcome: Outcome, in_full: int = NODES_IN_FULL, *, brief: bool = False) -> dict[str, t.Any]:
    """Return a decision, or the lack of one, as the module returns it; brief: without nodes and findings."""
    decision: Decision | None = outcome.decision
    looked, second = outcome.looked, outcome.runner_up
    verdicts: Sequence[NodeVerdict] = ()
    if looked is not None and not brief:
        verdicts = looked.all() if len(looked.nodes) <= in_full else looked.best(BEST_TOLD)
    return {
        "node": decision.node if decision else None,
        "vmid": decision.vmid if decision else None,
        "score": round(decision.score, 2) if decision else None,
        "turn": outcome.turn,
        "storages": dict(decision.storages) if decision else {},
        "devices": [
            {key: getattr(device, key) for key in ("claim", "device", "node", "option", "value")}
            for device in (decision.devices if decision else ())
        ],
        "runner_up": None if second is None else {"node": second.node, "distance": round(second.distance, 2)},
        "message": outcome.message,
        "findings": {} if brief else dict(outcome.findings),
        "rejections": [
            {"rejected_by": plugin, "reason": reason, "count": len(nodes), "nodes": nodes[:BEST_TOLD]}
            for (plugin, reason), nodes in (looked.rejected_nodes() if looked is not None else {}).items()
        ],
        "nodes": [_node_result(verdict) for verdict in verdicts],
    }


def _node_result(verdict: NodeVerdict) -> dict[str, t.Any]:
    """Return the verdict on a node as the result has it."""
    return {
        "node": verdict.node,
        "feasible": verdict.status is None,
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


def _was_tried(job: Job) -> bool:
    """Whether nodes were evaluated for the VM."""
    return job.outcome is not None and job.outcome.looked is not None


def _diff(report: VMReport) -> dict[str, t.Any] | None:
    """Return the difference that C(--diff) shows; None if the run changes nothing."""
    if report.before == report.after or not report.actions:
        return None
    title = f"{report.job.entry.label} ({report.vmid})" if report.job.entry.request.name else report.job.entry.label
    title += "" if report.job.cluster is None else f" on cluster {report.job.cluster}"
    absent = f"{title}, absent"
    return {
        "before_header": absent if report.before is None else title,
        "after_header": absent if report.after is None else title,
        "before": _text(report.before),
        "after": _text(report.after),
    }


def _text(facts: Mapping[str, t.Any] | None) -> str:
    """Return one line per fact; nothing for a VM that does not exist."""
    return "".join(f"{key}: {on_one_line(str(facts[key]))}\n" for key in sorted(facts)) if facts else ""


def failure_of(
    reports: Sequence[VMReport], *, all_or_nothing: bool, wrote: bool, interrupted: bool = False
) -> tuple[str, str]:
    """Return the message and the error code of a run in which VMs failed. The code is that of the first failure.

    wrote: whether anything was written, successful or not. interrupted: whether the run was interrupted, which then
    determines the code.
    """
    failed = [(report, report.job.error) for report in reports if report.job.error is not None]
    lines = _lines(report for report, error in failed if not (interrupted and isinstance(error, Interrupted)))
    lines = first(lines, LABELS_TOLD)
    if interrupted:
        return "; ".join([_interruption(reports), *lines]), Interrupted.code
    if all_or_nothing and len(reports) > 1 and not wrote:
        lines.append("nothing was written")
    return "; ".join(lines), failed[0][1].code


def _lines(failed: Iterable[VMReport]) -> list[str]:
    """Return one line per failed VM, but one per failed plugin with all VMs that it failed for."""
    lines: list[str] = []
    by_plugin: dict[str, list[VMReport]] = {}
    for report in failed:
        label, text = report.job.entry.label, report.failure or ""
        if isinstance(report.job.error, PluginFailed):
            by_plugin.setdefault(report.job.error.details["plugin"], []).append(report)
        else:
            lines.append(text if label in text else f"{label}: {text}")
    for victims in by_plugin.values():
        labels = first([report.job.entry.label for report in victims], LABELS_TOLD)
        lines.append(f"{', '.join(labels)}: {victims[0].failure}")
    return lines


def warnings_of(reports: Iterable[VMReport]) -> list[str]:
    """Return the warnings about VMs. If the same is true of several VMs, one warning lists them."""
    alike: dict[str, tuple[str, list[str]]] = {}
    for report in reports:
        label = report.job.entry.label
        for text in report.warnings:
            alike.setdefault(text.removeprefix(label), (text, []))[1].append(label)
    return [
        f"{text.removesuffix('.')}. The same applies to {', '.join(first(others, LABELS_TOLD))}." if others else text
        for text, (_first, *others) in alike.values()
    ]


def _interruption(reports: Sequence[VMReport]) -> str:
    """Return what an interrupted run has done, what was under way, and what it did not begin."""
    groups: dict[str, list[str]] = {"done": [], "under way": [], "not begun": []}
    for report in reports:
        error = report.job.error
        if error is None:
            groups["done"].append(report.job.entry.label)
        elif isinstance(error, Interrupted):
            begun = bool(report.actions) or error.upid is not None or isinstance(report.job.bound, Unknown)
            where = f" ({report.failure})" if begun else ""
            groups["under way" if begun else "not begun"].append(report.job.entry.label + where)
    told = [f"{what}: {', '.join(first(labels, LABELS_TOLD))}" for what, labels in groups.items() if labels]
    return "; ".join(["interrupted", *told])


def _host_facts(report: VMReport) -> dict[str, t.Any]:
    """Return C(name), C(groups) and C(vars) of the inventory host that a VM becomes. The name is that of the task, None
    if it names a VMID only: the owner of an existing VM can give it the name of any host.

    The variables are ansible_user and ansible_host, from ciuser and the first static address where the VM can be
    reached now, and those of host_vars, which take precedence.
    """
    job, plan = report.job, report.job.plan
    entry, options = job.entry, dict(job.request.options)
    if plan is not None:
        # A running VM reads some values later, and keeps others without an update.
        kept = {} if {"update", "finish"} & set(report.actions) else report.drift
        later = {**report.pending, **(plan.unread if report.actions else {}), **kept}
        options.update((key, later[key]["old"] or "") for key in later.keys() & options.keys())
    elif job.guest is not None:
        # It could not be compared.
        options = {}
    variables: dict[str, t.Any] = {}
    if options.get("ciuser"):
        variables["ansible_user"] = options["ciuser"]
    addresses = static_addresses(options)
    if addresses:
        variables["ansible_host"] = str(addresses[0].ip)
    name = entry.request.name or None
    return {"name": name, "groups": list(entry.host_groups), "vars": {**variables, **entry.host_vars}}
