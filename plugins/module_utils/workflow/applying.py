# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carrying out a plan of VMs exactly: the requests are held to its decisions, and what else comes out is refused.

The run decides as always, but each new VM may only go where the plan says. Before anything is written, what the run is
about to do is compared with the plan. A plan that was carried out in part is completed.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..engine.texts import shorten
from ..errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    LedgerUnavailable,
    MissingLibrary,
    PermissionDenied,
    PlanStale,
    PluginFailed,
    SchedulingGated,
)
from ..model import Disk, Guest, Identity, Request
from ..proxmox.creations import BeingCreated
from ..proxmox.identity import Sameness, compare, guest_label
from ..proxmox.options.drives import Drive
from ..proxmox.options.request import vm_request
from ..reservations.ledger import AlreadyReserved
from .existing.plan import STATUS_AFTER
from .job import Job
from .options.entries import Entry
from .options.source_options import Backup
from .options.task import ABSENT, Series
from .vm_plan import FINISH, VM, Change, PlannedVM, VMPlan, as_document, planned_vm, requested_options

NO_CHANGE = (
    AlreadyReserved,
    AuthenticationFailed,
    BeingCreated,
    ConnectionFailed,
    LedgerUnavailable,
    MissingLibrary,
    PermissionDenied,
    PluginFailed,
    SchedulingGated,
)
"""Errors that do not mean that the cluster has changed since the plan."""


class Approved:
    """A plan that a run is held to.

    Attributes:
        plan, document: the plan, as it was read.
    """

    def __init__(self, plan: VMPlan) -> None:
        self.document = as_document(plan)
        self.plan = plan
        self._by_key = {key: vm for vm in plan.vms for key in (vm.name, vm.vmid, (vm.name, vm.node)) if key}

    def hold(self, entries: Sequence[Entry], series: Collection[Series]) -> list[Entry]:
        """Return the entries with the decisions of the plan, and those that remove VMs beyond a count.

        series are the entries of the task that have a count, whose guards hold for these VMs. Raises InvalidRequest
        when the plan was made for other requests.
        """
        held = []
        planned = [vm for vm in self.plan.vms if vm.request is not None]
        for entry in entries:
            vm = self._of(entry)
            if vm is None or vm not in planned:
                raise InvalidRequest(f"apply: {entry.label} is not in the plan, which was made for other VMs")
            planned.remove(vm)
            _check_request(vm, requested_options(entry) or {})
            held.append(_hold(entry, vm))
        for vm in (vm for vm in self.plan.vms if vm.request is None):
            owner = next((each for each in series if each.surplus == ABSENT and each.numbers(vm.name)), None)
            if owner is None:
                planned.append(vm)
            else:
                request = vm_request({"name": vm.name, "vmid": vm.vmid})
                held.append(Entry(len(held), request, ABSENT, guard=owner.guard))
        if planned:
            raise InvalidRequest(f"apply: {planned[0].label} is in the plan, but not in this task")
        return held

    def check_cluster(self, cluster: str) -> None:
        """Raise PlanStale if the plan was made for another cluster."""
        planned = self.plan.premises.cluster
        if planned and planned != cluster:
            changed = f"it was made for cluster {planned}, and this is {cluster}"
            raise PlanStale(f"apply: the cluster is not as planned: {changed}", changed=[changed])

    def objection(self, job: Job, is_own: Callable[[Guest, Identity], bool]) -> PlanStale | None:
        """Return why the run must not carry out a job; None if it is what the plan says, or the rest of that.

        is_own tells whether a VM is proved to be one that a run has created.
        """
        planned = self._of(job.entry)
        if planned is None or isinstance(job.error, NO_CHANGE):
            return None
        if job.error is not None:
            changed = [job.error.message]
        else:
            changed = list(deviations(planned, planned_vm(job)))
            changed += _drives_elsewhere(planned, job)
            changed += () if changed else _describe_unproved(planned, job, is_own)
        if not changed:
            return None
        return PlanStale(f"{job.entry.label} is not as planned: {'; '.join(changed)}", changed=changed)

    def _of(self, entry: Entry) -> PlannedVM | None:
        request = entry.request
        if request.per_node:
            return self._by_key.get((request.name, request.node))
        return self._by_key.get(request.name or request.vmid or 0)


# --- the requests -----------------------------------------------------------------------------------------------------


def _check_request(planned: PlannedVM, asked: Mapping[str, t.Any]) -> None:
    """Raise InvalidRequest if a VM's options are not those for which the plan was made."""
    before = planned.request or {}
    for option in sorted({*before, *asked}):
        if before.get(option) != asked.get(option):
            raise InvalidRequest(
                f"apply: {option} of {planned.label} is {_as_text(asked.get(option))}, but the plan was made for "
                f"{_as_text(before.get(option))}; make the plan again",
                option=option,
            )


def _hold(entry: Entry, planned: PlannedVM) -> Entry:
    """Return the entry, restricted so that the scheduler can only decide as planned."""
    request = entry.request
    if planned.vmid is not None:
        request = replace(request, vmid=planned.vmid)
    if not planned.is_new:
        return replace(entry, request=_with_drives(request, planned.storages))
    cards = {key: text for key, text in planned.addresses.items() if key.startswith("ipconfig")}
    if cards.keys() != entry.addresses.keys() or planned.addresses.keys() & request.options.keys():
        raise InvalidRequest(
            f"apply: the addresses of {planned.label} differ from those in the task; make the plan again"
        )
    disks = [replace(each, storage=each.storage or planned.storages.get(each.slot)) for each in request.disks]
    if entry.clone is not None:
        # A drive that a clone has from its template need not be in the task.
        given = {disk.slot for disk in disks}
        disks += [Disk(slot, storage=storage) for slot, storage in planned.storages.items() if slot not in given]
    request = replace(
        request,
        node=planned.node,
        disks=tuple(disks),
        options={**request.options, **planned.addresses},
        addresses=cards,
    )
    backup = _planned_backup(entry, planned)
    return replace(entry, request=request, addresses={}, backup=backup, planned_why=planned.why)


def _planned_backup(entry: Entry, planned: PlannedVM) -> Backup | None:
    """Return the planned backup, with its disks on the planned storage if the task names none."""
    if entry.backup is None:
        return None
    named = {disk.slot for disk in entry.request.disks}
    chosen = next((storage for slot, storage in planned.storages.items() if slot not in named), None)
    return replace(entry.backup, volume=planned.archive, storage=entry.backup.storage or chosen)


def _with_drives(request: Request, storages: Mapping[str, str]) -> Request:
    """Return the request with new drives on these storages, by slot."""
    drives = {
        slot: replace(drive, storage=storages[slot])
        for slot, drive in request.options.items()
        if slot in storages and isinstance(drive, Drive) and drive.storage is None
    }
    return replace(request, options={**request.options, **drives})


# --- what changed -----------------------------------------------------------------------------------------------------


def deviations(planned: PlannedVM, now: PlannedVM) -> Iterator[str]:
    """Yield the deviations from the plan, as sentence parts."""
    made = planned.is_new and not now.is_new
    if not (now.actions or made):
        return
    if now.is_new and not planned.is_new:
        yield f"it is absent, planned {_place(planned)}"
        return
    if (now.vmid, now.node) != (planned.vmid, planned.node) and (now.actions or now.vmid != planned.vmid):
        yield f"it is {_place(now)}, planned {_place(planned)}"
        return
    if not (made or now.is_new) and (stranger := _stranger(planned.identity, now.identity)):
        yield stranger
        return
    for action in now.actions:
        if action not in planned.actions and not (made and action == FINISH):
            yield f"{action} is not planned"
    if now.is_new:
        yield from _decision_departures(planned, now)
        return
    possible = {planned.status, *(STATUS_AFTER[each] for each in planned.actions if each in STATUS_AFTER)}
    if now.actions and not made and now.status not in possible:
        yield f"it is {now.status}, planned when it was {planned.status}"
    if FINISH not in now.actions:
        yield from _change_departures(planned.changes, now.changes)
    if "reboot" in now.actions:
        yield from _pending_departures({**planned.pending, **planned.changes}, now.pending)


def _decision_departures(planned: PlannedVM, now: PlannedVM) -> Iterator[str]:
    """Yield what would be decided in another way than planned, as sentences."""
    for what in ("storages", "devices", "template", "archive"):
        wanted, found = getattr(planned, what), getattr(now, what)
        if what == "template" and wanted == found and wanted is not None:
            stranger = _stranger(wanted.identity, found.identity)
            if stranger:
                yield f"template {wanted.vmid} on {wanted.node}: {stranger}"
        if wanted != found:
            shown = [_as_text(VM[what].write(value)) for value in (found, wanted)]
            yield f"{what} would be {shown[0]}, planned {shown[1]}"


def _stranger(planned: Identity | None, now: Identity | None) -> str | None:
    """Return the sentence part about a guest that is not, or may not be, the planned one; None if it is."""
    if planned is None and now is None:
        # The plan makes it.
        return None
    if planned is None or now is None:
        return "it is not known which guest was planned"
    sameness = compare(planned, now)
    if sameness is Sameness.SAME:
        return None
    other = f"planned {guest_label(planned)}, found {guest_label(now)}"
    return f"another guest has its VMID: {other}" if sameness is Sameness.OTHER else f"it may be another guest: {other}"


def _change_departures(planned: Mapping[str, Change], now: Mapping[str, Change]) -> Iterator[str]:
    """Yield which changes of a VM would be others than planned, as sentences."""
    for key, change in sorted(now.items()):
        before = planned.get(key)
        if before is None:
            yield f"{key} is {_as_text(change.old)}, planned {_as_text(change.new)}"
        elif before != change:
            yield (
                f"{key} would change from {_as_text(change.old)} to {_as_text(change.new)}, planned from "
                f"{_as_text(before.old)} to {_as_text(before.new)}"
            )


def _pending_departures(planned: Mapping[str, Change], now: Mapping[str, Change]) -> Iterator[str]:
    for key, change in sorted(now.items()):
        if key not in planned or planned[key].new != change.new:
            yield f"{key} waits for the reboot with {_as_text(change.new)}, which is not planned"


def _drives_elsewhere(planned: PlannedVM, job: Job) -> Iterator[str]:
    """Yield the drives of a meanwhile created VM that are not on the planned storages."""
    if not planned.is_new or job.plan is None:
        return
    for slot, storage in sorted(planned.storages.items()):
        volume = str(job.plan.config.get(slot, ""))
        if volume and not volume.startswith(f"{storage}:"):
            yield f"{slot} is {volume.partition(',')[0]}, planned on {storage}"


def _describe_unproved(planned: PlannedVM, job: Job, is_own: Callable[[Guest, Identity], bool]) -> Iterator[str]:
    """Say that a meanwhile created VM may be that of another user. Its name and its notes prove nothing."""
    plan = job.plan
    if not planned.is_new or plan is None or not plan.actions:
        return
    if plan.identity is None or not is_own(plan.guest, plan.identity):
        yield (
            f"{_place(planned)}, there is a VM of that name already, which would have to {' and '.join(plan.actions)}, "
            "and the ledger does not prove that a run with this plan has created it"
        )


def _place(vm: PlannedVM) -> str:
    return "absent" if vm.node is None else f"on {vm.node} as {vm.vmid}"


def _as_text(value: t.Any) -> str:
    return "unset" if value is None else shorten(str(value))
