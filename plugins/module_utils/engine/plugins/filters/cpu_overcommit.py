# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUOvercommit: a limit to the vCPUs given out per node."""

from __future__ import annotations

import typing as t
from collections.abc import Hashable, Mapping

from ....model import Request
from ...cache import NodeInfo
from ...framework.config import Setting
from ...framework.cycle_state import CycleState
from ...framework.interface import FilterPlugin
from ...framework.status import Shortage, Status, unresolvable, unschedulable
from ...overcommit import COMMON_SETTINGS, Ratios, within
from ...texts import vcpus

REASON = "would exceed the CPU overcommit ratio {}"


class CPUOvercommit(FilterPlugin):
    """Rejects a node when (vCPUs of its running guests + the request's) / (its logical CPUs - reserved) exceeds the
    ratio, 4 by default.

    VMs, containers and what this run has decided already count. C(nodes) may give a node its own ratio and reserve. A
    VM that even the empty node could not hold is not waited for.
    """

    name = "CPUOvercommit"
    settings = {
        "ratio": Setting("float", 4.0, "vCPUs that may be given out per logical CPU", minimum=0),
        "reserved": Setting("float", 0.0, "logical CPUs kept for the host", minimum=0),
        **COMMON_SETTINGS,
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.ratios = Ratios(self.name, config)
        self.reserved: float = config["reserved"]
        self.include_stopped: bool = config["include_stopped"]

    def signature(self, request: Request) -> Hashable:
        return request.cores, self.ratios.signature(request)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        host = node.node
        reserved = self.reserved if host.reserved_cores is None else host.reserved_cores
        ratio = self.ratios.ratio(request, host.cpu_ratio)
        wanted = (node.cores_all if self.include_stopped else node.cores) + request.cores
        capacity = host.cores - reserved
        if within(wanted, capacity, ratio):
            return None
        limit = ratio * capacity
        # A node whose size is not known, as it is offline, may be large enough.
        refused = unschedulable if not host.cores or within(request.cores, capacity, ratio) else unresolvable
        return refused(
            REASON.format(ratio),
            f"{vcpus(wanted)} against a limit of {max(limit, 0):g}",
            Shortage("cpu", wanted - limit),
        )
