# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for a condition that other processes make true."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300
"""Seconds after which a wait fails: far more than the busiest machine needs. No test depends on this number."""


def until(condition: Callable[[], object]) -> None:
    """Return as soon as `condition` is true, and fail if it never is."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        # Most conditions ask a cluster, which takes some milliseconds of two processes.
        time.sleep(0.05)
