# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scores by which the cluster resource scheduler of Proxmox VE places guests: their number, or their sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...model import Request
from ..cache import NodeInfo
from ..framework.interface import CycleState, ScorePlugin, Setting


class FewestGuests(ScorePlugin):
    """Scores 100 for the node with the fewest guests, 0 for the one with the most. Off by default.

    Guests count whether they run or not, templates do not. Sizes do not matter: the loss of a node takes the fewest
    guests with it. The cluster resource scheduler of Proxmox VE places like this in its basic mode, but counts running
    guests only.
    """

    name = "FewestGuests"
    enabled = False

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        return float(-sum(not guest.template for guest in node.guests))


WEIGHTS = (1.0, 2.0, 5.0, 10.0)
"""Of average CPU, highest CPU, average memory and highest memory."""

_DIGITS = 12
"""TOPSIS makes the smallest difference the whole scale, so what rounding leaves behind would break ties."""


class ProxmoxStatic(ScorePlugin):
    """Scores 0..100 as the cluster resource scheduler of Proxmox VE does in static mode: for each node, it computes the
    average and the highest use of CPU and memory over all feasible nodes with the VM on that node; the lower both are,
    the better. Off by default.

    As in Proxmox VE, running guests count with their configured sizes, and nodes with their physical CPUs and memory,
    without overcommit ratios and reserves. With C(ha_only), only HA resources count, as for the HA manager itself.
    """

    name = "ProxmoxStatic"
    enabled = False
    settings = {"ha_only": Setting("bool", False, "count only HA resources")}

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        """Return the part of the memory that would be used; CPU and the other nodes come in when all are compared."""
        return _part(self._use(node)[1] + request.memory, float(node.node.memory))

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        uses = [self._use(node) for node in nodes]
        ranked = static_scores(
            cpu=[(cores, float(node.node.cores)) for node, (cores, _memory) in zip(nodes, uses, strict=True)],
            memory=[(memory, float(node.node.memory)) for node, (_cores, memory) in zip(nodes, uses, strict=True)],
            added_cpu=request.cores,
            added_memory=request.memory,
        )
        return [100.0 * score for score in ranked]

    def _use(self, node: NodeInfo) -> tuple[float, float]:
        if not self.config["ha_only"]:
            return node.cores, node.memory
        guests = [guest for guest in node.guests if guest.ha_managed and guest.running and not guest.template]
        return math.fsum(guest.cores for guest in guests), sum(guest.memory for guest in guests)


def static_scores(
    cpu: Sequence[tuple[float, float]], memory: Sequence[tuple[float, float]], added_cpu: float, added_memory: float
) -> list[float]:
    """Return one TOPSIS score, 0..1, per node; cpu and memory are (used, capacity) per node, in the same order.

    A VM without a limit of its CPUs (added_cpu 0) counts as all CPUs of the node.
    """
    cpu_use = [_part(used, capacity) for used, capacity in cpu]
    cpu_after = [_part(used + (added_cpu or capacity), capacity) for used, capacity in cpu]
    memory_use = [_part(used, capacity) for used, capacity in memory]
    memory_after = [_part(used + added_memory, capacity) for used, capacity in memory]
    # 1 is added so that tiny differences stay tiny: 0.004 is twice 0.002, 1.004 is hardly more than 1.002.
    return topsis(
        [
            (1.0 + cpu_average, 1.0 + cpu_highest, 1.0 + memory_average, 1.0 + memory_highest)
            for (cpu_average, cpu_highest), (memory_average, memory_highest) in zip(
                _averages_and_highest(cpu_use, cpu_after), _averages_and_highest(memory_use, memory_after), strict=True
            )
        ],
        WEIGHTS,
    )


def _part(used: float, capacity: float) -> float:
    return used / capacity if capacity > 0 else 1.0


def _averages_and_highest(before: Sequence[float], after: Sequence[float]) -> list[tuple[float, float]]:
    """Return for each node the root mean square and the maximum over all nodes, were the VM on this one."""
    squares = math.fsum(part * part for part in before)
    highest = max(before)
    result = []
    for old, new in zip(before, after, strict=True):
        average = math.sqrt(max(squares - old * old + new * new, 0.0) / len(before))
        result.append((round(average, _DIGITS), round(max(highest, new), _DIGITS)))
    return result


def topsis(alternatives: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Return one score per alternative by TOPSIS, 0 (worst) to 1 (best). All criteria are better when smaller.

    alternatives holds one value per criterion; weights are relative. All scores are 0 when nothing tells the
    alternatives apart.
    """
    total = sum(weights)
    columns = []
    for weight, column in zip(weights, zip(*alternatives, strict=True), strict=True):
        norm = math.hypot(*column)
        columns.append([weight / total * value / norm for value in column] if norm else [0.0] * len(column))
    best = [min(column) for column in columns]
    worst = [max(column) for column in columns]
    result = []
    for row in zip(*columns, strict=True):
        to_best, to_worst = math.dist(row, best), math.dist(row, worst)
        result.append(to_worst / (to_worst + to_best) if to_worst + to_best else 0.0)
    return result
