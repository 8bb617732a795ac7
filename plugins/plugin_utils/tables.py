# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain text tables that fit the terminal. Only the last column is wrapped. Control characters are escaped."""

from __future__ import annotations

import contextlib
import os
import textwrap
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import whole_number
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import on_one_line

EMPTY = "-"
GAP = "  "
RIGHT_ALIGNED = frozenset({"VMID", "SCORE", "FIT", "ID", "GIB", "BEFORE", "PEAK", "AFTER", "OF"})
NARROWEST = 30
"""The minimum width of the last column. If less is left, its text is on lines of its own below the row."""

WITHOUT_TERMINAL = 120
TAKEN_BY_ANSIBLE = 12
"""The number of characters that the debug task adds to each line: spaces, quotes and a comma."""
LEAST = 40


def width_for(width: int | None) -> int:
    """Return the length of a line: width if given, else what fits the terminal, or 120 characters without one.

    The environment variable COLUMNS takes precedence over the size of the terminal. Shells do not export it by
    themselves; set it where the output reaches a terminal indirectly.
    """
    if width is not None:
        return max(int(width), LEAST)
    columns = whole_number(os.environ.get("COLUMNS"))
    if columns:
        return max(columns - TAKEN_BY_ANSIBLE, LEAST)
    for descriptor in (1, 2, 0):
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(descriptor).columns
            if found:
                return max(found - TAKEN_BY_ANSIBLE, LEAST)
    return WITHOUT_TERMINAL


def table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table whose first row has the headings. Columns without any value are left out.

    The last column is wrapped. If it would be too narrow, its text is on lines of its own below each row, after the
    cells of other columns for which there is no room.
    """
    filled = [i for i in range(len(rows[0])) if any(row[i] != EMPTY for row in rows[1:])]
    rows = [[on_one_line(row[i]) for i in filled] for row in rows]
    headings, last = rows[0], len(filled) - 1
    widths = [max(len(row[i]) for row in rows) for i in range(len(filled))]
    if _length(widths[:last]) + len(GAP) + NARROWEST <= width:
        return [line for row in rows for line in _lines_of_row(_cells(headings[:last], widths, row), row[last], width)]
    kept = max((n for n in range(1, last + 1) if _length(widths[:n]) <= width), default=1)
    lines = [_cells(headings[:kept], widths, headings).rstrip()]
    for row in rows[1:]:
        pushed = [f"{headings[i]} {row[i]}" for i in range(kept, last) if row[i] != EMPTY]
        lines.append(_cells(headings[:kept], widths, row).rstrip())
        lines += wrap(", ".join([*pushed, row[last]]), width, "    ", "    ")
    return lines


def wrap(text: str, width: int, indent: str = "    ", start: str = "") -> list[str]:
    """Return the text in lines of at most width characters, except for longer words. The first line begins with start,
    the others with indent.
    """
    return textwrap.wrap(
        on_one_line(text),
        width,
        initial_indent=on_one_line(start),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def counts_text(counts: Iterable[tuple[int, str]]) -> str:
    """Return the counts that are not 0, in the order given, as in C(2 failed, 10 created)."""
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def list_changes(differences: Mapping[str, Mapping[str, t.Any]]) -> str:
    """Return the differences of a VM by option, as in C(cores 2 => 4, tags unset => web)."""
    return ", ".join(
        f"{key} {_as_text(each['old'])} => {_as_text(each['new'])}" for key, each in sorted(differences.items())
    )


def _as_text(value: t.Any) -> str:
    return "unset" if value is None else str(value)


def _length(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(len(widths) - 1, 0)


def _cells(headings: Sequence[str], widths: Sequence[int], row: Sequence[str]) -> str:
    cells = zip(headings, widths, row, strict=False)
    return GAP.join(cell.rjust(size) if name in RIGHT_ALIGNED else cell.ljust(size) for name, size, cell in cells)


def _lines_of_row(start: str, text: str, width: int) -> list[str]:
    """Return the lines of a row whose last cell, text, is wrapped within its column."""
    start = start + GAP if start else ""
    wrapped = wrap(text, width - len(start), "") or [""]
    return [(start if number == 0 else " " * len(start)) + part for number, part in enumerate(wrapped)]
