# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that are shown for a move that has ended, and for a result."""

from __future__ import annotations

import typing as t

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import moves_table

OUTCOMES = {
    "stale": "not moved, no longer as planned",
    "unknown": "may still be moving",
}


def move_line(step: dict[str, t.Any]) -> str:
    """Return the line for a line of the progress file about one move."""
    guest = f"{step['name'] or 'guest'} ({step['vmid']})"
    what = "moved" if step["outcome"] == "moved" else OUTCOMES.get(step["outcome"], f"failed, {step['error']}")
    width = len(str(step["total"]))
    where = f"{step['from']} to {step['to']}"
    return f"moves: {step['done']:>{width}}/{step['total']} {guest} {what}, {where} ({step['seconds']:.1f} s)"


def table_of(result: dict[str, t.Any], width: int) -> list[str]:
    """Return the lines about a result; none if it has no plan."""
    return moves_table(result, width) if "plan" in result else []
