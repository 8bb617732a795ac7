# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of removals: Proxmox VE does not delete a template on whose disks those of linked clones stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ...engine.texts import first
from ...errors import InvalidRequest
from ...model import Guest
from ..job import Job, group_by_dependency

_TOLD = 10


def group_clones_first(work: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """Return the jobs in groups: clones are removed before their templates."""

    def ready_among(left: Sequence[Job]) -> Sequence[Job]:
        doomed = _removals_by_vmid(left).keys()
        return [job for job in left if job.plan is None or not job.plan.clones & doomed]

    return group_by_dependency(work, ready_among)


def check_clones(jobs: Iterable[Job], guest_of: Callable[[int], Guest | None]) -> None:
    """Refuse to remove templates with linked clones that are not removed as well."""
    doomed = _removals_by_vmid(jobs)
    for job in doomed.values():
        staying = sorted(job.plan.clones - doomed.keys()) if job.plan is not None else []
        if staying and job.plan is not None:
            names = {vmid: guest.name for vmid in staying if (guest := guest_of(vmid)) is not None}
            told = ", ".join(first([f"{names.get(vmid) or 'a VM'} ({vmid})" for vmid in staying], _TOLD))
            guest = job.plan.guest
            job.refuse(
                InvalidRequest(
                    f"{job.entry.label} ({guest.vmid} on {guest.node}) is not removed: it is the template of the "
                    f"linked clones {told}; remove them before it, or in the same task"
                )
            )


def _removals_by_vmid(jobs: Iterable[Job]) -> dict[int, Job]:
    """Return the jobs that remove a VM, by its VMID."""
    return {job.plan.guest.vmid: job for job in jobs if job.plan is not None and "delete" in job.plan.actions}
