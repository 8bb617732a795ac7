# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of a plan: read, plan, keep or check the plan, carry it out, and again until nothing is left to move."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from ...engine.planner.planner import describe_goals
from ...engine.profiles import Profile
from ...errors import (
    ApiError,
    CollectionError,
    ConnectionFailed,
    Interrupted,
    InvalidRequest,
    NotTheSameGuest,
    PlanStale,
)
from ...files import write_json
from ...model import Identity
from ...plans import Goals, Plan
from ...proxmox.api.reader import Reader, in_parallel
from ...proxmox.identity import prove
from ...proxmox.moves.mobility import GONE
from ...proxmox.moves.mover import Mover
from ...proxmox.tasks import Poller, TaskFollower
from ..access import Access
from .gate import MoveGate
from .move_options import MoveOptions
from .moving import FAILED, MOVED, UNKNOWN, WAITING, Executor, MoveReport, MoveStep
from .plan_document import document_of, read_plan
from .planning import Objection, Planning, no_objection
from .premises import Premises, changes_since, rest_of
from .results import MovesOutcome
from .sight import LOOKS, MOVED_BY_OTHERS, Look, Sight, View, as_it_is, read_busy_guests

ROUNDS = 20
"""How many plans in a row may fail to reduce the number of remaining moves."""

FRUITLESS = 3
"""How many rounds in a row may begin no move because the cluster keeps changing."""

SETTLING = 2.0
"""Seconds to wait before planning again after the cluster has changed."""


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
        objection: Objection = no_objection,
        announce: Callable[[Plan], None] = lambda plan: None,
    ) -> None:
        """view is how the plan looks at the cluster; objection says why a guest is not the one that the goals are
        about. announce is called right before a plan is carried out.
        """
        self._access = access
        self._profile = profiles[default_profile]
        self._options = options
        self._planning = Planning(access, profiles, default_profile, options, objection)
        self._look = look
        self._view = view
        self._progress = progress
        self._announce = announce
        self._stop = access.stop
        self._fruitless = 0
        self._patience = options.timeout
        self._busy: Mapping[int, str] = {}
        self._coming: frozenset[int] = frozenset()
        self._cautions: tuple[str, ...] = ()
        self._goals = Goals()
        self.outcome: MovesOutcome | None = None

    @property
    def identities(self) -> dict[int, Identity]:
        """The guests of which the run knows the identity, by VMID."""
        applied = {} if self.outcome is None else self.outcome.premises.identities
        return {**applied, **self._planning.identities}

    @property
    def storages(self) -> Mapping[int, Mapping[str, str]]:
        """The storages of local disks, as far as the run has read them, by VMID and slot."""
        return self._planning.storages

    def prepare(self, *, wait: bool = False) -> MovesOutcome:
        """Plan, or read the plan that is to be applied, and keep it in plan_file. Writes nothing to the cluster.

        wait: whether moves of its guests that are under way may end before a plan is applied.

        Raises PlanStale when the cluster is not as the applied plan assumes, and InvalidRequest when that plan is for
        other goals.
        """
        if self._options.apply is not None:
            document = read_plan(self._options.apply, "apply")
            return self.hold_to(document.plan, document.premises, wait=wait)
        for _look in range(LOOKS):
            sight = self._read_sight()
            plan = self._planning.plan(sight, prove=self._options.prove)
            if not any(why.startswith(GONE) for why in self._planning.passing.values()):
                break
        premises = Premises.of(plan, sight.state.snapshot)
        if self._options.plan_file is not None:
            write_json("plan_file", self._options.plan_file, document_of(plan, premises))
        self.outcome = MovesOutcome(plan, premises, plan, cautions=self._cautions)
        return self.outcome

    def hold_to(self, plan: Plan, premises: Premises, *, wait: bool) -> MovesOutcome:
        """Prepare what is left to do of a plan that was made before; all of it, unless it was carried out in part.

        wait: whether moves of its guests that are under way may end first. Raises as prepare does.
        """
        sight = self._read_sight()
        if wait and self._wait_until_done(premises.guests.keys() & sight.busy.keys()):
            sight = self._read_sight()
        wanted = describe_goals(sight.goals)
        if plan.goal != wanted and sight.goals != Goals():
            raise InvalidRequest(f"apply: the plan is to {plan.goal}, but this task is to {wanted}")
        plan = plan.restrict_to(premises.identities)
        rest = rest_of(plan, premises, sight.state)
        changed = changes_since(rest.plan, rest.premises, rest.state)
        changed = changed or _strangers(self._access.reader, rest.premises)
        if changed:
            text = f"apply: the cluster is not as planned: {'; '.join(changed)}; make the plan again"
            raise PlanStale(text, changed=changed)
        self.outcome = MovesOutcome(plan, premises, rest.plan, cautions=self._cautions)
        return self.outcome

    def execute(self) -> MovesOutcome:
        """Carry out the prepared plan, then plan again from the current state.

        A signal ends it early, and so does the end of the processes that it works for: no further move begins, and
        those under way are followed for a while.
        """
        outcome = self.outcome
        if outcome is None:
            raise AssertionError("prepare comes first")
        session = self._access.writer()
        tasks = TaskFollower(session, self._options.timeout, Poller(sleep=self._stop.sleep))
        left = frozenset(move.source for move in outcome.plan.moves)
        gate = MoveGate(
            self._access,
            self._profile,
            self._view,
            self._planning.suitability,
            lambda state: self._planning.with_use(state, left),
        )
        mover = Mover(session, tasks, bwlimit=self._options.bwlimit)
        executor = Executor(self._access, mover, gate, self._stop, self._options.caps, self._progress)
        try:
            self._carry_out(outcome, executor)
        except (KeyboardInterrupt, Interrupted):
            self._stop.ask()
            outcome.interrupted = True
        except CollectionError as error:
            # What has moved still has to be reported.
            outcome.error = error
        return outcome

    def _carry_out(self, outcome: MovesOutcome, executor: Executor) -> None:
        """Carry out the plan, and plan again until nothing is left to move or another round is pointless."""
        rounds, fewest, number = 0, len(outcome.last.moves), 0
        while rounds < ROUNDS:
            self._stop.check()
            if outcome.last.moves:
                number = max(move.id for move in outcome.last.moves)
                self._announce(outcome.last)
                outcome.carried_out.append(outcome.last)
                try:
                    reports = executor.execute(outcome.last)
                finally:
                    outcome.reports += [report for report in executor.reports if report.outcome != WAITING]
                if not self._learn_from(reports):
                    return
                if self._nothing_is_left(outcome.last):
                    outcome.last = replace(outcome.last, moves=())
                    return
            elif not self._wait_for_others(outcome.last):
                return
            if self._fruitless:
                self._stop.sleep(SETTLING)
            outcome.last = number_after(number, self._plan_again(outcome))
            rounds += 1
            if len(outcome.last.moves) < fewest:
                rounds, fewest, self._fruitless = 0, len(outcome.last.moves), 0

    def _nothing_is_left(self, plan: Plan) -> bool:
        """Whether the list of the cluster shows that the goals of a plan without stuck guests are reached: no guest is
        on a node to be drained or about to come there, and all others are back. One request. For other goals, only a
        new plan shows that.
        """
        goals, access = self._goals, self._access
        # A guest that may stay as long as it is stopped, say, may have been started since.
        if plan.stuck or goals != Goals(drain=goals.drain, undo=goals.undo, homes=goals.homes, prefer=goals.prefer):
            return False
        reservations = access.of_others(access.ledger.reservations(access.identity()))
        if any(reservation.node in goals.drain for reservation in reservations):
            return False
        home = goals.undo
        return not any(g.node in goals.drain or g.node != home.get(g.vmid, g.node) for g in access.glance().guests)

    def _wait_for_others(self, plan: Plan) -> bool:
        """Wait for what others have under way and the goals wait for. Returns whether there was any, and it has ended
        by now, perhaps even between two looks at the cluster.

        plan has no moves. A guest that found no room may find it once theirs have ended; one that cannot be moved does
        not wait for them.
        """
        staying = {guest.vmid for guest in plan.stuck}
        if self._options.apply is not None or not (staying or self._coming):
            return False
        busy = {**self._busy, **read_busy_guests(self._access)}
        awaited = set(self._coming)
        if staying - self._planning.held or staying & busy.keys():
            awaited |= {vmid for vmid, why in busy.items() if why == MOVED_BY_OTHERS or vmid in staying}
        return self._wait_until_done(awaited & busy.keys()) or self._is_outdated()

    def _is_outdated(self) -> bool:
        """Whether a guest that others kept from being moved has left its node, or is not locked any more. One request
        if there is such a guest.
        """
        doubtful = self._planning.passing
        now = {(guest.vmid, guest.node): guest.lock for guest in self._access.glance().guests} if doubtful else {}
        return any(not now.get(place) for place in doubtful)

    def _wait_until_done(self, vmids: Collection[int]) -> bool:
        """Wait until others are done with these guests. Returns whether there are any, and they were in time."""

        def look() -> bool | None:
            try:
                return None if read_busy_guests(self._access).keys() & set(vmids) else True
            except (ApiError, ConnectionFailed):
                return None

        if not vmids:
            return False
        poller = Poller(sleep=self._stop.sleep)
        began = poller.clock()
        ended = poller.until(look, self._patience)
        self._patience -= min(poller.clock() - began, self._patience)
        return bool(ended)

    def _plan_again(self, outcome: MovesOutcome) -> Plan:
        """Plan from the present state. A guest that is back where this run moved it away from is not moved there again:
        the HA manager undoes what its rules forbid.
        """
        sight = self._read_sight()
        moved = [report.move for report in outcome.moved]
        plan = self._planning.plan(sight, moved)
        left = {(move.vmid, move.source): move.target for move in moved}
        undone = [move for move in plan.moves if (move.vmid, move.source) in left]
        for move in undone:
            self._planning.note_failure(move.vmid, left[move.vmid, move.source], f"it was moved back to {move.source}")
        return self._planning.plan(sight, moved) if undone else plan

    def _learn_from(self, reports: Iterable[MoveReport]) -> bool:
        """Note the results of a plan for the next one. Returns whether to make another one."""
        troubled = [report for report in reports if report.error is not None]
        for report in troubled:
            if report.outcome == FAILED and report.error is not None:
                cause = str(report.error.details.get("cause", report.error.message))
                self._planning.note_failure(report.move.vmid, report.move.target, cause)
        if not troubled:
            return self._options.apply is None
        self._fruitless = 0 if any(report.outcome in (MOVED, FAILED) for report in reports) else self._fruitless + 1
        if self._fruitless == FRUITLESS or any(report.outcome == UNKNOWN for report in troubled):
            return False
        return self._options.replan and self._options.apply is None

    def _read_sight(self) -> Sight:
        sight = self._look()
        self._goals, self._busy, self._coming = sight.goals, sight.busy, sight.coming
        self._cautions = sight.cautions
        return sight


def number_after(last: int, plan: Plan) -> Plan:
    """Return the plan with its moves numbered from last + 1."""
    moves = (replace(e, id=e.id + last, after=tuple(number + last for number in e.after)) for e in plan.moves)
    return replace(plan, moves=tuple(moves))


def _strangers(reader: Reader, premises: Premises) -> list[str]:
    """Return which guests are not those that a plan assumes, as sentence parts. One request for each guest."""

    def difference(vmid: int) -> str | None:
        guest = premises.guests[vmid]
        try:
            prove(reader, guest.node, vmid, guest.identity)
        except NotTheSameGuest as error:
            return error.message
        except ApiError as error:
            return f"guest {vmid} ({guest.name}) cannot be read on {guest.node}: {error.message}"
        return None

    return [text for text in in_parallel(difference, premises.guests).values() if text is not None]
