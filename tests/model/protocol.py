# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocol of the ledger as a transition relation, small enough to look at every state.

Two controllers ask for two VMs each, of the same two names, and the cluster has room for one. Each VM is a run of its
own. After every step its controller may be paused, go on, or crash, and what can expire may expire. Steps have the
names of the code. What the model takes for granted:

- The check of the fence and the request after it are one step: the proof is a second old at most.
- A request reaches the cluster, or is lost, before the reservation that was proven for it expires.
- A VM that the cluster shows counts whole. A VMID protects nothing: every run has another one.
- Every controller can see whether a process of the other has died.
"""

from __future__ import annotations

import typing as t
from collections import deque
from collections.abc import Callable, Iterator, Mapping

LEASE = "the lease is proven before it is written under it"
FENCE = "a reservation is proven before the request is sent"
AS_READ = "a cycle drops what has expired only as it has read it"
PROTECTIONS = frozenset({LEASE, FENCE, AS_READ})


class Run(t.NamedTuple):
    """One VM of one controller: its next step, its reservation in the ledger, and what became of its request."""

    step: str = "enter"
    phase: str | None = None
    expired: bool = False
    vm: str | None = None


class State(t.NamedTuple):
    """conditions are the controllers', lease is the run that has it; run number r is of controller r // 2, VM r % 2.

    late are the runs whose reservations the present cycle has read as expired; None once one of these was renewed.
    """

    conditions: tuple[str, ...] = ("running", "running")
    lease: int | None = None
    runs: tuple[Run, ...] = (Run(), Run(), Run(), Run())
    late: tuple[int, ...] | None = ()

    def condition_of(self, number: int) -> str:
        return self.conditions[number // 2]

    def having(self, number: int, **changes: t.Any) -> State:
        """The state with changes to one run."""
        runs = list(self.runs)
        runs[number] = runs[number]._replace(**changes)
        return self._replace(runs=tuple(runs))

    def released(self, number: int) -> State:
        return self._replace(lease=None) if self.lease == number else self


Step = tuple[str, State]


def steps(state: State, protections: frozenset[str] = PROTECTIONS) -> Iterator[Step]:
    """What may happen next: a step of each run that can take one, an expiry, a delivery, a pause, a crash."""
    for number in range(len(state.runs)):
        if state.condition_of(number) == "running":
            yield from _own_steps(state, number, protections)
        yield from _steps_of_the_world(state, number)
    yield from faults(state)


def is_at_rest(state: State) -> bool:
    """Whether nothing happens any more but for faults and expiries."""
    return all(run.step == "done" or state.condition_of(number) != "running" for number, run in enumerate(state.runs))


def faults(state: t.Any) -> Iterator[tuple[str, t.Any]]:
    """Controllers that are paused, go on, or crash."""
    following = {"running": ("paused", "dead"), "paused": ("running", "dead"), "dead": ()}
    for controller, condition in enumerate(state.conditions):
        for other in following[condition]:
            conditions = list(state.conditions)
            conditions[controller] = other
            yield f"controller {controller} is {other}", state._replace(conditions=tuple(conditions))


def _own_steps(state: State, number: int, protections: frozenset[str]) -> Iterator[Step]:
    run, label = state.runs[number], f"run {number}: {state.runs[number].step}"
    if run.step == "enter":
        # The lease may be free, or have expired: a cycle may take any time.
        yield label, state._replace(lease=number, late=()).having(number, step="reservations")
    elif run.step in ("reservations", "confirm", "reserve") and LEASE in protections and state.lease != number:
        yield f"{label}: LeaseLost", state.having(number, step="enter")
    elif run.step == "reservations":
        state = _without_ended(state)
        late = tuple(n for n, other in enumerate(state.runs) if other.phase == "binding" and other.expired)
        taken = any((other.phase and n not in late) or other.vm == "shown" for n, other in enumerate(state.runs))
        if taken:
            yield label, state.released(number).having(number, step="done")
        else:
            yield label, state._replace(late=late).having(number, step="confirm" if late else "reserve")
    elif run.step == "confirm":
        if state.late is None:
            yield f"{label}: renewed", state._replace(late=()).having(number, step="reservations")
        else:
            for other in state.late:
                state = state.having(other, phase=None, expired=False)
            yield label, state._replace(late=()).having(number, step="reserve")
    elif run.step == "reserve":
        namesake = state.runs[(number + 2) % 4]
        reserved = {"step": "done"} if namesake.phase else {"step": "mark_binding", "phase": "reserved"}
        yield label, state.released(number).having(number, **reserved)
    elif run.step == "mark_binding":
        if run.phase is None:
            yield f"{label}: ReservationLost", state.having(number, step="enter")
        else:
            renewed = _renewed(state, number, protections)
            yield label, renewed.having(number, step="send", phase="binding")
    elif run.step == "send":
        if run.phase is None and FENCE in protections:
            yield f"{label}: ReservationLost", state.having(number, step="enter")
        else:
            yield label, _renewed(state, number, protections).having(number, step="mark_created", vm="sent")
    elif run.step == "mark_created" and run.vm == "shown":
        yield label, _renewed(state, number, protections).having(number, step="done", phase=run.phase and "created")


def _renewed(state: State, number: int, protections: frozenset[str]) -> State:
    """The state after a run has renewed its reservation: a cycle that has read it as expired sees that."""
    seen = AS_READ in protections and number in (state.late or ())
    return state._replace(late=None if seen else state.late).having(number, expired=False)


def _steps_of_the_world(state: State, number: int) -> Iterator[Step]:
    run = state.runs[number]
    if run.vm == "sent":
        yield f"run {number}: shown", state.having(number, vm="shown")
    elif run.phase and not run.expired and (run.phase != "binding" or state.condition_of(number) != "running"):
        # While it is created, and its process runs, it is renewed.
        yield f"run {number}: expired", state.having(number, expired=True)


def _without_ended(state: State) -> State:
    for number, run in enumerate(state.runs):
        ended = run.expired and run.phase != "binding"
        if ended or (run.phase == "reserved" and state.condition_of(number) == "dead"):
            state = state.having(number, phase=None, expired=False)
    return state


def broken(state: State) -> str | None:
    """Why the state must never be, or None."""
    made = [number for number, run in enumerate(state.runs) if run.vm]
    if len({number % 2 for number in made}) < len(made):
        return "two VMs have one name"
    if len(made) > 1:
        return "two VMs are in one place"
    return None


class HasConditions(t.Protocol):
    """What every state has: how its controllers are."""

    @property
    def conditions(self) -> tuple[str, ...]: ...


S = t.TypeVar("S", bound=HasConditions)


class Explored(t.NamedTuple, t.Generic[S]):
    """states are all that can be reached, ends those from which nothing goes on but faults; history is that of the
    first broken one: the labels of its steps, and the reason.
    """

    states: set[S]
    ends: set[S]
    history: list[str]


def explore(protections: frozenset[str] = PROTECTIONS) -> Explored[State]:
    """Look at every state that can be reached, until one is broken."""
    return explored(State(), lambda state: steps(state, protections), broken)


def explored(
    first: S, steps_of: Callable[[S], Iterator[tuple[str, S]]], reason_of: Callable[[S], str | None]
) -> Explored[S]:
    """Look at states breadth first, until all were seen or one is broken."""
    before: dict[S, tuple[str, S] | None] = {first: None}
    waiting, ends = deque([first]), set[S]()
    while waiting:
        state = waiting.popleft()
        reason = reason_of(state)
        if reason is not None:
            return Explored(set(before), ends, [*_history(state, before), reason])
        goes_on = False
        for label, following in steps_of(state):
            goes_on = goes_on or following.conditions == state.conditions
            if following not in before:
                before[following] = (label, state)
                waiting.append(following)
        if not goes_on:
            ends.add(state)
    return Explored(set(before), ends, [])


def _history(state: S, before: Mapping[S, tuple[str, S] | None]) -> list[str]:
    labels = []
    while (step := before[state]) is not None:
        labels.append(step[0])
        state = step[1]
    return labels[::-1]
