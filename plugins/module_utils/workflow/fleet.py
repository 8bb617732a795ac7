# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a list of VMs with the cluster: missing, drifted, pending, unfinished, broken and unmanaged ones."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from itertools import chain

from ..engine.texts import known_names
from ..model import OFF, Guest
from ..proxmox.inventory.snapshot import read_settled
from .access import Access
from .job import Job
from .options.entries import Entry, Guard
from .options.rules import facts_of
from .options.run_options import RunOptions
from .options.task import Task
from .placing import Placer
from .report import VMReport
from .run import Run

if t.TYPE_CHECKING:
    from .clusters.multi_cluster import MultiClusterRun

OK = "ok"
STATES = ("failed", "missing", "unwanted", "unfinished", "drifted", "broken", "pending", OK)
"""The states of a VM of the list, the worst first."""


class Comparisons(t.NamedTuple):
    """The result of the comparison.

    Attributes:
        guests: all guests, if they are needed, each list with its cluster; None in a task about one cluster.
    """

    entries: Sequence[Entry]
    reports: Sequence[VMReport]
    guests: Sequence[tuple[str | None, Sequence[Guest]]]
    doubts: Sequence[str]


def fleet_info(params: Mapping[str, t.Any], per_vm: Iterable[str], now: float) -> dict[str, t.Any]:
    """Return the result of the module. per_vm names the options of one VM.

    Raises InvalidRequest, and what reading the cluster raises.
    """
    task = Task.of(params, per_vm, now)
    entries = [replace(entry, update=False, limits="warn", apply_pending="never") for entry in task.entries]
    task = replace(task, entries=entries)
    options, look_around = RunOptions.to_compare(params), bool(params["unmanaged"] or task.series)
    if params.get("clusters") is None:
        with closing(Access.open(params, facts_of(params.get("nodes")))) as access:
            found = _compare_on_one(access, task, options, look_around=look_around)
    else:
        from .clusters.connections import clusters_of
        from .clusters.multi_cluster import MultiClusterRun

        with closing(MultiClusterRun(options, clusters_of(params), task)) as run:
            found = _compare_on_clusters(run, task, look_around=look_around)
    vms = [_vm(report) for report in found.reports]
    scope = Guard.of(params)
    unmanaged = _unmanaged_vms(found, scope) if params["unmanaged"] else []
    doubts = [*found.doubts, *(_doubts_about_empty_scope(found, scope) if params["unmanaged"] else ())]
    counts = Counter(vm["state"] for vm in vms)
    return {
        "changed": False,
        "clean": not unmanaged and set(counts) <= {OK},
        "summary": {**{state: counts[state] for state in STATES}, "unmanaged": len(unmanaged)},
        "vms": vms,
        "unmanaged": unmanaged,
        "doubts": doubts,
    }


def _compare_on_one(access: Access, task: Task, options: RunOptions, *, look_around: bool) -> Comparisons:
    """Compare the list with one cluster. look_around: whether guests beside those of the list are needed."""
    read = cache(partial(read_settled, access.reader, patience=0))
    guests = read().guests if look_around else ()
    task, cautions = task.on_each_node(read)
    entries = [*task.entries, *task.surplus(lambda: guests)[0]]
    placer = Placer(access, task)
    run = Run(options, access, placer, [Job(entry) for entry in entries])
    reports = run.execute(check_mode=True)
    of_addresses = () if placer.addresses is None else placer.addresses.doubts
    return Comparisons(entries, reports, [(None, guests)], [*cautions, *of_addresses, *run.warnings])


def _compare_on_clusters(run: MultiClusterRun, task: Task, *, look_around: bool) -> Comparisons:
    guests = run.guests() if look_around else {}
    entries = [*task.entries, *task.surplus(lambda: chain.from_iterable(guests.values()))[0]]
    reports = run.execute(entries, check_mode=True)
    return Comparisons(entries, reports, list(guests.items()), run.warnings)


def _vm(report: VMReport) -> dict[str, t.Any]:
    """Return a VM of the list as the result has it."""
    state = _state(report)
    return {
        **_cluster(report.job.cluster if report.job.guest is not None else None),
        "name": report.name,
        "vmid": report.vmid if report.job.guest is not None else None,
        "node": None if report.job.guest is None else report.job.guest.node,
        "status": _status(report.job),
        "state": state,
        "drift": _differences(report),
        "pending": {key: dict(values) for key, values in report.pending.items()},
        "broken": _violations(report.job),
        "error": None if report.job.error is None else {"code": report.job.error.code, "message": report.failure},
        "actions": list(report.actions),
    }


def _cluster(name: str | None) -> dict[str, str]:
    """Return where a guest is, in tasks about several clusters."""
    return {} if name is None else {"cluster": name}


def _status(job: Job) -> str | None:
    return job.plan.status if job.plan is not None else None if job.guest is None else job.guest.status


def _state(report: VMReport) -> str:
    """Return the state of a VM of the list: the worst that is true of it."""
    job = report.job
    if job.guest is None:
        if job.entry.state == "absent":
            return OK if job.error is None else "failed"
        return "failed" if job.outcome is None else "missing"
    if job.plan is None or job.error is not None:
        return "failed"
    checks = {
        "unwanted": "delete" in job.plan.actions,
        "unfinished": "finish" in job.plan.actions,
        "drifted": bool(_differences(report)),
        "broken": bool(_violations(job)),
        "pending": bool(report.pending),
    }
    return next((state for state, found in checks.items() if found), OK)


def _differences(report: VMReport) -> dict[str, dict[str, t.Any]]:
    """Return the drift, with C(status) if the VM is to run, to be paused or to be stopped, and is not."""
    found = {key: dict(values) for key, values in report.drift.items()}
    plan = report.job.plan
    if plan is not None and plan.status_after not in (plan.status, "absent"):
        found["status"] = {"old": plan.status, "new": plan.status_after}
    return found


def _violations(job: Job) -> list[str]:
    """Return the rules and limits that an existing VM breaks, in sentences."""
    return [] if job.plan is None else list(job.plan.cautions)


def _unmanaged_vms(found: Comparisons, scope: Guard) -> list[dict[str, t.Any]]:
    """Return the VMs in the scope that match no entry. Templates are not included."""
    meant = {(job.cluster, job.guest.vmid) for report in found.reports if (job := report.job).guest is not None}
    return [
        {
            **_cluster(cluster),
            "name": guest.name,
            "vmid": guest.vmid,
            "node": guest.node,
            "status": "stopped" if guest.status in OFF else guest.status,
            "pool": guest.pool,
            "tags": sorted(guest.tags),
        }
        for cluster, guests in found.guests
        for names in [{e.request.name for e in found.entries if not e.clusters or cluster in e.clusters}]
        for guest in sorted(guests, key=lambda guest: guest.vmid)
        if guest.kind == "qemu"
        and not guest.template
        and (cluster, guest.vmid) not in meant
        and guest.name not in names
        and scope.allows(guest)
    ]


def _doubts_about_empty_scope(found: Comparisons, scope: Guard) -> Iterator[str]:
    """Yield the doubts about a pool or tags that no guest has, which may be misspelt."""
    guests = [guest for _cluster, those in found.guests for guest in those]
    pools = {guest.pool for guest in guests if guest.pool is not None}
    if scope.pool is not None and scope.pool not in pools:
        yield f"only_pool: this user sees no guest in pool {scope.pool!r}; known: {known_names(pools, scope.pool)}"
    tags = {tag.lower() for guest in guests for tag in guest.tags}
    for tag in sorted(scope.tags - tags):
        yield f"only_tags: no guest has the tag {tag!r}; known: {known_names(tags, tag)}"
