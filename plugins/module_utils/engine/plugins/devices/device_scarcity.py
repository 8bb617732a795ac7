# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeviceScarcity: keep nodes with free passthrough devices for the VMs that claim some."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...devices.supply import Supply
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, PerNode, PreFilterPlugin, ScorePlugin
from ...framework.status import SKIP, Status


class DeviceScarcity(PerNode, PreFilterPlugin, ScorePlugin):
    """Scores a node for a VM that claims no devices: 100 without free devices, less the more free devices it has.

    The score is 100 / (1 + the sum over the node's mappings of free / (1 + free)). The first free device of a mapping
    weighs most: many virtual functions of one network card count little more than one. With the default weight, half of
    LeastAllocated's, the VM goes to a node with one free device if LeastAllocated scores the nodes without free devices
    about 17 points lower.
    """

    name = "DeviceScarcity"
    weight = 0.5
    bounded = True
    events = frozenset({Event.NODE, Event.GUEST, Event.DEVICE})

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return bool(request.devices)

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        return SKIP if request.devices or not cluster.snapshot.devices else None

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        return left_free(Supply(node.devices).free_by_pool()) if node.devices else 100.0


def left_free(counts: Sequence[int]) -> float:
    """The score of a node whose pools have that many devices left."""
    return 100.0 / (1.0 + sum(count / (1.0 + count) for count in counts))
