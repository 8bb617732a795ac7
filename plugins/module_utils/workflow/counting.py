# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts what the ledger knows and the cluster does not show yet.

A reservation stands in for its VM until the snapshot shows that VM with its name and sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..engine.cache import ClusterState
from ..engine.standing_rules import merge_constraints
from ..model import NO_CONSTRAINTS, Decision, Guest, HARule, Request, Snapshot
from ..proxmox.inventory.freshness import BEING_MADE, HA_BEGINS_WITHIN, KnownGuest, is_moved_by_ha
from ..proxmox.options.values import static_addresses
from ..reservations.records import Reservation, move_name
from .options.entries import Entry

SHOWS_WITHIN, HA_SHOWS_WITHIN = 10.0, HA_BEGINS_WITHIN + 5.0
"""Seconds within which a requested move becomes visible: by the lock of the guest, or by its state in the HA
manager.
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """The snapshot without the guests that reservations stand in for, these pending reservations, and the fulfilled
    ones: their VMs are shown, or their VMIDs belong to others by now, or they have expired and there is no VM.

    stand_ins are the guests that the pending reservations stand for. under_way are guests that are being moved, each as
    it counts on the node where the snapshot does not show it.
    """

    snapshot: Snapshot
    pending: tuple[Reservation, ...]
    fulfilled: tuple[Reservation, ...]
    under_way: tuple[Guest, ...] = ()
    stand_ins: tuple[Guest, ...] = ()

    @property
    def being_created(self) -> frozenset[int]:
        """The VMIDs of the guests whose creation goes on, as far as is known."""
        return frozenset(each.vmid for each in self.pending if _still_being_made(each))


def known_guests(reservations: Iterable[Reservation], entries: Iterable[Entry] = ()) -> dict[int, KnownGuest]:
    """Return what reservations tell about VMs, by VMID.

    The config of an existing VM that an entry names is read anyway and proves its name. If the entry requests the state
    C(present), the VM's status does not matter. For other VMs that entries name, the reservation proves nothing.
    """
    named: dict[str | int | None, list[Entry]] = {}
    for entry in entries:
        for key in {entry.request.name or None, entry.request.vmid} - {None}:
            named.setdefault(key, []).append(entry)
    known = {}
    for reservation in reservations:
        meant = [*named.get(reservation.name, ()), *named.get(reservation.vmid, ())]
        whole = reservation.phase == "created"
        plainly = whole and all(
            entry.state == "present"
            and entry.request.name == reservation.name
            and entry.request.vmid in (None, reservation.vmid)
            for entry in meant
        )
        if not reservation.source and (plainly or not meant):
            known[reservation.vmid] = KnownGuest(reservation.name, whole, proven=bool(meant))
    return known


def count_reservations(
    snapshot: Snapshot,
    reservations: Iterable[Reservation],
    known: Mapping[int, KnownGuest] = MappingProxyType({}),
    ask_if_gone: Callable[[str, int], bool] = lambda node, vmid: False,
    ask_if_another: Callable[[Guest, Reservation], bool] = lambda guest, reservation: False,
) -> Counted:
    """Combine the reservations with the snapshot.

    A VMID that the snapshot shows under another name was lost to another process: the holder of the reservation learns
    that when it creates its VM, and the guest that is shown counts. If a new guest is being created under the VMID of a
    VM that was created already, that VM was deleted, and the new guest counts. known are guests whose sizes were not
    read again. The reservation of a VM that was created stays until it expires: other runs need not read its sizes, and
    know by it which VM has been created.
    Those that are proven count as they are shown, completed from the reservation. ask_if_gone returns whether a created
    VM that is missing in the snapshot does not exist on its node either; ask_if_another whether the guest that has the
    VMID now is certainly not the one that a reservation is about. A move of a guest that is gone moves no other.
    """
    shown = {guest.vmid: guest for guest in snapshot.guests}
    reachable = {node.name for node in snapshot.nodes if node.online}
    pending: list[Reservation] = []
    fulfilled: list[Reservation] = []
    under_way: list[Guest] = []
    proven = {vmid for vmid, guest in known.items() if guest.proven}
    for reservation in reservations:
        guest = shown.get(reservation.vmid)
        if reservation.source:
            over, late = _move_is_over(guest, reservation, snapshot.migrating), guest is not None and guest.memory <= 0
            if guest is not None and (late or not over) and ask_if_another(guest, reservation):
                over, late = True, False
            if guest is not None and late:
                guest = shown[guest.vmid] = _as_created(guest, reservation)
            if guest is not None and not over:
                under_way.append(_guest_on_its_way(guest, reservation))
            if over and not (late and reservation.phase == "created"):
                fulfilled.append(reservation)
            continue
        created = reservation.phase == "created"
        if guest is None:
            lost = reservation.expired or (created and ask_if_gone(reservation.node, reservation.vmid))
        else:
            lost = guest.node in reachable and _is_another(guest, reservation)
        if guest is not None and not lost and reservation.forsaken and ask_if_another(guest, reservation):
            # It counts for nothing. As long as it lasts, it proves that the VM of its name is another one.
            continue
        if lost:
            if not _still_being_made(reservation):
                fulfilled.append(reservation)
        elif guest is not None and guest.vmid in proven and guest.name in (None, reservation.name):
            shown[guest.vmid] = guest if is_settled(guest) else _complete(guest, reservation)
        elif guest is None or not _is_shown(guest, reservation, known, reachable):
            pending.append(reservation)
        elif not created:
            fulfilled.append(reservation)
    hidden = {reservation.vmid for reservation in pending}
    guests = tuple(guest for vmid, guest in shown.items() if vmid not in hidden)
    return Counted(
        replace(snapshot, guests=guests),
        tuple(pending),
        tuple(fulfilled),
        tuple(under_way),
        tuple(_stand_in(reservation, shown.get(reservation.vmid)) for reservation in pending),
    )


def cluster_state(whole: Snapshot, stand_ins: Iterable[Guest], excluded: Collection[int] = ()) -> ClusterState:
    """Return the cluster state for the scheduler, with the stand-ins of reservations assumed and the excluded VMIDs
    taken.
    """
    state = ClusterState(replace(whole, vmids_unseen=whole.vmids_unseen.union(excluded)))
    for guest in stand_ins:
        state.assume(guest)
    return state


def requests_of_existing(asked: Mapping[int, Request], guests: Iterable[Guest]) -> dict[int, Request]:
    """Return the requests in asked, by VMID, whose VMs are among the guests under the requested name."""
    names = {guest.vmid: guest.name for guest in guests}
    return {vmid: request for vmid, request in asked.items() if vmid in names and request.name in ("", names[vmid])}


def with_rules_of(asked: Mapping[int, Request], snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the groups and rules of the VMs that a run requests, as Proxmox does not store these."""
    guests = {guest.vmid: guest for guest in snapshot.guests}
    for vmid, request in requests_of_existing(asked, snapshot.guests).items():
        standing = guests[vmid].constraints
        both = merge_constraints(request.constraints, standing.affinity, standing.node_required)
        # Proxmox tells which HA rule a guest is in.
        guests[vmid] = replace(guests[vmid], constraints=replace(both, ha=None))
    return replace(snapshot, guests=tuple(guests.values()))


def is_settled(guest: Guest) -> bool:
    """Whether the cluster shows a guest completely: with its name and sizes, and not being created any more."""
    return guest.name is not None and guest.memory > 0 and guest.lock not in BEING_MADE


def guest_of(reservation: Reservation) -> Guest:
    """Return the guest that a reservation stands in for."""
    return Guest(
        vmid=reservation.vmid,
        name=reservation.name,
        node=reservation.node,
        status="assumed",
        cores=reservation.cores,
        memory=reservation.memory,
        tags=reservation.tags,
        pool=reservation.pool,
        constraints=reservation.constraints,
        storage_pending=reservation.storage_bytes,
        devices=tuple(_device(text) for _node, text in reservation.devices),
    )


def _stand_in(reservation: Reservation, shown: Guest | None) -> Guest:
    """Return the guest that a pending reservation stands in for. The node and the HA state of a VM that was created are
    shown at once. Sizes that differ may be newer or older than the reservation: the larger ones count. Those of a row
    without a name are placeholders.
    """
    guest = guest_of(reservation)
    if shown is None or reservation.phase != "created":
        return guest
    if shown.name is None:
        return replace(guest, node=shown.node, ha_managed=shown.ha_managed, ha_state=shown.ha_state)
    return replace(
        guest,
        node=shown.node,
        cores=max(guest.cores, shown.cores),
        memory=max(guest.memory, shown.memory),
        ha_managed=shown.ha_managed,
        ha_state=shown.ha_state,
    )


def _as_created(guest: Guest, move: Reservation) -> Guest:
    """Return a guest that is moved right after its creation, before the cluster shows its sizes."""
    known = _complete(guest, move)
    return replace(
        known,
        status="assumed" if move.running and not guest.running else guest.status,
        constraints=guest.constraints if move.constraints == NO_CONSTRAINTS else move.constraints,
    )


def _complete(guest: Guest, reservation: Reservation) -> Guest:
    """Return a guest that is shown without its name and sizes, completed from its reservation."""
    stand_in = guest_of(reservation)
    return replace(
        guest,
        name=guest.name if reservation.name == move_name(guest.vmid) else stand_in.name,
        cores=stand_in.cores,
        memory=stand_in.memory,
        storage_pending=stand_in.storage_pending,
        devices=stand_in.devices,
    )


def reservation_of(decision: Decision, cluster: str) -> Reservation:
    """Return the reservation that makes a decision known to others."""
    request = decision.request
    return Reservation(
        cluster=cluster,
        vmid=decision.vmid,
        name=request.name,
        per_node=request.per_node,
        node=decision.node,
        cores=request.cores,
        memory=request.memory,
        running=request.running,
        storage_bytes=decision.storage_bytes,
        devices=tuple((a.node, f"{a.driver}/{a.device}") for a in decision.devices),
        tags=request.tags,
        pool=request.pool,
        constraints=request.constraints,
        addresses=tuple(str(interface.ip) for interface in static_addresses(request.options)),
    )


def with_moves(whole: Snapshot, under_way: Iterable[Guest]) -> Snapshot:
    """Return the snapshot in which guests that are being moved count on both nodes. HA rules keep others apart from
    both.
    """
    moving = tuple(under_way)

    def with_copies(rule: HARule) -> HARule:
        copies = {guest.vmid for guest in moving if -guest.vmid in rule.vmids and not rule.positive}
        return replace(rule, vmids=rule.vmids | copies) if copies else rule

    rules = tuple(with_copies(rule) for rule in whole.ha_rules)
    return replace(whole, guests=(*whole.guests, *moving), ha_rules=rules)


def _move_is_over(guest: Guest | None, reservation: Reservation, migrating: Collection[int]) -> bool:
    """Whether a move has ended although its reservation still exists: the guest is shown on its target, or it is shown
    at rest long after the last sign of life of the holder. migrating are the guests that a task migrates, or asks the
    HA manager to migrate.
    """
    if guest is not None and (guest.lock == "migrate" or guest.vmid in migrating or is_moved_by_ha(guest)):
        return False
    arrived = guest is not None and guest.node == reservation.node
    if arrived and (reservation.phase == "created" or reservation.forsaken):
        return True
    if reservation.phase == "created":
        return False
    shows_within = HA_SHOWS_WITHIN if guest is not None and guest.ha_managed else SHOWS_WITHIN
    return reservation.forsaken and reservation.quiet > shows_within


def _guest_on_its_way(guest: Guest, reservation: Reservation) -> Guest:
    """Return a guest that is being moved, as it counts on the node where it is not shown. Its negative VMID cannot
    belong to a guest. What its disks take counts once.
    """
    other = reservation.node if guest.node != reservation.node else reservation.source
    disks = {} if guest.storage_pending else reservation.storage_bytes
    return replace(guest, vmid=-guest.vmid, node=other, storage_pending=disks)


def _is_another(guest: Guest, reservation: Reservation) -> bool:
    """Whether a guest with the VMID is not the reservation's VM: it has another name, or is only being created now."""
    if guest.kind == "qemu" and guest.name is None:
        return guest.lock in BEING_MADE and reservation.phase == "created"
    return guest.kind != "qemu" or guest.name != reservation.name


def _is_shown(
    guest: Guest, reservation: Reservation, known: Mapping[int, KnownGuest], reachable: Collection[str]
) -> bool:
    """Whether a guest is shown as the complete VM of the reservation."""
    if not is_settled(guest) or guest.name != reservation.name or _still_being_made(reservation):
        return False
    read_now = reservation.phase == "created" and reservation.vmid not in known and guest.node in reachable
    return read_now or reservation.expired or _agrees(guest, reservation)


def _agrees(guest: Guest, reservation: Reservation) -> bool:
    """Whether a guest is shown with the sizes and status that its VM will have. A row may be outdated, or read before
    the VM was complete.
    """
    started = guest.running or not reservation.running
    return started and (guest.cores, guest.memory) == (reservation.cores, reservation.memory)


def _still_being_made(reservation: Reservation) -> bool:
    """Whether the holder may still be creating the VM: what the ledger said is a moment old, too.

    Until the holder is done, the VM may exist without its sizes, as a clone does, or without having been started.
    """
    return reservation.phase != "created" and not reservation.forsaken


def _device(text: str) -> tuple[str, str]:
    driver, _separator, device = text.partition("/")
    return driver, device
