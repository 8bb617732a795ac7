# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TOPSIS: ranking alternatives by how far they are from the worst and how near to the best, criterion by criterion."""

from __future__ import annotations

import math
from collections.abc import Sequence


def scores(alternatives: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """One score per alternative, 0 (worst) to 1 (best); all criteria are better when smaller.

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
