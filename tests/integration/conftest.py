# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Integration tests start hundreds of clusters and modules: these come from processes that are ready to be one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.controller import ModuleServer, module_server
from support.quick_clusters import forked_clusters
from support.versions import VERSIONS


@pytest.fixture(scope="session", autouse=True)
def _quick_clusters() -> Iterator[None]:
    with forked_clusters():
        yield


@pytest.fixture(scope="session")
def modules() -> Iterator[ModuleServer]:
    """Runs modules in processes that have imported them."""
    with module_server() as server:
        yield server


@pytest.fixture
def version() -> str:
    """The release of Proxmox VE; tests marked with both_versions run against each."""
    return VERSIONS[0]
