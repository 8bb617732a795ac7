# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""LeastAllocated: prefer the node with the most left to allocate."""

from __future__ import annotations

from collections.abc import Sequence

from ....model import Request
from ...allocation import AllocationScore
from ...cache import NodeInfo
from ...framework.cycle_state import CycleState


class LeastAllocated(AllocationScore):
    """Scores 100 for a node whose CPU and memory would be completely free after the request, 0 for one where both would
    be completely allocated.

    The weighted mean of both, and of storage if it has a weight. Guests count with their configured size, whether they
    run or not. CPUOvercommit and MemoryOvercommit define what is allocatable: ratio x (size - reserve).
    """

    name = "LeastAllocated"

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        return [100.0 * mean for mean in self.means(state, request, nodes, free_part)]


def free_part(used: float) -> float:
    """What is left of a resource, 0..1."""
    return 1.0 - used if used < 1.0 else 0.0
