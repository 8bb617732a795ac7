# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling queue, told the time by the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.small_cluster import cluster, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import Event
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.queue import LONGEST_WAIT, SchedulingQueue
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import SchedulingGated
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request

PROFILE = profile()


def failed_once(now: float = 0.0, rejected_by: tuple[str, ...] = ("MemoryOvercommit",)) -> SchedulingQueue:
    queue = SchedulingQueue(lambda request: PROFILE)
    queue.put_back(0, vm("a"), now, rejected_by)
    return queue


def order(requests: Sequence[Request], config: dict[str, Any] | None = None) -> list[str]:
    """The names of those that are tried, in order: the lowest VMID goes to the first."""
    scheduler = Scheduler(cluster([node("a", gib=1000)]), {"balanced": profile(config)}, "balanced")
    decisions = [outcome.decision for outcome in schedule_all(scheduler, requests) if outcome.decision is not None]
    return [decision.request.name for decision in sorted(decisions, key=lambda decision: decision.vmid)]


def test_failed_request__is_not_retried_until_an_event_that_may_help() -> None:
    queue = failed_once()
    assert queue.pop(100) == []
    queue.wake([Event.DEVICE])
    assert queue.pop(100) == []
    queue.wake([Event.GUEST])
    assert queue.pop(100) == [0]
    assert len(queue) == 0


def test_event__counts_for_any_one_of_the_plugins_that_rejected() -> None:
    queue = failed_once(rejected_by=("NodeReady", "MemoryOvercommit"))
    queue.wake([Event.GUEST])
    assert queue.pop(100) == [0]


def test_any_event__counts_when_no_plugin_is_to_blame() -> None:
    queue = failed_once(rejected_by=())
    queue.wake([])
    assert queue.pop(100) == []
    queue.wake([Event.DEVICE])
    assert queue.pop(100) == [0]


def test_event__is_remembered_until_the_backoff_is_over() -> None:
    queue = failed_once()
    queue.wake([Event.GUEST])
    queue.wake([Event.DEVICE])
    assert queue.pop(0.9) == []
    assert queue.pop(1) == [0]


def test_request__is_tried_again_after_the_longest_wait_though_nothing_happened() -> None:
    queue = failed_once(now=7)
    assert queue.next_time() == 7 + LONGEST_WAIT
    assert queue.pop(6.9 + LONGEST_WAIT) == []
    assert queue.pop(7 + LONGEST_WAIT) == [0]


def test_backoff__doubles_from_one_second_to_ten() -> None:
    queue = SchedulingQueue(lambda request: PROFILE)
    now, waits = 0.0, []
    for _attempt in range(6):
        queue.put_back(0, vm("a"), now, ["MemoryOvercommit"])
        queue.wake([Event.GUEST])
        due = queue.next_time()
        assert due is not None
        waits.append(due - now)
        assert queue.pop(due - 0.001) == []
        assert queue.pop(due) == [0]
        now = due
    assert waits == [1, 2, 4, 8, 10, 10]


def test_what_waits_for_a_time__is_due_at_that_time_and_pays_no_backoff() -> None:
    queue = SchedulingQueue(lambda request: PROFILE)
    for until in (15.0, 15.5):
        queue.put_back(0, vm("a"), until - 0.5, ["Delay"], until=until)
        assert queue.next_time() == until
        assert queue.pop(until - 0.001) == []
        assert queue.pop(until) == [0]
    queue.put_back(0, vm("a"), 16, ["MemoryOvercommit"])
    queue.wake([Event.GUEST])
    assert queue.next_time() == 17


def test_empty_queue__has_no_next_time() -> None:
    queue = SchedulingQueue(lambda request: PROFILE)
    assert queue.pop(0) == []
    assert queue.next_time() is None


def test_what_is_due__takes_the_others_along() -> None:
    queue = SchedulingQueue(lambda request: PROFILE)
    for number, rejected_by in ((2, ["MemoryOvercommit"]), (1, ["NodeReady"]), (0, ["MemoryOvercommit"])):
        queue.put_back(number, vm(str(number)), 0, rejected_by)
    queue.wake([Event.NODE])
    assert queue.pop(1) == [0, 1, 2]
    assert len(queue) == 0


def test_higher_priority__goes_first_and_then_who_came_first() -> None:
    requests = [vm("a"), vm("b", priority=5), vm("c"), vm("d", priority=5), vm("e", priority=-1)]
    assert order(requests) == ["b", "d", "a", "c", "e"]


def test_gated_request__is_not_tried() -> None:
    scheduler = Scheduler(cluster([node("a")]), {"balanced": PROFILE}, "balanced")
    (outcome,) = schedule_all(scheduler, [vm("a", scheduling_gates=("licence", "disk"))])
    assert isinstance(outcome.error, SchedulingGated)
    assert outcome.rejected_by == {"SchedulingGates"}
    assert "SchedulingGates: waits for scheduling gate(s) licence, disk" in outcome.message


@pytest.mark.parametrize(("opened", "tried"), [(["licence"], []), (["licence", "disk"], ["a"])])
def test_gate__is_open_when_the_config_names_it(opened: list[str], tried: list[str]) -> None:
    config = {"gates": {"SchedulingGates": {"config": {"open": opened}}}}
    assert order([vm("a", scheduling_gates=("licence", "disk"))], config) == tried


@given(priorities=st.lists(st.integers(-3, 3), max_size=12))
def test_nothing__is_lost_and_the_order_is_that_of_priority_and_arrival(priorities: list[int]) -> None:
    requests = [vm(str(number), priority=priority) for number, priority in enumerate(priorities)]
    expected = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
    assert order(requests) == [str(number) for number in expected]
