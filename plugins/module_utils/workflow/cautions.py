# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user should know about new VMs although Proxmox VE will accept them."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ..model import Request
from ..proxmox.options.contradictions import merged
from ..proxmox.options.request import device_cautions, ha_cautions, option_cautions
from .idle_selectors import IdleSelectors
from .job import Job, State
from .options.entries import Entry
from .placement import Placement


def note_cautions(
    jobs: Sequence[Job],
    placement: Placement,
    base_of: Callable[[Request, Entry], Mapping[str, t.Any]],
    requests: Sequence[Request],
) -> None:
    """Note in the jobs what their options lead to, and which rules select no VM.

    base_of returns the config that a new VM is made from; requests are those of the whole run.
    """
    _warn_of_idle_selectors(jobs, placement, requests)
    for job in jobs:
        if job.state is not State.DECIDED or job.decision is None:
            continue
        request = job.decision.request
        job.warn(*ha_cautions(job.decision, placement.snapshot.storages))
        job.warn(*device_cautions(request))
        attached = {device.option: device.value for device in job.decision.devices}
        whole = merged(base_of(request, job.entry), {**request.options, **attached})
        job.warn(*option_cautions(request.options, whole))


def _warn_of_idle_selectors(jobs: Sequence[Job], placement: Placement, requests: Sequence[Request]) -> None:
    ruled = [job for job in jobs if job.decision and (job.asked.affinity or job.asked.topology_spread)]
    if not ruled:
        return
    idle = IdleSelectors(placement.before.guests, requests)
    for job in ruled:
        job.warn(*idle.cautions(job.entry.request))
