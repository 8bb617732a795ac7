# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling queue, told the time by the tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.small_cluster import made, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import Event
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.queue.priority_sort import (
    PrioritySort,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.queue import LONGEST_WAIT, SchedulingQueue
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GangRef, Request

PROFILE = profile()


def queue_of(*requests: Request) -> SchedulingQueue:
    queue = SchedulingQueue(lambda request: PROFILE, made(PrioritySort))
    for arrival, request in enumerate(requests):
        assert queue.add(request, arrival) is None
    return queue


def names(queue: SchedulingQueue, now: float) -> list[str]:
    """Everything that is due, in order."""
    popped = []
    while (queued := queue.pop(now)) is not None:
        popped.append(queued.request.name)
    return popped


def failed_once(now: float = 0.0, rejected_by: tuple[str, ...] = ("MemoryOvercommit",)) -> SchedulingQueue:
    queue = queue_of(vm("a"))
    queued = queue.pop(now)
    assert queued is not None
    queue.put_back(queued, now, rejected_by)
    return queue


def test_higher_priority__goes_first_and_then_who_came_first() -> None:
    queue = queue_of(vm("a"), vm("b", priority=5), vm("c"), vm("d", priority=5), vm("e", priority=-1))
    assert names(queue, 0) == ["b", "d", "a", "c", "e"]


def test_failed_request__is_not_retried_until_an_event_that_may_help() -> None:
    queue = failed_once()
    assert names(queue, 100) == []
    queue.wake([Event.DEVICE])
    assert names(queue, 100) == []
    queue.wake([Event.GUEST])
    assert names(queue, 100) == ["a"]


def test_event__counts_for_any_one_of_the_plugins_that_rejected() -> None:
    queue = failed_once(rejected_by=("NodeReady", "MemoryOvercommit"))
    queue.wake([Event.GUEST])
    assert names(queue, 100) == ["a"]


def test_any_event__counts_when_no_plugin_is_to_blame() -> None:
    queue = failed_once(rejected_by=())
    queue.wake([])
    assert names(queue, 100) == []
    queue.wake([Event.DEVICE])
    assert names(queue, 100) == ["a"]


def test_it__is_tried_again_after_the_longest_wait_though_nothing_happened() -> None:
    queue = failed_once(now=7)
    assert queue.next_time() == 7 + LONGEST_WAIT
    assert names(queue, 6.9 + LONGEST_WAIT) == []
    assert names(queue, 7 + LONGEST_WAIT) == ["a"]


def test_backoff__doubles_from_one_second_to_ten() -> None:
    queue = queue_of(vm("a"))
    now, waits = 0.0, []
    for _attempt in range(6):
        queued = queue.pop(now)
        assert queued is not None
        queue.put_back(queued, now, ["MemoryOvercommit"])
        queue.wake([Event.GUEST])
        due = queue.next_time()
        assert due is not None
        waits.append(due - now)
        assert queue.pop(due - 0.001) is None
        now = due
    assert waits == [1, 2, 4, 8, 10, 10]


def test_what_waits_for_a_time__is_due_at_that_time_and_pays_no_backoff() -> None:
    queue = queue_of(vm("a"))
    for until in (15.0, 15.5):
        queued = queue.pop(until - 0.5)
        assert queued is not None
        queue.put_back(queued, until - 0.5, ["Delay"], until=until)
        assert queue.next_time() == until
        assert queue.pop(until - 0.001) is None
    queued = queue.pop(15.5)
    assert queued is not None
    assert queued.attempts == 0


def test_empty_queue__has_no_next_time() -> None:
    queue = queue_of(vm("a"))
    assert names(queue, 0) == ["a"]
    assert queue.next_time() is None
    assert len(queue) == 0


def test_group__is_due_together() -> None:
    gang = GangRef("g", 2)
    queue = queue_of(vm("a", gang=gang), vm("b", gang=gang), vm("c"))
    members = [queue.pop(0) for _ in range(3)]
    for queued, rejected_by in zip(members, (["NodeReady"], ["MemoryOvercommit"], ["MemoryOvercommit"]), strict=True):
        assert queued is not None
        queue.put_back(queued, 0, rejected_by)
    queue.wake([Event.NODE])
    assert names(queue, 1) == ["a", "b", "c"]
    queue = queue_of(vm("a", gang=gang), vm("b", gang=gang), vm("c"))
    for until in (5.0, None, None):
        queued = queue.pop(0)
        assert queued is not None
        queue.put_back(queued, 0, ["Delay"], until)
    assert names(queue, 5) == ["a", "b"]


def test_gated_request_never__gets_in() -> None:
    queue = SchedulingQueue(lambda request: PROFILE)
    held = queue.add(vm("a", scheduling_gates=("licence", "disk")), 0)
    assert held is not None
    assert (held.plugin, held.reason) == ("SchedulingGates", "waits for scheduling gate(s) licence, disk")
    assert names(queue, 1e9) == []


@pytest.mark.parametrize(("opened", "let_in"), [(["licence"], False), (["licence", "disk"], True)])
def test_gate__is_open_when_the_config_names_it(opened: list[str], let_in: bool) -> None:
    config = {"gates": {"SchedulingGates": {"config": {"open": opened}}}}
    queue = SchedulingQueue(lambda request: profile(config))
    assert (queue.add(vm("a", scheduling_gates=("licence", "disk")), 0) is None) is let_in


@given(priorities=st.lists(st.integers(-3, 3), max_size=12))
def test_nothing__is_lost_and_the_order_is_that_of_priority_and_arrival(priorities: list[int]) -> None:
    queue = queue_of(*(vm(str(number), priority=priority) for number, priority in enumerate(priorities)))
    expected = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
    assert names(queue, 0) == [str(number) for number in expected]
