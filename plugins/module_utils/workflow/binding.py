# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The binding cycle: carries out decisions and plans, many at a time, and renews the reservations meanwhile."""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain

from ..errors import CollectionError, ConnectionFailed, TemplateNotFound
from ..model import Decision, Guest, Template
from ..proxmox.api.failures import NodeSilent, NodeUnreachable, VMIDTaken
from ..proxmox.binder import Binder
from ..proxmox.creations import BeingCreated, Creations
from ..proxmox.identity import MARKS
from ..proxmox.making import (
    TEMPLATE,
    Adjust,
    Adjustment,
    Bound,
    Created,
    LeftBehind,
    NotStarted,
    Unknown,
    adjustment_of,
    note_nothing,
)
from ..proxmox.options.drift import clone_adjustments
from ..proxmox.options.request import create_parameters, import_resizes
from ..proxmox.tasks import Poller, TaskFollower
from ..reservations.ledger import Fence, Ledger, ReservationLost
from ..reservations.records import Holder
from .access import Access
from .existing.matching import abandoned_text, is_nameless, nameless_text
from .existing.removals import group_clones_first
from .job import Job, State
from .options.entries import Entry
from .options.run_options import RunOptions
from .own_templates import group_templates_first, read_own_template
from .placement import Lessons, decisions_of
from .stopping import leave_signals_alone

if t.TYPE_CHECKING:
    from .existing.existing_vms import ExistingVMs
    from .options.source_options import Clone


class BindingCycle:
    """Creates the decided VMs of one round, and carries out the plans for existing ones.

    Attributes:
        warnings: those that do not depend on the outcome of a VM.
    """

    def __init__(
        self,
        options: RunOptions,
        access: Access,
        creations: Creations,
        existing: ExistingVMs | None,
    ) -> None:
        """existing are the existing VMs of the round; None if no job is about one."""
        session, stop = access.writer(), access.stop
        self._options = options
        self._access = access
        self._creations = creations
        self._stop = stop
        self._existing = existing
        follower = TaskFollower(session, timeout=options.timeout, poller=Poller(sleep=stop.sleep))
        self._binder = Binder(session, follower)
        # VMIDs whose reservations have to be renewed.
        self._in_progress: set[int] = set()
        # What the threads learn; a set takes one element at a time.
        self._taken: set[int] = set()
        self._unreachable: set[str] = set()
        self.warnings: list[str] = []

    def carry_out(self, jobs: Sequence[Job], lessons: Lessons, report: Callable[[Job, float], None]) -> Lessons:
        """Carry out the decisions and plans of the jobs, many at a time, and return what has been learnt.

        report is called after each job with the seconds that it took.
        """
        access = self._access
        self._in_progress.update(decision.vmid for decision in decisions_of(jobs))
        with (
            keep_alive(access.ledger, access.identity(), self._in_progress, access.holder),
            self._stop.threads(self._options.parallel) as pool,
        ):
            for group in _group_in_order(jobs):
                futures = {pool.submit(self._do, job): job for job in group}
                for future in as_completed(futures):
                    report(futures[future], future.result())
        return replace(
            lessons,
            taken=lessons.taken | self._taken,
            unreachable=lessons.unreachable | self._unreachable,
            abandoned=frozenset(self._creations.abandoned),
        )

    def _do(self, job: Job) -> float:
        """Process one job and return the seconds that it took. Errors are noted in the job."""
        self._stop.check()
        began = time.monotonic()
        if job.state is State.DECIDED and job.decision is not None:
            self._bind(job, job.decision)
        elif self._existing is None:
            raise AssertionError(f"{job.entry.label}: nothing is to be done")
        elif job.plan is not None:
            self._existing.carry_out(job, job.plan, self._binder)
        else:
            self._existing.wait(job)
        return time.monotonic() - began

    def _bind(self, job: Job, decision: Decision) -> None:
        """Create the VM of a reserved decision, and note the outcome in its job.

        The job returns to the queue if the VM turns out to exist, or if nothing was created and another decision is
        possible: its reservation has expired, its node does not answer, or its VMID was taken and was not requested.
        """
        job.bound = None
        try:
            # The name of a new VM is shown only when its config is written: one of these may be the VM, made by others.
            if job.nameless and self._wait_for_names(job.nameless, job):
                self._release(decision.vmid)
                job.state = State.QUEUED
                return
            job.bound = self._create(job.entry, decision)
        except CollectionError as error:
            # Nothing was made.
            self._lose(job, decision, error)
            return
        match job.bound:
            case Created():
                self._note_created(job, job.bound)
            case NotStarted(error=failure) | LeftBehind(error=failure, stub=False):
                # The VM exists. If its node fails now, others learn its name only from the reservation.
                with suppress(CollectionError):
                    self._mark_created(decision.vmid)
                job.fail(failure, self._status_of(job.bound.node, decision.vmid))
            case LeftBehind(error=failure) | Unknown(error=(NodeSilent() | NodeUnreachable()) as failure):
                self._lose(job, decision, failure)
            case Unknown(error=failure):
                # The VM may still appear: its reservation counts until it expires or the cluster shows the VM.
                seen = job.bound.begun and not job.bound.goes_on
                job.fail(failure, self._status_of(job.bound.node, decision.vmid) if seen else None)

    def _wait_for_names(self, nameless: Collection[Guest], job: Job) -> bool:
        """Wait until the nameless guests have names, or are gone or abandoned. Returns whether one is the VM."""
        creations, awaited = self._creations, {guest.vmid for guest in nameless}
        while awaited:
            guests = [guest for guest in self._access.read(patience=0).guests if guest.vmid in awaited]
            asked = job.entry.request
            if any(guest.name == asked.name and (not asked.per_node or guest.node == asked.node) for guest in guests):
                return True
            left = [guest for guest in guests if is_nameless(guest) and guest.vmid not in creations.abandoned]
            if not left:
                self.warnings.extend(abandoned_text(guest) for guest in guests if guest.vmid in creations.abandoned)
                break
            if not creations.wait(left):
                text = f"{job.entry.label}: {nameless_text(left)}; run again later{creations.doubt(left)}"
                raise BeingCreated(text, left)
        return False

    def _lose(self, job: Job, decision: Decision, error: CollectionError) -> None:
        """Return a job whose decision failed to the queue if another one is possible, or else fail the job.

        If its node is silent, the VM keeps its VMID: should the node create it after all, Proxmox refuses to create a
        second one.
        """
        self._release(decision.vmid)
        # A template of the run that was not made may be made in the next round.
        lost = (ReservationLost, NodeUnreachable, NodeSilent, TemplateNotFound)
        again = job.entry.request.vmid is None if isinstance(error, VMIDTaken) else isinstance(error, lost)
        left = job.bound if isinstance(job.bound, LeftBehind) else None
        if not (again and job.may_try_again):
            job.fail(error, self._status_of(left.node, left.vmid) if left else None)
            return
        if isinstance(error, VMIDTaken):
            self._taken.add(error.vmid)
            if left:
                self.warnings.append(f"{job.entry.label}: {left.message}")
        elif isinstance(error, ConnectionFailed):
            clone = decision.request.clone
            node = decision.node if clone is None else _template_of(decision, clone.templates).node
            # A clone begins on its template's node, also if it ends on another one.
            self._unreachable.add(node)
            job.vmid = decision.vmid
        job.requeue(error)

    def _note_created(self, job: Job, created: Created) -> None:
        """Note in a job that its VM exists, and in the ledger that its reservation is fulfilled."""
        job.state = State.DONE
        job.warn(*created.warnings)
        try:
            self._mark_created(created.vmid)
        except CollectionError as error:
            # The VM exists; its reservation expires by itself.
            job.warn(error.message)

    def _mark_created(self, vmid: int) -> None:
        self._in_progress.discard(vmid)
        self._access.ledger.mark_created(self._access.identity(), [vmid], self._access.holder)

    def _release(self, vmid: int) -> None:
        self._in_progress.discard(vmid)
        # The VM's own error matters more; the reservation expires by itself.
        with suppress(CollectionError):
            self._access.ledger.release(self._access.identity(), [vmid], self._access.holder)

    def _status_of(self, node: str, vmid: int) -> str | None:
        """Return the VM's status; None when it is unknown, or there is no such VM."""
        with suppress(CollectionError):
            answer: t.Mapping[str, t.Any] = self._access.reader.get(f"/nodes/{node}/qemu/{vmid}/status/current")
            return str(answer["status"])
        return None

    def _create(self, entry: Entry, decision: Decision) -> Bound:
        """Create, clone or restore a VM, and return the outcome."""
        fence = Fence(self._access.ledger, self._access.identity(), decision.vmid, self._access.holder)
        fence.mark_binding()
        request = decision.request
        # A VM that gets other marks of creation afterwards is not known by those that it has first.
        note = note_nothing if request.options.keys() & MARKS else fence.note_birth
        clone, archive = request.clone, request.archive
        if archive is not None:
            from .archives import options_after_restore, restore_parameters

            left = options_after_restore(request)
            parameters = restore_parameters(decision, archive)
            adjust = _adjustment_for(left, decision, {}) if left else None
            return self._binder.restore(decision, archive, parameters, adjust, fence=fence.check, note=note)
        if entry.clone is None or clone is None:
            parameters = create_parameters(request, decision)
            # The disks of a template are read-only: the binder converts the VM when nothing else is left to do.
            parameters.pop(TEMPLATE, None)
            return self._binder.create(decision, parameters, import_resizes(request), fence=fence.check, note=note)
        template = _template_of(decision, clone.templates)
        if template.identity is None:
            template = read_own_template(self._access.reader, template)
        devices = {device.option: device.value for device in decision.devices}
        moved = {slot for slot, storage, _size in template.volumes if _lands_elsewhere(decision, slot, storage)}
        adjust = _adjustment_for(request.options, decision, devices) if request.options or devices or moved else None
        parameters = _clone_parameters(entry, entry.clone, decision)
        return self._binder.clone(decision, template, parameters, adjust, fence=fence.check, note=note)


def _group_in_order(jobs: Sequence[Job]) -> Iterable[Sequence[Job]]:
    """Return the jobs in groups, one after the other: templates are made before their clones, and removed after them.
    """
    groups: Iterable[Sequence[Job]] = [jobs]
    templates = [job.decision.template for job in jobs if job.decision is not None]
    # One without an identity is made by this run.
    if any(template is not None and template.identity is None for template in templates):
        groups = group_templates_first(jobs)
    if any(job.plan is not None and job.plan.clones for job in jobs):
        groups = chain.from_iterable(map(group_clones_first, groups))
    return groups


@contextmanager
def keep_alive(ledger: Ledger, cluster: str, vmids: Collection[int], holder: Holder) -> Iterator[None]:
    """Renew the reservations of vmids, a collection that may change meanwhile, until the block ends."""
    ended = threading.Event()

    def renew() -> None:
        leave_signals_alone()
        while not ended.wait(ledger.durations.renewal):
            # A reservation lasts for several renewal periods, so the next renewal makes up for one that fails.
            with suppress(CollectionError):
                ledger.renew(cluster, list(vmids), holder)

    thread = threading.Thread(target=renew, name="renew reservations", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _adjustment_for(options: Mapping[str, t.Any], decision: Decision, devices: Mapping[str, str]) -> Adjust:
    """Return the function that computes the changes from the config of a new VM to the requested one."""

    def adjust(config: Mapping[str, t.Any]) -> Adjustment:
        return adjustment_of(clone_adjustments(options, config, storages=decision.storages, devices=devices))

    return adjust


def _template_of(decision: Decision, templates: Sequence[Template]) -> Template:
    """Return the template to clone: the chosen one; if no plugin chooses one, that on the node, or else the first."""
    own = (template for template in templates if template.node == decision.node)
    return decision.template or next(own, templates[0])


def _lands_elsewhere(decision: Decision, slot: str, storage: str) -> bool:
    """Whether a drive of a clone is not made where it is to be. storage is that of the template's."""
    return decision.storages.get(slot, storage) != (decision.landing or storage)


def _clone_parameters(entry: Entry, clone: Clone, decision: Decision) -> dict[str, t.Any]:
    """Return the API parameters of a clone."""
    parameters: dict[str, t.Any] = {"snapname": clone.snapname, "pool": entry.request.pool}
    if clone.full:
        # If no plugin chooses storages, the task does.
        landing = decision.landing if decision.storages else clone.storage
        parameters.update(full=1, storage=landing, format=clone.format)
    else:
        parameters["full"] = 0
    return {key: value for key, value in parameters.items() if value is not None}
