# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the maintenance of several nodes as a whole, before the first move.

Guests of a node go first to nodes that will not be maintained later, from which they need not move again. So every
guest moves about once, and only those of the first node twice. The search tries the nodes with the fewest such second
moves first, and goes back if a later node could then not be emptied.

Several nodes share a turn where one plan empties all of them. Where no tour is found that way, each has its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

from ...model import Guest, Snapshot, Storage
from ...plans import Bounds, Goals, Mobility, Plan, Stuck
from ...tours import SHUT_DOWN, STAY, Tour, TourGoals, TourStep
from ..cache import ClusterState
from ..evacuees import GuestSize, Limits, Room
from ..headroom import Headroom
from ..profiles import Profile
from .items import IMMOVABLE
from .planner import NO_BOUNDS, make_plan

PLANS_PER_NODE = 12
"""The search makes at most this many plans for each node of the tour. Each plan is bounded by itself."""

LEAST_STEPS = 2_000
"""Every plan may take so many steps, which is enough where guests find room without others making it."""

EXPLAINED = 4
"""This part of the steps of the search is used again to say what is in the way, if there is no tour."""

GROUPS_TRIED = 4
"""So many groups of each size are tried for a turn."""

ALONE_SHARE, GROUP_SHARE = 2, 8
"""A plan takes at most this part of the steps that are left, and less for a group, which others can replace."""

HELD = Mobility(stuck=("it stays, as the task says", "remove it from guests"))

NOTHING = GuestSize(Room(0, 0), "")


def plan_tour(
    state: ClusterState,
    profiles: Mapping[str, Profile],
    goals: TourGoals,
    mobility: Mapping[int, Mobility],
    bounds: Bounds = NO_BOUNDS,
    default_profile: str = "balanced",
    now: float = math.inf,
) -> Tour:
    """Plan a tour; it is not feasible if some node could not be emptied. It does not change state.

    The arguments are those of make_plan. Raises InvalidRequest and PluginFailed.
    """
    start = _Moment(state.snapshot, mobility)
    tour = _TourSearch(profiles, goals, bounds, default_profile, now).tour(start)
    if tour.steps or goals.parallel == 1:
        return tour
    return _TourSearch(profiles, replace(goals, parallel=1), bounds, default_profile, now).tour(start)


@dataclass(frozen=True, slots=True)
class _Moment:
    """The cluster at one moment of the tour, and how its guests can be moved then."""

    snapshot: Snapshot
    mobility: Mapping[int, Mobility]

    def moment_after(self, plan: Plan) -> _Moment:
        """Return the moment after a plan."""
        nodes = {vmid: move.target for move in plan.moves for vmid in move.vmids}
        guests = tuple(replace(guest, node=nodes.get(guest.vmid, guest.node)) for guest in self.snapshot.guests)
        mobility, copied = dict(self.mobility), dict[tuple[str, str], int]()
        for move in plan.moves:
            if not move.storages:
                continue
            for vmid in move.vmids:
                before = mobility[vmid].disks
                after = tuple(replace(disk, storage=move.storages.get(disk.slot, disk.storage)) for disk in before)
                for old, new in zip(before, after, strict=True):
                    copied[old.storage, move.source] = copied.get((old.storage, move.source), 0) - old.size
                    copied[new.storage, move.target] = copied.get((new.storage, move.target), 0) + new.size
                mobility[vmid] = replace(mobility[vmid], disks=after)
        return _Moment(replace(self.snapshot, guests=guests, storages=_refill(self.snapshot, copied)), mobility)

    def with_drained(self, nodes: Mapping[str, bool]) -> _Moment:
        """Return the moment with the marks of these nodes set or removed."""
        marked = (replace(node, drained=nodes.get(node.name, node.drained)) for node in self.snapshot.nodes)
        return replace(self, snapshot=replace(self.snapshot, nodes=tuple(marked)))

    def without(self, names: Collection[str]) -> Snapshot:
        """Return the cluster without nodes."""
        nodes = (replace(node, online=node.online and node.name not in names) for node in self.snapshot.nodes)
        guests = (guest for guest in self.snapshot.guests if guest.node not in names)
        return replace(self.snapshot, nodes=tuple(nodes), guests=tuple(guests))

    def on(self, *names: str) -> list[Guest]:
        return [guest for guest in self.snapshot.guests if guest.node in names]


def _refill(snapshot: Snapshot, copied: Mapping[tuple[str, str], int]) -> tuple[Storage, ...]:
    """Return the storages after volumes were copied, which would otherwise count on both nodes for the whole tour."""

    def add_copied(storage: Storage) -> Storage:
        more = copied.get((storage.name, storage.node), 0)
        return replace(storage, used=max(storage.used + more, 0)) if more and not storage.shared else storage

    return tuple(map(add_copied, snapshot.storages)) if copied else snapshot.storages


class _TourSearch:
    """Searches for one tour."""

    def __init__(
        self, profiles: Mapping[str, Profile], goals: TourGoals, bounds: Bounds, default_profile: str, now: float
    ) -> None:
        self._profiles = profiles
        self._goals = goals
        self._bounds = bounds
        self._default = default_profile
        self._now = now
        self._plans = 0
        self._most = PLANS_PER_NODE * len(goals.nodes)
        self._left = bounds.steps
        self._deepest: tuple[int, tuple[Stuck, ...]] = (-1, ())

    def tour(self, start: _Moment) -> Tour:
        """Return the tour from this moment on."""
        start = replace(start, mobility={**start.mobility, **dict.fromkeys(self._goals.stays, HELD)})
        held = list(self._find_held(start))
        steps = None if held else self._search(start, self._goals.nodes, ())
        if steps is not None:
            return Tour(steps)
        return Tour(stuck=self._reasons(start, held))

    def _find_held(self, moment: _Moment) -> Iterable[Stuck]:
        """Yield the guests of all nodes that cannot be moved for a reason of their own, and may not stay either."""
        for guest in moment.snapshot.guests:
            why, cure = moment.mobility.get(guest.vmid, IMMOVABLE).stuck
            if guest.node in self._goals.nodes and why and self._choice(guest.vmid) is None:
                yield Stuck(guest.vmid, guest.name or "", guest.node, why, cure)

    def _reasons(self, start: _Moment, held: Iterable[Stuck]) -> tuple[Stuck, ...]:
        """Return everything that is known to be in the way, for all nodes at once."""
        found = {stuck.vmid: stuck for stuck in held}
        self._left = self._bounds.steps // EXPLAINED
        for name in self._goals.nodes:
            for stuck in self._step(start, (name,), self._goals.nodes)[1]:
                found.setdefault(stuck.vmid, stuck)
        if not found:
            found = {stuck.vmid: stuck for stuck in self._deepest[1]}
        return tuple(sorted(found.values(), key=lambda stuck: (self._goals.nodes.index(stuck.node), stuck.vmid)))

    def _choice(self, vmid: int) -> str | None:
        return self._goals.stays.get(vmid) or self._goals.if_stuck.get(vmid)

    # --- the search ---

    def _search(self, moment: _Moment, left: Sequence[str], path: tuple[TourStep, ...]) -> tuple[TourStep, ...] | None:
        """Return the steps for the nodes that are left, after those of the path; None if there are none."""
        if not left:
            return path
        stuck: list[Stuck] = []
        for step, after in self._candidates(moment, left, stuck):
            others = [name for name in left if name not in step.nodes]
            found = self._search(after, others, (*path, step))
            if found is not None or self._is_spent:
                return found
        if stuck and len(path) > self._deepest[0]:
            before = f"after {', '.join(name for step in path for name in step.nodes)}: " if path else ""
            self._deepest = len(path), tuple(replace(each, why=f"{before}{each.why}") for each in stuck)
        return None

    def _candidates(
        self, moment: _Moment, left: Sequence[str], stuck: list[Stuck]
    ) -> Iterable[tuple[TourStep, _Moment]]:
        """Yield the possible next steps, those after which the fewest guests have to move again first. What keeps the
        other nodes from being next is added to stuck. Turns of several nodes come before all others.
        """
        for names in self._groups(moment, left):
            if self._is_spent:
                break
            turn, _reasons, after = self._try_nodes(moment, names, left)
            if turn is not None:
                yield turn, after
        open_now = [node for node in moment.snapshot.nodes if node.name not in left and node.is_open]
        possible: list[tuple[int, int, int, TourStep, _Moment]] = []
        for number, name in enumerate(self._order(moment, left)):
            if self._is_spent and number:
                break
            step, reasons, after = self._try_nodes(moment, (name,), left)
            stuck += reasons
            if step is None:
                continue
            others = set(left) - {name}
            again = sum(move.target in others for move in step.out.moves) if not self._goals.homes else 0
            if not again or not open_now:
                # No other node needs fewer second moves: the rest is tried only if this one leads nowhere.
                yield step, after
                continue
            possible.append((again, step.moves, number, step, after))
        for _again, _moves, _number, step, after in sorted(possible, key=lambda each: each[:3]):
            yield step, after

    def _order(self, moment: _Moment, left: Sequence[str]) -> Sequence[str]:
        """Return the nodes in the order in which they are tried next."""
        begun = [name for name in left if name in self._goals.first]
        if begun or self._goals.keep_order:
            return (begun or left)[:1]
        count = {name: sum(guest.vmid not in self._goals.stays for guest in moment.on(name)) for name in left}
        return sorted(left, key=lambda name: (count[name], self._goals.nodes.index(name)))

    def _groups(self, moment: _Moment, left: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield groups of nodes that may share the next turn, large ones first."""
        begun = [name for name in left if name in self._goals.first]
        order = begun or (left if self._goals.keep_order else self._order(moment, left))
        for size in range(min(self._goals.parallel, len(order)), 1, -1):
            yield from islice(self._groups_of(size, order), GROUPS_TRIED)

    def _groups_of(self, size: int, order: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield groups of this size, with different pairs to begin with. Nodes that come first in order are taken
        first; if the order is kept, no others are.
        """
        if self._goals.keep_order:
            order = order[:size]
        told: set[frozenset[str]] = set()
        for pair in combinations(order, 2):
            group = frozenset(pair)
            for name in order if self._goals.may_be_away(group) else ():
                if len(group) < size and name not in group and self._goals.may_be_away(group | {name}):
                    group |= {name}
            if len(group) == size and self._goals.may_be_away(group) and group not in told:
                told.add(group)
                yield tuple(name for name in order if name in group)

    # --- one turn ---

    def _try_nodes(
        self, moment: _Moment, names: tuple[str, ...], left: Sequence[str]
    ) -> tuple[TourStep | None, tuple[Stuck, ...], _Moment]:
        step, stuck = self._step(moment, names, left)
        if step is None:
            return None, stuck, moment
        after = moment.moment_after(step.out).with_drained(dict.fromkeys(names, True))
        step = replace(step, stranded=self._find_stranded(after, names))
        after = after.with_drained(dict.fromkeys(names, False))
        if not self._goals.homes:
            return step, (), after
        there = {guest.vmid for guest in after.snapshot.guests}
        undo: dict[int, str] = {}
        for name in names:
            away = {guest.vmid for guest in moment.on(name)} - {*step.shut_down, *step.stay}
            away |= self._goals.returning.get(name, frozenset())
            undo |= dict.fromkeys(sorted(away & there), name)
        back = self._plan(after, Goals(undo=undo))
        return replace(step, back=back), (), after.moment_after(back)

    def _step(
        self, moment: _Moment, names: tuple[str, ...], left: Sequence[str]
    ) -> tuple[TourStep | None, tuple[Stuck, ...]]:
        """Return the maintenance of these nodes now, or the guests that keep them from being emptied."""
        away, is_group = set(left), len(names) > 1
        prefer = frozenset(node.name for node in moment.snapshot.nodes if node.name not in away and node.is_open)
        there = {guest.vmid for guest in moment.on(*names)}
        staying = {vmid: what for vmid, what in self._goals.stays.items() if vmid in there}
        staying |= {
            vmid: self._goals.if_stuck[vmid]
            for vmid in there & self._goals.if_stuck.keys()
            if vmid not in staying and moment.mobility.get(vmid, IMMOVABLE).stuck[0]
        }
        marked, share = moment.with_drained(dict.fromkeys(names, True)), GROUP_SHARE if is_group else ALONE_SHARE
        while True:
            plan = self._plan(marked, Goals(drain=frozenset(names), prefer=prefer, stays=frozenset(staying)), share)
            stuck = {each.vmid: each for each in plan.stuck}
            newly = {vmid: self._goals.if_stuck[vmid] for vmid in stuck if vmid in self._goals.if_stuck}
            # That nodes share a turn is no reason to shut down a guest.
            if is_group or not newly:
                break
            staying |= newly
            mobility = {**marked.mobility, **dict.fromkeys(newly, HELD)}
            marked = replace(marked, mobility=mobility)
        if stuck:
            return None, tuple(stuck.values())
        running = {guest.vmid for guest in moment.on(*names) if guest.running}
        off = tuple(sorted(vmid for vmid, what in staying.items() if what == SHUT_DOWN and vmid in running))
        stay = tuple(sorted(vmid for vmid, what in staying.items() if what == STAY or vmid not in running))
        return TourStep(names[0], plan, prefer, off, stay, beside=names[1:]), ()

    @property
    def _is_spent(self) -> bool:
        return self._plans >= self._most or self._left <= 0

    def _plan(self, moment: _Moment, goals: Goals, share: int = ALONE_SHARE) -> Plan:
        """Return a plan, with at most a share of the steps that are left: the nodes after this one need some, too."""
        self._plans += 1
        steps = max(self._left // share, LEAST_STEPS)
        state, bounds = ClusterState(moment.snapshot), replace(self._bounds, steps=steps)
        plan = make_plan(state, self._profiles, goals, moment.mobility, bounds, self._default, self._now)
        self._left -= plan.steps
        return plan

    def _find_stranded(self, moment: _Moment, names: Collection[str]) -> str:
        """Return which guest would have no node if another node failed while these are away; empty if there is none."""
        state = ClusterState(moment.without(names))
        policy = self._profiles[self._default].policy
        limits = Limits(
            policy.cpu if "cpu" in policy.enforced else None, policy.memory if "memory" in policy.enforced else None
        )
        info = next((info for info in state.nodes if info.node.is_open), None)
        found = None if info is None else Headroom(state, limits).find_stranding(info, NOTHING)
        return "" if found is None else f"the loss of {found.lost} would strand {found.guest.label}"
