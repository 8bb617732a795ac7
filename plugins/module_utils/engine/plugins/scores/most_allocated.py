# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MostAllocated: prefer the node that is the fullest already, so that others stay empty."""

from __future__ import annotations

from collections.abc import Sequence

from ....model import Request
from ...allocation import AllocationScore
from ...cache import NodeInfo
from ...framework.cycle_state import CycleState


class MostAllocated(AllocationScore):
    """Scores 100 for a node whose CPU and memory would be completely allocated after the request, 0 for one where both
    would be completely free. Off by default.

    The weighted mean of both, and of storage if it has a weight. Guests count with their configured size, whether they
    run or not. A resource of which more would be allocated than is allocatable scores 0.
    """

    name = "MostAllocated"
    enabled = False

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        return [100.0 * mean for mean in self.means(state, request, nodes, used_part)]


def used_part(used: float) -> float:
    """The allocated part of a resource, 0..1; nothing when it is overfull."""
    return used if used <= 1.0 else 0.0
