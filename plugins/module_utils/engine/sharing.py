# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shared verdicts on every node for one kind of request. After a change, only what changed is evaluated again.

Requests for which every sharing plugin returns the same signature share them. So a run of equal VMs evaluates every
node once, and then only the changed nodes for each VM. Plain plugins are not called here but in the scheduling cycle.
"""

from __future__ import annotations

import heapq
import typing as t
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence

from ..model import Request
from .cache import ClusterState, NodeInfo
from .framework.interface import CycleState, Event, FilterPlugin, Plugin, ScorePlugin
from .framework.many_nodes import PerNode, SharedPlugin
from .framework.status import Code, Status
from .guard import Blame, finite, guarded, in_range, normalized, raw_scores, run_filters, run_scorers
from .verdicts import NOTHING, POINTS, Answer, Division, Group, Moment, Past, Scoring, Was

REJECTED = -1
"""The total of a rejected node; lower than every other."""

KIND_COST = 100
"""The fixed cost of keeping one kind of request, in verdicts."""

_HEAP_SLACK = 4
"""A heap is rebuilt once it holds this many times the number of nodes, as most of its entries are outdated then."""


class SharedVerdicts:
    """The verdicts of sharing plugins on each node for one kind of request.

    Attributes:
        filters, scorers: the plugins that share, in the order of the profile.
        ranked: the scorers that are not bounded.
        answers: the verdict on each group in this cycle.
        kept: the PreFilter statuses of the plugins whose state is kept, by plugin.
    """

    def __init__(
        self,
        cluster: ClusterState,
        weights: Mapping[str, float],
        filters: Sequence[FilterPlugin],
        scorers: Sequence[ScorePlugin],
        kept: Mapping[SharedPlugin, Status | None],
        codes: Mapping[str, Code],
        shares: Iterable[str],
    ) -> None:
        """filters and scorers are the sharing plugins that apply to the request; kept has the plugins whose state is
        kept, with their PreFilter statuses; codes has the PreFilter codes of all plugins, without plain successes;
        shares names all plugins that share.
        """
        self.filters, self.scorers = filters, scorers
        self.bounded = [s for s in scorers if s.bounded]
        self.ranked = [s for s in scorers if not s.bounded]
        self.kept = {plugin.name: status for plugin, status in kept.items()}
        self._shares = frozenset(shares)
        self._codes = {name: code for name, code in codes.items() if name in self._shares}
        self.answers: dict[Group, Answer] = {}
        self._cluster = cluster
        self._weights = weights
        self._state: dict[str, t.Any] = {}
        self._cursor = -1
        kept_of = [plugin for plugin, status in kept.items() if status is None or status.code is not Code.SKIP]
        asked = t.cast("list[SharedPlugin]", list(dict.fromkeys([*filters, *scorers])))
        self._updating = list(dict.fromkeys([*kept_of, *(p for p in asked if not isinstance(p, PerNode))]))
        self._grouping = [plugin for plugin in asked if type(plugin).group is not PerNode.group]
        self._regroups = any(plugin.regroups for plugin in self._grouping)
        grouping = frozenset[Plugin](self._grouping)
        self._node_filters = [f for f in filters if f not in grouping]
        count = len(cluster.nodes)
        self._rejections: list[Status | None] = [None] * count
        self._scores = {scorer.name: array("d", bytes(8 * count)) for scorer in self.bounded}
        self._totals = array("q", bytes(8 * count))
        self._group_of: list[Group | None] = [None] * count
        self._keys: list[tuple[Hashable, ...]] = [()] * count
        self._known_keys: dict[tuple[Hashable, ...], tuple[Hashable, ...]] = {}
        self._divisions: dict[Hashable, Division] = {}
        self._division_of: list[Division | None] = [None] * count
        self._groups: dict[Hashable, Group] = {}
        self._moment = Moment()

    @property
    def size(self) -> int:
        """The cost of keeping it, in verdicts. Groups cost more than the verdicts on their nodes."""
        return KIND_COST + len(self._totals) * (4 if self._grouping else 1)

    def restore(self, state: CycleState) -> None:
        """Copy the kept state of the plugins into the state of a new cycle."""
        state.update(self._state)

    def holds_for(self, codes: Mapping[str, Code]) -> bool:
        """Whether the PreFilter codes of the sharing plugins are the same as when these verdicts were begun."""
        return {name: code for name, code in codes.items() if name in self._shares} == self._codes

    def catch_up(self, state: CycleState, request: Request) -> None:
        """Bring all verdicts up to date: evaluate every node the first time, then those that changed."""
        if self._cursor < 0:
            self._cursor = len(self._cluster.journal)
            self._evaluate(state, request, self._cluster.nodes)
            self._build_heaps()
        elif self._cursor < len(self._cluster.journal):
            changed = self._changed(state, request)
            for info in changed.values() if self._regroups else ():
                self._forget_group(info)
            if self._grouping:
                changed.update(self._sharing_space())
            self._cursor = len(self._cluster.journal)
            self._look_again(state, request, list(changed.values()))
        self._state = {plugin.name: state[plugin.name] for plugin in self._updating if plugin.name in state}
        self.answers = {}
        for key, group in list(self._groups.items()):
            top = self._top(group)
            if top is None:
                del self._groups[key]
            else:
                group.top = top
                self.answers[group] = self._answer(state, request, group, self._cluster.nodes[top])

    def passing(self) -> list[NodeInfo]:
        """The nodes that are not rejected, in order of name."""
        nodes, groups = self._cluster.nodes, self._group_of
        refused = {group for group, answer in self.answers.items() if answer.rejection is not None}
        found = [nodes[index] for index, rejection in enumerate(self._rejections) if rejection is None]
        return [info for info in found if groups[info.index] not in refused] if refused else found

    def rejected(self) -> Mapping[str, Mapping[int, Status]]:
        """The rejections of nodes that were evaluated by themselves, by plugin and by index."""
        found: dict[str, dict[int, Status]] = {}
        for index, rejection in enumerate(self._rejections):
            if rejection is not None:
                found.setdefault(rejection.plugin, {})[index] = rejection
        return found

    def totals(self, nodes: Sequence[NodeInfo]) -> list[int]:
        """The weighted sum of the bounded scores of nodes that are not rejected, in POINTS."""
        of_groups: dict[Group | None, int] = {group: answer.total for group, answer in self.answers.items()}
        totals, groups = self._totals, self._group_of
        return [totals[info.index] + of_groups.get(groups[info.index], 0) for info in nodes]

    def best(self, state: CycleState, request: Request) -> tuple[int, int] | None:
        """The index of the node with the highest weighted sum of all scores, and that sum. Of equal nodes, the first by
        name. None if all nodes are rejected.
        """
        passing = [group for group, answer in self.answers.items() if answer.rejection is None]
        added = self._rank(state, request, passing) if self.ranked else [0] * len(passing)
        sums = [
            (-self._totals[group.top] - self.answers[group].total - more, group.top)
            for group, more in zip(passing, added, strict=True)
        ]
        if not sums:
            return None
        total, index = min(sums)
        return index, -total

    # --- looking back ---

    def moment(self) -> Moment:
        """The current point in time, for as_of."""
        self._moment.next = Moment()
        self._moment = self._moment.next
        return self._moment

    def as_of(self, moment: Moment) -> Past:
        """The verdicts on the nodes at a moment."""
        moments = [moment]
        while (following := moments[-1].next) is not None:
            moments.append(following)
        changed: dict[int, Was] = {}
        for each in reversed(moments):
            changed.update(each.changed)
        rejections, totals, groups = self._rejections.copy(), self._totals[:], self._group_of.copy()
        for index, was in changed.items():
            rejections[index], totals[index], groups[index] = was.rejection, was.total, was.group
        return Past(rejections, totals, groups, lambda at: changed[at] if at in changed else self._now(at))

    def _now(self, index: int) -> Was:
        scores = tuple([given[index] for given in self._scores.values()])
        return Was(self._rejections[index], scores, self._totals[index], self._group_of[index])

    # --- keeping up ---

    def _changed(self, state: CycleState, request: Request) -> dict[int, NodeInfo]:
        """Report guests that came or left to the plugins; return the nodes that this affects, by index."""
        journal = self._cluster.journal
        dirty: dict[int, NodeInfo] = {}
        for change in journal[self._cursor :]:
            sign = 1 if change.added else -1
            for plugin in self._updating:
                others = guarded(plugin, plugin.update, state, request, change.guest, change.node, sign)
                dirty.update({info.index: info for info in others})
            dirty[change.node.index] = change.node
        return dirty

    def _sharing_space(self) -> Mapping[int, NodeInfo]:
        """The nodes that see a shared storage whose space has changed, and that a plugin with Event.STORAGE evaluates
        individually.
        """
        storages = {
            name
            for change in self._cluster.journal[self._cursor :]
            for name, _node in change.guest.storage_pending
            if (seen := change.node.storages.get(name)) is not None and seen.use.shared
        }
        return {
            index: info
            for division in self._divisions.values()
            for index, info in (division.nodes if storages else {}).items()
            if not storages.isdisjoint(info.storages)
        }

    def _forget_group(self, info: NodeInfo) -> None:
        """Forget the group of a node, so that the plugins determine it again."""
        division = self._division_of[info.index]
        if division is not None:
            division.nodes.pop(info.index, None)
            self._division_of[info.index] = None

    def _look_again(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> None:
        """Evaluate nodes that were evaluated before."""
        for info in nodes:
            self._moment.changed.setdefault(info.index, self._now(info.index))
        self._evaluate(state, request, nodes)
        for info in nodes:
            group = self._group_of[info.index]
            if group is not None and self._totals[info.index] != REJECTED:
                if len(group.heap) > _HEAP_SLACK * len(self._totals):
                    self._build_heaps()
                else:
                    heapq.heappush(group.heap, self._ranking(info.index))

    def _evaluate(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> None:
        """Evaluate on nodes what is not evaluated for their groups."""
        for info in nodes:
            self._rejections[info.index] = None
            self._totals[info.index] = REJECTED
        nodes = run_filters(state, request, self._node_filters, nodes, self._rejections)
        for division, members in self._divided(state, request, nodes).items():
            left = run_filters(state, request, division.node_filters, members, self._rejections)
            totals = run_scorers(state, request, division.node_scorers, left)
            raws = self._raw_scores(state, request, division, left)
            for info, total, raw in zip(left, totals, raws, strict=True):
                self._totals[info.index] = total
                self._group_of[info.index] = self._group(division, self._keys[info.index], raw)

    def _raw_scores(
        self, state: CycleState, request: Request, division: Division, nodes: Sequence[NodeInfo]
    ) -> Iterable[tuple[float | None, ...]]:
        """For each node its unbounded scores; None for those that are evaluated for the whole group."""
        if not self.ranked:
            return [()] * len(nodes)
        columns: list[Iterable[float | None]] = []
        for scorer, alone in zip(self.ranked, division.alone, strict=True):
            columns.append(raw_scores(scorer, state, request, nodes) if alone else [None] * len(nodes))
        return zip(*columns, strict=True)

    def _divided(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]
    ) -> Mapping[Division, Sequence[NodeInfo]]:
        """The nodes by division. The groups of a node are determined once, when no filter rejects it for the first
        time.
        """
        if not self._grouping:
            return {self._division(()): nodes}
        new = [info for info in nodes if self._division_of[info.index] is None]
        columns: list[list[Hashable]] = []
        with Blame() as blame:
            for plugin in self._grouping:
                blame.plugin = plugin
                columns.append([plugin.group(state, request, info) for info in new])
                hash(tuple(columns[-1]))
        for info, keys in zip(new, zip(*columns, strict=True), strict=True):
            # Many nodes have equal keys, of which one is enough to keep.
            self._keys[info.index] = self._known_keys.setdefault(keys, keys)
            division = self._division_of[info.index] = self._division(keys)
            if division.watched:
                division.nodes[info.index] = info
        divided: dict[Division, list[NodeInfo]] = {}
        for info in nodes:
            of_node = self._division_of[info.index]
            if of_node is not None:
                divided.setdefault(of_node, []).append(info)
        return divided

    def _division(self, keys: tuple[Hashable, ...]) -> Division:
        """The division of nodes with these groups."""
        pattern = tuple([key is None for key in keys])
        division = self._divisions.get(pattern)
        if division is None:
            alone = {plugin.name: key is None for plugin, key in zip(self._grouping, keys, strict=True)}
            division = self._divisions[pattern] = Division(
                filters=[f for f in self.filters if alone.get(f.name) is False],
                scorers=[s for s in self.bounded if alone.get(s.name) is False],
                node_filters=[f for f in self.filters if alone.get(f.name) is True],
                node_scorers=self._scoring([s for s in self.bounded if alone.get(s.name) is not False]),
                alone=[alone.get(s.name) is not False for s in self.ranked],
                watched=any(Event.STORAGE in p.events for p in self._grouping if alone[p.name]),
            )
        return division

    def _group(self, division: Division, keys: Hashable, raws: tuple[float | None, ...]) -> Group:
        group = self._groups.get((keys, raws))
        if group is None:
            group = self._groups[keys, raws] = Group(division, raws)
        return group

    # --- asking plugins ---

    def _scoring(self, scorers: Iterable[ScorePlugin]) -> list[Scoring]:
        return [Scoring(scorer, self._scores[scorer.name], self._weights[scorer.name]) for scorer in scorers]

    def _answer(self, state: CycleState, request: Request, group: Group, info: NodeInfo) -> Answer:
        """The verdict on a whole group, from the evaluation of one of its nodes."""
        division = group.division
        if not (division.filters or division.scorers or self.ranked):
            return NOTHING
        rejections: dict[int, Status] = {}
        if not run_filters(state, request, division.filters, [info], rejections):
            return Answer(rejections[info.index])
        scores = [in_range(s, guarded(s, s.score, state, request, info)) for s in division.scorers]
        points = (
            round(self._weights[s.name] * given * POINTS) for s, given in zip(division.scorers, scores, strict=True)
        )
        raws = (
            finite(scorer, guarded(scorer, scorer.score, state, request, info)) if raw is None else raw
            for scorer, raw in zip(self.ranked, group.raws, strict=True)
        )
        return Answer(None, tuple(scores), sum(points), tuple(raws))

    # --- choosing ---

    def _rank(self, state: CycleState, request: Request, passing: Sequence[Group]) -> list[int]:
        """Normalize the unbounded scores, each different one once. Returns their weighted sum for each group."""
        if not passing:
            return []
        columns: list[list[float]] = []
        for number, scorer in enumerate(self.ranked):
            first = {self.answers[group].raws[number]: self._cluster.nodes[group.top] for group in passing}
            made = normalized(scorer, state, request, list(first.values()), list(first))
            by_raw = dict(zip(first, made, strict=True))
            columns.append([by_raw[self.answers[group].raws[number]] for group in passing])
        added = []
        for group, scores in zip(passing, zip(*columns, strict=True), strict=True):
            self.answers[group] = self.answers[group]._replace(normalized=scores)
            weighted = zip(self.ranked, scores, strict=True)
            added.append(sum(round(self._weights[scorer.name] * score * POINTS) for scorer, score in weighted))
        return added

    def _ranking(self, index: int) -> int:
        """A number that is smaller for a better node: ordered by total, then by name."""
        return index - self._totals[index] * len(self._totals)

    def _build_heaps(self) -> None:
        for group in self._groups.values():
            group.heap.clear()
        for index, of_node in enumerate(self._group_of):
            if of_node is not None and self._totals[index] != REJECTED:
                of_node.heap.append(self._ranking(index))
        for group in self._groups.values():
            heapq.heapify(group.heap)

    def _top(self, group: Group) -> int | None:
        """The index of the best node. All nodes of the group share its scores, so their own totals decide."""
        heap, count = group.heap, len(self._totals)
        while heap:
            index = heap[0] % count
            if self._group_of[index] is group and self._totals[index] != REJECTED and self._ranking(index) == heap[0]:
                return index
            heapq.heappop(heap)
        return None
