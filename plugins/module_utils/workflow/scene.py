# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of one scheduling cycle: what was read, what has to be decided, and the result."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..engine.cache import ClusterState
from ..engine.scheduling_cycle import Scheduler
from ..model import Decision, Snapshot
from ..reservations.records import Reservation
from .counting import Counted
from .existing.matching import Match
from .job import Job
from .usage import NodeUsage


@dataclass(frozen=True, slots=True)
class Seen:
    """The cluster as read, the reservations of others, both together, and the match of each job."""

    snapshot: Snapshot
    reservations: Sequence[Reservation]
    counted: Counted
    matches: Mapping[Job, Match]


@dataclass(frozen=True, slots=True)
class Scene:
    """The input of the decisions in one scheduling cycle.

    Attributes:
        jobs: all jobs of the cycle; new are those whose VMs do not exist.
        before: the cluster with the reservations of others, before any decision.
        nodes: the usage of the nodes.
        starting: the VMIDs of guests that the run starts.
    """

    jobs: Sequence[Job]
    seen: Seen
    new: Sequence[Job]
    before: Snapshot
    scheduler: Scheduler
    nodes: list[NodeUsage]
    starting: Collection[int]

    @contextlib.contextmanager
    def with_starting(self) -> Iterator[None]:
        """Count guests that the run starts as running while other VMs are decided."""
        state = self.scheduler.cluster
        stopped = [guest for vmid in self.starting if (guest := state.get(vmid)) is not None and not guest.running]
        for guest in stopped:
            state.restore(replace(guest, status="assumed"))
        try:
            yield
        finally:
            for guest in stopped:
                state.restore(guest)


@dataclass(slots=True)
class Placement:
    """The result of one scheduling cycle; the outcome of each VM is kept in its job.

    Attributes:
        scheduler: the scheduler that decided, with its assumed decisions.
        starting: VMIDs of guests that the run starts.
        nodes: the usage of the nodes before and after.
        doubts: warnings, as sentences, about VMs that may exist unnoticed.
    """

    seen: Seen
    scheduler: Scheduler
    nodes: list[NodeUsage]
    doubts: list[str]
    starting: frozenset[int] = frozenset()

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as read."""
        return self.seen.snapshot

    def undecided(self, decisions: Iterable[Decision]) -> ClusterState:
        """The cluster without the decisions, and with the guests that the run starts counted as running."""
        made = {decision.vmid for decision in decisions}
        guests = (guest for guest in self.scheduler.cluster if guest.vmid not in made)
        running = (replace(g, status="assumed") if g.vmid in self.starting else g for g in guests)
        return ClusterState(replace(self.scheduler.cluster.snapshot, guests=tuple(running)))
