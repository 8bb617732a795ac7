# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rolling upgrade checks and sets around each node: the health of nodes, and the flags of Ceph."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Mapping

from ..errors import ApiError, ConnectionFailed
from ..proxmox.api.session import Session
from ..proxmox.ceph import read_flag, set_flag
from ..proxmox.node_health import NodeHealth, read_health
from .stopping import Stop

PRESENT, ABSENT = "present", "absent"
"""The states of a flag of Ceph."""

PAUSE = 5.0
"""Seconds between two reads while the module waits."""


def health_info(params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the health of nodes, read once, or until all of them are healthy or the time is over.

    Raises InvalidRequest, and what logging in and reading raise once the time is over.
    """
    deadline = time.monotonic() + params["wait"]
    while True:
        try:
            found = _read(params)
        except (ApiError, ConnectionFailed):
            # The address may be that of a node that is starting.
            if time.monotonic() >= deadline:
                raise
        else:
            healthy = all(node.healthy for node in found)
            if healthy or time.monotonic() >= deadline:
                return {"changed": False, "healthy": healthy, "nodes": [describe_health(node) for node in found]}
        time.sleep(max(min(PAUSE, deadline - time.monotonic()), 0.0))


def describe_health(node: NodeHealth) -> dict[str, t.Any]:
    """Return the health of a node as the module returns it."""
    return {
        "name": node.name,
        "healthy": node.healthy,
        "problems": [problem.text for problem in node.problems],
        "problem_names": [problem.name for problem in node.problems],
        "accepted": [problem.text for problem in node.accepted],
        "unchecked": node.unchecked,
        "uptime": node.uptime,
        "version": node.version,
    }


def _read(params: Mapping[str, t.Any]) -> list[NodeHealth]:
    session = Session.connect(params)
    try:
        return read_health(session, list(dict.fromkeys(params["name"])), params["accept"])
    finally:
        session.close()


def ceph_flag(params: Mapping[str, t.Any], *, check_mode: bool) -> dict[str, t.Any]:
    """Do what a ceph_flag task says, and return the module's result. Raises what logging in and the API raise."""
    wanted = params["state"] == PRESENT
    session = Session.connect(params, before_write=Stop().check)
    try:
        found = read_flag(session, params["name"])
        changed = found not in (None, wanted)
        if changed and not check_mode:
            set_flag(session, params["name"], wanted)
    finally:
        session.close()
    return {"changed": changed, "ceph": found is not None}
