# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""BalancedAllocation: prefer the node whose CPU and memory would be used to the same degree."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....model import Request
from ...allocation import AllocationScore, Share, weighted_mean
from ...cache import NodeInfo
from ...framework.cycle_state import CycleState


class BalancedAllocation(AllocationScore):
    """Scores 100 for a node of whose CPU and memory the same fraction would be allocated after the request, less the
    more these fractions differ: 100 x (1 - standard deviation). Off by default.

    It does not depend on how full a node is: combine it with another score, and give it a small weight. Storage counts
    if it has a weight.
    """

    name = "BalancedAllocation"
    enabled = False

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        return [100.0 * (1.0 - deviation(self.shares(state, request, node))) for node in nodes]


def deviation(shares: list[Share]) -> float:
    """The weighted standard deviation of the used parts, each capped at 1; of two equal weights half their distance."""
    used = [min(share.used, 1.0) for share in shares]
    mean = weighted_mean(shares, used)
    return math.sqrt(weighted_mean(shares, [(part - mean) ** 2 for part in used]))
