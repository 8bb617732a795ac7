# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SchedulingGates: VMs that are not to be looked at yet."""

from __future__ import annotations

from ....model import Request
from ...framework.config import Setting
from ...framework.interface import PreEnqueuePlugin
from ...framework.status import Status, unresolvable

REASON = "waits for scheduling gate(s) {}"


class SchedulingGates(PreEnqueuePlugin):
    """Holds back a VM that has C(scheduling_gates) until all of them are open.

    A gate is open if C(open) lists it; the run's option C(open_gates) sets C(open). No gate opens during a run.
    """

    name = "SchedulingGates"
    about = ("scheduling_gates",)
    settings = {"open": Setting("list", [], "names of the gates that are open")}

    def pre_enqueue(self, request: Request) -> Status | None:
        closed = [gate for gate in request.scheduling_gates if gate not in self.config["open"]]
        return unresolvable(REASON.format(", ".join(closed))) if closed else None
