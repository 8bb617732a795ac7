# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The existing VMs of one round of a run: what is done with each of them is planned, and later done."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Sequence
from functools import partial

from ...errors import CollectionError, GuestVanished
from ...model import Guest
from ...proxmox.api.reader import Reader, ReadOnce, ReadWhereTheyAre
from ...proxmox.creations import BeingCreated, Creations
from ..access import Access
from ..births import check_birth, is_begun
from ..job import Job, State
from ..options.run_options import RunOptions
from ..placement import Placement
from ..placing import Placer
from ..stopping import Stop
from .comparison import Checks, Comparison, check_lock
from .growth import check_limits, displaced_slots, is_allowed_storage
from .plan import ExistingPlan

if t.TYPE_CHECKING:
    from ...proxmox.binder import Binder


class ExistingVMs:
    """Plans and changes the existing VMs of one round. May be used from many threads."""

    def __init__(
        self, options: RunOptions, access: Access, placer: Placer, placement: Placement, creations: Creations
    ) -> None:
        self._options = options
        self._access = access
        self._placement = placement
        self._creations = creations
        scheduler = placement.scheduler
        reader = ReadWhereTheyAre(access.reader, placement.seen.real_nodes)
        self._comparison = Comparison(
            reader,
            creations.abandoned,
            placer.addresses,
            placer.device_attributes,
            placement.seen.snapshot.pools,
            Checks(
                partial(check_birth, access.reader, placement.seen.reservations),
                partial(displaced_slots, scheduler),
                partial(is_allowed_storage, scheduler),
                partial(is_begun, placement.seen.reservations),
            ),
        )
        self._reader = reader

    def plan(self, jobs: Sequence[Job], stop: Stop, *, wait: bool) -> None:
        """Plan the changes to these VMs, each from its current config, and fail those that would be refused.

        wait: whether to wait for VMs that others are creating.
        """
        cluster, scheduler = ReadOnce(self._access.reader), self._placement.scheduler
        with stop.threads(self._options.parallel) as pool:
            for future in [pool.submit(self._plan_one, job, cluster, wait=wait) for job in jobs]:
                future.result()
        if any(job.plan is not None and job.plan.clones for job in jobs):
            from .removals import check_clones

            check_clones(jobs, scheduler.cluster.guests.get)
        check_limits(scheduler, jobs, time.time())

    def wait(self, job: Job) -> None:
        """Wait until others have created a VM, or it is gone. A new round then decides what to do."""
        self._plan_one(job, self._access.reader, wait=True)
        if job.plan is not None:
            job.state = State.QUEUED
        elif isinstance(job.error, GuestVanished) and job.may_try_again:
            job.requeue(job.error)

    def carry_out(self, job: Job, plan: ExistingPlan, binder: Binder) -> None:
        """Carry out the plan of a VM, and note the outcome in its job."""
        # Not imported by a run that changes nothing.
        from .converger import Converger

        job.carried = Converger(self._reader, self._comparison).carry_out(plan, binder, self._options.shutdown)
        if job.carried.error is not None:
            job.fail(job.carried.error)
            return
        job.state = State.DONE
        if "delete" in plan.actions:
            try:
                self._access.ledger.forget(self._access.identity(), [plan.guest.vmid])
            except CollectionError as error:
                # The VM is deleted; its entry in the ledger expires.
                job.warn(error.message)

    def _plan_one(self, job: Job, cluster: Reader, *, wait: bool) -> None:
        """Plan the changes to a VM. With wait, first wait until others have created it."""
        guest = t.cast(Guest, job.guest)
        while True:
            try:
                plan = self._comparison.plan(job.entry, guest, cluster)
                if self._options.respects_locks:
                    check_lock(plan)
                    if plan.is_protected:
                        from ...proxmox.lifecycle import check_unprotected

                        check_unprotected(guest.vmid, {"protection": True})
                if self._options.shutdown.force:
                    plan.check_shutdown(self._options.shutdown, self._options.timeout)
                job.plan = plan
            except BeingCreated as error:
                if wait and self._creations.wait(error.guests):
                    continue
                if wait:
                    job.fail(BeingCreated(error.message + self._creations.doubt(error.guests), error.guests))
            except CollectionError as error:
                job.fail(error)
            return
