# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing to a guest whose VMID may change hands, as a transition relation, small enough to look at every state.

Two controllers write to the guest of one VMID: the first as its task names it, the second as a plan says that was kept,
and then as the mark of a drained node says. Each changes the config, which takes a digest, and starts the guest, which
takes none. At any moment somebody may remove the guest, and use its VMID for another one of the same or of another
name. After every step a controller may be paused, go on, or crash. Steps have the names of the code. What the model
takes for granted:

- The proof and a request without a digest after it are one step: nothing is sent in between.
- What a guest was born as is read with its config, and no two guests have the same.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

from .protocol import Explored, explored, faults

PROOF = "a guest is proved to be the planned one right before each write"
BIRTH = "it is proved by what it was born as, and not by its name"
DIGEST = "a change of a config carries the digest of the config that was the proof"
PLAN = "a plan that is kept has the identities of its guests"
MARK = "the mark of a drained node has the identities of the guests that come back"
PROTECTIONS = frozenset({PROOF, BIRTH, DIGEST, PLAN, MARK})

CONTROLLER = (0, 1, 1)
KEEPS = (None, PLAN, MARK)
"""Of each run: what has to keep the identity of its guest for it; the first reads the guest itself."""

MOST_BIRTHS = 3


class Identity(t.NamedTuple):
    """What is known of a guest: None for what it was born as, where that is not kept."""

    birth: int | None
    name: str | None


class Run(t.NamedTuple):
    """One run: its next step; the birth that it means, and what it has to prove that by; the digest of its proof."""

    step: str = "plan"
    meant: int = 0
    planned: Identity = Identity(None, None)
    digest: int | None = None
    reached: tuple[int, ...] = ()


class State(t.NamedTuple):
    """birth and name are those of the guest that has the VMID, if there is one."""

    conditions: tuple[str, ...] = ("running", "running")
    birth: int = 0
    name: str = "app"
    there: bool = True
    runs: tuple[Run, ...] = (Run(), Run(), Run())

    def having(self, number: int, **changes: t.Any) -> State:
        """The state with changes to one run."""
        runs = list(self.runs)
        runs[number] = runs[number]._replace(**changes)
        return self._replace(runs=tuple(runs))

    def reached_by(self, number: int, step: str) -> State:
        """The state after a write of a run to the guest that has the VMID, if there is one."""
        reached = (*self.runs[number].reached, self.birth) if self.there else self.runs[number].reached
        return self.having(number, step=step, reached=reached)


Step = tuple[str, State]


def steps(state: State, protections: frozenset[str] = PROTECTIONS) -> Iterator[Step]:
    """What may happen next: a step of each run that can take one, a VMID that changes hands, a pause, a crash."""
    for number in range(len(state.runs)):
        waits = number == 2 and state.runs[1].step != "done"
        if state.conditions[CONTROLLER[number]] == "running" and not waits:
            yield from _own_steps(state, number, protections)
    if state.there:
        yield "the guest is removed", state._replace(there=False)
    if not state.there and state.birth + 1 < MOST_BIRTHS:
        for name in ("app", "payroll"):
            yield f"the VMID is used again for {name}", state._replace(birth=state.birth + 1, name=name, there=True)
    yield from faults(state)


def is_at_rest(state: State) -> bool:
    """Whether no run has anything left to do."""
    return all(
        run.step == "done" or state.conditions[CONTROLLER[number]] != "running" for number, run in enumerate(state.runs)
    )


def _own_steps(state: State, number: int, protections: frozenset[str]) -> Iterator[Step]:
    run, label = state.runs[number], f"run {number}: {state.runs[number].step}"
    done = state.having(number, step="done")
    if run.step == "plan":
        yield label, _planned(state, number, protections)
    elif run.step == "prove":
        if not _is_proved(state, run, protections):
            yield f"{label}: NotTheSameGuest", done
        else:
            yield label, state.having(number, step="update", digest=state.birth)
    elif run.step == "update":
        if DIGEST in protections and (not state.there or run.digest != state.birth):
            yield f"{label}: refused", done
        else:
            yield label, state.reached_by(number, "start")
    elif run.step == "start":
        if not _is_proved(state, run, protections):
            yield f"{label}: NotTheSameGuest", done
        else:
            yield label, state.reached_by(number, "done")


def _planned(state: State, number: int, protections: frozenset[str]) -> State:
    """The first run reads the guest; the others know of it what was kept when it was the first one."""
    keeps = KEEPS[number]
    if keeps is None:
        if not state.there or state.name != "app":
            return state.having(number, step="done")
        return state.having(number, step="prove", meant=state.birth, planned=Identity(state.birth, state.name))
    kept = Identity(0, "app") if keeps in protections else Identity(None, "app" if keeps == PLAN else None)
    return state.having(number, step="prove", planned=kept)


def _is_proved(state: State, run: Run, protections: frozenset[str]) -> bool:
    if PROOF not in protections:
        return True
    known = run.planned if BIRTH in protections else run.planned._replace(birth=None)
    found = Identity(state.birth, state.name)
    return state.there and all(mine in (None, other) for mine, other in zip(known, found, strict=True))


def broken(state: State) -> str | None:
    """Why the state must never be, or None."""
    for run in state.runs:
        if any(birth != run.meant for birth in run.reached):
            return "a write reaches another guest"
    return None


def explore(protections: frozenset[str] = PROTECTIONS) -> Explored[State]:
    """Look at every state that can be reached, until one is broken."""
    return explored(State(), lambda state: steps(state, protections), broken)
