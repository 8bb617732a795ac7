# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the collection and the tests' own helpers importable from wherever pytest starts, sets up hypothesis, and hears
Ctrl-C.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
CHECKOUT = TESTS.parent
INSTALLED = CHECKOUT / ".venv" / "collections"
COLLECTION = Path("ansible_collections", "qemu_scheduler", "proxmox")


def collections_root() -> Path:
    """Return a folder in which the checkout is an installed collection: that of `make setup`, or a new one."""
    if (INSTALLED / COLLECTION).is_dir():
        return INSTALLED
    root = Path(tempfile.mkdtemp(prefix="qemu-scheduler-collections-"))
    atexit.register(shutil.rmtree, root)
    link = root / COLLECTION
    link.parent.mkdir(parents=True)
    link.symlink_to(CHECKOUT, target_is_directory=True)
    return root


sys.path[:0] = [str(collections_root()), str(TESTS)]

# A shell ignores it for what it starts in the background, and so would all that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS = [signal.default_int_handler, signal.SIG_DFL]
"""Of SIGINT and SIGTERM, in all tests."""

# Tests start hundreds of Pythons: these must not compile what they import each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No clock decides whether a test passes. Where a result has to be the same twice, so have the examples.
settings.register_profile(
    "project", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("project")

# What is imported and collected lives as long as the process: garbage is collected of what comes after it.
gc.disable()


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """A test that leaves another handler would keep Ctrl-C from the session, and signals from later tests."""
    yield
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    if handlers != HANDLERS:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), HANDLERS, strict=True):
            signal.signal(number, handler)
        pytest.fail(f"the test left other handlers of signals: {handlers}")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Begin to collect garbage."""
    gc.freeze()
    gc.enable()
