# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of a plan: read, plan, keep or check the plan, carry it out, and plan again until nothing is left
to move.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...engine.cache import ClusterState
from ...engine.framework.profile import Profile
from ...engine.planner.planner import in_words, make_plan
from ...errors import ApiError, CollectionError, ConnectionFailed, InvalidRequest, PlanStale
from ...model import HARule, Snapshot
from ...plans import Bounds, Goals, Mobility, Plan, Stuck
from ...proxmox.inventory.snapshot import Needs, completed
from ...proxmox.moves.mobility import read_mobility
from ...proxmox.moves.mobility_rules import Surroundings, presumed, stuck
from ...proxmox.moves.mover import Mover, label
from ...proxmox.tasks import Poller, TaskFollower
from ..access import Access
from ..counting import cluster_state, count_reservations, with_moves
from ..files import write_json
from ..stopping import Stop
from .gate import MoveGate
from .moving import FAILED, MOVED, UNKNOWN, UNLAWFUL, WAITING, Executor, MoveReport, MoveStep
from .options import MoveOptions
from .others import MOVED_BY_OTHERS, at_work, busy_guests, coming_to
from .plan_document import document_of, read_plan
from .premises import Premises, changes_since, rest_of
from .proof import proved

View = Callable[[Snapshot], Snapshot]

ROUNDS = 20
"""How many plans in a row may fail to reduce the number of remaining moves."""

FRUITLESS = 3
"""How many rounds in a row may begin no move because the cluster keeps changing."""

GUESSES = 10
"""How often the run plans with partly read guests before it reads all guests completely."""

SETTLING = 2.0
"""Seconds to wait before planning again after the cluster has changed."""

TRIES = 2
"""How many moves of one guest may fail before it stays."""


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


@dataclass(slots=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        plan, premises: the first plan, or the applied one.
        last: the latest plan; guests that are stuck in it stay.
        reports: the results of all moves that were begun or attempted, in the order of their plans.
    """

    plan: Plan
    premises: Premises
    last: Plan
    reports: list[MoveReport] = field(default_factory=list)
    interrupted: bool = False

    @property
    def moved(self) -> list[MoveReport]:
        return [report for report in self.reports if report.outcome == MOVED]

    @property
    def staying(self) -> list[Stuck]:
        """The guests that stay: those that the latest plan cannot move, and those of its moves that were not made."""
        ends = {report.move.vmid: report for report in self.reports}
        left = [
            Stuck(move.vmid, move.name, move.source, _why(ends.get(move.vmid)), "remove the cause, and run again")
            for move in self.last.moves
            if self.reports and (move.vmid not in ends or ends[move.vmid].outcome != MOVED)
        ]
        return sorted([*self.last.stuck, *left], key=lambda stuck: stuck.vmid)

    @property
    def warnings(self) -> list[str]:
        """Warnings about moves, each with its guest; and about guests that left their node although their move failed:
        they may be locked, or have left volumes behind.
        """
        texts = [f"{label(report.move)}: {text}" for report in self.reports for text in report.warnings]
        done = {report.move.vmid for report in self.moved} | {stuck.vmid for stuck in self.staying}
        failed = [each for each in self.reports if each.outcome == FAILED and each.move.vmid not in done]
        return [*texts, *(each.error.message for each in failed if each.error is not None)]


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


class PlanRun:
    """One run over one cluster's guests.

    Attributes:
        outcome: what came of it, as far as it got; None before the first plan.
    """

    def __init__(
        self,
        access: Access,
        profiles: Mapping[str, Profile],
        default_profile: str,
        options: MoveOptions,
        look: Look,
        *,
        view: View = as_it_is,
        progress: Callable[[MoveStep], None] = lambda step: None,
    ) -> None:
        """view is how the plan looks at the cluster."""
        self._access = access
        self._profiles = profiles
        self._default = default_profile
        self._options = options
        self._look = look
        self._view = view
        self._progress = progress
        self._stop = Stop()
        self._failures: dict[int, dict[str, str]] = {}
        self._fruitless = 0
        self._patience = options.timeout
        self._held: frozenset[int] = frozenset()
        self._busy: Mapping[int, str] = {}
        self._coming: frozenset[int] = frozenset()
        self._goals = Goals()
        self._ha_rules: tuple[HARule, ...] = ()
        self.outcome: Outcome | None = None

    def prepare(self, *, wait: bool = False) -> Outcome:
        """Plan, or read the plan that is to be applied, and keep it in plan_file. Writes nothing to the cluster.

        wait: whether moves of its guests that are under way may end before a plan is applied.

        Raises PlanStale when the cluster is not as the applied plan assumes, and InvalidRequest when that plan is for
        other goals.
        """
        if self._options.apply is not None:
            document = read_plan(self._options.apply, "apply")
            return self.hold_to(document.plan, document.premises, wait=wait)
        outcome = self._planned()
        if self._options.plan_file is not None:
            write_json("plan_file", self._options.plan_file, document_of(outcome.plan, outcome.premises))
        self.outcome = outcome
        return outcome

    def _planned(self) -> Outcome:
        sight = self._looked()
        plan = self._plan(sight, prove=self._options.prove)
        return Outcome(plan, Premises.of(plan, sight.state.snapshot), plan)

    def hold_to(self, plan: Plan, premises: Premises, *, wait: bool) -> Outcome:
        """Prepare what is left to do of a plan that was made before; all of it, unless it was carried out in part.

        wait: whether moves of its guests that are under way may end first. Raises as prepare does.
        """
        sight = self._looked()
        if wait and self._have_ended(premises.guests.keys() & sight.busy.keys()):
            sight = self._looked()
        wanted = in_words(sight.goals)
        if plan.goal != wanted and sight.goals != Goals():
            raise InvalidRequest(f"apply: the plan is to {plan.goal}, and this task is to {wanted}")
        rest = rest_of(plan, premises, sight.state)
        changed = changes_since(rest.plan, rest.premises, rest.state)
        if changed:
            text = f"apply: the cluster is not as planned: {'; '.join(changed)}; make the plan again"
            raise PlanStale(text, changed=changed)
        self.outcome = Outcome(plan, premises, rest.plan)
        return self.outcome

    def execute(self) -> Outcome:
        """Carry out the prepared plan, then plan again from the current state.

        A KeyboardInterrupt ends it early: no further move begins, and those under way are followed for a while.
        """
        outcome = self.outcome
        if outcome is None:
            raise AssertionError("prepare comes first")
        session = self._access.writer()
        session.before_write = self._stop.check
        tasks = TaskFollower(session, self._options.timeout, Poller(sleep=self._stop.sleep))
        gate = MoveGate(self._access, self._profiles[self._default], self._as_planned)
        mover = Mover(session, tasks, bwlimit=self._options.bwlimit)
        executor = Executor(self._access, mover, gate, self._stop, self._options.caps, self._progress)
        try:
            self._carry_out(outcome, executor)
        except KeyboardInterrupt:
            self._stop.ask()
            outcome.interrupted = True
        return outcome

    def _carry_out(self, outcome: Outcome, executor: Executor) -> None:
        rounds, fewest, number = 0, len(outcome.last.moves), 0
        while rounds < ROUNDS:
            if outcome.last.moves:
                number = max(move.id for move in outcome.last.moves)
                try:
                    reports = executor.execute(outcome.last)
                finally:
                    outcome.reports += [report for report in executor.reports if report.outcome != WAITING]
                if not self._may_go_on(reports):
                    return
                if self._nothing_is_left(outcome.last):
                    outcome.last = replace(outcome.last, moves=())
                    return
            elif not self._others_have_ended(outcome.last):
                return
            if self._fruitless:
                self._stop.sleep(SETTLING)
            outcome.last = numbered_after(number, self._planned_again(outcome))
            rounds += 1
            if len(outcome.last.moves) < fewest:
                rounds, fewest, self._fruitless = 0, len(outcome.last.moves), 0

    def _nothing_is_left(self, plan: Plan) -> bool:
        """Whether the list of the cluster shows that the goals of a plan without stuck guests are reached: no guest is
        on a node to be drained or about to come there, and all others are back. One request. For other goals, only a
        new plan shows that.
        """
        goals, access = self._goals, self._access
        if plan.stuck or goals != Goals(drain=goals.drain, undo=goals.undo):
            return False
        reservations = access.of_others(access.ledger.reservations(access.identity()))
        if any(reservation.node in goals.drain for reservation in reservations):
            return False
        home = goals.undo
        return not any(g.node in goals.drain or g.node != home.get(g.vmid, g.node) for g in access.glance().guests)

    def _others_have_ended(self, plan: Plan) -> bool:
        """Whether others had something under way that the goals wait for, and it has ended by now, perhaps even between
        two looks at the cluster.

        plan has no moves. A guest that found no room may find it once theirs have ended; one that cannot be moved does
        not wait for them.
        """
        staying = {guest.vmid for guest in plan.stuck}
        if self._options.apply is not None or not (staying or self._coming):
            return False
        busy = {**self._busy, **at_work(self._access)}
        awaited = set(self._coming)
        if staying - self._held or staying & busy.keys():
            awaited |= {vmid for vmid, why in busy.items() if why == MOVED_BY_OTHERS or vmid in staying}
        return self._have_ended(awaited & busy.keys())

    def _have_ended(self, vmids: Collection[int]) -> bool:
        """Wait until others are done with these guests. Returns whether there are any, and they were in time."""

        def look() -> bool | None:
            try:
                return None if at_work(self._access).keys() & set(vmids) else True
            except (ApiError, ConnectionFailed):
                return None

        if not vmids:
            return False
        poller = Poller(sleep=self._stop.sleep)
        began = poller.clock()
        ended = poller.until(look, self._patience)
        self._patience -= min(poller.clock() - began, self._patience)
        return bool(ended)

    def _planned_again(self, outcome: Outcome) -> Plan:
        """Plan from the present state. A guest that is back where this run moved it away from is not moved there again:
        the HA manager undoes what its rules forbid.
        """
        sight = self._looked()
        plan = self._plan(sight)
        left = {(report.move.vmid, report.move.source): report.move.target for report in outcome.moved}
        undone = [move for move in plan.moves if (move.vmid, move.source) in left]
        for move in undone:
            target = left[move.vmid, move.source]
            self._failures.setdefault(move.vmid, {})[target] = f"it was moved back to {move.source}"
        return self._plan(sight) if undone else plan

    def _may_go_on(self, reports: Iterable[MoveReport]) -> bool:
        """Whether to make another plan, given the results of the latest one."""
        troubled = [report for report in reports if report.error is not None]
        for report in troubled:
            if report.outcome == FAILED and report.error is not None:
                causes = self._failures.setdefault(report.move.vmid, {})
                causes[report.move.target] = str(report.error.details.get("cause", report.error.message))
        if not troubled:
            return self._options.apply is None
        self._fruitless = 0 if any(report.outcome in (MOVED, FAILED) for report in reports) else self._fruitless + 1
        if self._fruitless == FRUITLESS or any(report.outcome in (UNKNOWN, UNLAWFUL) for report in troubled):
            return False
        return self._options.replan and self._options.apply is None

    # --- planning ---

    def _looked(self) -> Sight:
        sight = self._look()
        self._ha_rules, self._goals = sight.state.snapshot.ha_rules, sight.goals
        self._busy, self._coming = sight.busy, sight.coming
        return sight

    def _as_planned(self, snapshot: Snapshot) -> Snapshot:
        """A glance at the cluster, which does not show HA rules, with those that are known."""
        return replace(self._view(snapshot), ha_rules=self._ha_rules)

    def _plan(self, sight: Sight, *, prove: bool = False) -> Plan:
        """Plan with what is read of the guests that have to move, and with what is presumed of all others. How one of
        those can be moved is read when the plan moves it. prove: whether a solver checks the plan.
        """
        state, goals = sight.state, sight.goals
        busy = {vmid: stuck(why, "wait until that has ended") for vmid, why in sight.busy.items()}
        concerned = {guest.vmid for guest in state if guest.node in goals.drain} | goals.undo.keys()
        known = {**self._mobility(state, concerned - busy.keys()), **busy}
        around = Surroundings.of(state.snapshot, {})
        permitted = self._options.permitted
        guesses = {guest.vmid: presumed(guest, around, permitted) for guest in state if guest.vmid > 0}
        for _round in range(GUESSES):
            mobility = {**guesses, **known}
            plan = self._made(state, goals, mobility)
            unread = {vmid for move in plan.moves for vmid in move.vmids} - known.keys()
            if not unread:
                break
            known |= self._mobility(state, unread)
        else:
            mobility = known | self._mobility(state, guesses.keys() - known.keys())
            plan = self._made(state, goals, mobility)
        self._held = frozenset(vmid for vmid, each in mobility.items() if each.stuck[0]) - busy.keys()
        return proved(plan, state, self._profiles, goals, mobility, self._default) if prove else plan

    def _made(self, state: ClusterState, goals: Goals, mobility: Mapping[int, Mobility]) -> Plan:
        return make_plan(state, self._profiles, goals, mobility, self._bounds(), self._default, now=time.time())

    def _bounds(self) -> Bounds:
        """The remaining bounds of the run after its moves so far."""
        moves = [report.move for report in self.outcome.moved] if self.outcome is not None else []
        bounds = self._options.bounds
        sent = sum(move.memory + move.copied for move in moves)
        return replace(
            bounds,
            max_moves=None if bounds.max_moves is None else max(bounds.max_moves - len(moves), 0),
            max_bytes=None if bounds.max_bytes is None else max(bounds.max_bytes - sent, 0),
        )

    def _mobility(self, state: ClusterState, vmids: Iterable[int]) -> dict[int, Mobility]:
        """How these guests can be moved, and those that move along with them; less what has failed in this run."""
        found: dict[int, Mobility] = {}
        due = {vmid for vmid in vmids if vmid > 0}
        while due:
            found |= read_mobility(self._access.reader, state.snapshot, sorted(due), self._options.permitted)
            due = {vmid for each in found.values() for vmid in each.together} - found.keys()
            due &= {guest.vmid for guest in state}
        return {vmid: self._experienced(vmid, each) for vmid, each in found.items()}

    def _experienced(self, vmid: int, mobility: Mobility) -> Mobility:
        causes = self._failures.get(vmid)
        if not causes or mobility.stuck[0]:
            return mobility
        told = {node: f"could not take it: {cause}" for node, cause in causes.items()}
        if len(causes) >= TRIES:
            return Mobility(stuck=("; ".join(f"{node} {text}" for node, text in told.items()), "remove the cause"))
        return replace(mobility, not_to={**mobility.not_to, **told})


def numbered_after(last: int, plan: Plan) -> Plan:
    """The plan with its moves numbered from last + 1."""
    moves = (replace(e, id=e.id + last, after=tuple(number + last for number in e.after)) for e in plan.moves)
    return replace(plan, moves=tuple(moves))


def _why(report: MoveReport | None) -> str:
    """The reason why a guest was not moved, as a sentence part."""
    if report is None or report.error is None:
        return "its move was not begun, as another one failed"
    return report.error.message


def error_of(reports: Iterable[MoveReport]) -> CollectionError | None:
    """The first error, without those of moves that succeeded when they were tried again."""
    reports = list(reports)
    moved = {report.move.vmid for report in reports if report.outcome == MOVED}
    errors: t.Iterator[CollectionError] = (
        report.error for report in reports if report.error is not None and report.move.vmid not in moved
    )
    return next(errors, None)
