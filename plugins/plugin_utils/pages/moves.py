# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view of a plan of moves, or of the result of a module that moves guests, for a page."""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import (
    GIB,
    changes,
    how_of,
    loads_of,
    plan_of,
    rows_of,
    size_of,
    usage_of,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import whole_number
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.moves import OUTCOMES

Data = Mapping[str, t.Any]

MOVED, PLANNED, NOT_BEGUN = "moved", "planned", "not begun"
WIDTH, HEIGHT = 160, 48
"""The size of the drawing of a curve."""

DEGREES = 4
"""The number of colour intensities of cells in the matrix."""


def moves(result: Data, *, plan_only: bool) -> dict[str, t.Any]:
    """Return the view of a plan, or of a result that has one. Memory is in GiB.

    plan_only: whether the moves were only planned. If not, moves without an outcome were not begun.
    """
    plan = plan_of(result)
    rows = [_row(move, PLANNED if plan_only else NOT_BEGUN) for move in rows_of(result)]
    states = Counter(row["state"] for row in rows)
    courses = _by_name(loads_of(result))
    nodes = [_node(name, course) for name, course in courses if changes(course)]
    return {
        "goal": plan["goal"],
        "optimal": plan.get("optimal"),
        "impossible": plan.get("impossible"),
        "fewest": plan.get("moves_lower_bound"),
        "gib": sum(row["gib"] for row in rows),
        "moves": rows,
        "states": {state: count for state, count in sorted(states.items()) if state != PLANNED},
        "stuck": result.get("stuck", plan["stuck"]),
        "stays": result.get("stays", ()),
        "nodes": nodes,
        "unchanged": len(courses) - len(nodes),
        "over": any(
            max(each.values()) > each["allocatable"] for node in nodes for each in (node["memory"], node["cores"])
        ),
        "matrix": matrix(rows),
        "used": [_usage(name, resources) for name, resources in usage_of(result)],
        "usage": result.get("usage") or {},
    }


def _usage(name: str, resources: Data) -> dict[str, t.Any]:
    """Return what a node uses, with the lines of its curves."""
    return {
        "node": name,
        "resources": [
            {**each, "name": resource.replace("_", " "), "lines": lines(each["curve"])}
            for resource, each in resources.items()
        ],
    }


def lines(curve: Sequence[float | None]) -> list[str]:
    """Return a curve of fractions as lines of SVG, WIDTH by HEIGHT: one for each part that is known."""
    step = WIDTH / max(len(curve) - 1, 1)
    parts: list[list[str]] = [[]]
    for number, value in enumerate(curve):
        if value is None:
            parts.append([])
        else:
            parts[-1].append(f"{number * step:.1f},{HEIGHT * (1 - min(value, 1.0)):.1f}")
    return [" ".join(part) for part in parts if part]


def matrix(rows: Iterable[Data]) -> dict[str, t.Any]:
    """Return the number of guests that move or have moved, by source and target, with the intensity of each."""
    counts = Counter((row["from"], row["to"]) for row in rows if row["state"] in (PLANNED, MOVED))
    sources = sorted({source for source, _target in counts}, key=natural)
    targets = sorted({target for _source, target in counts}, key=natural)
    most = max(counts.values(), default=0)
    return {
        "targets": targets,
        "rows": [
            {
                "source": source,
                "cells": [_cell(counts[source, target], most) for target in targets],
                "sum": sum(counts[source, target] for target in targets),
            }
            for source in sources
        ],
        "sums": [sum(counts[source, target] for source in sources) for target in targets],
        "sum": counts.total(),
    }


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts C(pve2) before C(pve10)."""
    parts = ((whole_number(part), part) for part in re.split(r"(\d+)", name))
    return [(0, part) if number is None else (number, "") for number, part in parts]


def _cell(count: int, most: int) -> dict[str, int]:
    return {"count": count, "degree": -(-DEGREES * count // most) if most else 0}


def _row(move: Data, otherwise: str) -> dict[str, t.Any]:
    """Return the row of a move. otherwise is the state of a move that has no outcome."""
    known = {key: move[key] for key in ("id", "vmid", "name", "from", "to", "why", "after")}
    outcome = move.get("outcome", otherwise)
    return {
        **known,
        "how": how_of(move, ", by the HA manager"),
        "gib": size_of(move) / GIB,
        "state": OUTCOMES.get(outcome, outcome),
        "seconds": move.get("seconds"),
        "error": move.get("msg"),
    }


def _by_name(nodes: Mapping[str, Data]) -> list[tuple[str, Data]]:
    return sorted(nodes.items(), key=lambda item: natural(item[0]))


def _node(name: str, course: Data) -> dict[str, t.Any]:
    """Return the course of a node as the page shows it."""
    times = ("allocatable", "before", "peak", "after")
    return {
        "node": name,
        "memory": {time: course[time]["memory"] / GIB for time in times},
        "cores": {time: course[time]["cores"] for time in times},
        "guests": {time: course[time]["guests"] for time in times[1:]},
    }
