# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of plain text, as lists of lines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

EMPTY = "-"
GAP = "  "
NARROWEST_WHY = 40
RIGHT_ALIGNED = frozenset({"VMID", "SCORE", "FIT", "ID", "GIB", "BEFORE", "PEAK", "AFTER", "OF"})


def table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines of a table whose first row has the headings. Columns that are empty throughout are left out."""
    filled = [i for i in range(len(rows[0])) if any(row[i] != EMPTY for row in rows[1:])]
    rows = [[row[i] for i in filled] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(filled))]
    return [line for row in rows for line in _lines(rows[0], widths, row, width)]


def _lines(columns: Sequence[str], widths: Sequence[int], row: Sequence[str], width: int) -> list[str]:
    """The row with its last cell wrapped below itself."""
    cells = [
        cell.rjust(size) if column in RIGHT_ALIGNED else cell.ljust(size)
        for column, size, cell in zip(columns, widths, row, strict=True)
    ]
    start = GAP.join(cells[:-1]) + GAP
    wrapped = textwrap.wrap(row[-1], max(width - len(start), NARROWEST_WHY), break_long_words=False) or [""]
    return [(start if number == 0 else " " * len(start)) + text for number, text in enumerate(wrapped)]


def wrap(text: str, width: int, indent: str) -> list[str]:
    """Lines of at most width characters, all but the first after an indent."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, drop_whitespace=True, replace_whitespace=True
    )
