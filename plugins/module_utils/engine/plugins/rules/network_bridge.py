# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NetworkBridge: the networks that a VM is attached to."""

from __future__ import annotations

from collections.abc import Hashable, Set

from ....model import Node, Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PerNode, Subject
from ...framework.status import Status, unresolvable

REASON = "didn't have bridge '{}'"


class NetworkBridge(PerNode, FilterPlugin):
    """Rejects a node that lacks a bridge or VNet which the VM's network interfaces name.

    Proxmox itself creates such a VM and only fails to start it. Off by default, as it costs a call per node each time;
    a node whose bridges could not be read is accepted.
    """

    name = "NetworkBridge"
    enabled = False
    events = frozenset({Event.NODE})
    reads = frozenset({Subject.BRIDGES})
    about = ("bridges",)

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return request.bridges

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        missing = missing_bridge(request.bridges, node.node)
        return None if missing is None else unresolvable(REASON.format(missing))


def missing_bridge(bridges: Set[str], node: Node) -> str | None:
    """The first by name of the bridges that node lacks, or None."""
    return None if node.bridges is None else min(bridges - node.bridges, default=None)
