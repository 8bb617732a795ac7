# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of moves sees when it looks at the cluster, and what other controllers, people and the HA manager have
under way there.

A lock alone proves nothing: that of a killed migration stays forever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...engine.cache import ClusterState
from ...model import Snapshot
from ...plans import Goals
from ...proxmox.inventory.freshness import is_moved_by_ha
from ...proxmox.inventory.snapshot import Needs, complete_snapshot
from ...proxmox.tasks import migrating_guests
from ...reservations.records import Reservation
from ..access import Access
from ..counting import Counted, cluster_state, count_reservations, with_moves
from .ha_cautions import ha_cautions

LOOKS = 3
"""How often a run plans again before it carries anything out, if guests leave their nodes meanwhile."""

View = Callable[[Snapshot], Snapshot]


@dataclass(frozen=True, slots=True)
class Sight:
    """What a run sees when it looks at the cluster.

    Attributes:
        state: the cluster, with the reservations of others.
        goals: the goals for it.
        busy: the guests that others move or create, by VMID, with the reason why this run does not move them.
        coming: those of them that are moving to a node to be drained.
        cautions: what the user must know of the HA manager, as sentences.
        drains_only: whether the goals move nothing but guests of nodes to be drained.
    """

    state: ClusterState
    goals: Goals
    busy: Mapping[int, str] = field(default_factory=dict)
    coming: frozenset[int] = frozenset()
    cautions: tuple[str, ...] = ()
    drains_only: bool = False


Look = Callable[[], Sight]


def as_it_is(snapshot: Snapshot) -> Snapshot:
    """Return the view of a plan that looks at the cluster as it is."""
    return snapshot


def live_look(access: Access, goals_of: Callable[[Snapshot], Goals], view: View = as_it_is) -> Look:
    """Return a function that reads a live cluster and its goals. view is how the plan looks at the cluster."""

    def look() -> Sight:
        reservations = access.of_others(access.ledger.reservations(access.identity()))
        snapshot = access.read()
        needs = replace(needs_of_moves(snapshot), maintenance=True, bridges=False)
        snapshot = complete_snapshot(access.reader, snapshot, needs)
        counted = count_reservations(snapshot, reservations, ask_if_another=access.ask_if_another)
        goals = goals_of(counted.snapshot)
        cautions = ha_cautions(access.reader, counted.snapshot, goals) if needs.ha_resources else ()
        due = (guest for guest in counted.snapshot.guests if guest.vmid not in goals.stays)
        drains_only = goals == Goals(drain=goals.drain, stays=goals.stays, prefer=goals.prefer)
        if not drains_only or any(guest.node in goals.drain for guest in due):
            # Guests may move: one request for each node.
            counted = replace(counted, snapshot=complete_snapshot(access.reader, counted.snapshot, Needs(bridges=True)))
        # Of a guest that has left a node to be drained nothing is left to do there.
        under_way = [guest for guest in counted.under_way if guest.node not in goals.drain]
        viewed = view(counted.snapshot)
        state = cluster_state(with_moves(viewed, under_way) if under_way else viewed, counted.stand_ins)
        busy = busy_guests(counted, snapshot.migrating)
        coming = incoming_guests(goals.drain, state, reservations) & busy.keys()
        return Sight(state, goals, busy, coming, cautions, drains_only)

    return look


def needs_of_moves(snapshot: Snapshot) -> Needs:
    """Return the data of a cluster that moving its guests requires."""
    managed = any(guest.ha_managed for guest in snapshot.guests)
    return Needs(bridges=True, ha_rules=managed, ha_resources=managed)


# --- what others have under way ---

MOVED_BY_OTHERS, CREATED_BY_OTHERS = "it is being moved", "it is being created"


def busy_guests(counted: Counted, migrations: Collection[int]) -> dict[int, str]:
    """Return the guests that are moved or created at present, by VMID: which of the two, as a sentence part.

    migrations are those whose migration runs. The request of a controller that was killed may take effect late: its
    move counts until it would show.
    """
    guests = counted.snapshot.guests
    moved = {-guest.vmid for guest in counted.under_way}
    moved |= {guest.vmid for guest in guests if is_moved_by_ha(guest)}
    moved.update(migrations)
    return {
        **dict.fromkeys(counted.being_created, CREATED_BY_OTHERS),
        **dict.fromkeys(moved & {guest.vmid for guest in guests}, MOVED_BY_OTHERS),
    }


def incoming_guests(nodes: Collection[str], state: ClusterState, reservations: Iterable[Reservation]) -> frozenset[int]:
    """Return the guests whose move to one of these nodes is reserved, and which are not there."""
    return frozenset(
        reservation.vmid
        for reservation in reservations
        if reservation.source
        and reservation.node in nodes
        and (guest := state.guests.get(reservation.vmid)) is not None
        and guest.node != reservation.node
    )


def read_busy_guests(access: Access) -> dict[int, str]:
    """Return what busy_guests returns for the cluster as it is now. Two requests."""
    reservations = access.ledger.reservations(access.identity())
    counted = count_reservations(access.glance(), reservations, ask_if_another=access.ask_if_another)
    return busy_guests(counted, migrating_guests(access.reader))
