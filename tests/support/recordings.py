# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers recorded from real clusters: by release and subject, each name once per release."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "recordings"
VERSIONS = ("8.4", "9.2")


@functools.cache
def recordings(version: str) -> dict[str, Path]:
    """The file of every recording of a release by name, in the order of the names."""
    return {path.stem: path for path in sorted((FOLDER / version).rglob("*.json"), key=lambda path: path.stem)}


def recording(version: str, name: str) -> Any:
    """One recording, read anew: a dict of the request, its status and its answer; some timelines are lists."""
    return json.loads(recordings(version)[name].read_text(encoding="utf-8"))
