# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Integration tests start hundreds of clusters and modules: these come from processes that are ready to be one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.ansible_commands import Ansible
from support.controller import ModuleServer, module_server
from support.playbook import PLAY_RECORDS, environment
from support.quick_clusters import forked_clusters
from support.versions import VERSIONS


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Keep only the tests that run plays, if their results are compared."""
    if PLAY_RECORDS in os.environ:
        items[:] = [item for item in items if _runs_plays(item)]


def _runs_plays(item: pytest.Function) -> bool:
    """Whether a test asks for a fixture that runs plays, or runs them itself."""
    names = {*getattr(item, "fixturenames", ()), *item.function.__code__.co_names}
    return not names.isdisjoint(("tasks", "play", "run_tasks", "run_playbook"))


@pytest.fixture(scope="session", autouse=True)
def _quick_clusters() -> Iterator[None]:
    with forked_clusters():
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_plays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All plays of a test run share what was compiled and packed, whichever worker of xdist starts them. Those of one
    worker are forked from one process.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    kept = folder / "kept"
    kept.mkdir(exist_ok=True)
    os.environ["KEPT_BY_TESTS"] = str(kept)
    with Ansible.forked(environment(tmp_path_factory.mktemp("ansible"), {})):
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
