# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .plots import Plot

Cell = str | int | float | None


@dataclass(slots=True)
class Table:
    """Rows under a title. None is shown as a dash; notes are sentences below it."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def explain(self, row: str, why: str) -> None:
        """Note why a row misses its goal."""
        self.notes.append(f"Not reached: {row}. {why or 'Nothing is known that keeps it from its goal.'}")

    def as_text(self) -> str:
        """The table for a terminal."""
        lines = [self.title, *_aligned(self.columns, self.rows, "  ", "-", "  ")]
        return "\n".join([*lines, *(f"  * {note}" for note in self.notes)])

    def as_markdown(self) -> str:
        """The table for a page."""
        head, rule, *rows = _aligned(self.columns, self.rows, "| ", "-", " | ")
        lines = [f"{line} |" for line in (head, rule, *rows)]
        return "\n".join([f"**{self.title}**", "", *lines, *([""] if self.notes else []), *self._notes()])

    def _notes(self) -> list[str]:
        return [f"- {note}" for note in self.notes]


@dataclass(slots=True)
class Section:
    """What one part of the benchmark measured."""

    name: str
    tables: list[Table]
    plots: list[Plot] = field(default_factory=list)


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    if value >= 100:
        return f"{round(value, 1 - len(str(int(value))) + 2):,.0f}"
    return f"{value:.3g}"


def yes_or_no(reached: bool | None) -> str | None:
    """Whether a goal is reached; None where there is none."""
    return None if reached is None else "yes" if reached else "no"


def ratio(slow: float | None, fast: float | None) -> str | None:
    """The ratio of slow to fast as text."""
    return f"{slow / fast:.1f}x" if slow and fast else None


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[Cell]], start: str, rule: str, between: str) -> list[str]:
    cells = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (columns, *cells)) for i in range(len(columns))]
    right = [all(row[i] == "-" or row[i].lstrip("-")[0].isdigit() for row in cells) for i in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        parts = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        return start + between.join(parts)

    return [line(list(columns)), line([rule * width for width in widths]), *map(line, cells)]


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    return number(cell) if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell
