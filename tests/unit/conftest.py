# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the unit tests share: answers recorded from real clusters."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"

Recording = Callable[[str, str], dict[str, t.Any]]


@pytest.fixture
def recording() -> Recording:
    """Return a function that loads one recording: (version, name) -> the request, its status and its answer."""

    def load(version: str, name: str) -> dict[str, t.Any]:
        loaded: dict[str, t.Any] = json.loads((RECORDINGS / version / f"{name}.json").read_text(encoding="utf-8"))
        return loaded

    return load
