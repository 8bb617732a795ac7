# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the clock of a node differs from that of the node that answers."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.node_health import read_health


class OneNode:
    """A node whose clock is off by some seconds. Another thread reads an answer some seconds after that of its clock,
    before this one goes on.
    """

    def __init__(self, off: float, late: float) -> None:
        self._off = off
        self._late = late
        self._now = 1000.0

    def get(self, path: str, *_params: Any, **_more: Any) -> Any:
        if path == "/cluster/status":
            return [{"type": "node", "name": "pve1", "online": 1}]
        if path != "/nodes/pve1/time":
            return {} if path.endswith("/status") else []
        shown = self._now + self._off
        self._now += self._late
        return {"time": shown}

    def server_time(self) -> float | None:
        return self._now


@pytest.mark.parametrize(
    ("off", "late", "problems"),
    [
        (0, 0, []),
        (0, 60, []),
        (4, 0, []),
        (9, 0, ["its clock differs by 9 s"]),
        (-9, 60, ["its clock differs by 9 s"]),
        (90, 60, ["its clock differs by 30 s"]),
    ],
)
def test_clock__counts_as_wrong_if_no_time_between_two_answers_is_its_own(
    off: float, late: float, problems: list[str]
) -> None:
    (node,) = read_health(OneNode(off, late), ["pve1"])
    assert [problem.text for problem in node.problems] == problems
