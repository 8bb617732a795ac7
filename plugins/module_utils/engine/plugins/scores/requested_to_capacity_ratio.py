# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RequestedToCapacityRatio: the user draws how much a node's fill level is worth."""

from __future__ import annotations

import bisect
import typing as t
from collections.abc import Mapping, Sequence

from ....errors import InvalidPluginConfig
from ....model import Request
from ...allocation import SETTINGS, AllocationScore
from ...cache import NodeInfo
from ...framework.config import Setting, check_settings
from ...framework.cycle_state import CycleState

_POINT: Mapping[str, Setting] = {
    "utilization": Setting("float", None, "percentage of what is allocatable, 0..100", minimum=0),
    "score": Setting("float", None, "what that is worth, 0..10", minimum=0),
}


class RequestedToCapacityRatio(AllocationScore):
    """Scores a node by the percentage of its allocatable CPU and memory that would be allocated after the request,
    interpolated linearly between the points of C(shape). Off by default.

    A point is C({utilization: 0..100, score: 0..10}). By default, the score rises from 0 for an empty node to 10 for a
    full one. Before the first and after the last point, the score is constant. CPU, memory and storage are scored one
    by one and averaged by weight.
    """

    name = "RequestedToCapacityRatio"
    enabled = False
    settings = {
        "shape": Setting(
            "list",
            [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
            "points of utilization (percent, rising) and score (0..10)",
        ),
        **SETTINGS,
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.line = read_shape(f"{self.name}.config.shape", config["shape"])

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        return self.means(state, request, nodes, lambda used: height(self.line, 100.0 * used))


def read_shape(where: str, points: list[t.Any]) -> list[tuple[float, float]]:
    """The points as (utilization, score), both 0..100. Raises InvalidPluginConfig."""
    line: list[tuple[float, float]] = []
    for number, point in enumerate(points):
        values = check_settings(f"{where}[{number}]", _POINT, point)
        utilization, score = values["utilization"], values["score"]
        if utilization is None or utilization > 100:
            raise InvalidPluginConfig(f"{where}[{number}].utilization: expected 0..100, got {utilization!r}")
        if score is None or score > 10:
            raise InvalidPluginConfig(f"{where}[{number}].score: expected 0..10, got {score!r}")
        if line and utilization <= line[-1][0]:
            raise InvalidPluginConfig(
                f"{where}[{number}].utilization: expected more than {line[-1][0]:g}, got {utilization:g}"
            )
        line.append((utilization, 10.0 * score))
    if not line:
        raise InvalidPluginConfig(f"{where}: expected at least one point")
    return line


def height(line: list[tuple[float, float]], at: float) -> float:
    """The height of the broken line at a point; level before its first and after its last point."""
    right = bisect.bisect_left(line, at, key=lambda point: point[0])
    if right == 0:
        return line[0][1]
    if right == len(line):
        return line[-1][1]
    (x0, y0), (x1, y1) = line[right - 1], line[right]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
