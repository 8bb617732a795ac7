# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one scheduling cycle of a run knows of its cluster: what was seen, what is decided about, and what it did."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..engine.cache import ClusterState
from ..engine.scheduling_cycle import Scheduler
from ..model import Decision, Snapshot
from .counting import Counted
from .job import Job
from .matching import Match
from .usage import NodeUsage


@dataclass(frozen=True, slots=True)
class Seen:
    """The cluster as read, counted with what others have reserved, and what was found of each VM."""

    snapshot: Snapshot
    counted: Counted
    matches: Mapping[Job, Match]


@dataclass(frozen=True, slots=True)
class Scene:
    """What is decided about in one scheduling cycle.

    Attributes:
        jobs: all that the cycle is about; new are those whose VMs do not exist.
        before: the cluster with what others have reserved, before anything is decided.
        nodes: how full the nodes are.
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
        """Count guests that the run starts as running for as long as it is decided about others."""
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
    """What one scheduling cycle saw and did; the outcome of each VM is kept in its job.

    Attributes:
        scheduler: the one that decided, with what it has assumed.
        starting: VMIDs of guests that the run starts.
        nodes: how full the nodes are before and after.
        doubts: what the user should know about which VMs exist, in sentences.
    """

    snapshot: Snapshot
    scheduler: Scheduler
    nodes: list[NodeUsage]
    doubts: list[str]
    starting: frozenset[int] = frozenset()

    def undecided(self, decisions: Iterable[Decision]) -> ClusterState:
        """The cluster without what was decided, and with the guests that the run starts as running."""
        made = {decision.vmid for decision in decisions}
        guests = (guest for guest in self.scheduler.cluster if guest.vmid not in made)
        running = (replace(g, status="assumed") if g.vmid in self.starting else g for g in guests)
        return ClusterState(replace(self.scheduler.cluster.snapshot, guests=tuple(running)))
