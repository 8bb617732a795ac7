# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gang: VMs that are placed together or not at all."""

from __future__ import annotations

from ...model import Request
from ..framework.interface import Event, PermitPlugin, Requests
from ..framework.status import WAIT, Status, unschedulable

REASON = "group '{}' could not be placed together"


class Gang(PermitPlugin):
    """Lets the VMs of a C(group) wait for each other: none is placed unless at least C(min_available) of them can be.

    Without C(min_available), all VMs of the group in this run must be placed.
    """

    name = "Gang"
    events = frozenset(Event)
    about = ("gang",)

    def permit(
        self,
        request: Request,
        placed: Requests,
        waiting: Requests,
        failed: Requests,
    ) -> Status | None:
        gang = request.gang
        if gang is None:
            return None
        ready, undecided = placed.in_group(gang.name), waiting.in_group(gang.name)
        needed = gang.min_available or ready + undecided + failed.in_group(gang.name)
        if ready >= needed:
            return None
        possible = ready + undecided
        if possible >= needed:
            return WAIT
        return unschedulable(REASON.format(gang.name), f"it needs {needed} VMs, and only {possible} could be placed")
