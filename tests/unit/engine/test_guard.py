# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin may be anybody's code: whatever it does wrong fails its VM by name, and nothing else."""

from __future__ import annotations

import math
import re
import typing as t

import pytest
from support.small_cluster import cluster, node, scheduler, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    FilterPlugin,
    Plugin,
    PostFilterPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    VMIDPlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import Code, Status
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request

VICTIM = "victim"


class Trap:
    """What all the plugins below do when they are asked about the victim."""

    name = "Trap"

    def spring(self, request: Request, otherwise: t.Any = None) -> t.Any:
        if request.name == VICTIM:
            raise ZeroDivisionError("boom")
        return otherwise


class PreEnqueueRaises(Trap, FilterPlugin):
    def pre_enqueue(self, request: Request) -> Status | None:
        return t.cast("Status | None", self.spring(request))

    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return None


class FilterRaises(Trap, FilterPlugin):
    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return t.cast("Status | None", self.spring(request))


class FilterAnswersText(Trap, FilterPlugin):
    def filter(self, state: t.Any, request: Request, node: t.Any) -> Status | None:
        return t.cast("Status | None", "no" if request.name == VICTIM else None)


class PreFilterRaises(Trap, PreFilterPlugin):
    def pre_filter(self, *args: t.Any) -> Status | None:
        return t.cast("Status | None", self.spring(args[1]))


class ScoreRaises(Trap, ScorePlugin):
    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return t.cast(float, self.spring(request, 1.0))


class ScoreNotFinite(Trap, ScorePlugin):
    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return math.inf if request.name == VICTIM else 1.0


class ScoreTooHigh(Trap, ScorePlugin):
    bounded = True

    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return 101.0 if request.name == VICTIM else 1.0


class ScoreNegative(Trap, ScorePlugin):
    bounded = True

    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return -1.0 if request.name == VICTIM else 1.0


class ScoreNotANumber(ScoreNegative):
    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return math.nan if request.name == VICTIM else 1.0


class NormalizeRaises(Trap, ScorePlugin):
    def score(self, state: t.Any, request: Request, node: t.Any) -> float:
        return 412.0

    def normalize(self, state: t.Any, request: Request, nodes: t.Any, scores: list[float]) -> list[float]:
        return t.cast("list[float]", self.spring(request, [0.0] * len(scores)))


class NormalizeLosesSome(NormalizeRaises):
    def normalize(self, state: t.Any, request: Request, nodes: t.Any, scores: list[float]) -> list[float]:
        return [] if request.name == VICTIM else [0.0] * len(scores)


class NormalizeForgets(NormalizeRaises):
    def normalize(self, state: t.Any, request: Request, nodes: t.Any, scores: list[float]) -> list[float]:
        return scores if request.name == VICTIM else [0.0] * len(scores)


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
    PreEnqueueRaises,
    FilterRaises,
    PreFilterRaises,
    ScoreRaises,
    NormalizeRaises,
    ReserveRaises,
    VMIDRaises,
    GateRaises,
    SortKeyRaises,
    PostFilterRaises,
]
BOUNDED = "expected 0..100; leave out 'bounded = True', and scores of any unit are normalized"
WRONG: list[tuple[type[Plugin], str]] = [
    (FilterAnswersText, "expected a Status or None, got 'no'"),
    (ScoreNotFinite, "score() answered inf, expected a finite number"),
    (ScoreTooHigh, f"score() answered 101.0, {BOUNDED}"),
    (ScoreNegative, f"score() answered -1.0, {BOUNDED}"),
    (ScoreNotANumber, "score() answered nan, expected a finite number"),
    (NormalizeLosesSome, "normalize() returned 0 scores for 2 nodes"),
    (NormalizeForgets, "normalize() answered 412.0, expected 0..100"),
    (SortKeysDoNotCompare, "TypeError: '<' not supported between instances of 'str' and 'int'"),
]


def run(plugin: type[Plugin]) -> list[t.Any]:
    sorts = {"queue": {"PrioritySort": {"enable": not issubclass(plugin, QueueSortPlugin)}}}
    engine = scheduler(cluster([node("pve1"), node("pve2")]), sorts, own=[plugin])
    return schedule_all(engine, [vm("before"), vm(VICTIM), vm("after")])


@pytest.mark.parametrize("plugin", RAISING)
def test_plugin_that_raises__fails_its_vm_only(plugin: type[Plugin]) -> None:
    before, victim, after = run(plugin)
    assert victim.error.code == "PluginFailed"
    assert re.fullmatch(r"plugin Trap failed: ZeroDivisionError: boom \(test_guard\.py, line \d+\)", victim.message)
    assert victim.error.details == {"plugin": "Trap"}
    assert before.decision is not None
    assert after.decision is not None


@pytest.mark.parametrize(("plugin", "told"), WRONG)
def test_plugin_that_answers_nonsense__fails_its_vm_only(plugin: type[Plugin], told: str) -> None:
    before, victim, after = run(plugin)
    assert victim.message == f"plugin Trap failed: {told}"
    assert before.decision is not None
    assert after.decision is not None


def test_success__is_a_plain_yes() -> None:
    class Yes(Trap, PreFilterPlugin, FilterPlugin):
        def pre_filter(self, *args: t.Any) -> Status | None:
            return Status(Code.SUCCESS)

        def filter(self, *args: t.Any) -> Status | None:
            return Status(Code.SUCCESS)

    assert scheduler(cluster([node("pve1")]), own=[Yes]).schedule(vm()).decision is not None


def test_reserve_that_refuses_or_raises__leaves_nothing_behind() -> None:
    def reserving(name_: str, answer: Status | None) -> type[Plugin]:
        class Reserving(ReservePlugin):
            name = name_

            def reserve(self, *args: t.Any) -> Status | None:
                asked.append(name_)
                return answer

        return Reserving

    asked: list[str] = []
    state = cluster([node("pve1")])
    own = [reserving("First", None), reserving("Second", Status(Code.UNSCHEDULABLE, "no")), reserving("Third", None)]
    outcome = scheduler(state, own=own).schedule(vm())
    assert asked == ["First", "Second"]
    assert outcome.message == 'VM "new" could not be reserved on pve1: Second: no'
    assert not state.guests
