# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MemoryOvercommit: a limit to the memory given out per node."""

from __future__ import annotations

import typing as t
from collections.abc import Hashable, Mapping

from ....model import GIB, MIB, Request
from ...cache import NodeInfo
from ...framework.config import Setting
from ...framework.cycle_state import CycleState
from ...framework.interface import FilterPlugin
from ...framework.status import Shortage, Status, unresolvable, unschedulable
from ...overcommit import COMMON_SETTINGS, Ratios, within

REASON = "would exceed the memory overcommit ratio {}"


class MemoryOvercommit(FilterPlugin):
    """Rejects a node when (memory of its running guests + the request's) / (its memory - reserved) exceeds the ratio, 1
    by default.

    The configured memory counts, not what a guest uses at the moment. VMs, containers and what this run has decided
    already count. C(nodes) may give a node its own ratio and reserve. A VM that even the empty node could not hold is
    not waited for.
    """

    name = "MemoryOvercommit"
    settings = {
        "ratio": Setting("float", 1.0, "bytes that may be given out per byte of memory", minimum=0),
        "reserved": Setting("float", 0.0, "MiB kept for the host", minimum=0),
        **COMMON_SETTINGS,
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.ratios = Ratios(self.name, config)
        self.reserved = int(config["reserved"] * MIB)
        self.include_stopped: bool = config["include_stopped"]

    def signature(self, request: Request) -> Hashable:
        return request.memory, self.ratios.signature(request)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        host = node.node
        reserved = self.reserved if host.reserved_memory is None else host.reserved_memory
        ratio = self.ratios.ratio(request, host.memory_ratio)
        wanted = (node.memory_all if self.include_stopped else node.memory) + request.memory
        capacity = host.memory - reserved
        if within(wanted, capacity, ratio):
            return None
        limit = ratio * capacity
        # A node whose size is not known, as it is offline, may be large enough.
        refused = unschedulable if not host.memory or within(request.memory, capacity, ratio) else unresolvable
        return refused(
            REASON.format(ratio),
            f"{wanted / GIB:.1f} GiB against a limit of {max(limit, 0) / GIB:.1f} GiB",
            Shortage("memory", wanted - limit),
        )
