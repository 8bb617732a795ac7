# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the clock of a node differs from that of the node that answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.node_health import read_health


class OneNode:
    """A node whose clock is off by some seconds, read through another node. Each request waits some seconds before the
    clock is read; the other node sends the answers some seconds after it got them, and answers other threads later.
    """

    def __init__(self, off: float, waits: float, delays: Sequence[float]) -> None:
        self._off = off
        self._waits = waits
        self._delays: Iterator[float] = iter(delays)
        self._now = 1000.0

    def get(self, path: str, *_params: Any, **_more: Any) -> Any:
        if path == "/cluster/status":
            return [{"type": "node", "name": "pve1", "online": 1}]
        if path != "/nodes/pve1/time":
            return {} if path.endswith("/status") else []
        self._now += self._waits
        shown = self._now + self._off
        self._now += next(self._delays)
        return {"time": shown}

    def server_time(self) -> float | None:
        return self._now + 60

    def answer_time(self) -> float | None:
        return self._now


@pytest.mark.parametrize(
    ("off", "waits", "delays", "problems"),
    [
        (0, 0, [0], []),
        (0, 60, [0], []),
        (4, 0, [0], []),
        (-4, 20, [0], []),
        (9, 0, [0, 0, 0], ["its clock differs by 9 s"]),
        (-7, 3, [0, 0, 0], ["its clock differs by 7 s"]),
        (-7, 60, [0, 0, 0], ["its clock differs by 7 s"]),
        (0, 0, [9, 0], []),
        (-7, 0, [9, 8, 1], ["its clock differs by 8 s"]),
    ],
)
def test_clock__is_compared_with_the_time_at_which_its_own_answer_was_sent(
    off: float, waits: float, delays: list[float], problems: list[str]
) -> None:
    (node,) = read_health(OneNode(off, waits, delays), ["pve1"])
    assert [problem.text for problem in node.problems] == problems
