# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeRegex: the nodes whose name matches a pattern in full."""

from __future__ import annotations

from collections.abc import Hashable

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PerNode, PreFilterPlugin
from ...framework.status import SKIP, Category, Status, unresolvable
from ...node_selection import compiled_regex, wanted_regex
from ...patterns.names import NamePattern

REASON = "didn't match node regex '{}'"


class NodeRegex(PerNode, PreFilterPlugin, FilterPlugin):
    """Keeps the nodes whose whole name matches C(node_regex), or the context key C(node.qemu-scheduler/regex).

    The pattern is always anchored at both ends. A request without a pattern may go anywhere.
    """

    name = "NodeRegex"
    category = Category.PLACEMENT
    events = frozenset({Event.NODE})
    about = ("node_regex", "context")

    def pre_enqueue(self, request: Request) -> Status | None:
        compiled_regex(request)
        return None

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return wanted_regex(request)

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        state[self.name] = compiled_regex(request)
        return SKIP if state[self.name] is None else None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        pattern: NamePattern = state[self.name]
        return None if pattern.matches(node.name) else unresolvable(REASON.format(pattern.text))
