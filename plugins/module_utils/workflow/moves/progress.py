# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports each move as soon as it has ended: a line of JSON in a file."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ..progress import LineFile
from .moving import MoveStep


def move_progress(path: str | None) -> Callable[[MoveStep], None]:
    """The function to call for each move that has ended. Raises InvalidRequest if the file cannot be written."""
    if path is None:
        return lambda step: None
    file = LineFile(path)
    return lambda step: file.append(line_of(step))


def line_of(step: MoveStep) -> dict[str, t.Any]:
    """The line about a move."""
    report, move = step.report, step.report.move
    return {
        "done": step.done,
        "total": step.total,
        "name": move.name,
        "vmid": move.vmid,
        "from": move.source,
        "to": move.target,
        "outcome": report.outcome,
        "seconds": round(report.seconds, 2),
        "error": None if report.error is None else report.error.code,
    }
