# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One VM of a run, from its entry to its result: the only place where a run keeps what it knows of the VM."""

from __future__ import annotations

import enum
import typing as t
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..engine.verdicts import Outcome
from ..errors import CollectionError, Interrupted
from ..model import Decision, Guest, Request
from ..proxmox.api.failures import NodeSilent, NodeUnreachable
from ..proxmox.making import Bound, Unknown
from .options.entries import Entry

if t.TYPE_CHECKING:
    from ..engine.several_clusters import ClusterVerdict
    from .existing.plan import Carried, ExistingPlan

TRIES = 10
"""The number of scheduling cycles that a VM gets if others keep making its decisions impossible. Waiting for capacity
is limited by time instead.
"""

FREED_BY_MOVES = frozenset({"CPUOvercommit", "MemoryOvercommit"})
"""The filters whose rejections the planner can resolve by moving guests away."""


class State(enum.Enum):
    """How far a VM has come. Scheduling starts at QUEUED, again whenever a job returns there."""

    QUEUED = "to be decided"
    PLANNED = "exists, and something is to be done with it"
    DECIDED = "does not exist, and its place is decided"
    DONE = "nothing is left to do"
    FAILED = "nothing more is done in this cycle; its error says why"


@dataclass(slots=True, eq=False)
class Job:
    """One VM of a run.

    Attributes:
        error: why it failed.
        warnings: sentences about the VM for the user, without those of its plan.
        guest: the VM, if it exists already; plan says what to do with it, carried what was done.
        outcome: the outcome of the latest scheduling cycle; None if the VM was not scheduled.
        decision: the decision to bind; bound is its outcome.
        status: the VM's status, where it was looked up after a failure.
        attempts: how often it was scheduled.
        waited: seconds waited for capacity; waited_for the plugins that rejected it meanwhile.
        hopeless: whether waiting for capacity cannot help it.
        advice: what would make it fit, or why no room could be made for it.
        limit_broken: the limit of its node that the VM exceeds because another scheduler chose the same node.
        held_back: whether nothing was done with it because another VM failed or the run was interrupted.
        tries: the number of its scheduling cycles, without those after a wait for capacity; requeued_by is the error
            that last returned it to the queue.
        nameless: VMs that others are creating and that have no name yet; each of them may be this one.
        cluster: the cluster that it is on or goes to, if the task is about several; tried holds the verdict of each
            cluster.
        vmid: a VMID that was not requested but has to be used: another run, or a silent node, may have begun to create
            the VM under it.
    """

    entry: Entry
    state: State = State.QUEUED
    error: CollectionError | None = None
    warnings: list[str] = field(default_factory=list)
    guest: Guest | None = None
    plan: ExistingPlan | None = None
    carried: Carried | None = None
    outcome: Outcome | None = None
    decision: Decision | None = None
    bound: Bound | None = None
    status: str | None = None
    attempts: int = 0
    waited: float = 0.0
    waited_for: frozenset[str] = frozenset()
    hopeless: bool = False
    advice: str | None = None
    limit_broken: str | None = None
    held_back: bool = False
    tries: int = 1
    requeued_by: CollectionError | None = None
    nameless: tuple[Guest, ...] = ()
    vmid: int | None = None
    cluster: str | None = None
    tried: tuple[ClusterVerdict, ...] = ()

    @property
    def request(self) -> Request:
        """The request, with the addresses that the VM has or gets."""
        if self.decision is not None:
            return self.decision.request
        return self.entry.request if self.plan is None else self.plan.entry.request

    @property
    def is_unplaced(self) -> bool:
        """Whether the scheduler found no place for the VM."""
        return self.state is State.FAILED and self.outcome is not None and self.outcome.error is not None

    @property
    def is_hopeful(self) -> bool:
        """Whether the VM is unplaced and a change in the cluster may make it fit."""
        return self.is_unplaced and self.outcome is not None and self.outcome.resolvable

    @property
    def lacks_room(self) -> bool:
        """Whether it lacked CPU or memory, which moves of other guests may free."""
        return self.is_hopeful and self.outcome is not None and not FREED_BY_MOVES.isdisjoint(self.outcome.rejected_by)

    @property
    def is_made_or_updated(self) -> bool:
        """Whether the VM is to be created, or to be changed to what is requested."""
        return self.state is State.DECIDED or (self.plan is not None and "update" in self.plan.actions)

    @property
    def begun(self) -> bool:
        """Whether something was sent to Proxmox for it, successful or not."""
        return self.bound is not None or self.carried is not None

    def waits(self) -> bool:
        """Whether the job has to wait for VMs that others are creating."""
        return bool(self.nameless) or (self.state is State.PLANNED and self.plan is None)

    def warn(self, *texts: str) -> None:
        self.warnings.extend(f"{self.entry.label}: {text}" for text in texts)

    def begin(self) -> None:
        """Reset the job for a new scheduling cycle.

        A decision whose outcome is unknown is kept until another one replaces it.
        """
        self.state, self.error, self.status = State.QUEUED, None, None
        self.guest, self.plan, self.outcome = None, None, None
        if self.bound is None:
            self.decision = None
        self.warnings.clear()

    def exists(self, guest: Guest) -> None:
        """Note that the VM exists; a plan is to be made for it."""
        self.state, self.guest, self.decision, self.bound = State.PLANNED, guest, None, None

    def schedule(self, outcome: Outcome) -> None:
        """Note the outcome of scheduling."""
        self.attempts += 1
        self.outcome, self.vmid = outcome, None
        if outcome.decision is not None:
            self.state, self.decision = State.DECIDED, outcome.decision
        else:
            # The loss of its node explains the failure better than the lack of another node.
            lost_node = isinstance(self.requeued_by, (NodeUnreachable, NodeSilent))
            self.fail(self.requeued_by if lost_node else outcome.error)

    def fail(self, error: CollectionError | None, status: str | None = None) -> None:
        """Mark the job as failed in this cycle."""
        self.state, self.error, self.status = State.FAILED, error, status

    def follow(self, earlier: Job) -> None:
        """Continue the counters of an earlier job about the same VM."""
        self.attempts += earlier.attempts
        self.waited, self.waited_for = earlier.waited, earlier.waited_for

    def interrupt(self) -> None:
        """Mark the job as interrupted, unless it had failed or was done before."""
        if self.error is None and self.state is not State.DONE:
            self.fail(Interrupted(f"{self.entry.label}: interrupted before it was processed"))
            self.held_back = not self.begun

    def refuse(self, error: CollectionError) -> None:
        """Fail instead of carrying out the plan or decision."""
        self.fail(error, None if self.plan is None else self.plan.status)
        self.plan = None

    def note_wait(self, seconds: float) -> None:
        """Note how long the run has waited for capacity, what rejected the VM, and whether waiting can help."""
        self.waited = seconds
        if self.outcome is not None:
            self.hopeless = not self.outcome.resolvable
            self.waited_for |= self.outcome.rejected_by

    @property
    def may_try_again(self) -> bool:
        """Whether it may go back to the queue once more."""
        return self.tries < TRIES

    def requeue(self, error: CollectionError) -> None:
        """Go back to the queue because of something that others did."""
        self.tries += 1
        self.state, self.error, self.requeued_by = State.QUEUED, None, error
        if not isinstance(self.bound, Unknown):
            self.bound = None


def group_by_dependency(
    jobs: Iterable[Job], ready_among: Callable[[Sequence[Job]], Sequence[Job]]
) -> Iterator[Sequence[Job]]:
    """Yield jobs in groups of which each can be done when those before it are done.

    ready_among returns those of the jobs left that wait for none of the others. If all wait, they are one group.
    """
    left = list(jobs)
    while left:
        ready = ready_among(left) or left
        yield ready
        done = set(ready)
        left = [job for job in left if job not in done]


def requeue(jobs: Sequence[Job], error: CollectionError) -> bool:
    """Return jobs to the queue, unless one of them has no tries left."""
    if not all(job.may_try_again for job in jobs):
        return False
    for job in jobs:
        job.requeue(error)
    return True
