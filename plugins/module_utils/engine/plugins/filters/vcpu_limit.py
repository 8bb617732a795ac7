# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VCPULimit: a VM cannot have more vCPUs than its node has CPUs."""

from __future__ import annotations

from collections.abc import Hashable

from ....model import Node, Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PerNode
from ...framework.status import Category, Status, unresolvable
from ...texts import vcpus

REASON = "had fewer CPUs than the VM has vCPUs"


class VCPULimit(PerNode, FilterPlugin):
    """Rejects a node that has fewer logical CPUs than the VM has vCPUs: C(cores) times C(sockets), even if C(vcpus) is
    lower.

    Proxmox VE creates such a VM and then refuses to start it, whatever the overcommit ratio. A node whose number of
    CPUs is unknown is accepted.
    """

    name = "VCPULimit"
    category = Category.CAPACITY
    events = frozenset({Event.NODE})

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return most_vcpus(request)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        if fits(request, node.node):
            return None
        return unresolvable(REASON, f"{vcpus(most_vcpus(request))}, the node has {node.node.cores}")


def most_vcpus(request: Request) -> float:
    """The vCPUs of the VM, with those that can be plugged in."""
    return max(request.cores, request.cores_max)


def fits(request: Request, node: Node) -> bool:
    """Whether Proxmox VE would start the VM on the node."""
    return not node.cores or most_vcpus(request) <= node.cores
