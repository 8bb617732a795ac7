# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts how many more VMs fit: places one shape, or several in turn, until one no longer fits, and reports why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import NoNodesAvailable, NoStorageAvailable, NoVMIDAvailable
from ..model import Decision, Request
from .cache import ClusterState, assumed_guest
from .framework.deferred import DeferredFilter
from .framework.interface import ScorePlugin
from .framework.status import Category
from .guard import call_plugin
from .profiles import Profile
from .scheduling_cycle import Scheduler
from .verdicts import Outcome

MOST = 10_000
"""The counting stops after this many VMs, as a shape that takes nothing would always fit."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """How many of the VMs fit on one node, and why no more do.

    limited_by is C(cpu), C(memory) or C(storage) if that ran out, else the plugin that rejects the node; None if the
    node would accept more. reason is that of the plugin.
    """

    node: str
    fit: int
    limited_by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class More:
    """How many more VMs of one shape fit after those of all shapes, and what limits them as in CapacityReport."""

    fit: int
    limited_by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """How many VMs fit.

    total counts the VMs of all shapes, shapes those of each shape in order. limited_by is what limits the most nodes,
    or the error code if no node is the cause (C(NoVMIDAvailable)); None if the counting stopped at its bound. reason is
    the message for the VM that no longer fitted. more has the shapes that were counted alone afterwards, by their
    numbers.
    """

    total: int
    nodes: tuple[NodeCapacity, ...]
    shapes: tuple[int, ...]
    limited_by: str | None = None
    reason: str | None = None
    more: Mapping[int, More] = field(default_factory=dict)


def how_many(
    cluster: ClusterState,
    profiles: Mapping[str, Profile],
    shapes: Sequence[Request],
    *,
    default_profile: str = "balanced",
    most: int = MOST,
    alone: Collection[int] = (),
) -> CapacityReport:
    """Count how many VMs of the shapes fit. Several shapes are placed in turn until one no longer fits. After these,
    how many more fit of each shape whose number is in alone.

    Fixed VMIDs, scheduling gates, delays and groups of the shapes are ignored. The cluster is left as it was. Raises
    InvalidRequest and PluginFailed.
    """
    scheduler = Scheduler(cluster, profiles, default_profile)
    counting = _Counting(scheduler, [replace(shape, vmid=None) for shape in shapes], most)
    try:
        counting.skip_ahead()
        last = counting.place_in_turn()
        decided = tuple(counting.placed)
        left = (most - len(decided)) // max(len(alone), 1)
        more = {}
        for number in alone:
            found = how_many(cluster, profiles, [shapes[number]], default_profile=default_profile, most=left)
            more[number] = More(found.total, found.limited_by, found.reason)
    finally:
        counting.keep(())
    names = [info.name for info in cluster.nodes]
    per_node = Counter(decision.node for decision in decided)
    fits = tuple(len(decided[number :: len(shapes)]) for number in range(len(shapes)))
    if last is None:
        nodes = tuple(NodeCapacity(name, per_node[name]) for name in names)
        return CapacityReport(len(decided), nodes, fits, more=more)
    return replace(_report(last, names, per_node, fits), more=more)


class _Counting:
    """Places VMs in turn, with the decisions that the scheduler would make.

    Deferred filters are asked about nodes in the order of their scores, until they accept one: what they reject besides
    changes no choice.

    Attributes:
        placed: the decisions that are assumed, in order.
    """

    def __init__(self, scheduler: Scheduler, requests: Sequence[Request], most: int) -> None:
        self.placed: list[Decision] = []
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._requests = requests
        self._most = most
        used = {request.profile or scheduler.default_profile: scheduler.profile(request) for request in requests}
        plugins = [plugin for profile in used.values() for plugin in profile.plugins]
        self._deferred = [plugin for plugin in plugins if isinstance(plugin, DeferredFilter)]
        # A normalized score depends on the other nodes that pass.
        self._normalized = {p.name for p in plugins if isinstance(p, ScorePlugin) and not p.bounded}
        without = {name: profile.without(self._deferred) for name, profile in used.items()}
        self._quick = Scheduler(self._cluster, without, scheduler.default_profile)

    def skip_ahead(self) -> None:
        """Place the first VMs, about which the deferred filters need not be asked."""
        if not self._deferred:
            return
        while len(self.placed) < self._most:
            outcome = self._quick.schedule(self._next, math.inf)
            if outcome.decision is None:
                break
            self.placed.append(outcome.decision)
            if self._is_normalized(outcome):
                self.keep(self.placed[:-1])
                break
        decisions = tuple(self.placed)
        certain, uncertain = 0, len(decisions) + 1
        while certain + 1 < uncertain:
            middle = (certain + uncertain) // 2
            self.keep(decisions[:middle])
            if all(call_plugin(plugin, plugin.is_certain, self._cluster) for plugin in self._deferred):
                certain = middle
            else:
                uncertain = middle
        self.keep(decisions[:certain])

    def place_in_turn(self) -> Outcome | None:
        """Place VMs after those that are placed, until one finds no place or there are enough of them. Returns the
        outcome of the one that found none.
        """
        while len(self.placed) < self._most:
            request = self._next
            outcome = self._quick.schedule(request, math.inf)
            if self._deferred:
                outcome = self._accept(request, outcome) or self._scheduler.schedule(request, math.inf)
            if outcome.decision is None:
                return outcome
            self.placed.append(outcome.decision)
        return None

    def keep(self, decisions: Sequence[Decision]) -> None:
        """Make these decisions the assumed ones: forget those beyond their number, and assume those that are new."""
        while len(self.placed) > len(decisions):
            self._cluster.forget(self.placed.pop().vmid)
        for decision in decisions[len(self.placed) :]:
            self._cluster.assume(assumed_guest(decision))
            self.placed.append(decision)

    @property
    def _next(self) -> Request:
        return self._requests[len(self.placed) % len(self._requests)]

    def _is_normalized(self, outcome: Outcome) -> bool:
        return outcome.looked is None or not self._normalized.isdisjoint(outcome.looked.scoring_plugins())

    def _accept(self, request: Request, outcome: Outcome) -> Outcome | None:
        """Return the outcome on the best node that the deferred filters accept; None if only the scheduler can tell.
        outcome is the one without these filters.
        """
        decision, looked = outcome.decision, outcome.looked
        if decision is None or looked is None:
            return None
        self._cluster.forget(decision.vmid)
        if self._is_normalized(outcome):
            return None
        if self._is_accepted(request, decision.node):
            self._cluster.assume(assumed_guest(decision))
            return outcome
        for verdict in looked.best(len(looked.nodes))[1:]:
            if self._is_accepted(request, verdict.node):
                placed = self._quick.schedule(request, math.inf, (verdict.node, decision.vmid))
                if placed.decision is not None:
                    return placed
                break
        # A filter may explain a rejection by what it was asked before, but not across a change.
        self._cluster.assume(assumed_guest(decision))
        self._cluster.forget(decision.vmid)
        return None

    def _is_accepted(self, request: Request, node: str) -> bool:
        info = self._cluster.by_name.get(node)
        return info is not None and not any(self._scheduler.refusals(request, math.inf, [info]).values())


def _report(last: Outcome, names: Sequence[str], per_node: Counter[str], fits: tuple[int, ...]) -> CapacityReport:
    """Return how many VMs fit, and what limits each node and all of them, by the first outcome without a place."""
    error = last.error
    if error is None:
        raise ValueError("the last outcome is one that found no place")
    if not isinstance(error, (NoNodesAvailable, NoStorageAvailable, NoVMIDAvailable)):
        raise error
    nodes = []
    never_meant = set()
    rejections = last.looked.rejections() if last.looked is not None else [None] * len(names)
    for name, rejection in zip(names, rejections, strict=True):
        if rejection is None:
            nodes.append(NodeCapacity(name, per_node[name]))
            continue
        limited_by = rejection.shortages[0].resource if rejection.shortages else rejection.plugin
        nodes.append(NodeCapacity(name, per_node[name], limited_by, rejection.text))
        if rejection.category is Category.PLACEMENT:
            never_meant.add(limited_by)
    votes = Counter(node.limited_by for node in nodes if node.limited_by is not None)
    meant = {limit: count for limit, count in votes.items() if limit not in never_meant} or votes
    limited_by = min(meant, key=lambda limit: (-meant[limit], limit), default=error.code)
    return CapacityReport(sum(fits), tuple(nodes), fits, limited_by, error.message)
