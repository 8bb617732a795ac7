# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeRegex: the nodes whose name matches a pattern in full."""

from __future__ import annotations

import re
from collections.abc import Hashable

from ....errors import InvalidRequest
from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PreFilterPlugin
from ...framework.status import SKIP, Status, unresolvable

CONTEXT_KEY = "node.qemu-scheduler/regex"
REASON = "didn't match node regex '{}'"


class NodeRegex(PreFilterPlugin, FilterPlugin):
    """Keeps the nodes whose whole name matches C(node_regex), or the context key C(node.qemu-scheduler/regex).

    Python's regular expressions, always anchored at both ends. A request without a pattern may go anywhere.
    """

    name = "NodeRegex"
    events = frozenset({Event.NODE})

    def signature(self, request: Request) -> Hashable:
        return wanted(request)

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        text = wanted(request)
        if text is None:
            return SKIP
        try:
            state[self.name] = re.compile(text)
        except re.error as error:
            raise InvalidRequest(f"node_regex: {text!r} is not a regular expression: {error}") from error
        return None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        pattern: re.Pattern[str] = state[self.name]
        return None if pattern.fullmatch(node.name) else unresolvable(REASON.format(pattern.pattern))


def wanted(request: Request) -> str | None:
    """The pattern that the request gives."""
    return request.node_regex or request.context.get(CONTEXT_KEY)
