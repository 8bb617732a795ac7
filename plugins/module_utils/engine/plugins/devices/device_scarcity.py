# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeviceScarcity: keep nodes with free passthrough devices for the VMs that want them."""

from __future__ import annotations

import typing as t
from collections.abc import Hashable, Mapping, Sequence

from ....model import Request
from ...cache import NodeInfo
from ...devices.constraints import Matcher
from ...devices.finding import Unmet, claims_signature, find_devices
from ...devices.supply import Supply
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, PreScorePlugin, Scope, ScorePlugin
from ...framework.status import SKIP, Status


class DeviceScarcity(PreScorePlugin, ScorePlugin):
    """Scores 100 for a node that would have no free device left, and less the more devices would lie idle, 0..100.

    The score is 100 / (1 + the sum over the node's mappings of left / (1 + left)). So a VM without claims prefers nodes
    without free devices, and one with claims the node where they fit best. The first free device of a mapping weighs
    most: many virtual functions of one network card count for hardly more than one.

    With the default weight, half of LeastAllocated's, a VM without claims goes to a node with one free device once the
    nodes without are some 17 points of LeastAllocated worse.
    """

    name = "DeviceScarcity"
    weight = 0.5
    events = frozenset({Event.NODE, Event.GUEST, Event.DEVICE})

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.matcher = Matcher()

    def signature(self, request: Request) -> Hashable:
        return claims_signature(request)

    def score_scope(self, request: Request) -> Scope:
        return Scope.NODE

    def pre_score(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> Status | None:
        return None if any(node.devices for node in nodes) else SKIP

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        if not node.devices:
            return 100.0
        if not request.devices:
            return left_free(Supply(node.devices).free_by_pool())
        found = find_devices(request, node, self.matcher)
        return 0.0 if isinstance(found, Unmet) else left_free(found.supply.free_by_pool())


def left_free(counts: Sequence[int]) -> float:
    """The score of a node whose pools have that many devices left."""
    return 100.0 / (1.0 + sum(count / (1.0 + count) for count in counts))
