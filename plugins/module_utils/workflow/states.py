# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states that a VM may be wanted in, and what takes an existing VM there."""

from __future__ import annotations

from ..errors import InvalidRequest
from ..model import OFF

STATES = ("present", "started", "stopped", "absent", "restarted", "paused", "suspended")
RUNNING = frozenset({"started", "restarted"})
"""The states in which a new VM is started."""

NOT_CREATED = frozenset({"paused", "suspended"})
"""The states that only a VM which runs can be brought to."""

PAUSED = "paused"
HIBERNATED = frozenset({"suspended", "suspending"})
"""Locks of a VM whose memory is on disk, or goes there."""


def power_action(label: str, state: str, status: str, lock: str | None) -> str | None:
    """Return what takes an existing VM to a state: start, stop, resume, restart, pause, suspend, or None.

    status is Proxmox VE's word for what the VM does. Raises InvalidRequest when the VM cannot be taken there.
    """
    off = status in OFF
    if state == "started":
        return "start" if off else "resume" if status == PAUSED else None
    if state == "stopped":
        return None if off else "stop"
    if state == "restarted":
        return "start" if off else "restart"
    if state not in NOT_CREATED or (state == "suspended" and lock in HIBERNATED):
        return None
    if off:
        raise InvalidRequest(f"state: {label} does not run, and only a VM that runs can be {state}")
    return "suspend" if state == "suspended" else None if status == PAUSED else "pause"


def require_creatable(label: str, state: str) -> None:
    """Raise InvalidRequest for a VM that does not exist and is wanted in a state that only an existing one can have."""
    if state in NOT_CREATED:
        raise InvalidRequest(f"state: {label} does not exist, and only a VM that runs can be {state}")
