# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ceph_flag task, from its options to its result."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..proxmox.api.session import Session
from ..proxmox.ceph import is_set, set_flag
from .stopping import Stop

PRESENT, ABSENT = "present", "absent"


def ceph_flag(params: Mapping[str, t.Any], *, check_mode: bool) -> dict[str, t.Any]:
    """Do what a ceph_flag task says, and return the module's result. Raises what logging in and the API raise."""
    wanted = params["state"] == PRESENT
    session = Session.connect(params)
    session.before_write = Stop().check
    try:
        found = is_set(session, params["name"])
        changed = found not in (None, wanted)
        if changed and not check_mode:
            set_flag(session, params["name"], wanted)
    finally:
        session.close()
    return {"changed": changed, "ceph": found is not None}
