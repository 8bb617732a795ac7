# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run reports about its VMs and about the nodes. Reports of VMs are views of their jobs, made on demand."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..engine.cache import ClusterState, NodeInfo
from ..engine.profiles import Profile
from ..model import GIB, MIB, Decision, Guest
from ..proxmox.making import LeftBehind, NotStarted, Unknown
from ..proxmox.options.request import create_parameters
from ..proxmox.options.table import conversion_of
from .job import Job, State

if t.TYPE_CHECKING:
    from .existing.plan import ExistingPlan


KNOWN = frozenset({"running", "stopped", "paused"})
"""The statuses of a VM in the cluster's list. Other values mean that the status is not known."""


@dataclass(slots=True)
class VMReport:
    """What happened to one VM, or would happen in check mode: a view of its job.

    Attributes:
        actions: create, clone, restore, finish, update, start, stop, reboot, delete: those planned, after the run those
            done.
        not_done: planned actions that were not done because this VM failed, or another one that held it back.
        node, vmid, status: as they are after the run; None while there is no VM.
        storages: the storage of each drive by slot, for a VM that was placed in this run.
        drift: C(old) and C(new) of each parameter that differs from the request.
        pending: C(old) and C(new) of each parameter whose new value takes effect after the VM is stopped and started.
        before, after: the VM for --diff; None where it does not exist.
    """

    job: Job
    actions: list[str] = field(default_factory=list)
    not_done: list[str] = field(default_factory=list)
    node: str | None = None
    vmid: int | None = None
    status: str | None = None
    storages: Mapping[str, str] = field(default_factory=dict)
    drift: Mapping[str, Mapping[str, t.Any]] = field(default_factory=dict)
    pending: Mapping[str, Mapping[str, t.Any]] = field(default_factory=dict)
    before: Mapping[str, t.Any] | None = None
    after: Mapping[str, t.Any] | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str | None:
        """The VM's name, as requested or found."""
        guest = self.job.guest
        return self.job.entry.request.name or (None if guest is None else guest.name)

    @property
    def failure(self) -> str | None:
        """Why it failed, and how long the run waited for that to change."""
        error, bound = self.job.error, self.job.bound
        if error is None:
            return None
        message = bound.message if isinstance(bound, LeftBehind) and bound.error is error else error.message
        if self.job.outcome is not None and self.job.outcome.exhausted:
            message = f"{message}; the search for places of all VMs ended at search_time"
        if self.job.advice is not None:
            message = f"{message}; {self.job.advice}"
        if self.job.hopeless:
            return f"{message}; not retried, as no cluster change can make it fit"
        return f"{message}; gave up after {self.job.waited:.0f} s" if self.job.waited >= 1 else message

    def end_with(self, done: Sequence[str], status: str | None) -> None:
        """Note that only these actions were done, and the VM's status after them."""
        self.not_done = [action for action in self.actions if action not in done]
        self.actions, self.status = list(done), status


def report_of(job: Job) -> VMReport:
    """Return the report of a VM at the current state of its job."""
    guest = job.guest
    if job.plan is not None:
        report = _report_of_existing(job, job.plan)
    elif guest is not None:
        report = VMReport(job, node=guest.node, vmid=guest.vmid, status=job.status)
    elif job.decision is not None:
        report = _report_of_new(job, job.decision)
    else:
        report = VMReport(job, status="absent" if job.error is None or job.outcome is not None else None)
    report.warnings.extend(job.warnings)
    if job.held_back and guest is not None:
        status = guest.status if report.before is None else report.before["status"]
        report.end_with([], status if status in KNOWN else None)
        report.node, report.after = guest.node, report.before
    elif job.held_back and report.actions:
        _report_not_created(report)
    return report


def _report_of_new(job: Job, decision: Decision) -> VMReport:
    """Return the report of a VM that was decided in this run."""
    request, bound = decision.request, job.bound
    made = "restore" if request.archive else "create" if job.entry.clone is None else "clone"
    actions = [made, *(["start"] if request.running else [])]
    status = "running" if request.running else "stopped"
    shown = {key: conversion_of(key).show(value) for key, value in create_parameters(request, decision).items()}
    after = {**decision.storages, **shown, "node": decision.node, "status": status}
    template = decision.template
    if template is not None:
        after["clone"] = f"{template.name} ({template.vmid} on {template.node})"
    if request.archive is not None:
        after["archive"] = request.archive.volume
    node, vmid = (decision.node, decision.vmid) if bound is None else (bound.node, bound.vmid)
    report = VMReport(job, actions, [], node, vmid, status, decision.storages, after=after)
    if isinstance(bound, (NotStarted, LeftBehind, Unknown)):
        begun = [] if isinstance(bound, Unknown) and not bound.begun else actions[:1]
        report.end_with([*begun, "start"] if job.status == "running" else begun, job.status)
        whole = isinstance(bound, NotStarted) and job.status is not None
        report.after = {**after, "status": job.status} if whole else None
    elif job.state is State.FAILED:
        _report_not_created(report)
    return report


def _report_not_created(report: VMReport) -> None:
    """Report that the decided VM was not created."""
    report.end_with([], "absent")
    report.node, report.vmid, report.storages, report.after = None, None, {}, None


def _report_of_existing(job: Job, plan: ExistingPlan) -> VMReport:
    """Return the report of an existing VM: as its plan would leave it or, if that was carried out in part, as it was
    left.
    """
    gone, carried = "delete" in plan.actions, job.carried
    pending = carried.pending if carried is not None and carried.pending is not None else plan.pending_after
    report = VMReport(
        job,
        actions=list(plan.actions),
        node=None if gone else plan.guest.node,
        vmid=plan.guest.vmid,
        status=plan.status_after,
        drift=plan.drift,
        pending=pending,
        before=plan.before,
        after=plan.after,
        warnings=plan.warnings(pending),
    )
    if carried is None:
        return report
    if carried.error is None:
        report.actions = carried.done
        report.node = None if gone else carried.node
        return report
    found = carried.found
    report.node, report.after = plan.guest.node, report.before
    if found is None:
        report.end_with(carried.done, None)
        return report
    changed = plan.has_begun(found)
    done = {
        "finish": changed or "finish" not in found.actions,
        "update": changed,
        "start": found.status == "running" != plan.status,
        "stop": found.status == "stopped" != plan.status,
        "suspend": found.status == "stopped" != plan.status,
        "pause": found.status == "paused" != plan.status,
        "resume": found.status == "running" != plan.status,
    }
    stopped_in_vain = ["stop"] if {"delete", "reboot", "restart"} & set(plan.actions) and done["stop"] else []
    in_force = {key: value for key, value in plan.changes.after.items() if key not in found.changes.changes}
    report.end_with([a for a in plan.actions if a in carried.done or done.get(a)] + stopped_in_vain, found.status)
    report.node, report.after = found.guest.node, {**in_force, **found.before}
    return report


@dataclass(slots=True)
class StorageUsage:
    """One storage of a node, in bytes; what is decided counts as used."""

    shared: bool
    total: int
    before: int
    after: int


@dataclass(slots=True)
class NodeUsage:
    """One node. Memory is in bytes; the limits are the profile's for a VM without pool and tags, None for none.

    guests are those that were there before, without templates. cluster is set where a task is about several.
    """

    node: str
    online: bool
    maintenance: bool
    cores: int
    memory: int
    cores_limit: float | None
    memory_limit: float | None
    cores_before: float
    memory_before: int
    cores_after: float = 0
    memory_after: int = 0
    storages: dict[str, StorageUsage] = field(default_factory=dict)
    guests: tuple[Guest, ...] = ()
    cluster: str | None = None

    def as_result(self, *, with_guests: bool = False) -> dict[str, t.Any]:
        """Return the entry of C(nodes) in the module's result."""
        by_vmid = sorted(self.guests, key=lambda guest: guest.vmid) if with_guests else ()
        guests = {"guests": [_guest(guest) for guest in by_vmid]} if with_guests else {}
        return {
            **({} if self.cluster is None else {"cluster": self.cluster}),
            "node": self.node,
            "online": self.online,
            "maintenance": self.maintenance,
            "cores": self.cores,
            "cores_limit": self.cores_limit,
            "cores_before": self.cores_before,
            "cores_after": self.cores_after,
            "memory": self.memory // MIB,
            "memory_limit": None if self.memory_limit is None else int(self.memory_limit / MIB),
            "memory_before": self.memory_before // MIB,
            "memory_after": self.memory_after // MIB,
            "storages": [
                {
                    "storage": name,
                    "shared": storage.shared,
                    "total": round(storage.total / GIB, 1),
                    "before": round(storage.before / GIB, 1),
                    "after": round(storage.after / GIB, 1),
                }
                for name, storage in sorted(self.storages.items())
            ],
            **guests,
        }


def usage_before(info: NodeInfo, profile: Profile) -> NodeUsage:
    """Return the usage of a node before the run. Only storages that can hold disks are included."""
    host = info.node
    policy = profile.policy
    return NodeUsage(
        node=info.name,
        online=host.online,
        maintenance=host.maintenance,
        cores=host.cores,
        memory=host.memory,
        cores_limit=policy.cpu.allocatable(host) if "cpu" in policy.enforced else None,
        memory_limit=policy.memory.allocatable(host) if "memory" in policy.enforced else None,
        cores_before=info.cores,
        memory_before=info.memory,
        storages={
            name: StorageUsage(storage.use.shared, storage.use.total, used, used)
            for name, storage in info.storages.items()
            if storage.active and "images" in storage.content
            for used in [storage.use.used + storage.use.pending]
        },
        guests=tuple(guest for guest in info.guests if not guest.template),
    )


def note_after(usage: Sequence[NodeUsage], cluster: ClusterState) -> None:
    """Note the usage of the same nodes including the decisions since then."""
    for node, info in zip(usage, cluster.nodes, strict=True):
        node.cores_after, node.memory_after = info.cores, info.memory
        for name, storage in node.storages.items():
            use = info.storages[name].use
            storage.after = use.used + use.pending


def note_change(usage: Sequence[NodeUsage], guest: Guest, actions: Sequence[str]) -> None:
    """Count the CPU and memory that an existing VM releases when it is stopped or deleted.

    The space that the disks of a deleted VM release is not known.
    """
    if not {"stop", "delete"} & set(actions) or not guest.running:
        return
    for node in usage:
        if node.node == guest.node:
            node.cores_after -= guest.cores
            node.memory_after -= guest.memory


def keep_before(earlier: Sequence[NodeUsage], latest: list[NodeUsage]) -> list[NodeUsage]:
    """Return the latest usage, with the values "before" of the earlier one."""
    known = {node.node: node for node in earlier}
    for node in latest:
        if node.node in known:
            first = known[node.node]
            node.guests = first.guests
            node.cores_before, node.memory_before = first.cores_before, first.memory_before
            for name, storage in node.storages.items():
                storage.before = first.storages[name].before if name in first.storages else storage.before
    return latest


def _guest(guest: Guest) -> dict[str, t.Any]:
    """Return a guest as the result lists it."""
    return {
        "vmid": guest.vmid,
        "name": guest.name,
        "type": guest.kind,
        "status": guest.status,
        "cores": guest.cores,
        "memory": guest.memory // MIB,
    }
