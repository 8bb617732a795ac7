# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Admits moves that are still as planned, and reserves them for other controllers to see: one at a time per cluster."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...engine.cache import ClusterState
from ...engine.planner.items import guest_part, with_disks
from ...engine.profiles import Profile
from ...engine.scheduling_cycle import Scheduler
from ...engine.texts import of_one
from ...model import Disk, Guest, Request, Snapshot
from ...plans import LIVE, OFFLINE, Mobility, Move
from ...proxmox.inventory.snapshot import Needs, complete_snapshot
from ...proxmox.moves.demands import demands_of
from ...proxmox.moves.mobility_ha import Surroundings, against_ha
from ...proxmox.moves.mover import stale
from ...proxmox.tasks import migrating_guests
from ...reservations.ledger import Fence, LeasedCycle
from ...reservations.records import Reservation, move_name
from ..access import Access
from ..counting import Counted, cluster_state, count_reservations, is_settled, with_moves
from .sight import CREATED_BY_OTHERS
from .suitability import Suitability

Configs = Mapping[int, Mapping[str, t.Any]]
"""Configs of guests by VMID."""


class Pass:
    """The check before each write of an admitted move: all of its reservations are alive.

    Attributes:
        counted: the cluster in which it was admitted.
    """

    def __init__(self, counted: Counted, fences: Iterable[Fence]) -> None:
        self.counted = counted
        self._fences = list(fences)

    def begin(self) -> None:
        """Note that the move is about to be sent; raises as Fence.mark_binding does."""
        for fence in self._fences:
            fence.mark_binding()

    def check(self) -> None:
        for fence in self._fences:
            fence.check()


class MoveGate:
    """Admits moves of one run. May be used from many threads.

    Attributes:
        in_progress: VMIDs whose reservations have to be renewed.
    """

    def __init__(
        self,
        access: Access,
        profile: Profile,
        view: Callable[[Snapshot], Snapshot],
        suitability: Suitability | None = None,
        with_use: Callable[[ClusterState], ClusterState] = lambda state: state,
    ) -> None:
        """profile is that of guests, by which the moves were planned; view is how the plan looks at a snapshot;
        suitability is what the plan knows of the nodes; with_use adds what the plan knows of what they use.
        """
        self._access = access
        self._suitability = suitability or Suitability(access.reader)
        self._profile = profile
        self._view = view
        self._with_use = with_use
        self.in_progress: set[int] = set(access.claimed)

    def admit(self, move: Move) -> Pass:
        """Check a move against the cluster and the reservations of others, and reserve it. One request; more for the
        HA rules of a guest that HA manages, and one if a controller died while it moved a guest.

        Raises PlanStale if the guest or its target is not as planned or the capacity is gone, and what the ledger
        raises: AlreadyReserved if another process moves the guest.
        """
        access = self._access
        cluster, holder = access.identity(), access.holder
        with access.ledger.scheduling_cycle(cluster, holder=holder) as cycle:
            counted = self._count(move, cycle)
            self._check(move, counted)
            reservations = self._reservations(move, counted)
            cycle.reserve(reservations)
        vmids = [reservation.vmid for reservation in reservations]
        self.in_progress.update(vmids)
        return Pass(counted, (Fence(access.ledger, cluster, vmid, holder) for vmid in vmids))

    def check_demands(self, move: Move, configs: Configs, admitted: Pass) -> bool:
        """Check what the guests of an admitted move ask of their target, as their configs are right before the request:
        CPU types and flags, and devices, which others may have taken since the plan was made. Returns whether that
        took requests, as it does for guests with devices. Raises PlanStale.
        """
        counted, before = admitted.counted, self._suitability.reads
        guests = {guest.vmid: guest for guest in (*counted.snapshot.guests, *counted.stand_ins)}
        for vmid in configs.keys() & guests.keys():
            guest = guests[vmid]
            demands = demands_of(configs[vmid], guest.kind, live=move.how == LIVE)
            why = self._suitability.refusal(counted.snapshot, guest, demands, move, self._profile)
            if why is not None:
                raise stale(move, f"{move.target} {of_one(why)}")
        return self._suitability.reads > before

    def settle(self, move: Move, *, moved: bool) -> None:
        """Note that a move has ended; moved tells whether the guest is on its target.

        The cluster's list may still show the guest at the source for a moment: the reservation lasts until then.
        """
        ledger, cluster, holder = self._access.ledger, self._access.identity(), self._access.holder
        vmids = move.vmids
        self.in_progress.difference_update(vmids)
        if moved:
            ledger.mark_created(cluster, vmids, holder)
        else:
            ledger.release(cluster, vmids, holder)

    def abandon(self, move: Move) -> None:
        """Note that the outcome of a move is unknown: its reservations count until they expire."""
        self.in_progress.difference_update(move.vmids)

    def _count(self, move: Move, cycle: LeasedCycle) -> Counted:
        """Return the cluster as it is now, with the moves and reservations of others."""
        reservations = self._access.of_others(cycle.reservations())
        snapshot = self._access.glance()
        awaited = {each.vmid for each in reservations}
        coming = {each.vmid for each in reservations if each.source and each.node == move.target}
        there = {each.vmid for each in snapshot.guests if each.node == move.target} - awaited
        if not all(is_settled(each) for each in snapshot.guests if each.vmid in there | coming):
            # Once another run has seen a new VM on its node, no reservation stands in for it any more, but the list of
            # the cluster shows it without its name and its sizes for some seconds. Moves of others have no names.
            snapshot = self._access.read(patience=0.0)
        # The guest may have joined a rule since the plan was made.
        managed = any(guest.ha_managed for guest in snapshot.guests if guest.vmid in move.vmids)
        snapshot = complete_snapshot(
            self._access.reader, snapshot, Needs(ha_rules=managed, ha_resources="where it matters")
        )
        if any(reservation.source and reservation.forsaken for reservation in reservations):
            # The task of a killed controller goes on, and may ask the HA manager for the move late.
            snapshot = replace(snapshot, migrating=migrating_guests(self._access.reader))
        counted = count_reservations(self._view(snapshot), reservations, ask_if_another=self._access.ask_if_another)
        return counted if cycle.confirm(counted.fulfilled) else self._count(move, cycle)

    def _check(self, move: Move, counted: Counted) -> None:
        """Raise PlanStale if a move is not possible any more as it was planned."""
        cluster = with_moves(counted.snapshot, counted.under_way)
        state = self._with_use(cluster_state(cluster, counted.stand_ins))
        guest, target = state.guests.get(move.vmid), state.by_name.get(move.target)
        if guest is None:
            raise stale(move, "it is gone")
        if counted.being_created.intersection(move.vmids):
            raise stale(move, CREATED_BY_OTHERS)
        if guest.node != move.source:
            raise stale(move, f"it is on {guest.node} instead of {move.source}")
        if target is None:
            raise stale(move, f"node {move.target} is gone")
        guests = [_as_planned(move, guest), *filter(None, map(state.guests.get, move.together))]
        for each in guests:
            state.remove(each.vmid)
        scheduler = Scheduler(state, {self._profile.name: self._profile}, self._profile.name)
        sizes = {storage: size for (storage, _node), size in move.copied_to.items()}
        content = "images" if move.kind == "qemu" else "rootdir"
        disks = [Disk(f"scsi{n}", size, storage, content=content) for n, (storage, size) in enumerate(sizes.items())]
        around = Surroundings.of(cluster, {})
        for each in guests:
            # A rule that the HA manager prefers to keep is none of the filters', which only know the strict ones.
            for node, why in against_ha(each, around):
                if node == move.target:
                    raise stale(move, f"{node} {why}")
            request = self._request(each, counted.snapshot)
            request = with_disks(request, disks) if each.vmid == move.vmid else request
            for refusal in scheduler.refusals(request, time.time(), (target,))[target.name].values():
                raise stale(move, f"{move.target} {of_one(refusal.text)}")
            state.restore(replace(each, node=move.target))

    def _request(self, guest: Guest, snapshot: Snapshot) -> Request:
        """Return the request that filters evaluate for a guest: without affinity to others, which may move later."""
        request = guest_part(guest, Mobility(), self._profile.policy, snapshot.ha_rules).request
        return replace(request, affinity=tuple(term for term in request.affinity if not term.together))

    def _reservations(self, move: Move, counted: Counted) -> list[Reservation]:
        """Return the reservations of the guests that move. They replace those of their creation, which is complete."""
        cluster, created = self._access.identity(), {each.vmid: each for each in counted.pending}

        def reservation(guest: Guest) -> Reservation:
            known = created.get(guest.vmid) or Reservation(cluster, guest.vmid, move_name(guest.vmid), move.target)
            copied = move.copied_to if guest.vmid == move.vmid else {}
            return replace(
                known,
                node=move.target,
                source=guest.node,
                identity=move.identities.get(guest.vmid),
                cores=guest.cores,
                memory=guest.memory,
                running=guest.running,
                storage_bytes={**known.storage_bytes, **copied},
                phase="reserved",
            )

        guests = (*counted.snapshot.guests, *counted.stand_ins)
        return [reservation(_as_planned(move, guest)) for guest in guests if guest.vmid in move.vmids]


def _as_planned(move: Move, guest: Guest) -> Guest:
    """Return the guest of a move as the plan assumes it: the cluster's list may show its status and its sizes ten
    seconds late. Whether it runs as planned is checked when the move is sent.
    """
    if guest.vmid != move.vmid:
        return guest
    status = "stopped" if move.how == OFFLINE else "running"
    return replace(guest, status=status, memory=guest.memory or move.memory)
