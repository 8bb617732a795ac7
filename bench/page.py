# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates docs/benchmarks.md, which has the latest measurements between markers, in text that is written by hand."""

from __future__ import annotations

import re

from . import CHECKOUT
from .report import Section

PAGE = CHECKOUT / "docs" / "benchmarks.md"
IMAGES = PAGE.parent / "images"


def write(section: Section, measured_on: str) -> None:
    """Replace one section's tables and pictures. Raises ValueError when the page has no place for it."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    parts = [f"Measured on {measured_on}."]
    parts += [table.as_markdown() for table in section.tables]
    for plot in section.plots:
        (IMAGES / f"{plot.name}.svg").write_text(plot.as_svg(), encoding="utf-8")
        parts.append(f"![{plot.title}](images/{plot.name}.svg)")
    begin, end = f"<!-- measured: {section.name} -->", "<!-- end -->"
    body = "\n\n".join([begin, *parts, end])
    text = PAGE.read_text(encoding="utf-8")
    new, found = re.subn(f"{re.escape(begin)}.*?{end}", lambda _match: body, text, flags=re.DOTALL)
    if not found:
        raise ValueError(f"{PAGE} has no line {begin}")
    PAGE.write_text(new, encoding="utf-8")
