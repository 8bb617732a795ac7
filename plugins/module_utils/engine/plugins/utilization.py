# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scores by the measured use of nodes."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ...model import Request
from ..cache import NodeInfo
from ..framework.interface import CycleState, Event, ScorePlugin, Setting, Subject


class Utilization(ScorePlugin):
    """Scores 100 for an idle node, 0 for one whose CPU and memory are fully in use and where tasks always wait. Off by
    default.

    The weighted mean of measured CPU use, memory use and pressure. Pressure is the fraction of time in which tasks on
    the node waited for CPU, memory or disk, the highest of the three, over the last five minutes. Reading it costs one
    API request per node and requires Sys.Audit there. A node that does not report it, as before Proxmox VE 9, is scored
    by CPU and memory only. Decided VMs that the measured use cannot include yet count with their full size, so that one
    run does not place all VMs on the same idle node.
    """

    name = "Utilization"
    enabled = False
    bounded = True
    events = frozenset({Event.NODE, Event.GUEST})
    settings = {
        "cpu_weight": Setting("float", 1.0, "weight of CPU use within this score", minimum=0),
        "memory_weight": Setting("float", 1.0, "weight of memory use within this score", minimum=0),
        "pressure_weight": Setting(
            "float", 1.0, "weight of pressure within this score; with 0 it is not read", minimum=0
        ),
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.reads = frozenset({Subject.PRESSURE} if config["pressure_weight"] else ())

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        host = node.node
        decided = [guest for guest in node.guests if guest.status == "assumed"]
        parts = [
            (self.config["cpu_weight"], host.cpu_used + _part(sum(guest.cores for guest in decided), host.cores)),
            (
                self.config["memory_weight"],
                _part(host.memory_used + sum(guest.memory for guest in decided), host.memory),
            ),
        ]
        if host.pressure is not None:
            parts.append((self.config["pressure_weight"], host.pressure))
        total = sum(weight for weight, _used in parts)
        used = sum(weight * min(used, 1.0) for weight, used in parts) / total if total else 0.0
        return 100.0 * (1.0 - used)


def _part(used: float, capacity: float) -> float:
    return used / capacity if capacity else 1.0


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
