# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of nodes, read once or until all of them are healthy."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Mapping

from ..errors import ApiError, ConnectionFailed
from ..proxmox.api.session import Session
from ..proxmox.node_health import NodeHealth, read_health

PAUSE = 5.0
"""Seconds between two reads while the module waits."""


def health_info(params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The result of the module C(node_health_info).

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
    """The health of a node as the module returns it."""
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
