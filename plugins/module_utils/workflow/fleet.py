# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A list of VMs against the cluster: what is missing, has drifted, is pending, unfinished, broken or unmanaged."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..model import OFF, Guest
from ..proxmox.snapshot import read_settled
from .access import Access
from .address_book import AddressBook
from .address_pools import parse_pools
from .checks import check_entries
from .counted import Expanded, expand, surplus_entries
from .device_options import device_attributes
from .entries import Entry, build_entries
from .guards import Guard
from .job import Job
from .node_facts import facts_of
from .placing import Placer
from .plugin_config import profiles_of
from .report import VMReport
from .run import Run

OK = "ok"
STATES = ("failed", "missing", "unwanted", "unfinished", "drifted", "broken", "pending", OK)
"""What a VM of the list may be, the worst first."""

READ_ONLY: Mapping[str, t.Any] = {
    "all_or_nothing": False,
    "force": False,
    "parallel_creates": 8,
    "timeout": 600,
    "wait_for_capacity": 0,
}
"""The options of a run that decides and writes nothing."""


def fleet_info(params: Mapping[str, t.Any], per_vm: Iterable[str], now: float) -> dict[str, t.Any]:
    """The result of the module. per_vm names the options of one VM.

    Raises InvalidRequest, and what reading the cluster raises.
    """
    expanded = expand(params["vms"], params)
    built = build_entries({**params, "vms": expanded.vms}, per_vm, now, expanded.origins)
    entries = [replace(entry, update=False, limits="warn", apply_pending="never") for entry in built]
    profiles, profile = profiles_of(params)
    check_entries(entries, profiles, profile)
    attributes = device_attributes(params.get("device_attributes"))
    access = Access.open(params, facts_of(params.get("nodes")))
    try:
        guests = read_settled(access.reader, patience=0).guests if _looks_around(params, expanded) else ()
        removals, _kept = surplus_entries(expanded.series, entries, guests)
        entries += removals
        book = AddressBook(parse_pools(params["address_pools"]), access.reader)
        placer = Placer(access, profiles, profile, attributes, book)
        run = Run({**params, **READ_ONLY}, access, placer, entries)
        reports = run.execute(check_mode=True)
    finally:
        access.close()
    vms = [_vm(report) for report in reports]
    unmanaged = _unmanaged(guests, entries, reports, Guard.of(params)) if params["unmanaged"] else []
    counts = Counter(vm["state"] for vm in vms)
    return {
        "changed": False,
        "clean": not unmanaged and set(counts) <= {OK},
        "summary": {**{state: counts[state] for state in STATES}, "unmanaged": len(unmanaged)},
        "vms": vms,
        "unmanaged": unmanaged,
        "doubts": [*book.doubts, *run.warnings],
    }


def _looks_around(params: Mapping[str, t.Any], expanded: Expanded) -> bool:
    return bool(params["unmanaged"] or expanded.series)


def _vm(report: VMReport) -> dict[str, t.Any]:
    state = _state(report)
    return {
        "name": report.name,
        "vmid": report.vmid if report.job.guest is not None else None,
        "node": None if report.job.guest is None else report.job.guest.node,
        "status": _status(report.job),
        "state": state,
        "drift": _differences(report),
        "pending": {key: dict(values) for key, values in report.pending.items()},
        "broken": _broken(report.job),
        "error": None if report.error is None else {"code": report.error.code, "message": report.failure},
        "actions": list(report.actions),
    }


def _status(job: Job) -> str | None:
    """The VM's status as it is; None without a VM."""
    return job.plan.status if job.plan is not None else None if job.guest is None else job.guest.status


def _state(report: VMReport) -> str:
    job = report.job
    if job.guest is None:
        placed = job.decision is not None or job.outcome is not None
        if job.entry.state == "absent":
            return OK if job.error is None else "failed"
        return "missing" if placed else "failed"
    if job.plan is None or job.error is not None:
        return "failed"
    checks = {
        "unwanted": "delete" in job.plan.actions,
        "unfinished": "finish" in job.plan.actions,
        "drifted": bool(_differences(report)),
        "broken": bool(_broken(job)),
        "pending": bool(report.pending),
    }
    return next((state for state, found in checks.items() if found), OK)


def _differences(report: VMReport) -> dict[str, dict[str, t.Any]]:
    """The drift, and as C(status) that a VM runs, or does not, against the request."""
    found = {key: dict(values) for key, values in report.drift.items()}
    if "start" in report.actions and report.job.guest is not None:
        found["status"] = {"old": _status(report.job), "new": "running"}
    elif "stop" in report.actions:
        found["status"] = {"old": _status(report.job), "new": "stopped"}
    return found


def _broken(job: Job) -> list[str]:
    """The rules and limits that an existing VM breaks, in sentences."""
    return [] if job.plan is None else list(job.plan.cautions)


def _unmanaged(
    guests: Iterable[Guest], entries: Sequence[Entry], reports: Sequence[VMReport], scope: Guard
) -> list[dict[str, t.Any]]:
    """The VMs in the scope that no entry means. Templates are not among them."""
    vmids = {report.job.guest.vmid for report in reports if report.job.guest is not None}
    names = {entry.request.name for entry in entries}
    return [
        {
            "name": guest.name,
            "vmid": guest.vmid,
            "node": guest.node,
            "status": "stopped" if guest.status in OFF else guest.status,
            "pool": guest.pool,
            "tags": sorted(guest.tags),
        }
        for guest in sorted(guests, key=lambda guest: guest.vmid)
        if guest.kind == "qemu"
        and not guest.template
        and guest.vmid not in vmids
        and guest.name not in names
        and scope.allows(guest)
    ]
