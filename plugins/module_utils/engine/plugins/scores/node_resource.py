# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeResource: prefer the node that is least busy right now, as upstream meant it."""

from __future__ import annotations

from collections.abc import Sequence

from ....model import Request
from ...cache import NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, ScorePlugin

FLOOR = 0.01
"""Use below this counts as this: an idle node must not score infinity."""


class NodeResource(ScorePlugin):
    """Scores 1 / (CPU use x memory use) by the measured use, each at least 0.01, relative to the best node, which gets
    100. Off by default.

    The measured use does not include VMs that were just placed: all VMs of a run see the same figures.
    """

    name = "NodeResource"
    enabled = False
    events = frozenset({Event.NODE})

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        memory_use = node.node.memory_used / node.node.memory if node.node.memory else 1.0
        return 1.0 / (max(node.node.cpu_used, FLOOR) * max(memory_use, FLOOR))

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        best = max(scores)
        return [100.0 * score / best for score in scores]
