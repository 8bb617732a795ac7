# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling cycle of a run: read the cluster, match what exists, decide about the rest, and reserve it.

While it lasts nobody else decides about the same cluster. It may be gone through again for VMs whose VMID was taken
meanwhile.
"""

from __future__ import annotations

import contextlib
import time
import typing as t
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..engine.cache import ClusterState
from ..engine.devices.constraints import Matcher
from ..engine.devices.mixed import mixed_mappings
from ..engine.diagnosis import Outcome
from ..engine.framework.profile import Profile
from ..engine.framework.status import Category
from ..engine.manager import Manager
from ..engine.scheduling_cycle import Scheduler
from ..errors import CollectionError
from ..model import Decision, Guest, Request, Snapshot
from ..proxmox.creations import Creations
from ..proxmox.freshness import SETTLING
from ..reservations.lease import LeaseLost
from ..reservations.ledger import Cycle
from .access import Access, OtherCluster, subjects_of
from .address_book import AddressBook
from .counting import (
    cluster_state,
    count_reservations,
    known_among,
    known_guests,
    reservation_of,
    with_moves,
    with_reservations,
    with_rules_of,
)
from .device_options import device_needs
from .entries import Entry
from .lawful import check_lawful
from .matching import Match, doubts, match_entries
from .templates import Templates
from .usage import NodeUsage, note_after, usage_before

CYCLES = 3
"""How often a cycle is begun: the address may turn out to be another cluster's, or reading outlast the lease."""


@dataclass(slots=True)
class Placement:
    """What one scheduling cycle found and decided, by the entries' positions.

    Attributes:
        scheduler: the one that decided, with what it has assumed.
        existing: guests that are there already.
        outcomes: of the entries that are not.
        errors: of the entries about which nothing can be decided.
        nameless: for entries that are not found, VMs that others are creating; each may be the one that is asked for.
        nodes: how full the nodes are before and after.
        cautions: what the user should know about a decision, in sentences.
        doubts: the same about which VMs exist.
    """

    snapshot: Snapshot
    scheduler: Scheduler
    existing: dict[int, Guest] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    errors: dict[int, CollectionError] = field(default_factory=dict)
    nameless: dict[int, tuple[Guest, ...]] = field(default_factory=dict)
    nodes: list[NodeUsage] = field(default_factory=list)
    cautions: dict[int, list[str]] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.errors) or any(outcome.error is not None for outcome in self.outcomes.values())


class Placer:
    """Decides for one run.

    Attributes:
        creations: what is known of VMs that others are creating.
        addresses: the static addresses of the run's VMs.
    """

    def __init__(
        self,
        access: Access,
        manager: Manager,
        device_attributes: Mapping[str, Mapping[str, t.Any]],
        addresses: AddressBook,
    ) -> None:
        self._access = access
        self._manager = manager
        self._device_attributes = device_attributes
        self.addresses = addresses
        self._subjects = subjects_of(manager.profiles.values())
        self._templates = Templates(access.reader)
        # By VMID, what the run asks for of the VMs that it has found or decided about so far.
        self._asked: dict[int, Request] = {}
        self._unreachable: set[str] = set()
        self.creations = Creations(access.reader, patience=0)

    def avoid(self, node: str) -> None:
        """Take a node for offline from now on: it did not answer, which the cluster notices some seconds later."""
        self._unreachable.add(node)

    def place(
        self, entries: Sequence[Entry], *, all_or_nothing: bool, reserve: bool, excluded: Collection[int] = ()
    ) -> Placement:
        """Go through one scheduling cycle.

        reserve: whether the decisions are made known to others: not in check mode. With all_or_nothing none is when one
        entry failed. excluded are VMIDs known to be taken although this user does not see by whom.
        """
        for tries_left in reversed(range(CYCLES)):
            try:
                with self._cycle(reserve) as cycle:
                    placement = self._decide(entries, cycle, frozenset(excluded))
                    if cycle is not None and not (all_or_nothing and placement.failed):
                        decided = [o.decision for o in placement.outcomes.values() if o.decision is not None]
                        cycle.reserve([reservation_of(decision, self._access.identity()) for decision in decided])
                    return placement
            except (OtherCluster, LeaseLost):
                if not tries_left:
                    raise
        raise AssertionError("the last try has returned or raised")

    def profile_of(self, request: Request) -> Profile:
        """The profile that a request is placed by."""
        return self._manager.profiles[request.profile or self._manager.default_profile]

    def broken_limits(self, decisions: Iterable[Decision]) -> dict[int, str]:
        """For each decided VM that now breaks a limit of its node, by VMID, which one: somebody else was there as well.

        Reads the cluster anew. Only limits to what a node may hold are looked at: Proxmox itself refuses lack of
        space and devices.
        """
        snapshot = self._access.read()
        broken: dict[int, str] = {}
        for decision in decisions:
            others = tuple(guest for guest in snapshot.guests if guest.vmid != decision.vmid)
            scheduler = self._manager.get_or_create_scheduler(ClusterState(replace(snapshot, guests=others)))
            # HA rules are not read here.
            refusals = scheduler.refusals(replace(decision.request, ha=None)).get(decision.node, {})
            reasons = [status.text for status in refusals.values() if status.category is Category.CAPACITY]
            if reasons:
                broken[decision.vmid] = " and ".join(reasons)
        return broken

    @contextlib.contextmanager
    def _cycle(self, reserve: bool) -> Iterator[Cycle | None]:
        if not reserve:
            yield None
            return
        access = self._access
        with access.ledger.scheduling_cycle(access.identity(), holder=access.holder) as cycle:
            yield cycle

    def _decide(self, entries: Sequence[Entry], cycle: Cycle | None, excluded: frozenset[int]) -> Placement:
        access = self._access
        reservations = access.ledger.reservations(access.identity()) if cycle is None else cycle.reservations()
        known = known_guests(reservations, {w for entry in entries for w in (entry.request.name, entry.request.vmid)})
        # It matters which VMs others are creating where one is placed, or may be the same.
        settling = SETTLING if any(entry.state != "absent" for entry in entries) else 0.0
        snapshot = self._without_unreachable(access.read(known, patience=settling))
        counted = count_reservations(snapshot, reservations, known, access.is_gone)
        if cycle is not None:
            cycle.confirm(counted.fulfilled)
        matches = match_entries(
            entries,
            counted.snapshot.guests,
            counted.pending,
            {guest.vmid for guest in snapshot.guests},
            self.creations.abandoned | self._unasked(snapshot),
        )
        requests = [entry.request for entry in entries if entry.state != "absent" and matches[entry.position].is_new]
        devices = device_needs(requests, self._device_attributes)
        whole = access.complete(counted.snapshot, requests, self._subjects, devices)
        taken_over = {match.take_over for match in matches.values()}
        pending = [reservation for reservation in counted.pending if reservation.vmid not in taken_over]
        for entry in entries:
            guest = matches[entry.position].guest
            if guest is not None and entry.state != "absent":
                self._asked[guest.vmid] = entry.request
        shown = with_rules_of(self._asked, with_moves(whole, counted.under_way))
        state = cluster_state(shown, pending, excluded)
        self.addresses.begin(snapshot.guests, counted.pending, entries)
        placement = self._schedule(entries, matches, state, snapshot)
        decisions = [o.decision for o in placement.outcomes.values() if o.decision is not None]
        cluster = with_reservations(shown, pending, excluded)
        check_lawful(cluster, decisions, self.profile_of, _started(entries, placement.existing))
        placement.doubts = doubts(entries, matches, counted.snapshot.guests)
        return placement

    def _without_unreachable(self, snapshot: Snapshot) -> Snapshot:
        nodes = (replace(n, online=False) if n.name in self._unreachable else n for n in snapshot.nodes)
        return replace(snapshot, nodes=tuple(nodes)) if self._unreachable else snapshot

    def _too_new(self, entry: Entry) -> CollectionError | None:
        """Why the cluster's release of Proxmox VE does not have all options of an entry."""
        try:
            if entry.state != "absent":
                self._access.check_release(entry.request)
        except CollectionError as error:
            return error
        return None

    def _unasked(self, snapshot: Snapshot) -> set[int]:
        """VMIDs of guests whose nodes cannot be asked: of these no name is waited for."""
        online = set() if self._access.offline else {node.name for node in snapshot.nodes if node.online}
        return {guest.vmid for guest in snapshot.guests if guest.node not in online}

    def _schedule(
        self, entries: Sequence[Entry], matches: Mapping[int, Match], state: ClusterState, snapshot: Snapshot
    ) -> Placement:
        scheduler = self._manager.get_or_create_scheduler(state)
        placement = Placement(snapshot, scheduler)
        positions: list[int] = []
        requests: list[Request] = []
        for entry in entries:
            match = matches[entry.position]
            error = match.error or self._too_new(entry)
            if error is not None:
                placement.errors[entry.position] = error
            elif match.guest is not None:
                placement.existing[entry.position] = match.guest
            elif entry.state != "absent":
                try:
                    self._access.check_rights(entry.request)
                    request = self._access.with_tag_rules(self._templates.resolve(entry, state), snapshot.nodes)
                    request = self.addresses.assign(entry, request)
                except CollectionError as refusal:
                    placement.errors[entry.position] = refusal
                    continue
                if match.nameless:
                    placement.nameless[entry.position] = match.nameless
                positions.append(entry.position)
                requests.append(request if match.take_over is None else replace(request, vmid=match.take_over))
        present = known_among(self._asked, state).values()
        placement.nodes = usage_before(state, self._manager.profiles[self._manager.default_profile])
        with _counted_as_running(state, _started(entries, placement.existing)):
            outcomes = scheduler.schedule_all(requests, time.time(), present)
        note_after(placement.nodes, scheduler.cluster)
        placement.outcomes.update(zip(positions, outcomes, strict=True))
        decisions = [outcome.decision for outcome in outcomes if outcome.decision is not None]
        self._asked.update({decision.vmid: decision.request for decision in decisions})
        for position, outcome in placement.outcomes.items():
            placement.cautions[position] = _cautions(outcome, state)
        return placement


def _started(entries: Iterable[Entry], existing: Mapping[int, Guest]) -> list[int]:
    """The VMIDs of the guests that the run starts."""
    started = {entry.position for entry in entries if entry.state == "started"}
    return [guest.vmid for position, guest in existing.items() if position in started]


@contextlib.contextmanager
def _counted_as_running(state: ClusterState, vmids: Iterable[int]) -> Iterator[None]:
    """Count guests that the run starts as running for as long as it is decided about others."""
    stopped = [guest for vmid in vmids if (guest := state.get(vmid)) is not None and not guest.running]
    for guest in stopped:
        state.restore(replace(guest, status="assumed"))
    try:
        yield
    finally:
        for guest in stopped:
            state.restore(guest)


def _cautions(outcome: Outcome, state: ClusterState) -> list[str]:
    decision = outcome.decision
    node = state.node(decision.node) if decision is not None and decision.devices else None
    if decision is None or node is None:
        return []
    return mixed_mappings(decision.request, decision.devices, [use.device for use in node.devices], Matcher())
