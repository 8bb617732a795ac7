# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans with what is read of the guests that have to move, with guesses about all others, and with what has failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ...demand import ALLOCATED
from ...engine.cache import ClusterState
from ...engine.framework.interface import Subject
from ...engine.planner.planner import make_plan
from ...engine.profiles import Profile
from ...model import Identity
from ...plans import Bounds, Goals, Mobility, Move, Plan
from ...proxmox.moves.mobility import PASSING, read_mobility
from ...proxmox.moves.mobility_ha import Surroundings
from ...proxmox.moves.mobility_rules import presume, stuck
from ...proxmox.moves.recent import recently_moved
from ..access import Access, subjects_of
from .ha_cautions import guests_balanced_by_ha
from .home_disks import with_homes
from .metering import Metering
from .move_options import MoveOptions
from .proof import add_proof
from .sight import Sight
from .suitability import Suitability

GUESSES = 10
"""How often the run plans with partly read guests before it reads all guests completely."""

TRIES = 2
"""How many moves of one guest may fail before it stays."""


STAYS = stuck("it stays, as the task says", "remove it from stays")

Objection = Callable[[int, Identity], "tuple[str, str] | None"]


def no_objection(_vmid: int, _identity: Identity) -> tuple[str, str] | None:
    """Object to no guest."""
    return None


class Planning:
    """Makes the plans of one run.

    Attributes:
        suitability: what is known of the nodes because of the guests that move.
        held: the guests that could not be moved at all in the latest plan, for a reason of their own.
        passing: those of them whose reason may be over a moment later, each by VMID and node, with the reason. Others
            may stay because of them: those that move only with them, or would have their room.
        identities: the guests whose configs were read, by VMID, each as it was found last.
        storages: the storages of their local disks, by VMID and slot.
    """

    def __init__(
        self,
        access: Access,
        profiles: Mapping[str, Profile],
        default_profile: str,
        options: MoveOptions,
        objection: Objection = no_objection,
    ) -> None:
        """objection says why a guest is not the one that the goals are about, and the cure."""
        self._access = access
        self._profiles = profiles
        self._subjects = subjects_of(profiles.values())
        self._default = default_profile
        self._options = options
        self._objection = objection
        self.suitability = Suitability(access.reader)
        self._metering = Metering(access.statistics)
        self._failures: dict[int, dict[str, str]] = {}
        self.held: frozenset[int] = frozenset()
        self.passing: dict[tuple[int, str], str] = {}
        self.identities: dict[int, Identity] = {}
        self.storages: dict[int, dict[str, str]] = {}

    def note_failure(self, vmid: int, node: str, cause: str) -> None:
        """Note why a guest could not be moved to a node."""
        self._failures.setdefault(vmid, {})[node] = cause

    def plan(self, sight: Sight, moved: Sequence[Move] = (), *, prove: bool = False) -> Plan:
        """Plan with what is read of the guests that have to move, and with what is presumed of all others. How one of
        those can be moved is read when the plan moves it.

        moved are the moves of this run so far. prove: whether a solver checks the plan.
        """
        state, goals = sight.state, sight.goals
        state = self.with_use(state, goals.drain if sight.drains_only else None)
        if goals.balance is not None and goals.balance.by != ALLOCATED:
            usage = self._metering.usage(state, goals.balance)
            resting = goals.resting | guests_balanced_by_ha(self._access.reader, state.guests.values())
            goals = replace(goals, usage=usage, resting=resting)
        busy = {vmid: stuck(why, "wait until that has ended") for vmid, why in sight.busy.items()}
        busy |= dict.fromkeys(goals.stays, STAYS)
        concerned = {guest.vmid for guest in state.guests.values() if guest.node in goals.drain} | goals.undo.keys()
        known = {**self.mobility(state, concerned - busy.keys()), **busy}
        around = Surroundings.of(state.snapshot, {})
        permitted = self._options.permitted
        guesses = {guest.vmid: presume(guest, around, permitted) for guest in state.guests.values() if guest.vmid > 0}
        bounds, rested = self._bounds(moved) if moved else self._options.bounds, False
        for _round in range(GUESSES):
            mobility = {**guesses, **known}
            state = self.suitability.with_demands(state, known)
            plan = self._make(state, goals, mobility, bounds)
            cooldown = self._options.cooldown if goals.balance is not None or goals.consolidate else 0
            if plan.moves and not rested and cooldown > 0:
                # Read only now: a cluster that has reached its goals costs no request.
                rested = True
                recent = recently_moved(self._access.reader, state.snapshot, cooldown)
                goals = replace(goals, resting=goals.resting | recent)
                plan = self._make(state, goals, mobility, bounds) if recent else plan
            unread = {vmid for move in plan.moves for vmid in move.vmids} - known.keys()
            if not unread:
                break
            known |= self.mobility(state, unread)
        else:
            mobility = known = known | self.mobility(state, guesses.keys() - known.keys())
            state = self.suitability.with_demands(state, mobility)
            plan = self._make(state, goals, mobility, bounds)
        self.held = frozenset(vmid for vmid, each in mobility.items() if each.stuck[0]) - busy.keys()
        reasons = ((vmid, each.stuck[0]) for vmid, each in known.items())
        self.passing = {(vmid, state.guests[vmid].node): why for vmid, why in reasons if why.startswith(PASSING)}
        plan = plan.restrict_to({vmid: each.identity for vmid, each in mobility.items() if each.identity is not None})
        return add_proof(plan, state, self._profiles, goals, mobility, self._default) if prove else plan

    def _make(self, state: ClusterState, goals: Goals, mobility: Mapping[int, Mobility], bounds: Bounds) -> Plan:
        mobility = with_homes(mobility, goals.homes, goals.undo) if goals.homes else mobility
        return make_plan(state, self._profiles, goals, mobility, bounds, self._default, now=time.time())

    def _bounds(self, moved: Sequence[Move]) -> Bounds:
        """Return the remaining bounds of the run after its moves so far."""
        bounds = self._options.bounds
        sent = sum(move.memory + move.copied for move in moved)
        return replace(
            bounds,
            max_moves=None if bounds.max_moves is None else max(bounds.max_moves - len(moved), 0),
            max_bytes=None if bounds.max_bytes is None else max(bounds.max_bytes - sent, 0),
        )

    def with_use(self, state: ClusterState, leaving: Collection[str] | None) -> ClusterState:
        """Return the state with what nodes, and the guests that may move, usually use, if a plugin asks for it. leaving
        are the only nodes that guests may leave; None: all.
        """
        return self._metering.with_use(state, leaving) if Subject.DEMAND in self._subjects else state

    def mobility(self, state: ClusterState, vmids: Iterable[int]) -> dict[int, Mobility]:
        """Return how these guests can be moved, and those that move along with them; less what has failed in this run.
        """
        found: dict[int, Mobility] = {}
        due = {vmid for vmid in vmids if vmid > 0}
        snapshot = self.suitability.with_processors(state.snapshot) if due else state.snapshot
        while due:
            found |= read_mobility(self._access.reader, snapshot, sorted(due), self._options.permitted)
            due = {vmid for each in found.values() for vmid in each.together} - found.keys()
            due &= {guest.vmid for guest in state.guests.values()}
        if any(each.demands.machine is not None for each in found.values()):
            found = self.suitability.without_older_machines(snapshot, found)
        self.storages.update((vmid, {disk.slot: disk.storage for disk in each.disks}) for vmid, each in found.items())
        self.identities.update((vmid, each.identity) for vmid, each in found.items() if each.identity is not None)
        for vmid, each in found.items():
            # It may not be the guest that the goals are about.
            cause = None if each.identity is None else self._objection(vmid, each.identity)
            if cause is not None:
                found[vmid] = stuck(*cause)
            elif vmid in self._failures and not each.stuck[0]:
                found[vmid] = self._without_failed(each, self._failures[vmid])
        return found

    @staticmethod
    def _without_failed(mobility: Mobility, causes: Mapping[str, str]) -> Mobility:
        """Return how a guest can be moved, given the nodes where that has failed, and why."""
        told = {node: f"could not take it: {cause}" for node, cause in causes.items()}
        if len(causes) >= TRIES:
            return Mobility(stuck=("; ".join(f"{node} {text}" for node, text in told.items()), "remove the cause"))
        return replace(mobility, not_to={**mobility.not_to, **told})
