# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out the moves of a plan: each starts as soon as the moves it waits for have ended, within the caps.

After a failure, or if the cluster turns out to have changed, no further move starts, and those under way are followed
to their end.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field

from ...errors import CollectionError, Interrupted, NotTheSameGuest, PlanStale, TaskTimeout
from ...plans import Move, Plan
from ...proxmox.api.failures import AnswerLost
from ...proxmox.identity import as_json as identity_as_json
from ...proxmox.moves.mover import Mover
from ..access import Access
from ..binding import keep_alive
from ..progress import LineFile
from ..stopping import Stop
from .agenda import Agenda
from .gate import Configs, MoveGate
from .move_options import Caps

WAITING, MOVED, FAILED, STALE, UNKNOWN = "not_started", "moved", "failed", "stale", "unknown"
"""The results of a move. stale: not begun, as the cluster has changed; unknown: it may still go on."""


@dataclass(slots=True)
class MoveReport:
    """The result of one move.

    seconds is its duration; node is the node of the guest, as far as known.
    """

    move: Move
    outcome: str = WAITING
    seconds: float = 0.0
    node: str | None = None
    error: CollectionError | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MoveStep:
    """One move has ended; done of total have."""

    report: MoveReport
    done: int
    total: int


def move_progress(path: str | None) -> Callable[[MoveStep], None]:
    """Return the function to call for each move that has ended: it appends a line of JSON to the file at path. Raises
    InvalidRequest if the file cannot be written.
    """
    if path is None:
        return lambda step: None
    file = LineFile(path)
    return lambda step: file.append(_line_of(step))


def _line_of(step: MoveStep) -> dict[str, t.Any]:
    """Return a move that has ended as a line of the progress file has it."""
    report, move = step.report, step.report.move
    return {
        "done": step.done,
        "total": step.total,
        "name": move.name,
        "vmid": move.vmid,
        "identity": identity_as_json(move.identities[move.vmid]) if move.vmid in move.identities else None,
        "from": move.source,
        "to": move.target,
        "outcome": report.outcome,
        "seconds": round(report.seconds, 2),
        "error": None if report.error is None else report.error.code,
    }


class Executor:
    """Carries out plans of one run.

    Attributes:
        reports: of the plan that is being carried out, in the order of its moves.
    """

    def __init__(
        self,
        access: Access,
        mover: Mover,
        gate: MoveGate,
        stop: Stop,
        caps: Caps,
        progress: Callable[[MoveStep], None] = lambda step: None,
    ) -> None:
        self._access = access
        self._mover = mover
        self._gate = gate
        self._stop = stop
        self._caps = caps
        self._progress = progress
        self.reports: list[MoveReport] = []

    def execute(self, plan: Plan) -> list[MoveReport]:
        """Carry out the plan, and return the result of each of its moves.

        An interrupted run follows the moves under way for a while and then raises KeyboardInterrupt or Interrupted;
        reports contains the results so far.
        """
        self.reports = [MoveReport(move, node=move.source) for move in plan.moves]
        by_id = {report.move.id: report for report in self.reports}
        agenda = Agenda(plan.moves, self._caps)
        running: dict[Future[None], MoveReport] = {}
        done, halted = 0, False
        access = self._access
        with (
            keep_alive(access.ledger, access.identity(), self._gate.in_progress, access.holder),
            self._stop.threads(self._caps.cluster) as pool,
        ):
            while True:
                for move in () if halted else agenda.start():
                    self._stop.check()
                    running[pool.submit(self._carry_out, by_id[move.id])] = by_id[move.id]
                if not running:
                    return self.reports
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    report = running.pop(future)
                    future.result()
                    done += 1
                    self._progress(MoveStep(report, done, len(self.reports)))
                    if report.outcome == MOVED:
                        agenda.end(report.move)
                    else:
                        halted = True

    def _carry_out(self, report: MoveReport) -> None:
        """Make one move, and note its error and its duration in the report."""
        began = time.monotonic()
        try:
            self._move(report)
        except CollectionError as error:
            report.error = error
        finally:
            report.seconds = time.monotonic() - began

    def _move(self, report: MoveReport) -> None:
        """Ask the gate, make the move, and release its reservation. Raises what keeps it from being made."""
        move, gate, begun = report.move, self._gate, False
        self._stop.check()
        try:
            admitted = gate.admit(move)
        except CollectionError:
            report.outcome = STALE
            raise

        def fence() -> None:
            nonlocal begun
            self._stop.check()
            admitted.check()
            begun = True

        try:
            admitted.begin()

            def check_demands(configs: Configs) -> bool:
                return gate.check_demands(move, configs, admitted)

            report.warnings.extend(self._mover.move(move, fence=fence, demanding=check_demands))
        except CollectionError as error:
            if begun and isinstance(error, (TaskTimeout, AnswerLost)):
                # It may go on: other controllers count it until its reservation expires.
                report.outcome, report.node = UNKNOWN, None
                gate.abandon(move)
                raise
            if not isinstance(error, Interrupted):
                report.outcome = STALE if isinstance(error, (PlanStale, NotTheSameGuest)) else FAILED
            report.node = error.details.get("node", move.source)
            # The error of the move matters more; the reservation expires by itself.
            with suppress(CollectionError):
                gate.settle(move, moved=False)
            raise
        report.outcome, report.node = MOVED, move.target
        with suppress(CollectionError):
            gate.settle(move, moved=True)
