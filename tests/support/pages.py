# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Markdown pages of the project: their examples, links and headings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"(?P<skipped><!-- not run -->\s+)?(?:`(?P<file>[\w/]+\.\w+)`[^\n]*:\n\n)?"
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A fenced block. file is the name in the line before it; skipped tells that tests do not run it."""

    page: Path
    heading: str
    language: str
    text: str
    file: str | None
    skipped: bool

    @property
    def plays(self) -> list[dict[str, Any]]:
        """The plays of a playbook, or one play of a list of tasks; nothing for other data."""
        data = yaml.safe_load(self.text) if self.language == "yaml" else None
        if not isinstance(data, list):
            return []
        if "hosts" in data[0]:
            return data
        return [{"name": self.heading, "hosts": "localhost", "gather_facts": False, "tasks": data}]


def pages() -> list[Path]:
    """Every page that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.md"],
        cwd=CHECKOUT, check=True, capture_output=True, text=True,
    )
    return [path for line in listed.stdout.splitlines() if (path := CHECKOUT / line).exists()]


def examples(page: Path) -> list[Example]:
    """The fenced blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in _BLOCK.finditer(text):
        headings = _HEADING.findall(_FENCED.sub("", text[: block.start()]))
        found.append(
            Example(
                page, headings[-1] if headings else page.name, block["language"], block["text"], block["file"],
                block["skipped"] is not None,
            )
        )
    return found


def links(page: Path) -> Iterator[str]:
    """What a page links to, apart from its examples."""
    for match in _LINK.finditer(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        yield match[1] or match[2]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the common renderers make them."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
