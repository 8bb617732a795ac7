# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins of the scheduling queue: the order of the VMs, and what holds a VM back."""

from __future__ import annotations

import math
import typing as t

from ...errors import InvalidRequest
from ...model import Request
from ..cache import ClusterState
from ..framework.interface import CycleState, PreEnqueuePlugin, PreFilterPlugin, QueueSortPlugin, Setting
from ..framework.status import Code, Status, unresolvable

PACKED, AS_GIVEN = "packed", "as_given"


class PrioritySort(QueueSortPlugin):
    """Places VMs with a higher C(priority) first and, of VMs with the same priority, the largest first.

    The default priority is 0. The size of a VM is its dominant share: of CPU or memory, whichever is the larger part of
    what the cluster may allocate. VMs that must share a node count as one. VMs of one size keep the order of the task.
    """

    name = "PrioritySort"
    settings = {
        "order": Setting(
            "str",
            PACKED,
            "the order of VMs with the same priority: C(packed) for the largest first, C(as_given) for the order of "
            "the task",
            choices=(PACKED, AS_GIVEN),
        )
    }

    @property
    def packs(self) -> bool:
        packed: bool = self.config["order"] == PACKED
        return packed

    def sort_key(self, request: Request, arrival: int) -> t.Any:
        return -request.priority, arrival


GATED = "waits for scheduling gate(s) {}"


class SchedulingGates(PreEnqueuePlugin):
    """Holds back a VM that has C(scheduling_gates) until all of them are open.

    A gate is open if C(open) lists it; the run's option C(open_gates) sets C(open). No gate opens during a run.
    """

    name = "SchedulingGates"
    about = ("scheduling_gates",)
    settings = {"open": Setting("list", [], "names of the gates that are open")}

    def pre_enqueue(self, request: Request) -> Status | None:
        closed = [gate for gate in request.scheduling_gates if gate not in self.config["open"]]
        return unresolvable(GATED.format(", ".join(closed))) if closed else None


DELAY_KEY = "delay"
DELAYED = "had to wait for the delay of {:g} s"


class Delay(PreFilterPlugin):
    """Holds back a VM whose context has C(delay) until that many seconds have passed since the request was made.

    If C(wait_for_capacity) is long enough, the run places the VM when the delay is over.
    """

    name = "Delay"
    events = frozenset()
    about = ("context",)

    def pre_enqueue(self, request: Request) -> Status | None:
        delay_of(request)
        return None

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        delay = delay_of(request)
        until = request.created + delay
        if now >= until:
            return None
        return Status(Code.UNSCHEDULABLE, DELAYED.format(delay), f"{until - now:.1f} s are left", until=until)


def delay_of(request: Request) -> float:
    """Return the delay in seconds; 0 when the request gives none. Raises InvalidRequest."""
    text = request.context.get(DELAY_KEY) or "0"
    try:
        delay = float(text)
    except ValueError:
        delay = math.nan
    if not 0 <= delay < math.inf:
        raise InvalidRequest(f"context {DELAY_KEY!r}: expected a number of seconds, got {text!r}")
    return delay
