# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of moves sees when it looks at the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...engine.cache import ClusterState
from ...model import Snapshot
from ...plans import Goals
from ...proxmox.inventory.snapshot import Needs, completed
from ..access import Access
from ..counting import cluster_state, count_reservations, with_moves
from .others import busy_guests, coming_to

View = Callable[[Snapshot], Snapshot]


@dataclass(frozen=True, slots=True)
class Sight:
    """What a run sees when it looks at the cluster.

    Attributes:
        state: the cluster, with the reservations of others.
        goals: the goals for it.
        busy: the guests that others move or create, by VMID, with the reason why this run does not move them.
        coming: those of them that are moving to a node to be drained.
    """

    state: ClusterState
    goals: Goals
    busy: Mapping[int, str] = field(default_factory=dict)
    coming: frozenset[int] = frozenset()


Look = Callable[[], Sight]


def as_it_is(snapshot: Snapshot) -> Snapshot:
    """The view of a plan that looks at the cluster as it is."""
    return snapshot


def live_look(access: Access, goals_of: Callable[[Snapshot], Goals], view: View = as_it_is) -> Look:
    """Return a function that reads a live cluster. goals_of returns the goals for a cluster; view is how the plan looks
    at it.
    """

    def look() -> Sight:
        reservations = access.of_others(access.ledger.reservations(access.identity()))
        snapshot = access.read()
        needs = replace(needs_of_moves(snapshot), maintenance=True, bridges=False)
        counted = count_reservations(completed(access.reader, snapshot, needs), reservations)
        goals = goals_of(counted.snapshot)
        if _may_move(goals, counted.snapshot):
            # One request for each node.
            counted = replace(counted, snapshot=completed(access.reader, counted.snapshot, Needs(bridges=True)))
        # Of a guest that has left a node to be drained nothing is left to do there.
        under_way = [guest for guest in counted.under_way if guest.node not in goals.drain]
        state = cluster_state(with_moves(view(counted.snapshot), under_way), counted.stand_ins)
        busy = busy_guests(counted, reservations, snapshot.migrating)
        return Sight(state, goals, busy, coming_to(goals.drain, state, reservations) & busy.keys())

    return look


def _may_move(goals: Goals, snapshot: Snapshot) -> bool:
    """Whether a plan for the goals may move guests."""
    return goals != Goals(drain=goals.drain) or any(guest.node in goals.drain for guest in snapshot.guests)


def needs_of_moves(snapshot: Snapshot) -> Needs:
    """The data of a cluster that moving its guests requires."""
    return Needs(bridges=True, ha_rules=any(guest.ha_managed for guest in snapshot.guests))
