# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a tour as a document, and whether a tour is still the one that was approved."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...engine.texts import join_words
from ...plans import Move, NodeCourse
from ..documents import (
    Key,
    a_count,
    a_text,
    check_digest,
    each_written,
    list_of,
    map_of,
    read_document,
    record,
    seal,
    unseal,
    values_written,
    writer_of,
)
from ..moves.plan_document import ASSUMES, MOVE, NODE, PREMISES, take_premises
from ..moves.premises import Premises

FORMAT = "qemu_scheduler.proxmox tour"


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One turn, the maintenance of a node or of several at once, as the document has it.

    Attributes:
        node, beside: the node, and those that are maintained at the same time.
        needs: why the nodes need maintenance, as far as that was asked.
        out, back: the moves before and after the maintenance.
        loads: what is allocated on nodes before, at the peak of and after the moves.
        shut_down, stay: the VMIDs of guests that are not moved.
        prefer: the nodes to which guests go first.
        votes, votes_needed: the votes that are left while the nodes are away, and those that the cluster needs.
        stranded: what could not be absorbed if another node failed meanwhile; empty if every loss could.
    """

    node: str
    needs: tuple[str, ...]
    out: tuple[Move, ...]
    back: tuple[Move, ...]
    loads: Mapping[str, NodeCourse]
    shut_down: tuple[int, ...]
    stay: tuple[int, ...]
    prefer: tuple[str, ...]
    votes: int
    votes_needed: int
    stranded: str
    beside: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node, *self.beside)


@dataclass(frozen=True, slots=True)
class TourPlan:
    """A whole tour.

    Attributes:
        skipped: the nodes that are not maintained, each with the reason.
        unfinished: nodes whose maintenance an earlier run began, which need none any more: they only become active.
    """

    goal: str
    steps: tuple[StepPlan, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()

    @property
    def moves(self) -> int:
        """How many guests move; one that moves twice counts twice."""
        return sum(len(move.vmids) for step in self.steps for move in (*step.out, *step.back))


MOVES = Key("out", list_of(record(Move, MOVE)), each_written(writer_of(MOVE)))

STEP = {
    "node": Key("node", a_text),
    "needs": Key("needs", list_of(a_text), list),
    "moves": MOVES,
    "back": Key("back", MOVES.check, MOVES.write),
    "loads": Key("loads", map_of(record(NodeCourse, NODE)), values_written(writer_of(NODE))),
    "shut_down": Key("shut_down", list_of(a_count), list),
    "stay": Key("stay", list_of(a_count), list),
    "prefer": Key("prefer", list_of(a_text), list),
    "votes": Key("votes", a_count),
    "votes_needed": Key("votes_needed", a_count),
    "stranded": Key("stranded", a_text),
    "beside": Key("beside", list_of(a_text), list, left_out=()),
}

TOUR = {
    "goal": Key("goal", a_text),
    "steps": Key("steps", list_of(record(StepPlan, STEP)), each_written(writer_of(STEP))),
    "skipped": Key("skipped", map_of(a_text), dict),
    "unfinished": Key("unfinished", list_of(a_text), list),
}


def document_of(tour: TourPlan, premises: Premises) -> dict[str, t.Any]:
    """Return the document of a tour, as JSON has it."""
    return seal(FORMAT, {**writer_of(TOUR)(tour), ASSUMES: writer_of(PREMISES)(premises)})


def read_tour(source: t.Any, option: str) -> tuple[TourPlan, Premises]:
    """Return the tour that an option holds, or that is in the file which it names, and what it assumes.

    Raises InvalidRequest, which names the option and the key.
    """
    document = read_document(source, option)
    body = unseal(document, FORMAT, option)
    premises = take_premises(body, option)
    tour: TourPlan = record(TourPlan, TOUR)(option, body)
    check_digest(document, option)
    return tour, premises


def departures_from(approved: TourPlan, now: TourPlan, done: Iterable[str]) -> list[str]:
    """Return in what a tour that was planned now departs from the one that was approved, as sentence parts.

    A node that is done, and a guest that has left a node already, are no departure.
    """
    ended = set(done)
    steps = [step for step in approved.steps if not ended.issuperset(step.nodes)]
    order, planned = [_nodes_of(step, ended) for step in steps], [_nodes_of(step, set()) for step in now.steps]
    if order != planned:
        return [f"the nodes are {_list_names(planned)} instead of {_list_names(order)}"]
    return [text for before, after in zip(steps, now.steps, strict=True) for text in _departures(before, after)]


def _departures(before: StepPlan, after: StepPlan) -> Iterable[str]:
    targets = {move.vmid: move.target for move in before.out}
    for move in after.out:
        if move.vmid not in targets:
            yield f"guest {move.vmid} ({move.name}) would leave {move.source}, which was not planned"
        elif targets[move.vmid] != move.target:
            yield f"guest {move.vmid} ({move.name}) would go to {move.target} instead of {targets[move.vmid]}"
    for vmid in sorted(set(after.shut_down) - set(before.shut_down)):
        yield f"guest {vmid} on {_nodes_of(after, ())} would be shut down, which was not planned"
    for vmid in sorted(set(after.stay) - {*before.stay, *before.shut_down}):
        yield f"guest {vmid} would stay on {_nodes_of(after, ())}, which was not planned"


def _nodes_of(step: StepPlan, ended: Collection[str]) -> str:
    return join_words([name for name in step.nodes if name not in ended])


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
