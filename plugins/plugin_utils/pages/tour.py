# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view of the maintenance of several nodes, planned or under way, for a page."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import GIB, size_of
from ansible_collections.qemu_scheduler.proxmox.plugins.filter.tours import count_guests, fates_of, nodes_of, notes_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import join_words

Data = Mapping[str, t.Any]

DONE, NOW, PLANNED = "done", "under way", "planned"


def tour(result: Data) -> dict[str, t.Any]:
    """Return the view of a result of maintenance_tour. C(progress) in it has the nodes that are C(done), one of
    those that are maintained C(now), and how many guests have C(moved).
    """
    plan, progress = result["tour"], result.get("progress") or {}
    steps = [_step(step, result.get("names") or {}, progress) for step in plan["steps"]]
    return {
        "goal": plan["goal"],
        "steps": steps,
        "moves": sum(step["out"] + step["back"] for step in steps),
        "most": max((step["out"] + step["back"] for step in steps), default=0),
        "moved": progress.get("moved"),
        "done": sum(step["count"] for step in steps if step["state"] == DONE),
        "nodes": sum(step["count"] for step in steps),
        "skipped": sorted(plan["skipped"].items()),
        "refused": result.get("refused") or (),
    }


def _step(step: Data, names: Data, progress: Data) -> dict[str, t.Any]:
    """Return a turn as the page shows it."""
    nodes, done = nodes_of(step), progress.get("done", ())
    state = DONE if set(nodes) <= set(done) else NOW if progress.get("now") in nodes else PLANNED
    return {
        "node": join_words(nodes),
        "count": len(nodes),
        "state": state,
        "out": count_guests(step["moves"]),
        "back": count_guests(step["back"]),
        "gib": sum(map(size_of, (*step["moves"], *step["back"]))) / GIB,
        "votes": step["votes"],
        "votes_needed": step["votes_needed"],
        "notes": [*fates_of(step, names), *notes_of(step)],
    }
