# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of a run of moves, and its view as the result of a module."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...errors import CollectionError, GoalsNotReached, Interrupted
from ...plans import Move, NodeCourse, Plan, Stuck
from ...proxmox.moves.mover import label
from ..documents import values_written, writer_of
from ..result import RunFailed
from .moving import FAILED, MOVED, UNKNOWN, MoveReport
from .plan_document import NODE, STUCK, document_of
from .premises import Premises

STUCK_TOLD = 10
"""How many guests a message names that could not be moved."""


@dataclass(slots=True)
class MovesOutcome:
    """The outcome of a run.

    Attributes:
        plan, premises: the first plan, or the applied one.
        last: the latest plan; guests that are stuck in it stay.
        carried_out: the plans whose moves were begun, at least some of them, in their order.
        reports: the results of all moves that were begun or attempted, in the order of their plans.
        error: why no further plan could be made or carried out, apart from failed moves.
        cautions: what the user must know of the HA manager, as sentences.
    """

    plan: Plan
    premises: Premises
    last: Plan
    carried_out: list[Plan] = field(default_factory=list)
    reports: list[MoveReport] = field(default_factory=list)
    interrupted: bool = False
    error: CollectionError | None = None
    cautions: tuple[str, ...] = ()

    @property
    def moved(self) -> list[MoveReport]:
        return [report for report in self.reports if report.outcome == MOVED]

    @property
    def loads(self) -> dict[str, NodeCourse]:
        """The nodes that the plans which were carried out touch, with the moves that were made. Of a move that was not,
        the guest is still counted on its source.
        """
        made = {report.move.id for report in self.moved}
        begun = {report.move.id for report in self.reports}
        found: dict[str, NodeCourse] = {}
        for plan in self.carried_out:
            for name, course in plan.nodes.items():
                real = _as_carried_out(name, course, plan.moves, made, begun)
                found[name] = found.get(name, real).then(real)
        return found

    @property
    def staying(self) -> list[Stuck]:
        """The guests that stay: those that the latest plan cannot move, and those of its moves that were not made."""
        ends = {report.move.vmid: report for report in self.reports}
        left = [
            Stuck(move.vmid, move.name, move.source, _why_stuck(ends.get(move.vmid)), "remove the cause, and run again")
            for move in self.last.moves
            if self.reports and (move.vmid not in ends or ends[move.vmid].outcome != MOVED)
        ]
        return sorted([*self.last.stuck, *left], key=lambda stuck: stuck.vmid)

    @property
    def warnings(self) -> list[str]:
        """Cautions, why goals were not reached, and warnings about moves, each with its guest; then about guests that
        left their node although their move failed: they may be locked, or have left volumes behind.
        """
        texts = [f"{label(report.move)}: {text}" for report in self.reports for text in report.warnings]
        done = {report.move.vmid for report in self.moved} | {stuck.vmid for stuck in self.staying}
        failed = [each for each in self.reports if each.outcome == FAILED and each.move.vmid not in done]
        errors = (each.error.message for each in failed if each.error is not None)
        return [*self.cautions, *self.last.notes, *texts, *errors]


loads_written = values_written(writer_of(NODE))


def result_of(outcome: MovesOutcome, *, wrote: bool) -> dict[str, t.Any]:
    """Return the module's result. wrote: whether the plan was carried out, not only made."""
    return {
        "changed": bool(outcome.moved if wrote else outcome.last.moves),
        "plan": document_of(outcome.plan, outcome.premises),
        "moves": [_report(report) for report in outcome.reports],
        "loads": loads_written(outcome.loads if wrote else outcome.last.nodes),
        "stuck": [{key: getattr(stuck, key) for key in STUCK} for stuck in outcome.staying],
        "check_mode": not wrote,
        "diff": diff_of([report.move for report in outcome.moved] if wrote else outcome.last.moves),
    }


def add_moves(result: dict[str, t.Any], outcome: MovesOutcome, *, wrote: bool) -> None:
    """Add to a run's result the moves that it made, or plans to make, in addition to other work."""
    moves = result_of(outcome, wrote=wrote)
    result["changed"] |= moves["changed"]
    result.update(plan=moves["plan"], moves=moves["moves"], loads=moves["loads"])
    result["diff"] = [moves["diff"], *result.get("diff", ())]


def diff_of(moves: Iterable[Move]) -> dict[str, t.Any]:
    """Return the node of each guest that moves, before and after."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for move in moves:
        guest = f"{move.vmid} {move.name}".strip()
        before.setdefault(guest, move.source)
        after[guest] = move.target
    return {"before": before, "after": after}


def failure_of(outcome: MovesOutcome, complaint: str | None) -> CollectionError | None:
    """Return the error that the run ends with, if any. complaint is what is said when guests stay; None where they may.
    """
    if outcome.interrupted:
        going_on = [report.move.vmid for report in outcome.reports if report.outcome == UNKNOWN]
        more = f"; moves that continue on the cluster: {', '.join(map(str, going_on))}" if going_on else ""
        return Interrupted(f"interrupted after {len(outcome.moved)} moves{more}; run again to go on")
    if outcome.error is not None:
        return outcome.error
    if outcome.last.stuck and complaint is not None:
        return GoalsNotReached(f"{complaint}, {stuck_text(outcome.staying)}")
    # When nothing is left to move, others have moved what this run could not.
    return error_of(outcome.reports) if outcome.last.moves and outcome.reports else None


def failure_with(error: CollectionError, result: dict[str, t.Any]) -> RunFailed:
    """Return the failure of a module: the error with the result."""
    return RunFailed(error.message, error.code, {**result, "error_details": error.details})


def stuck_text(stuck: Sequence[Stuck]) -> str:
    """Return guests that could not be moved, each with the reason and the remedy, as the end of a sentence."""
    each_told = [
        f"{each.name or 'guest'} ({each.vmid}) on {each.node}: {each.why}; cure: {each.cure}"
        for each in stuck[:STUCK_TOLD]
    ]
    more = len(stuck) - STUCK_TOLD
    return f"{len(stuck)} guest(s) stay: {'; '.join([*each_told, *([f'and {more} more'] if more > 0 else [])])}"


def _as_carried_out(
    name: str, course: NodeCourse, moves: Iterable[Move], made: Collection[int], begun: Collection[int]
) -> NodeCourse:
    """Return the course of a node when of the moves of its plan only some were begun, and only some of these made."""
    after, touched = course.after, False
    for move in moves:
        if move.id not in made and move.source != move.target:
            after = after.plus(move, (name == move.source) - (name == move.target))
        touched |= move.id in begun and name in (move.source, move.target)
    return replace(course, peak=course.peak if touched else course.before.or_more(after), after=after)


def _report(report: MoveReport) -> dict[str, t.Any]:
    """Return a move as the result has it."""
    move, error = report.move, report.error
    told: dict[str, t.Any] = {
        "id": move.id,
        "vmid": move.vmid,
        "name": move.name,
        "from": move.source,
        "to": move.target,
        "why": move.why,
        "after": list(move.after),
        "how": move.how,
        "via": move.via,
        "memory": move.memory,
        "copied": move.copied,
        "outcome": report.outcome,
        "node": report.node,
        "seconds": round(report.seconds, 1),
    }
    if report.warnings:
        told["warnings"] = report.warnings
    if error is not None:
        told["error_code"], told["msg"] = error.code, error.message
    return told


def error_of(reports: Iterable[MoveReport]) -> CollectionError | None:
    """Return the first error, without those of moves that succeeded when they were tried again."""
    reports = list(reports)
    moved = {report.move.vmid for report in reports if report.outcome == MOVED}
    errors: t.Iterator[CollectionError] = (
        report.error for report in reports if report.error is not None and report.move.vmid not in moved
    )
    return next(errors, None)


def _why_stuck(report: MoveReport | None) -> str:
    if report is None or report.error is None:
        return "its move was not begun, as another one failed"
    return report.error.message
