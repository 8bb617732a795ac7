# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""FailoverHeadroom: keep enough room free that any one node may fail."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ....model import GIB, MIB, Request
from ...allocatable import Limit
from ...cache import ClusterState, NodeInfo
from ...framework.config import Setting
from ...framework.cycle_state import CycleState
from ...framework.interface import FilterPlugin, PreFilterPlugin
from ...framework.status import Category, Status, unschedulable
from ...texts import vcpus

if t.TYPE_CHECKING:
    from ...headroom import Headroom, Load

REASON = "would leave no headroom for the loss of a node"
NEW = "the new VM"


class FailoverHeadroom(PreFilterPlugin, FilterPlugin):
    """Rejects a node when, with the VM on it, the loss of some node could no longer be absorbed by the others: its
    running guests, largest first, would not all fit in what is left to allocate on the remaining nodes. Off by default.

    Only CPU and memory count. The limits after a loss are those of CPUOvercommit and MemoryOvercommit, unless others
    are given here. If the cluster could not absorb a loss even without the VM, every node is rejected. Nodes in HA
    maintenance, and drained nodes, do not take guests of a lost node.
    """

    name = "FailoverHeadroom"
    category = Category.CAPACITY
    enabled = False
    settings = {
        "cpu_ratio": Setting("float", None, "CPU overcommit ratio after a loss", minimum=0),
        "memory_ratio": Setting("float", None, "memory overcommit ratio after a loss", minimum=0),
        "cpu_reserved": Setting("float", None, "logical CPUs kept for the host", minimum=0),
        "memory_reserved": Setting("float", None, "MiB kept for the host", minimum=0),
    }

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        from ...headroom import Load, Room

        state[self.name] = cluster.kept(self, self._headroom), Load(Room(request.memory, request.cores), NEW)
        return None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        asked: tuple[Headroom, Load] = state[self.name]
        headroom, load = asked
        found = headroom.stranding(node, load)
        if found is None:
            return None
        size = found.guest.size
        return unschedulable(
            REASON,
            f"the loss of {found.lost} would strand {found.guest.label} of {size.memory / GIB:.1f} GiB and "
            f"{vcpus(size.cores)}",
        )

    def _headroom(self, cluster: ClusterState) -> Headroom:
        from ...headroom import Headroom, Limits

        return Headroom(cluster, Limits(self._limit("cpu", 1), self._limit("memory", MIB)))

    def _limit(self, resource: str, unit: int) -> Limit | None:
        """The limit after a loss; None where neither the profile nor this plugin's config sets one."""
        limit: Limit = getattr(self.policy, resource)
        ratio, reserved = self.config[f"{resource}_ratio"], self.config[f"{resource}_reserved"]
        if ratio is None and resource not in self.policy.enforced:
            return None
        return replace(
            limit,
            ratio=limit.ratio if ratio is None else ratio,
            reserved=limit.reserved if reserved is None else reserved * unit,
        )
