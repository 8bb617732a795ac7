# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the filters of a profile for one VM on one node, on a cluster state that changes with every step.

The scheduling cycle filters and scores all nodes. A search asks about single nodes, thousands of times: this module
runs only the filters, and VMs with equal signatures share the state that the filters keep.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ...model import Request
from ..cache import ClusterState, NodeInfo
from ..framework.interface import CycleState, Draft, FilterPlugin, PreFilterPlugin, ReservePlugin, concerns
from ..framework.many_nodes import NOT_CONCERNED, NOT_SHARED, PerNode, SharedPlugin
from ..framework.status import Category, Code, Status
from ..guard import asked, guarded
from ..profiles import Profile

REREAD = 64
"""After more changes than this, a plugin's state is rebuilt instead of updated."""

_SILENT = (Code.SKIP, Code.SKIP_FILTER)


@dataclass(slots=True)
class Kind:
    """The state that the sharing filters keep for VMs with equal signatures.

    Attributes:
        filters: the filters that apply to these VMs.
        refusing: a PreFilter status that rejects every node, or None.
        keeping: the plugins whose state follows the changes of the cluster.
        cursor: the number of entries of the cluster's journal that state includes.
    """

    filters: list[FilterPlugin]
    refusing: Status | None
    keeping: list[SharedPlugin]
    state: CycleState
    cursor: int


class Admission:
    """Decides by all filters of its profile whether a VM may be placed on a node."""

    def __init__(self, state: ClusterState, profile_of: Callable[[Request], Profile], now: float) -> None:
        """now is in seconds, on the clock of Request.created."""
        self.state = state
        self.profile_of = profile_of
        self.now = now
        self._kinds: dict[Hashable, Kind] = {}

    def refusal(self, request: Request, info: NodeInfo) -> Status | None:
        """Return the first reason against the request on the node, or None."""
        return next(self.refusals(request, (info,)), (None, None))[1]

    def refusals(self, request: Request, nodes: t.Iterable[NodeInfo]) -> t.Iterator[tuple[NodeInfo, Status]]:
        """Yield every filter's reason against each of the nodes."""
        state, filters, refusing = self._prepared(request)
        for info in nodes:
            if refusing is not None:
                yield info, refusing
            for plugin in filters:
                status = asked(plugin, plugin.filter, state, request, info)
                if status is not None and status.code not in _SILENT:
                    yield info, status

    def shared(self, request: Request) -> Hashable | None:
        """Return a key that is equal for requests which the filters treat alike; None if no other request is alike."""
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
        """Return the volumes and devices that the request would get on the node, or why it gets none."""
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
        """Return the cycle state of the request, the filters that apply, and a status that rejects every node."""
        plain, key = self._signatures(request)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._new_kind(request, plain)
        elif kind.keeping and kind.cursor < len(self.state.journal):
            self._catch_up(kind, request)
        # What plugins find once per cycle goes into the copy.
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
        """Return the plugins that share no state, and the combined signature of the others."""
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
    """Return whether no move of guests can resolve the refusal."""
    return not status.resolvable or status.category is Category.PLACEMENT
