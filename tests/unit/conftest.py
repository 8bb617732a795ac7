# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the unit tests share: answers recorded from real clusters."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
from support.recordings import recording as load_recording

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import TAKEN_BY_ANSIBLE, WITHOUT_TERMINAL

Recording = Callable[[str, str], dict[str, t.Any]]


@pytest.fixture(autouse=True)
def _width_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as without a terminal, wherever the tests run."""
    monkeypatch.setenv("COLUMNS", str(WITHOUT_TERMINAL + TAKEN_BY_ANSIBLE))


@pytest.fixture
def recording() -> Recording:
    """Return a function that loads one recording: (version, name) -> the request, its status and its answer."""
    return load_recording
