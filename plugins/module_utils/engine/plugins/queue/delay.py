# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Delay: places VMs some time after they were requested."""

from __future__ import annotations

import math

from ....errors import InvalidRequest
from ....model import Request
from ...cache import ClusterState
from ...framework.cycle_state import CycleState
from ...framework.interface import PreFilterPlugin
from ...framework.status import Code, Status

CONTEXT_KEY = "delay"
REASON = "had to wait for the delay of {:g} s"


class Delay(PreFilterPlugin):
    """Holds back a VM whose context has C(delay) until that many seconds have passed since the request was made.

    If the run may wait so long (C(wait_for_capacity)), it places the VM when the delay is over.
    """

    name = "Delay"
    events = frozenset()
    about = ("context",)

    def pre_enqueue(self, request: Request) -> Status | None:
        wanted(request)
        return None

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        delay = wanted(request)
        until = request.created + delay
        if now >= until:
            return None
        return Status(Code.UNSCHEDULABLE, REASON.format(delay), f"{until - now:.1f} s are left", until=until)


def wanted(request: Request) -> float:
    """The delay in seconds; 0 when the request gives none. Raises InvalidRequest."""
    text = request.context.get(CONTEXT_KEY) or "0"
    try:
        delay = float(text)
    except ValueError:
        delay = math.nan
    if not 0 <= delay < math.inf:
        raise InvalidRequest(f"context {CONTEXT_KEY!r}: expected a number of seconds, got {text!r}")
    return delay
