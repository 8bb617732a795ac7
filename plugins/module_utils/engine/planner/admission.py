# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of the profiles, asked about one VM on one node of a cluster that changes from step to step.

The scheduling cycle asks about every node and keeps scores as well. A search asks about single nodes, thousands of
times: here only the filters are asked, and what they keep is shared by VMs that are alike to them.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ...model import Request
from ..cache import ClusterState, NodeInfo
from ..framework.cycle_state import CycleState
from ..framework.draft import Draft
from ..framework.interface import (
    NOT_CONCERNED,
    NOT_SHARED,
    FilterPlugin,
    PerNode,
    PreFilterPlugin,
    ReservePlugin,
    SharedPlugin,
    concerns,
)
from ..framework.profile import Profile
from ..framework.status import Category, Code, Status
from ..guard import asked, guarded

REREAD = 64
"""After so many changes of the cluster, what a plugin keeps is rebuilt instead of updated."""

_SILENT = (Code.SKIP, Code.SKIP_FILTER)


@dataclass(slots=True)
class Kind:
    """What the sharing filters keep for VMs that are alike to them.

    Attributes:
        filters: those that have something to say.
        refusing: what one of them says that refuses every node.
        keeping: those that keep something in state that follows the cluster.
        cursor: how much of the cluster's journal state has seen.
    """

    filters: list[FilterPlugin]
    refusing: Status | None
    keeping: list[SharedPlugin]
    state: CycleState
    cursor: int


class Admission:
    """Says whether a VM may go to a node, by all filters of its profile."""

    def __init__(self, state: ClusterState, profile_of: Callable[[Request], Profile], now: float) -> None:
        """now is in seconds, on the clock of Request.created."""
        self.state = state
        self.profile_of = profile_of
        self.now = now
        self._kinds: dict[Hashable, Kind] = {}

    def refusal(self, request: Request, info: NodeInfo) -> Status | None:
        """The first reason why the request may not go to the node; None when it may."""
        return next(self.refusals(request, (info,)), (None, None))[1]

    def refusals(self, request: Request, nodes: t.Iterable[NodeInfo]) -> t.Iterator[tuple[NodeInfo, Status]]:
        """Every reason of every filter against each of the nodes."""
        state, filters, refusing = self._prepared(request)
        for info in nodes:
            if refusing is not None:
                yield info, refusing
            for plugin in filters:
                status = asked(plugin, plugin.filter, state, request, info)
                if status is not None and status.code not in _SILENT:
                    yield info, status

    def shared(self, request: Request) -> Hashable | None:
        """What the request has in common with all those that the filters treat alike; None when it is one of a kind."""
        plain, key = self._signatures(request)
        state = CycleState()
        for plugin in plain:
            if isinstance(plugin, PreFilterPlugin):
                status = asked(plugin, plugin.pre_filter, state, request, self.state, self.now)
                if status is not None and status.code in _SILENT:
                    continue
            return None
        return key

    def reserve(self, request: Request, info: NodeInfo, vmid: int) -> Draft | Status:
        """What the request takes on the node beside CPU and memory, or why it cannot."""
        state, _filters, _refusing = self._prepared(request)
        draft = Draft(request, info.name, 0.0, vmid)
        plugins: list[ReservePlugin] = self.profile_of(request).plugins("reserves")
        for plugin in plugins:
            if not concerns(plugin, request):
                continue
            status = asked(plugin, plugin.reserve, state, request, info, draft)
            if status is not None and status.code is not Code.SKIP:
                return status
        return draft

    # --- inside ---

    def _prepared(self, request: Request) -> tuple[CycleState, list[FilterPlugin], Status | None]:
        """The state of a cycle for the request, the filters that have something to say, and what refuses everywhere."""
        plain, key = self._signatures(request)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._new_kind(request, plain)
        elif kind.keeping and kind.cursor < len(self.state.journal):
            self._catch_up(kind, request)
        # What is found once per cycle goes into the copy.
        state = CycleState(kind.state)
        filters, refusing = kind.filters, kind.refusing
        for plugin in plain:
            silent = False
            if isinstance(plugin, PreFilterPlugin):
                status = asked(plugin, plugin.pre_filter, state, request, self.state, self.now)
                silent = status is not None and status.code in _SILENT
                refusing = refusing or (None if status is None or silent or status.code is Code.SKIP_SCORE else status)
            if not silent and isinstance(plugin, FilterPlugin):
                filters = [*filters, plugin]
        return state, filters, refusing

    def _signatures(self, request: Request) -> tuple[list[t.Any], Hashable]:
        """The plugins that have to be asked as plain ones, and what the others look at."""
        profile = self.profile_of(request)
        looking = [plugin for plugin in profile.pre_filters if concerns(plugin, request)]
        plain: list[t.Any] = [p for p in looking if not isinstance(p, (FilterPlugin, SharedPlugin))]
        signatures: list[Hashable] = [profile.name]
        for plugin in profile.plugins("filters"):
            signature = NOT_SHARED
            if not concerns(plugin, request):
                signature = NOT_CONCERNED
            elif isinstance(plugin, SharedPlugin):
                signature = guarded(plugin, plugin.signature, request, self.state)
            if signature is NOT_SHARED:
                plain.append(plugin)
                signature = plugin.name
            signatures.append(signature)
        return plain, tuple(signatures)

    def _new_kind(self, request: Request, plain: list[t.Any]) -> Kind:
        kind = Kind([], None, [], CycleState(), len(self.state.journal))
        for plugin in self.profile_of(request).plugins("filters"):
            if plugin in plain or not concerns(plugin, request):
                continue
            status: Status | None = None
            if isinstance(plugin, PreFilterPlugin):
                status = asked(plugin, plugin.pre_filter, kind.state, request, self.state, self.now)
                if not isinstance(plugin, PerNode) and (status is None or status.code is not Code.SKIP):
                    kind.keeping.append(t.cast("SharedPlugin", plugin))
            if status is None or status.code is Code.SKIP_SCORE:
                kind.filters.append(plugin)
            elif status.code not in _SILENT:
                kind.refusing = kind.refusing or status
        return kind

    def _catch_up(self, kind: Kind, request: Request) -> None:
        journal = self.state.journal
        missed = journal[kind.cursor :]
        kind.cursor = len(journal)
        for plugin in kind.keeping:
            if len(missed) > REREAD:
                asked(plugin, t.cast("PreFilterPlugin", plugin).pre_filter, kind.state, request, self.state, self.now)
                continue
            for change in missed:
                sign = 1 if change.added else -1
                guarded(plugin, plugin.update, kind.state, request, change.guest, change.node, sign)


def lasting(status: Status) -> bool:
    """Whether a refusal stands whatever guests are moved."""
    return not status.resolvable or status.category is Category.PLACEMENT
