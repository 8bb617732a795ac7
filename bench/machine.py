# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the numbers were measured on, and how much of it was in use by others meanwhile."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

from ansible.release import __version__ as core

from . import peer

IDLE = (3, 4)
"""The columns of idle and iowait in /proc/stat."""


def described() -> str:
    """One line: date, size of the machine, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} CPUs, {memory:.0f} GiB, "
        f"Python {platform.python_version()}, ansible-core {core}, community.proxmox {peer.version()}, "
        "simulated Proxmox VE 9.2 in real time"
    )


class Watch:
    """Tells which part of the CPU time has gone to others since it was made: the load average counts the benchmark."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy(), _own()

    def others(self) -> float:
        """The part, 0..1, of the time of all CPUs."""
        seconds = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return min(max((_busy() - self._busy) - (_own() - self._own), 0.0) / seconds, 1.0)


def _busy() -> float:
    """CPU seconds of all processes since the machine was started, with those that the host of a VM took away."""
    columns = [int(text) for text in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    return sum(value for at, value in enumerate(columns) if at not in IDLE) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])
