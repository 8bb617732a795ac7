# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gang: VMs that are placed together or not at all."""

from __future__ import annotations

from collections.abc import Collection

from ....model import Request
from ...framework.interface import Event, PermitPlugin
from ...framework.status import WAIT, Status, unschedulable

REASON = "group '{}' could not be placed together"


class Gang(PermitPlugin):
    """Lets the VMs of a C(group) wait for each other: they are placed when at least C(min_available) of them are, and
    else none is.

    Without C(min_available) all of the run's VMs that name the group are needed.
    """

    name = "Gang"
    events = frozenset(Event)

    def permit(
        self,
        request: Request,
        placed: Collection[Request],
        waiting: Collection[Request],
        failed: Collection[Request],
    ) -> Status | None:
        gang = request.gang
        if gang is None:
            return None
        ready = members(gang.name, placed)
        needed = gang.min_available or ready + members(gang.name, waiting) + members(gang.name, failed)
        if ready >= needed:
            return None
        possible = ready + members(gang.name, waiting)
        if possible >= needed:
            return WAIT
        return unschedulable(REASON.format(gang.name), f"it needs {needed} VMs, and only {possible} could be placed")


def members(name: str, requests: Collection[Request]) -> int:
    """How many of the requests belong to the group."""
    return sum(request.gang is not None and request.gang.name == name for request in requests)
