# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the maintenance of nodes as a whole, and refuses it before the first move if anything is in the way."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace

from ...engine.cache import ClusterState
from ...engine.planner.tour import plan_tour
from ...engine.profiles import Profile
from ...engine.standing_rules import without_pin
from ...engine.texts import join_words
from ...errors import PlanStale, TourRefused
from ...files import write_json
from ...model import Guest, Identity, Snapshot
from ...plans import Goals, Mobility, Move, NodeCourse, Stuck
from ...proxmox.moves.drain_marks import DrainMarks
from ...proxmox.moves.mobility import GONE, PASSING
from ...proxmox.moves.mobility_ha import Surroundings
from ...proxmox.moves.mobility_rules import presume, stuck
from ...proxmox.tasks import Poller, stopping_guests
from ...tours import STAY, Tour, TourGoals, TourStep
from ..access import Access
from ..moves.draining import require_sight
from ..moves.move_options import MoveOptions
from ..moves.planning import GUESSES, Planning
from ..moves.premises import GuestPremise, Premises
from ..moves.results import failure_with
from ..moves.sight import LOOKS, MOVED_BY_OTHERS, Sight, live_look, read_busy_guests
from ..options.plugin_config import profiles_of
from ..options.rules import facts_of
from .obstacles import Obstacle, right_obstacles
from .survey import Survey, read_survey
from .tour_document import StepPlan, TourPlan, departures_from, document_of, read_tour
from .tour_options import TourOptions

REFUSALS_TOLD = 20
"""How many reasons of a refusal the message has; the result has all of them."""


def plan_maintenance(params: Mapping[str, t.Any], *, check_mode: bool, warn: Callable[[str], None]) -> dict[str, t.Any]:
    """Plan a tour, and return the module's result. Writes nothing to the cluster, but waits for moves under way, as a
    killed run leaves them, unless in check mode.

    Raises RunFailed with the result if the tour is refused, and other CollectionErrors if it cannot be planned.
    """
    options, moves = TourOptions.of(params), MoveOptions.of(params)
    profiles, default = profiles_of(params)
    approved = None if moves.apply is None else read_tour(moves.apply, "apply")[0]
    access = Access.open(params, facts_of(params.get("nodes")))
    try:
        survey = read_survey(access, params["name"], options)
        require_sight(access.writer(), survey.due, guests=not params["allow_hidden"], marks=True)
        planning = Planning(access, profiles, default, moves)
        planner = _TourPlanner(planning, profiles, default, moves, options.ha_maintenance)
        for _attempt in range(LOOKS):
            sight = _look(access, survey, 0.0 if check_mode else moves.timeout)
            if params["move_pinned"]:
                guests = tuple(without_pin(guest, survey.due) for guest in sight.state.guests.values())
                sight = replace(sight, state=ClusterState(replace(sight.state.snapshot, guests=guests)))
            tour, mobility = planner.plan(sight, _goals_of(access, sight, survey, options))
            if not any(each.stuck[0].startswith(GONE) for each in mobility.values()):
                break
        shut_down = {vmid for step in tour.steps for vmid in step.shut_down}
        survey.obstacles += right_obstacles(
            access.writer().get("/access/permissions"),
            survey.due,
            sets_options=survey.sets_options,
            asks_agents=options.agents,
            shuts_down=shut_down,
        )
    finally:
        access.close()
    plan = _plan_of(tour, survey)
    identities = {vmid: each.identity for vmid, each in mobility.items() if each.identity is not None}
    premises = _premises(tour, sight.state.snapshot, identities)
    refused = [*survey.obstacles, *map(_as_obstacle, tour.stuck)] if survey.due else []
    document = document_of(plan, premises)
    result = _result(document, plan, refused, survey, sight.state.guests)
    if refused:
        raise failure_with(TourRefused(_text_of(refused), refused=[asdict(each) for each in refused]), result)
    if approved is not None:
        changed = departures_from(approved, plan, survey.done)
        if changed:
            raise PlanStale(
                f"apply: the tour is not as planned: {'; '.join(changed)}; make the plan again", changed=changed
            )
    if moves.plan_file is not None:
        write_json("plan_file", moves.plan_file, document)
    for step in plan.steps:
        if step.stranded:
            away = "is away" if len(step.nodes) == 1 else "are away"
            warn(f"while {join_words(step.nodes)} {away}, {step.stranded}")
    return result


def _look(access: Access, survey: Survey, seconds: float) -> Sight:
    """Return the cluster, once no guest is being moved to or from a node that is due, and none is being shut down by an
    earlier run, or these seconds are over.
    """
    look = live_look(access, lambda snapshot: Goals(drain=frozenset(survey.due)))
    sight = look()
    moving = {vmid for vmid, why in sight.busy.items() if why == MOVED_BY_OTHERS}
    guests = sight.state.guests.values()
    # A run that was killed may have requested it. The guest would be moved, and not start again where it arrives.
    stopping = {guest.vmid for guest in guests if guest.running and survey.record.may_be_shut_down(guest)}
    if not (survey.due and (moving or stopping) and seconds):
        return sight

    def ask_if_over() -> bool | None:
        is_moved = bool(moving) and not moving.isdisjoint(read_busy_guests(access))
        is_stopped = bool(stopping) and not stopping.isdisjoint(stopping_guests(access.reader))
        return None if is_moved or is_stopped else True

    Poller(sleep=access.stop.sleep).until(ask_if_over, seconds)
    return look()


def _goals_of(access: Access, sight: Sight, survey: Survey, options: TourOptions) -> TourGoals:
    """Return the goals of the tour. Guests that left a node which an earlier run has begun return to it with the
    others.
    """
    marks, begun = DrainMarks(access.writer()), frozenset(survey.record.begun) & set(survey.due)
    stays, if_stuck = options.choices_for(guest for guest in sight.state.guests.values() if guest.vmid > 0)
    off = [guest.vmid for guest in sight.state.guests.values() if survey.record.may_stay_off(guest)]
    return TourGoals(
        nodes=survey.due,
        keep_order=options.keep_order,
        first=begun,
        homes=options.homes,
        returning={name: frozenset(marks.guests(name) or ()) for name in sorted(begun)} if options.homes else {},
        # What an earlier run has shut down for the maintenance of its node stays there until it is started again.
        stays={**stays, **dict.fromkeys(off, STAY)},
        if_stuck=if_stuck,
        parallel=options.parallel_nodes,
        may_be_away=survey.may_be_away,
    )


class _TourPlanner:
    """Plans a tour with what is read of the guests that move, and with guesses about all others."""

    def __init__(
        self,
        planning: Planning,
        profiles: Mapping[str, Profile],
        default_profile: str,
        options: MoveOptions,
        ha_maintenance: bool,
    ) -> None:
        """ha_maintenance: whether a node is in HA maintenance while it is emptied."""
        self._planning = planning
        self._profiles = profiles
        self._default = default_profile
        self._options = options
        self._ha_maintenance = ha_maintenance

    def plan(self, sight: Sight, goals: TourGoals) -> tuple[Tour, Mapping[int, Mobility]]:
        """Return the tour, and how its guests can be moved."""
        state = self._planning.with_use(sight.state, None)
        busy = {vmid: stuck(why, "wait until that has ended") for vmid, why in sight.busy.items()}
        concerned = {guest.vmid for guest in state.guests.values() if guest.node in goals.nodes} - busy.keys()
        known = {**self._mobility(state, goals, concerned), **busy}
        # What holds these guests ends soon, or would refuse to shut them down as well.
        passing = busy.keys() | {vmid for vmid, each in known.items() if each.stuck[0].startswith(PASSING)}
        passing |= {vmid for vmid, each in known.items() if not each.together.isdisjoint(passing)}
        goals = replace(goals, if_stuck={v: what for v, what in goals.if_stuck.items() if v not in passing})
        guesses: dict[int, Mobility] = {}
        for seen, vmids in self._views(state, goals, {guest.vmid for guest in state.guests.values() if guest.vmid > 0}):
            around = Surroundings.of(seen.snapshot, {})
            guesses |= {
                guest.vmid: presume(guest, around, self._options.permitted)
                for guest in seen.guests.values()
                if guest.vmid in vmids
            }
        for _round in range(GUESSES):
            state = self._planning.suitability.with_demands(state, known)
            tour = self._make(state, goals, {**guesses, **known})
            unread = {vmid for step in tour.steps for move in _moves_of(step) for vmid in move.vmids} - known.keys()
            if not unread:
                return tour, known
            known |= self._mobility(state, goals, unread)
        known |= self._mobility(state, goals, guesses.keys() - known.keys())
        return self._make(self._planning.suitability.with_demands(state, known), goals, known), known

    def _mobility(self, state: ClusterState, goals: TourGoals, vmids: Collection[int]) -> dict[int, Mobility]:
        found: dict[int, Mobility] = {}
        for seen, guests in self._views(state, goals, vmids):
            found |= self._planning.mobility(seen, guests)
        return found

    def _views(
        self, state: ClusterState, goals: TourGoals, vmids: Collection[int]
    ) -> Iterator[tuple[ClusterState, set[int]]]:
        """Yield the cluster as it is in the turn of a node, with those of these guests that leave the node then."""
        by_node: dict[str, set[int]] = {}
        for guest in state.guests.values():
            if guest.vmid in vmids:
                name = guest.node if self._ha_maintenance and guest.node in goals.nodes else ""
                by_node.setdefault(name, set()).add(guest.vmid)
        for name, guests in by_node.items():
            nodes = (replace(node, maintenance=node.maintenance or node.name == name) for node in state.snapshot.nodes)
            yield (ClusterState(replace(state.snapshot, nodes=tuple(nodes))) if name else state), guests

    def _make(self, state: ClusterState, goals: TourGoals, mobility: Mapping[int, Mobility]) -> Tour:
        bounds = self._options.bounds
        return plan_tour(state, self._profiles, goals, mobility, bounds, self._default, now=time.time())


def _moves_of(step: TourStep) -> tuple[Move, ...]:
    return (*step.out.moves, *(step.back.moves if step.back is not None else ()))


# --- the result -------------------------------------------------------------------------------------------------------


def _plan_of(tour: Tour, survey: Survey) -> TourPlan:
    """Return the tour as its document has it."""
    return TourPlan(
        goal=f"maintain {join_words(survey.due)}" if survey.due else "maintain nothing",
        steps=tuple(_step_of(step, survey) for step in tour.steps),
        skipped=survey.skipped,
        unfinished=survey.unfinished,
    )


def _step_of(step: TourStep, survey: Survey) -> StepPlan:
    loads: dict[str, NodeCourse] = dict(step.out.nodes)
    for name, course in (step.back.nodes if step.back is not None else {}).items():
        loads[name] = loads.get(name, course).then(course)
    return StepPlan(
        node=step.node,
        needs=tuple(_needs_of(step, survey)),
        out=step.out.moves,
        back=step.back.moves if step.back is not None else (),
        loads=loads,
        shut_down=step.shut_down,
        stay=step.stay,
        prefer=tuple(sorted(step.prefer)),
        votes=survey.quorum.votes_without(step.nodes),
        votes_needed=survey.quorum.needed if survey.quorum.votes else 0,
        stranded=step.stranded,
        beside=step.beside,
    )


def _needs_of(step: TourStep, survey: Survey) -> Iterator[str]:
    """Yield why the nodes of a turn need maintenance; if there are several, with the name of each."""
    for name in step.nodes:
        for why in survey.needs.get(name, ()):
            yield f"{name}: {why}" if step.beside else why


def _premises(tour: Tour, snapshot: Snapshot, identities: Mapping[int, Identity]) -> Premises:
    """Return what the tour assumes of the guests that it moves, shuts down or lets stay."""
    due = {vmid for step in tour.steps for move in _moves_of(step) for vmid in move.vmids}
    due |= {vmid for step in tour.steps for vmid in (*step.shut_down, *step.stay)}
    guests = {
        guest.vmid: GuestPremise.of(guest, identities[guest.vmid])
        for guest in snapshot.guests
        if guest.vmid in due and guest.vmid in identities
    }
    return Premises(snapshot.cluster, dict(sorted(guests.items())))


def _as_obstacle(guest: Stuck) -> Obstacle:
    return Obstacle(guest.node, "", f"{guest.name or 'guest'} ({guest.vmid}): {guest.why}", guest.cure)


def _text_of(refused: Collection[Obstacle]) -> str:
    told = [
        f"{f'{each.node}: ' if each.node else ''}{each.why} (cure: {each.cure})"
        for each in list(refused)[:REFUSALS_TOLD]
    ]
    more = len(refused) - REFUSALS_TOLD
    told += [f"and {more} more"] if more > 0 else []
    return f"the maintenance is refused, and nothing was moved, for {len(refused)} reason(s): {'; '.join(told)}"


def _result(
    document: Mapping[str, t.Any],
    plan: TourPlan,
    refused: Collection[Obstacle],
    survey: Survey,
    guests: Mapping[int, Guest],
) -> dict[str, t.Any]:
    """Return the module's result. names are those of guests that are not moved, by VMID as text."""
    staying = {vmid for step in plan.steps for vmid in (*step.shut_down, *step.stay)}
    return {
        "changed": False,
        "tour": document,
        "total_moves": plan.moves,
        "refused": [asdict(each) for each in refused],
        "done": list(survey.done),
        "unfinished": list(plan.unfinished),
        "names": {str(vmid): guests[vmid].name or "" for vmid in sorted(staying & guests.keys())},
    }
