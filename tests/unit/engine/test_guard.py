# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin may be anybody's code: whatever it does wrong fails its VM by name, and nothing else."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Hashable

import pytest
from support.small_cluster import cluster, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    FilterPlugin,
    Plugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    Scope,
    ScorePlugin,
    VMIDPlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import Code, Status
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request

VICTIM = "victim"


class Trap:
    """What all the plugins below do when they are asked about the victim."""

    name = "Trap"

    def signature(self, request: Request) -> Hashable:
        return request.name

    def spring(self, request: Request, otherwise: t.Any = None) -> t.Any:
        if request.name == VICTIM:
            raise ZeroDivisionError("boom")
        return otherwise


class Signature(Trap, FilterPlugin):
    def signature(self, request: Request) -> Hashable:
        self.spring(request)
        return request.name

    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return None


class Unhashable(Signature):
    def signature(self, request: Request) -> Hashable:
        return t.cast(Hashable, [] if request.name == VICTIM else request.name)


class CheckRaises(Trap, FilterPlugin):
    def check(self, request: Request) -> None:
        self.spring(request)

    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return None


class FilterRaises(Trap, FilterPlugin):
    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return t.cast("Status | None", self.spring(request))


class DomainFilterRaises(FilterRaises):
    def filter_scope(self, request: Request) -> Scope:
        return Scope.DOMAIN


class DomainRaises(Trap, FilterPlugin):
    def filter_scope(self, request: Request) -> Scope:
        return Scope.DOMAIN

    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return None

    def domain(self, state: t.Any, request: Request, node: t.Any) -> Hashable:
        return t.cast(Hashable, self.spring(request, node.name))


class ClusterFilterRaises(FilterRaises):
    def filter_scope(self, request: Request) -> Scope:
        return Scope.CLUSTER


class FilterScopeRaises(DomainRaises):
    def filter_scope(self, request: Request) -> Scope:
        return t.cast(Scope, self.spring(request, Scope.NODE))


class FilterAnswersText(Trap, FilterPlugin):
    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return t.cast("Status | None", "no" if request.name == VICTIM else None)


class PreFilterRaises(Trap, PreFilterPlugin):
    def pre_filter(self, *args: t.Any) -> Status | None:
        return t.cast("Status | None", self.spring(args[1]))


class ScoreRaises(Trap, ScorePlugin):
    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return t.cast(float, self.spring(request, 1.0))


class NodeScoreRaises(ScoreRaises):
    def score_scope(self, request: Request) -> Scope:
        return Scope.NODE


class ScoreScopeRaises(ScoreRaises):
    def score_scope(self, request: Request) -> Scope:
        return t.cast(Scope, self.spring(request, Scope.NODE))


class ScoreTooHigh(Trap, ScorePlugin):
    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return 101.0 if request.name == VICTIM else 1.0


class NodeScoreNegative(Trap, ScorePlugin):
    def score_scope(self, request: Request) -> Scope:
        return Scope.NODE

    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return -1.0 if request.name == VICTIM else 1.0


class NodeScoreNotANumber(NodeScoreNegative):
    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return math.nan if request.name == VICTIM else 1.0


class NormalizeRaises(Trap, ScorePlugin):
    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return 1.0

    def normalize(self, state: t.Any, request: Request, scores: list[float]) -> list[float]:
        return t.cast("list[float]", self.spring(request, scores))


class NormalizeLosesSome(NormalizeRaises):
    def normalize(self, state: t.Any, request: Request, scores: list[float]) -> list[float]:
        return [] if request.name == VICTIM else scores


class PreScoreRaises(ScoreRaises, PreScorePlugin):
    def pre_score(self, state: t.Any, request: Request, nodes: t.Any) -> Status | None:
        return t.cast("Status | None", self.spring(request))


class ReserveRaises(Trap, ReservePlugin):
    def reserve(self, state: t.Any, request: Request, node: t.Any, draft: t.Any) -> Status | None:
        return t.cast("Status | None", self.spring(request))


class VMIDRaises(Trap, VMIDPlugin):
    def choice(self, request: Request) -> t.Any:
        return self.spring(request)


class GateRaises(Trap, PreEnqueuePlugin):
    def pre_enqueue(self, request: Request) -> Status | None:
        return t.cast("Status | None", self.spring(request))


class SortKeyRaises(Trap, QueueSortPlugin):
    def sort_key(self, request: Request, arrival: int) -> t.Any:
        return self.spring(request, arrival)


class SortKeysDoNotCompare(Trap, QueueSortPlugin):
    def sort_key(self, request: Request, arrival: int) -> t.Any:
        return "first" if request.name == VICTIM else arrival


class PostFilterRaises(Trap, FilterPlugin, PostFilterPlugin):
    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return Status(Code.UNSCHEDULABLE, "no") if request.name == VICTIM else None

    def post_filter(self, request: Request, cluster: t.Any, refusals: t.Any) -> t.Any:
        return self.spring(request)


RAISING = [
    Signature,
    CheckRaises,
    FilterRaises,
    DomainFilterRaises,
    DomainRaises,
    ClusterFilterRaises,
    FilterScopeRaises,
    PreFilterRaises,
    ScoreRaises,
    NodeScoreRaises,
    ScoreScopeRaises,
    NormalizeRaises,
    PreScoreRaises,
    ReserveRaises,
    VMIDRaises,
    GateRaises,
    SortKeyRaises,
    PostFilterRaises,
]
WRONG: list[tuple[type[Plugin], str]] = [
    (Unhashable, "TypeError: unhashable type: 'list'"),
    (FilterAnswersText, "expected a Status or None, got 'no'"),
    (ScoreTooHigh, "expected a score within 0..100, got 101.0"),
    (NodeScoreNegative, "expected a score within 0..100, got -1.0"),
    (NodeScoreNotANumber, "expected a score within 0..100, got nan"),
    (NormalizeLosesSome, "normalize made 0 scores of 2"),
    (SortKeysDoNotCompare, "TypeError: '<' not supported between instances of 'str' and 'int'"),
]


def run(plugin: type[Plugin]) -> list[t.Any]:
    sorts = {"queue": {"PrioritySort": {"enable": not issubclass(plugin, QueueSortPlugin)}}}
    engine = scheduler(cluster([node("pve1"), node("pve2")]), sorts, own=[plugin])
    return engine.schedule_all([vm("before"), vm(VICTIM), vm("after")])


@pytest.mark.parametrize("plugin", RAISING)
def test_a_plugin_that_raises_fails_its_vm_only(plugin: type[Plugin]) -> None:
    before, victim, after = run(plugin)
    assert victim.error.code == "PluginFailed"
    assert victim.message == "plugin Trap failed: ZeroDivisionError: boom"
    assert victim.error.details == {"plugin": "Trap"}
    assert before.decision is not None
    assert after.decision is not None


@pytest.mark.parametrize(("plugin", "told"), WRONG)
def test_a_plugin_that_answers_nonsense_fails_its_vm_only(plugin: type[Plugin], told: str) -> None:
    before, victim, after = run(plugin)
    assert victim.message == f"plugin Trap failed: {told}"
    assert before.decision is not None
    assert after.decision is not None


def test_success_is_a_plain_yes() -> None:
    class Yes(Trap, PreFilterPlugin, FilterPlugin):
        def pre_filter(self, *args: t.Any) -> Status | None:
            return Status(Code.SUCCESS)

        def filter(self, *args: t.Any) -> Status | None:
            return Status(Code.SUCCESS)

    assert scheduler(cluster([node("pve1")]), own=[Yes]).schedule(vm()).decision is not None


@pytest.mark.parametrize("error", [ZeroDivisionError("boom"), InvalidRequest("to the user")])
@pytest.mark.parametrize("fails_at", [2, 3])
def test_a_plugin_that_failed_in_the_midst_of_keeping_up_starts_afresh(fails_at: int, error: Exception) -> None:
    calls: list[str] = []

    class Counting(Trap, PreFilterPlugin, FilterPlugin):
        """Counts in its state; raises once while it is told of a new VM."""

        def signature(self, request: Request) -> Hashable:
            return None

        def pre_filter(self, state: t.Any, request: Request, state_of: t.Any, now: float) -> Status | None:
            state[self.name] = sum(1 for _guest in state_of)
            return None

        def add_vm(self, state: t.Any, *args: t.Any) -> None:
            state[self.name] += 1
            calls.append("add")
            if len(calls) == fails_at:
                raise error

        def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
            seen.append(state[self.name])
            return None

    seen: list[int] = []
    engine = scheduler(cluster([node("pve1")]), own=[Counting])
    outcomes = engine.schedule_all([vm(f"vm-{number}") for number in range(6)])
    assert [outcome.decision is not None for outcome in outcomes].count(False) == 1
    assert seen == sorted(seen)
    assert seen[-1] == 4


def test_a_reserve_that_fails_gives_everything_back_last_taken_first() -> None:
    given_back: list[str] = []

    def reserving(name_: str, act: Callable[[], None]) -> type[Plugin]:
        class Reserving(ReservePlugin):
            name = name_

            def reserve(self, *args: t.Any) -> Status | None:
                return Status(Code.UNSCHEDULABLE, "no") if name_ == "Third" else None

            def unreserve(self, *args: t.Any) -> None:
                given_back.append(name_)
                act()

        return Reserving

    def fail() -> None:
        raise RuntimeError("mine")

    state = cluster([node("pve1")])
    own = [reserving("First", lambda: None), reserving("Second", fail), reserving("Third", lambda: None)]
    outcome = scheduler(state, own=own).schedule(vm())
    assert given_back == ["Third", "Second", "First"]
    assert outcome.message == "plugin Second failed: RuntimeError: mine"
    assert not list(state)
