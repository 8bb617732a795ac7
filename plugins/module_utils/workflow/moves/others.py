# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves and creations that other controllers, people and the HA manager have under way on a cluster.

A lock alone proves nothing: that of a killed migration stays forever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...engine.cache import ClusterState
from ...proxmox.inventory.freshness import HA_MOVING
from ...proxmox.tasks import migrating
from ...reservations.records import Reservation
from ..access import Access
from ..counting import Counted, count_reservations

MOVED_BY_OTHERS, CREATED_BY_OTHERS = "it is being moved", "it is being created"


def busy_guests(counted: Counted, reservations: Iterable[Reservation], migrations: Collection[int]) -> dict[int, str]:
    """Return the guests that are moved or created at present, by VMID: which of the two, as a sentence part.

    migrations are those whose migration runs.
    """
    guests = counted.snapshot.guests
    moved = {each.vmid for each in reservations if each.source and not each.forsaken}
    moved &= {-guest.vmid for guest in counted.under_way}
    moved |= {guest.vmid for guest in guests if guest.ha_managed and guest.ha_state in HA_MOVING}
    moved.update(migrations)
    return {
        **dict.fromkeys(counted.being_created, CREATED_BY_OTHERS),
        **dict.fromkeys(moved & {guest.vmid for guest in guests}, MOVED_BY_OTHERS),
    }


def coming_to(nodes: Collection[str], state: ClusterState, reservations: Iterable[Reservation]) -> frozenset[int]:
    """Return the guests whose move to one of these nodes is reserved, and which are not there."""
    return frozenset(
        reservation.vmid
        for reservation in reservations
        if reservation.source
        and reservation.node in nodes
        and (guest := state.get(reservation.vmid)) is not None
        and guest.node != reservation.node
    )


def at_work(access: Access) -> dict[int, str]:
    """What busy_guests returns for the cluster as it is now. Two requests."""
    reservations = access.ledger.reservations(access.identity())
    counted = count_reservations(access.glance(), reservations)
    return busy_guests(counted, reservations, migrating(access.reader))
