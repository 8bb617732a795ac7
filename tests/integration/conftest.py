# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Integration tests start hundreds of clusters: these come from a process that is ready to be one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.quick_clusters import forked_clusters


@pytest.fixture(scope="session", autouse=True)
def _quick_clusters() -> Iterator[None]:
    with forked_clusters():
        yield
