# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocol of moves as a transition relation, small enough to look at every state.

Two controllers want to move guests to a node that has room for one: the first moves one guest, the second the same and
another one. The first guest was created a moment ago, and the reservation of its creation is still in the ledger. After
every step its controller may be paused, go on, or crash, and what can expire may expire. Steps have the names of the
code. What the model takes for granted, beside what protocol.py does:

- What was asked of Proxmox shows (a lock, or a state of the HA manager) before the reservation is called quiet.
- Proxmox refuses to move a guest that it moves already.
- The cluster's list shows where a guest is as soon as its move is over.
- A cycle drops what has expired in the step that reads it: protocol.py looks at what is renewed in between.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

from .protocol import FENCE, LEASE, Explored, explored, faults

SHOWN = "a move that is under way counts when its reservation has expired"
QUIET = "what a dead controller has marked counts until it would show"
REPLACED = "the reservation of a move replaces that of the guest's creation"
PROTECTIONS = frozenset({LEASE, FENCE, SHOWN, QUIET, REPLACED})

CONTROLLER = (0, 1, 1)
GUEST = (0, 0, 1)
"""Of each run."""


class Guest(t.NamedTuple):
    """work is what Proxmox does about it: nothing, C(asked) before that shows, or C(shown). fresh: whether the ledger
    has the reservation of its creation.
    """

    moved: bool = False
    work: str | None = None
    fresh: bool = False


class Run(t.NamedTuple):
    """One guest for one controller: its next step, and its reservation in the ledger."""

    step: str = "enter"
    phase: str | None = None
    quiet: bool = False
    expired: bool = False
    unreserved: bool = False


class State(t.NamedTuple):
    """conditions are the controllers', lease is the run that has it."""

    conditions: tuple[str, ...] = ("running", "running")
    lease: int | None = None
    runs: tuple[Run, ...] = (Run(), Run(), Run())
    guests: tuple[Guest, ...] = (Guest(fresh=True), Guest())

    def condition_of(self, number: int) -> str:
        return self.conditions[CONTROLLER[number]]

    def guest_of(self, number: int) -> Guest:
        return self.guests[GUEST[number]]

    def having(self, number: int, **changes: t.Any) -> State:
        """The state with changes to one run."""
        runs = list(self.runs)
        runs[number] = runs[number]._replace(**changes)
        return self._replace(runs=tuple(runs))

    def changing(self, guest: int, **changes: t.Any) -> State:
        """The state with changes to one guest."""
        guests = list(self.guests)
        guests[guest] = guests[guest]._replace(**changes)
        return self._replace(guests=tuple(guests))

    def released(self, number: int) -> State:
        return self._replace(lease=None) if self.lease == number else self


Step = tuple[str, State]


def steps(state: State, protections: frozenset[str] = PROTECTIONS) -> Iterator[Step]:
    """What may happen next: a step of each run that can take one, an expiry, a turn of a move, a pause, a crash."""
    for number in range(len(state.runs)):
        if state.condition_of(number) == "running":
            yield from _own_steps(state, number, protections)
        yield from _expiries(state, number)
    for number, guest in enumerate(state.guests):
        if guest.fresh:
            yield f"guest {number}: confirmed", state.changing(number, fresh=False)
        if guest.work == "asked":
            yield f"guest {number}: shown", state.changing(number, work="shown")
        if guest.work is not None:
            yield f"guest {number}: failed", state.changing(number, work=None)
        if guest.work == "shown":
            yield f"guest {number}: moved", state.changing(number, work=None, moved=True)
    yield from faults(state)


def is_at_rest(state: State) -> bool:
    """Whether no run has anything left to do."""
    return all(run.step == "done" or state.condition_of(number) != "running" for number, run in enumerate(state.runs))


def _own_steps(state: State, number: int, protections: frozenset[str]) -> Iterator[Step]:
    run, guest, label = state.runs[number], state.guest_of(number), f"run {number}: {state.runs[number].step}"
    gone = state.having(number, step="done", phase=None, quiet=False, expired=False)
    if run.step == "enter":
        yield label, state._replace(lease=number).having(number, step="reservations")
    elif run.step in ("reservations", "reserve") and LEASE in protections and state.lease != number:
        yield f"{label}: LeaseLost", state.having(number, step="enter")
    elif run.step == "reservations":
        state = _without_ended(state, protections)
        taken = any(run.phase for other, run in enumerate(state.runs) if GUEST[other] != GUEST[number])
        if taken or any(each.moved for each in state.guests):
            yield f"{label}: PlanStale", state.released(number).having(number, step="done")
        else:
            yield label, state.having(number, step="reserve")
    elif run.step == "reserve":
        if any(run.phase for other, run in enumerate(state.runs) if GUEST[other] == GUEST[number]):
            yield f"{label}: AlreadyReserved", state.released(number).having(number, step="done")
        elif guest.fresh and REPLACED not in protections:
            yield label, state.released(number).having(number, step="send", unreserved=True)
        else:
            replaced = state.changing(GUEST[number], fresh=False)
            yield label, replaced.released(number).having(number, step="mark_binding", phase="reserved")
    elif run.step == "mark_binding":
        if run.phase is None:
            yield f"{label}: ReservationLost", state.having(number, step="enter")
        else:
            yield label, state.having(number, step="send", phase="binding", quiet=False, expired=False)
    elif run.step == "send":
        if run.phase is None and FENCE in protections and not run.unreserved:
            yield f"{label}: ReservationLost", state.having(number, step="enter")
        elif guest.moved or guest.work:
            yield f"{label}: refused", gone
        else:
            asked = state.changing(GUEST[number], work="asked")
            yield label, asked.having(number, step="settle", quiet=False, expired=False)
    elif run.step == "settle" and guest.work is None:
        yield label, state.having(number, step="done", phase=run.phase and "created") if guest.moved else gone


def _expiries(state: State, number: int) -> Iterator[Step]:
    """While its controller runs, the reservation of a move that has begun is renewed."""
    run = state.runs[number]
    renewed = run.phase == "binding" and state.condition_of(number) == "running"
    if run.phase in ("reserved", "binding") and not renewed and state.guest_of(number).work != "asked":
        if not run.quiet:
            yield f"run {number}: quiet", state.having(number, quiet=True)
        elif not run.expired:
            yield f"run {number}: expired", state.having(number, expired=True)


def _without_ended(state: State, protections: frozenset[str]) -> State:
    for number, run in enumerate(state.runs):
        dead, guest = state.condition_of(number) == "dead", state.guest_of(number)
        if run.phase == "reserved":
            ended = run.expired or dead
        elif run.phase == "binding":
            late = run.expired or (dead and (run.quiet or QUIET not in protections))
            ended = late and (guest.work != "shown" or (SHOWN not in protections and run.expired))
        else:
            ended = run.phase == "created" and guest.moved
        if ended:
            state = state.having(number, phase=None, quiet=False, expired=False)
    return state


def broken(state: State) -> str | None:
    """Why the state must never be, or None."""
    there = [guest for guest in state.guests if guest.moved or guest.work]
    return "two guests are in one place" if len(there) > 1 else None


def explore(protections: frozenset[str] = PROTECTIONS) -> Explored[State]:
    """Look at every state that can be reached, until one is broken."""
    return explored(State(), lambda state: steps(state, protections), broken)
