# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeName: the node that the request names."""

from __future__ import annotations

from collections.abc import Hashable

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PerNode
from ...framework.status import Category, Status, unresolvable

REASON = "didn't match the requested node name"


class NodeName(PerNode, FilterPlugin):
    """Keeps only the node that C(node) names. A request without C(node) may go anywhere."""

    name = "NodeName"
    category = Category.PLACEMENT
    events = frozenset({Event.NODE})
    about = ("node",)

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return request.node

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return None if request.node == node.name else unresolvable(REASON)
