# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""FailoverHeadroom: keep enough room free that any one node may fail."""

from __future__ import annotations

import typing as t
from collections.abc import Hashable, Mapping

from ....model import GIB, MIB, Request
from ...cache import ClusterState, NodeInfo
from ...framework.config import Setting
from ...framework.cycle_state import CycleState
from ...framework.interface import FilterPlugin, PreFilterPlugin, Scope
from ...framework.status import Status, unschedulable
from ...headroom import Headroom, Limits, Load, Room
from ...texts import vcpus

REASON = "would leave no headroom for the loss of a node"
NEW = "the new VM"


class FailoverHeadroom(PreFilterPlugin, FilterPlugin):
    """Rejects a node when, with the VM on it, the loss of some node could no longer be absorbed by the others: its
    running guests, largest first, would not all fit in what the remaining nodes may give out. Off by default.

    By CPU and memory; storage does not count. A cluster that could not absorb a loss before takes no VM at all. Nodes
    in HA maintenance take no guests.
    """

    name = "FailoverHeadroom"
    enabled = False
    settings = {
        "cpu_ratio": Setting("float", 4.0, "vCPUs that may be given out per logical CPU after a loss", minimum=0),
        "memory_ratio": Setting("float", 1.0, "bytes that may be given out per byte of memory after a loss", minimum=0),
        "cpu_reserved": Setting("float", 0.0, "logical CPUs kept for the host", minimum=0),
        "memory_reserved": Setting("float", 0.0, "MiB kept for the host", minimum=0),
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.limits = Limits(
            config["cpu_ratio"], config["memory_ratio"], config["cpu_reserved"], config["memory_reserved"] * MIB
        )

    def signature(self, request: Request) -> Hashable:
        return request.cores, request.memory

    def filter_scope(self, request: Request) -> Scope:
        return Scope.CLUSTER

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        state[self.name] = Headroom(cluster, self.limits)
        return None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        headroom: Headroom = state[self.name]
        found = headroom.stranding(node, Load(Room(request.memory, request.cores), NEW))
        if found is None:
            return None
        size = found.guest.size
        return unschedulable(
            REASON,
            f"the loss of {found.lost} would strand {found.guest.label} of {size.memory / GIB:.1f} GiB and "
            f"{vcpus(size.cores)}",
        )
