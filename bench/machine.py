# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

from ansible.release import __version__ as core

from . import peer


def described() -> str:
    """One line: date, size of the machine, versions, and its load (a minute's average)."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} CPUs, {memory:.0f} GiB, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, ansible-core {core}, community.proxmox {peer.version()}, "
        "simulated Proxmox VE 9.2 in real time"
    )
