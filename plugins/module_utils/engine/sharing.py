# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdicts of sharing plugins on every node, kept for one kind of request and brought up to date by looking only at
what changed.

Requests to which every sharing plugin gives the same signature share them. So a run of equal VMs costs one look at
every node and then one look per VM. Plain plugins do not come here: the scheduling cycle asks them about each node.
"""

from __future__ import annotations

import heapq
import typing as t
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CollectionError
from ..model import Request
from .cache import ClusterState, NodeInfo
from .framework.cycle_state import CycleState
from .framework.interface import Event, FilterPlugin, PerNode, Plugin, ScorePlugin, SharedPlugin
from .framework.status import Code, Status
from .guard import checked, failed, guarded, in_range

NO_SCORE = -1
"""Stands where a node was rejected; below every score."""

POINTS = 1_000_000
"""Weighted scores are summed up and compared in millionths: what computers cannot represent decides nothing."""

_HEAP_SLACK = 4
"""A heap is rebuilt once it holds this many times the number of nodes: the rest is outdated."""


class Answer(t.NamedTuple):
    """What some plugins say of a node: why not, if so; else the score of each, and their weighted sum in POINTS."""

    rejection: Status | None
    scores: tuple[float, ...]
    total: int


@dataclass(slots=True, eq=False)
class Group:
    """The nodes that are in the same group for every grouping plugin.

    Attributes:
        filters, scorers: the plugins that answer for the whole group.
        node_filters, node_scorers: the grouping plugins for which these nodes are in no group.
        heap: the negated totals and the indices of the nodes that passed; some outdated.
    """

    filters: list[FilterPlugin]
    scorers: list[ScorePlugin]
    node_filters: list[FilterPlugin]
    node_scorers: list[ScorePlugin]
    nodes: list[NodeInfo] = field(default_factory=list)
    heap: list[tuple[int, int]] = field(default_factory=list)


class SharedVerdicts:
    """What sharing plugins say of each node for one kind of request.

    Attributes:
        filters, scorers: the plugins that share, in the order of the profile.
        plain_filters, plain_scorers: the others that have something to say about such a request.
        node_scorers: those of the scorers that never group.
        rejections, scores, totals: per node, of what is asked about each node.
        group_of: per node its group; None for a node that was rejected before it was needed.
        answers: what the plugins that answer for a whole group say of it, in this cycle.
        kept: the statuses of PreFilter, by plugin, of those whose state is kept.
        codes: the codes of all PreFilter answers that are not a plain yes, by plugin.
        refusals: for each node every filter that refuses it, if that was looked at since the last change.
    """

    def __init__(
        self,
        cluster: ClusterState,
        weights: Mapping[str, float],
        filters: Sequence[FilterPlugin],
        scorers: Sequence[ScorePlugin],
        shares: Container[str],
        kept: Mapping[SharedPlugin, Status | None],
        codes: Mapping[str, Code],
    ) -> None:
        """filters and scorers are all that have something to say; shares names those that share, and kept has those
        whose state is kept, with what they answered in PreFilter.
        """
        self.filters = [f for f in filters if f.name in shares]
        self.plain_filters = [f for f in filters if f.name not in shares]
        self.scorers = [s for s in scorers if s.name in shares and s.bounded]
        self.plain_scorers = [s for s in scorers if s.name not in shares or not s.bounded]
        self.kept = {plugin.name: status for plugin, status in kept.items()}
        self.codes = codes
        self.refusals: Mapping[str, Mapping[str, Status]] | None = None
        self._cluster = cluster
        self._weights = weights
        self._state: dict[str, t.Any] = {}
        self._cursor = -1
        kept_of = [plugin for plugin, status in kept.items() if status is None or status.code is not Code.SKIP]
        asked = t.cast("list[SharedPlugin]", list(dict.fromkeys([*self.filters, *self.scorers])))
        self._updating = list(dict.fromkeys([*kept_of, *(p for p in asked if not isinstance(p, PerNode))]))
        self._grouping = [plugin for plugin in asked if type(plugin).group is not PerNode.group]
        grouping = frozenset[Plugin](self._grouping)
        self._node_filters = [f for f in self.filters if f not in grouping]
        self.node_scorers = [s for s in self.scorers if s not in grouping]
        self.rejections: list[Status | None] = [None] * len(cluster.nodes)
        self.scores: list[tuple[float, ...]] = [()] * len(cluster.nodes)
        self.totals: list[int] = [NO_SCORE] * len(cluster.nodes)
        self.group_of: list[Group | None] = [None] * len(cluster.nodes)
        self.answers: dict[Group, Answer] = {}
        self._groups: dict[Hashable, Group] = {}

    def restore(self, state: CycleState) -> None:
        """Put what the plugins have kept into the state of a new cycle."""
        state.update(self._state)

    def catch_up(self, state: CycleState, request: Request) -> None:
        """Bring everything up to date: look at each node the first time, and then at what changed."""
        if self._cursor < 0:
            self._cursor = len(self._cluster.journal)
            for info in self._cluster.nodes:
                self._evaluate(state, request, info)
            self._build_heaps()
        elif self._cursor < len(self._cluster.journal):
            self.refusals = None
            for info in self._changed(state, request):
                self._evaluate(state, request, info)
                self._push(info.index)
        self._state = {plugin.name: state[plugin.name] for plugin in self._updating if plugin.name in state}
        self.answers = {
            group: Answer(*self._ask(state, request, group.filters, group.scorers, group.nodes[0]))
            for group in self._groups.values()
        }

    def rejection(self, index: int) -> Status | None:
        """Why the node is rejected, or None."""
        rejection = self.rejections[index]
        group = self.group_of[index]
        return rejection if rejection is not None or group is None else self.answers[group].rejection

    def total(self, index: int) -> int:
        """The weighted sum of the scores of a node that is not rejected, in POINTS."""
        group = self.group_of[index]
        return self.totals[index] + (self.answers[group].total if group is not None else 0)

    def best(self) -> int | None:
        """The index of the node with the highest total; of equal ones the first by name. None when all are rejected."""
        tops = (self._top(group) for group in self._groups.values() if self.answers[group].rejection is None)
        return min((index for index in tops if index is not None), key=lambda i: (-self.total(i), i), default=None)

    # --- keeping up ---

    def _changed(self, state: CycleState, request: Request) -> list[NodeInfo]:
        """Tell the plugins of guests that came or left, and return the nodes that are to be looked at again."""
        journal = self._cluster.journal
        dirty: dict[int, NodeInfo] = {}
        fuller: set[str] = set()
        for change in journal[self._cursor :]:
            sign = 1 if change.added else -1
            for plugin in self._updating:
                others = guarded(plugin, plugin.update, state, request, change.guest, change.node, sign)
                dirty.update({info.index: info for info in others})
            dirty[change.node.index] = change.node
            for storage, _node in change.guest.storage_pending if self._grouping else ():
                seen = change.node.storages.get(storage)
                if seen is not None and seen.use.shared:
                    fuller.add(storage)
        self._cursor = len(journal)
        for group in self._groups.values() if fuller else ():
            if any(Event.STORAGE in plugin.events for plugin in (*group.node_filters, *group.node_scorers)):
                dirty.update({info.index: info for info in group.nodes if not fuller.isdisjoint(info.storages)})
        return list(dirty.values())

    def _evaluate(self, state: CycleState, request: Request, info: NodeInfo) -> None:
        """Ask about one node what its group does not answer."""
        index = info.index
        rejection, scores, total = self._ask(state, request, self._node_filters, self.node_scorers, info)
        if rejection is None:
            group = self.group_of[index] or self._join(state, request, info)
            if group.node_filters or group.node_scorers:
                rejection, more, added = self._ask(state, request, group.node_filters, group.node_scorers, info)
                scores, total = scores + more, total + added
        self.rejections[index] = rejection
        self.scores[index] = scores
        self.totals[index] = NO_SCORE if rejection is not None else total

    def _join(self, state: CycleState, request: Request, info: NodeInfo) -> Group:
        """Find the group of a node, once and for all, when nothing rejects the node for the first time."""
        keys: tuple[Hashable, ...] = ()
        for plugin in self._grouping:
            key = guarded(plugin, plugin.group, state, request, info)
            guarded(plugin, hash, key)
            keys += (key,)
        group = self._groups.get(keys)
        if group is None:
            grouped = {plugin.name: key is not None for plugin, key in zip(self._grouping, keys, strict=True)}
            group = self._groups[keys] = Group(
                filters=[f for f in self.filters if grouped.get(f.name) is True],
                scorers=[s for s in self.scorers if grouped.get(s.name) is True],
                node_filters=[f for f in self.filters if grouped.get(f.name) is False],
                node_scorers=[s for s in self.scorers if grouped.get(s.name) is False],
            )
        group.nodes.append(info)
        self.group_of[info.index] = group
        return group

    def _ask(
        self,
        state: CycleState,
        request: Request,
        filters: Sequence[FilterPlugin],
        scorers: Sequence[ScorePlugin],
        info: NodeInfo,
    ) -> tuple[Status | None, tuple[float, ...], int]:
        """What the plugins say of a node, as Answer has it."""
        plugin: Plugin | None = None
        try:
            for plugin in filters:
                status = plugin.filter(state, request, info)
                if status is not None and (status := checked(plugin, status)) is not None:
                    return status, (), 0
            scores = []
            total = 0
            weights = self._weights
            for plugin in scorers:
                score = in_range(plugin, plugin.score(state, request, info))
                scores.append(score)
                total += round(weights[plugin.name] * score * POINTS)
        except CollectionError:
            raise
        # A plugin may be anybody's code and raise anything; guarded() per call would cost more than most plugins do.
        except Exception as error:
            if plugin is None:
                raise
            raise failed(plugin, f"{type(error).__name__}: {error}") from error
        return None, tuple(scores), total

    # --- choosing ---

    def _build_heaps(self) -> None:
        totals = self.totals
        for group in self._groups.values():
            group.heap = [(-totals[info.index], info.index) for info in group.nodes if totals[info.index] >= 0]
            heapq.heapify(group.heap)

    def _push(self, index: int) -> None:
        group = self.group_of[index]
        if self.totals[index] < 0 or group is None:
            return
        if len(group.heap) > _HEAP_SLACK * len(self.totals):
            self._build_heaps()
        else:
            heapq.heappush(group.heap, (-self.totals[index], index))

    def _top(self, group: Group) -> int | None:
        """The index of the best node; what the group gets is the same for all, so what a node gets itself decides."""
        heap = group.heap
        while heap and self.totals[heap[0][1]] != -heap[0][0]:
            heapq.heappop(heap)
        return heap[0][1] if heap else None
