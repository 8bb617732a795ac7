# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for capacity, by a clock that stands still until somebody sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest
from support.small_cluster import cluster, guest, node, profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import NodeInfo
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    CycleState,
    Event,
    FilterPlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import (
    Status,
    unschedulable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    ApiError,
    AuthenticationFailed,
    ConnectionFailed,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Request, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.job import Job
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import Entry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.waiting import Waiting

FULL = Snapshot(nodes=(node("pve1", gib=8),), guests=(guest(100, "pve1", gib=8),))
FREE = replace(FULL, guests=())


class Cluster:
    """Shows FULL until `free_at`, then FREE; tells how often it was read, and when."""

    def __init__(self, free_at: float = float("inf")) -> None:
        self.now = 1000.0
        self.free_at = 1000.0 + free_at
        self.reads: list[float] = []
        self.told: list[tuple[list[str], float]] = []
        self.failure: Exception | None = None

    def read(self) -> Snapshot:
        self.reads.append(self.now - 1000.0)
        if self.failure is not None and self.now < self.free_at:
            raise self.failure
        return FREE if self.now >= self.free_at else FULL

    def tell(self, jobs: Collection[Job], waited: float) -> None:
        self.told.append((sorted(job.entry.request.name for job in jobs), waited))

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def outcome(request: Request) -> Outcome:
    found = Scheduler(cluster(FULL.nodes, FULL.guests), {"balanced": profile()}, "balanced").schedule(request)
    assert found.error is not None
    return found


def job(found: Outcome, position: int = 0) -> Job:
    made = Job(Entry(position, found.request, "present"))
    made.schedule(found)
    return made


def waiting(seconds: float, shown: Cluster) -> Waiting:
    used = profile()
    return Waiting(seconds, lambda request: used, shown.read, lambda: shown.now, shown.sleep, shown.tell)


@pytest.fixture
def rejected() -> Callable[..., list[Job]]:
    return lambda **fields: [job(outcome(vm("new", gib=4, **fields)))]


def test_it__is_tried_again_soon_after_room_was_made(rejected: Callable[..., list[Job]]) -> None:
    shown = Cluster(free_at=30)
    wait = waiting(300, shown)
    assert wait.wait_for_a_chance(rejected(), FULL)
    assert 30 <= wait.waited <= 45


def test_cluster__is_read_ever_more_rarely(rejected: Callable[..., list[Job]]) -> None:
    shown = Cluster()
    assert not waiting(250, shown).wait_for_a_chance(rejected(), FULL)
    pauses = [later - earlier for earlier, later in zip(shown.reads, shown.reads[1:], strict=False)]
    assert len(shown.reads) < 40
    assert pauses[0] < 2
    assert max(pauses) <= 10


def test_time__runs_out_where_nothing_happens(rejected: Callable[..., list[Job]]) -> None:
    shown = Cluster()
    wait = waiting(20, shown)
    assert not wait.wait_for_a_chance(rejected(), FULL)
    assert 20 <= wait.waited < 21


def test_it__is_told_at_once_and_then_now_and_then_who_waits(rejected: Callable[..., list[Job]]) -> None:
    shown = Cluster()
    hopeless = job(outcome(vm("huge", gib=99)), 1)
    waiting(100, shown).wait_for_a_chance([*rejected(), hopeless], FULL)
    assert shown.told[0] == (["new"], 0)
    pauses = [later - earlier for (_, earlier), (_, later) in zip(shown.told, shown.told[1:], strict=False)]
    assert all(10 <= pause <= 20 for pause in pauses)
    assert len(pauses) >= 5
    patient = Cluster()
    wait = waiting(4000, patient)
    while wait.wait_for_a_chance(rejected(), FULL):
        pass
    assert 5 <= len(patient.told) <= 21


def test_no_timeout__does_not_read_the_cluster_again(rejected: Callable[..., list[Job]]) -> None:
    shown = Cluster(free_at=0)
    assert not waiting(0, shown).wait_for_a_chance(rejected(), FULL)
    assert shown.reads == []


def test_what_no_change_can_help__is_given_up_at_once(rejected: Callable[..., list[Job]]) -> None:
    shown = Cluster()
    wait = waiting(300, shown)
    assert not wait.wait_for_a_chance(rejected(node="pve9"), FULL)
    assert shown.told == []
    assert wait.waited == 0


class Held(FilterPlugin):
    """Rejects every node for a device that somebody holds, and looks at nothing but devices."""

    name = "Held"
    events = frozenset({Event.DEVICE})

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        return unschedulable("had its device held")


def test_waiting__a_guest_that_went_may_have_held_a_device() -> None:
    """Who holds which device is not read while it waits."""
    used = profile(own=[Held])
    rejected = Scheduler(cluster(FREE.nodes), {"balanced": used}).schedule(vm("new"))
    assert rejected.rejected_by == {"Held"}
    shown = Cluster(free_at=30)
    wait = Waiting(300, lambda request: used, shown.read, lambda: shown.now, shown.sleep, shown.tell)
    assert wait.wait_for_a_chance([job(rejected)], FULL)
    assert 30 <= wait.waited <= 45


def test_delay__is_over_without_anything_happening(rejected: Callable[..., list[Job]]) -> None:
    shown = Cluster()
    found = outcome(vm("late", gib=1, context={"delay": "15"}, created=0.0))
    wait = waiting(300, shown)
    late = [job(replace_until(found, time.time() + 15))]
    assert wait.wait_for_a_chance(late, FULL)
    assert 14 <= wait.waited <= 20


@pytest.mark.parametrize("failure", [ConnectionFailed("gone"), ApiError("out of order")])
def test_cluster_that_does_not_answer_for_a_while__is_waited_for(
    rejected: Callable[..., list[Job]], failure: Exception
) -> None:
    shown = Cluster(free_at=40)
    shown.failure = failure
    assert waiting(300, shown).wait_for_a_chance(rejected(), FULL)


def test_token_that_is_revoked_meanwhile__ends_the_wait(rejected: Callable[..., list[Job]]) -> None:
    shown = Cluster()
    shown.failure = AuthenticationFailed("no ticket")
    with pytest.raises(AuthenticationFailed):
        waiting(300, shown).wait_for_a_chance(rejected(), FULL)


def replace_until(found: Outcome, until: float) -> Outcome:
    found.until = until
    return found
