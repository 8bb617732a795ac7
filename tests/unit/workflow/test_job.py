# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A VM on its way through a run, and what is reported of it at each point."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.small_cluster import vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.verdicts import Outcome
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    NoNodesAvailable,
    TaskFailed,
    TaskTimeout,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Decision
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import (
    AnswerLost,
    NodeSilent,
    VMIDTaken,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.making import (
    Bound,
    Created,
    LeftBehind,
    NotStarted,
    Unknown,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.job import (
    TRIES,
    Job,
    State,
    group_by_dependency,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import Entry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.report import report_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.result import vm_result

REQUEST = vm("web", running=True)
DECIDED = Outcome(REQUEST, decision=Decision(REQUEST, "pve1", 100))
UNPLACED = Outcome(REQUEST, error=NoNodesAvailable("no node"), resolvable=True)
FAILURE = TaskFailed("disk full")


def job(*outcomes: Outcome) -> Job:
    made = Job(Entry(0, REQUEST, "started"))
    for outcome in outcomes:
        made.begin()
        made.schedule(outcome)
    return made


def failed(bound: Bound, status: str | None = None) -> Job:
    made = job(DECIDED)
    made.bound = bound
    made.fail(getattr(bound, "error", None), status)
    return made


def test_decision__is_reported_as_it_will_be() -> None:
    report = report_of(job(DECIDED))
    assert (report.actions, report.not_done, report.node, report.vmid) == (["create", "start"], [], "pve1", 100)
    assert report.status == "running"


def test_created_vm__is_reported_where_it_is() -> None:
    made = job(DECIDED)
    made.bound, made.state = Created(100, "pve2"), State.DONE
    assert (report_of(made).node, report_of(made).actions) == ("pve2", ["create", "start"])


@pytest.mark.parametrize(
    ("bound", "status", "actions", "not_done"),
    [
        (NotStarted(100, "pve1", FAILURE), "stopped", ["create"], ["start"]),
        (NotStarted(100, "pve1", FAILURE), "running", ["create", "start"], []),
        (LeftBehind(100, "pve1", FAILURE, "locked"), "stopped", ["create"], ["start"]),
        (Unknown(100, "pve1", TaskTimeout("goes on", upid="UPID:x"), begun=True), None, ["create"], ["start"]),
        (Unknown(100, "pve1", AnswerLost("gone"), begun=False), None, [], ["create", "start"]),
    ],
)
def test_outcome_of_binding__says_what_was_done(
    bound: Bound, status: str | None, actions: list[str], not_done: list[str]
) -> None:
    report = report_of(failed(bound, status))
    assert (report.actions, report.not_done, report.status) == (actions, not_done, status)
    assert (report.node, report.vmid) == ("pve1", 100)


def test_failure_without_outcome__leaves_no_vm() -> None:
    made = job(DECIDED)
    made.fail(FAILURE)
    report = report_of(made)
    assert (report.actions, report.not_done, report.status) == ([], ["create", "start"], "absent")
    assert (report.node, report.vmid, report.after) == (None, None, None)


def test_error__tells_what_remains() -> None:
    created = vm_result(report_of(failed(NotStarted(100, "pve1", FAILURE), "stopped")))["error"]
    assert (created["code"], created["created"]) == ("TaskFailed", {"vmid": 100, "node": "pve1"})
    left = vm_result(report_of(failed(LeftBehind(100, "pve1", FAILURE, "locked"), "stopped")))["error"]
    assert left["left_behind"] == {"vmid": 100, "node": "pve1", "reason": "locked"}
    assert left["message"] == "disk full; VM 100 was left behind on node pve1: locked"
    assert FAILURE.details == {}
    assert FAILURE.message == "disk full"


def test_vm_that_is_held_back__is_reported_as_not_made() -> None:
    made = job(DECIDED)
    made.held_back = True
    assert (report_of(made).actions, report_of(made).not_done, report_of(made).status) == (
        [],
        ["create", "start"],
        "absent",
    )


def test_job__goes_back_to_the_queue_a_limited_number_of_times() -> None:
    made = job(DECIDED)
    rounds = 1
    while made.may_try_again:
        made.requeue(VMIDTaken("taken", 100))
        assert (made.state, made.error) == (State.QUEUED, None)
        rounds += 1
    assert rounds == TRIES


def test_attempts__count_every_scheduling_cycle() -> None:
    made = job(DECIDED)
    made.requeue(VMIDTaken("taken", 100))
    made.begin()
    made.schedule(DECIDED)
    assert made.attempts == 2


def test_vm_that_fits_nowhere__has_no_decision_of_an_earlier_cycle() -> None:
    made = job(DECIDED, UNPLACED)
    assert (made.decision, made.error, made.is_hopeful) == (None, UNPLACED.error, True)
    assert report_of(made).status == "absent"


def test_vm_whose_node_is_silent__stays_unknown_when_it_fits_nowhere_else() -> None:
    silent = NodeSilent("no answer")
    made = job(DECIDED)
    made.bound = Unknown(100, "pve1", silent, begun=False)
    made.requeue(silent)
    made.begin()
    made.schedule(UNPLACED)
    report = report_of(made)
    assert made.error is silent
    assert (report.node, report.vmid, report.status, report.not_done) == ("pve1", 100, None, ["create", "start"])


@pytest.mark.parametrize(
    ("waits_for", "groups"),
    [
        ({}, ["abc"]),
        ({"a": "b", "b": "c"}, ["c", "b", "a"]),
        ({"a": "b", "b": "a"}, ["c", "ab"]),
    ],
    ids=["none waits", "each waits for the next", "two wait for each other"],
)
def test_jobs__are_done_after_those_that_they_wait_for(waits_for: dict[str, str], groups: list[str]) -> None:
    names = {job(): name for name in "abc"}

    def ready_among(left: Sequence[Job]) -> Sequence[Job]:
        there = {names[each] for each in left}
        return [each for each in left if waits_for.get(names[each]) not in there]

    assert ["".join(names[each] for each in group) for group in group_by_dependency(names, ready_among)] == groups
