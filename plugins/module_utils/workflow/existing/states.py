# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states that can be requested for a VM, and the action that brings an existing VM there."""

from __future__ import annotations

from ...errors import InvalidRequest
from ...model import OFF

STATES = ("present", "started", "stopped", "absent", "restarted", "paused", "suspended")
RUNNING = frozenset({"started", "restarted"})
"""The states in which a new VM is started."""

NOT_CREATED = frozenset({"paused", "suspended"})
"""The states that only a running VM can reach."""

PAUSED = "paused"
HIBERNATED = frozenset({"suspended", "suspending"})
"""The locks of a VM whose memory is on disk, or is being written there."""


def power_action(label: str, state: str, status: str, lock: str | None) -> str | None:
    """Return the action that brings an existing VM to a state: start, stop, resume, restart, pause, suspend, or None.

    status is the word of Proxmox VE for the VM's current state. Raises InvalidRequest if the VM cannot be brought
    there.
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
    """Raise InvalidRequest if a VM does not exist and a state is requested that only an existing VM can have."""
    if state in NOT_CREATED:
        raise InvalidRequest(f"state: {label} does not exist, and only a VM that runs can be {state}")
