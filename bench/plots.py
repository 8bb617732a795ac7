# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Line plots as SVG, without any library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 780, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 40, 50
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255")
"""Colours that colour-blind readers can distinguish as well (Okabe and Ito)."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over the same axes. Both axes are logarithmic; points must be positive.

    Attributes:
        name: of the file, without its suffix.
        lines: the points (x, y) of each, by its label.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]

    def as_svg(self) -> str:
        """The picture."""
        xs = _Axis([x for line in self.lines.values() for x, _ in line], LEFT, WIDTH - RIGHT)
        ys = _Axis([y for line in self.lines.values() for _, y in line], HEIGHT - BOTTOM, TOP)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="12" role="img" aria-label="{escape(self.title)}">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            _text(LEFT, 22, self.title, size=15),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, self.x_label, anchor="middle"),
            f'<g transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">'
            f"{_text(0, 0, self.y_label, anchor='middle')}</g>",
        ]
        for value in xs.ticks():
            x = xs.place(value)
            parts.append(_line(x, TOP, x, HEIGHT - BOTTOM))
            parts.append(_text(x, HEIGHT - BOTTOM + 16, f"{value:,g}", anchor="middle"))
        for value in ys.ticks():
            y = ys.place(value)
            parts.append(_line(LEFT, y, WIDTH - RIGHT, y))
            parts.append(_text(LEFT - 6, y + 4, f"{value:,g}", anchor="end"))
        for order, (label, points) in enumerate(self.lines.items()):
            parts += _drawn(label, [(xs.place(x), ys.place(y)) for x, y in points], order)
        return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """A logarithmic axis between two pixels."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self._low, self._high = math.log10(min(values)), math.log10(max(values))
        if self._high - self._low < 0.3:
            self._low, self._high = self._low - 0.15, self._high + 0.15
        self._first, self._last = first, last

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return round(self._first + share * (self._last - self._first), 1)

    def ticks(self) -> list[float]:
        """1, 2 and 5 of each power of ten, or only 1 where the axis is long."""
        steps = (1, 2, 5) if self._high - self._low < 3 else (1,)
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        values = [step * 10.0**power for power in powers for step in steps]
        return [value for value in values if self._low - 1e-9 <= math.log10(value) <= self._high + 1e-9]


def _drawn(label: str, points: Sequence[tuple[float, float]], order: int) -> list[str]:
    colour = COLOURS[order % len(COLOURS)]
    path = " ".join(f"{x},{y}" for x, y in points)
    at = TOP + 10 + order * 20
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points),
        f'<rect x="{WIDTH - RIGHT + 14}" y="{at - 8}" width="12" height="4" fill="{colour}"/>',
        _text(WIDTH - RIGHT + 32, at, label),
    ]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#dddddd"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
