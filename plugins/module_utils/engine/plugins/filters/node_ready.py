# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeReady: nodes that are up, not being emptied, and of a known size."""

from __future__ import annotations

from collections.abc import Hashable

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PerNode
from ...framework.status import Category, Status, unschedulable

OFFLINE = "were offline"
MAINTENANCE = "were in HA maintenance"
DRAINED = "were drained"
NO_SIZE = "showed no CPU and memory sizes: the user needs Sys.Audit on /nodes"


class NodeReady(PerNode, FilterPlugin):
    """Rejects nodes that are offline, nodes in HA maintenance (Proxmox itself would accept a VM there), nodes that
    C(node_drain) keeps free of guests, and nodes whose size Proxmox does not show to this user.
    """

    name = "NodeReady"
    category = Category.PLACEMENT
    events = frozenset({Event.NODE})

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        if not node.node.online:
            return unschedulable(OFFLINE)
        if node.node.maintenance:
            return unschedulable(MAINTENANCE)
        if node.node.drained:
            return unschedulable(DRAINED)
        # A node that has just booted shows no size either, for some seconds.
        return None if node.node.memory else unschedulable(NO_SIZE)
