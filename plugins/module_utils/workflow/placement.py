# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one round of a run passes to the next, and what it reads and decides: plain data, and views of it."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..engine.cache import ClusterState
from ..engine.scheduling_cycle import Scheduler
from ..model import Decision, Snapshot
from ..reservations.records import Reservation
from .address_claims import Claims
from .counting import Counted
from .existing.matching import Match
from .job import Job, State
from .report import NodeUsage

if t.TYPE_CHECKING:
    from ..plans import Move


@dataclass(frozen=True, slots=True)
class Lessons:
    """What the rounds of a run have learnt about the cluster, for the next one.

    Attributes:
        taken: VMIDs that turned out to be taken, possibly by guests that this user cannot see.
        unreachable: names of nodes that did not answer; the cluster itself notices this some seconds later.
        abandoned: VMIDs of VMs that are locked by their creation although no task is creating them.
        moved: moves by VMID whose guests are treated as if they had moved already.
    """

    taken: frozenset[int] = frozenset()
    unreachable: frozenset[str] = frozenset()
    abandoned: frozenset[int] = frozenset()
    moved: Mapping[int, Move] = field(default_factory=dict)

    def as_shown(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with these nodes offline and these guests moved."""
        if self.unreachable:
            nodes = (replace(n, online=False) if n.name in self.unreachable else n for n in snapshot.nodes)
            snapshot = replace(snapshot, nodes=tuple(nodes))
        if self.moved:
            guests = (self.moved[g.vmid].guest_after(g) if g.vmid in self.moved else g for g in snapshot.guests)
            snapshot = replace(snapshot, guests=tuple(guests))
        return snapshot


class Seen(t.NamedTuple):
    """The cluster as read, the reservations of others, both together, and the match of each job.

    Attributes:
        begun: the VMID that each job has to use, and the decision of an earlier round whose outcome is unknown.
        real_nodes: the nodes of guests that are treated as if they had moved already, by VMID.
        lessons: those with which it was read.
        beyond: warnings, as sentences, about VMs beyond their count.
    """

    snapshot: Snapshot
    reservations: Sequence[Reservation]
    counted: Counted
    matches: Mapping[Job, Match]
    begun: Mapping[Job, tuple[int | None, Decision | None]]
    real_nodes: Mapping[int, str]
    lessons: Lessons
    beyond: Sequence[str] = ()


@dataclass(slots=True)
class Placement:
    """One scheduling cycle: the input of its decisions, and what they change; the outcome of each VM is in its job.

    Attributes:
        jobs: all jobs of the cycle; new are those whose VMs do not exist.
        before: the cluster with the reservations of others, before any decision.
        scheduler: the scheduler that decides, with its assumed decisions.
        nodes: the usage of the nodes before and after.
        starting: the VMIDs of guests that the run starts.
        claims: the addresses of the run's VMs and of those of others.
        doubts: warnings, as sentences, about VMs that may exist unnoticed, or beyond their count.
    """

    jobs: Sequence[Job]
    seen: Seen
    new: Sequence[Job]
    before: Snapshot
    scheduler: Scheduler
    nodes: list[NodeUsage]
    starting: Collection[int]
    claims: Claims
    doubts: Sequence[str] = ()

    @contextlib.contextmanager
    def with_starting(self) -> Iterator[None]:
        """Count guests that the run starts as running while other VMs are decided."""
        state = self.scheduler.cluster
        starting = (state.guests.get(vmid) for vmid in self.starting)
        stopped = [guest for guest in starting if guest is not None and not guest.running]
        for guest in stopped:
            state.restore(replace(guest, status="assumed"))
        try:
            yield
        finally:
            for guest in stopped:
                state.restore(guest)

    def without_decisions(self, decisions: Iterable[Decision]) -> ClusterState:
        """Return the cluster without the decisions, and with the guests that the run starts counted as running."""
        made, starting = {decision.vmid for decision in decisions}, set(self.starting)
        guests = (guest for guest in self.scheduler.cluster.guests.values() if guest.vmid not in made)
        running = (replace(g, status="assumed") if g.vmid in starting else g for g in guests)
        return ClusterState(replace(self.scheduler.cluster.snapshot, guests=tuple(running)))


def decisions_of(jobs: Iterable[Job]) -> list[Decision]:
    """Return the decisions of this cycle about jobs."""
    return [job.decision for job in jobs if job.state is State.DECIDED and job.decision is not None]
