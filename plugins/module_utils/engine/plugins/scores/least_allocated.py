# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""LeastAllocated: prefer the node with the most left to give."""

from __future__ import annotations

import typing as t
from collections.abc import Hashable, Mapping

from ....model import Request
from ...cache import NodeInfo
from ...framework.config import Setting
from ...framework.cycle_state import CycleState
from ...framework.interface import Scope, ScorePlugin


class LeastAllocated(ScorePlugin):
    """Scores 100 for a node whose CPU and memory would be all free after the request, 0 for one that would be given out
    in full.

    By configured size, as the mean of both. Capacity is what may be given out: the node's CPUs and memory times the
    ratios.
    """

    name = "LeastAllocated"
    settings = {
        "cpu_weight": Setting("float", 1.0, "weight of CPU within this score", minimum=0),
        "memory_weight": Setting("float", 1.0, "weight of memory within this score", minimum=0),
        "cpu_ratio": Setting("float", 4.0, "vCPUs that may be given out per logical CPU", minimum=0),
        "memory_ratio": Setting("float", 1.0, "bytes that may be given out per byte of memory", minimum=0),
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        total = config["cpu_weight"] + config["memory_weight"] or 1.0
        self.cpu_share: float = 100.0 * config["cpu_weight"] / total
        self.memory_share: float = 100.0 * config["memory_weight"] / total
        self.cpu_ratio: float = config["cpu_ratio"]
        self.memory_ratio: float = config["memory_ratio"]

    def signature(self, request: Request) -> Hashable:
        return request.cores, request.memory

    def score_scope(self, request: Request) -> Scope:
        return Scope.NODE

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        host = node.node
        cpu = host.cores * (self.cpu_ratio if host.cpu_ratio is None else host.cpu_ratio)
        memory = host.memory * (self.memory_ratio if host.memory_ratio is None else host.memory_ratio)
        return self.cpu_share * free_share(node.cores + request.cores, cpu) + self.memory_share * free_share(
            node.memory + request.memory, memory
        )


def free_share(used: float, capacity: float) -> float:
    """The part of capacity that is left, 0..1; 0 when it is exceeded or there is none."""
    return 0.0 if used >= capacity else (capacity - used) / capacity
