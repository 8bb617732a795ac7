# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn the changes on the board into a plan: ordered moves and creations, reasons, and the load of each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...model import Decision
from ...plans import HA, LIVE, Creation, Load, Move, NodeCourse
from ..framework.interface import Draft
from ..framework.status import Status
from ..ha_rules import companions_of
from ..scheduling_cycle import Scheduler
from .attempts import compress
from .board import Board, BoardStep
from .items import Item, Part, Position
from .order import Leg, Relations, ancestors, peaks, put_in_order, shorten

BYTES_PER_SECOND = 100 * 1024**2
SECONDS_PER_MOVE = 5.0
"""Estimate of a move: a fixed time, plus the time to send its bytes at this rate."""


def replay(
    board: Board, scheduler: Scheduler, closed: Iterable[int]
) -> tuple[list[Leg], list[tuple[BoardStep, Status | None]]]:
    """Replay the board's trail from the start, step by step, in an order in which the filters allow every step.

    Nothing goes to closed nodes. A step that a filter refuses is tried again after the others. Returns the legs, and
    the steps that stayed refused, each with the last refusal; None if CPU or memory is missing.
    """
    due = compress(board.trail)
    board.undo(0)
    board.close(closed)
    legs: list[Leg] = []
    while due:
        left = []
        for step in due:
            item, target = step.item, step.target
            if not board.fits(item, target) or board.refusal(item, target) is not None:
                left.append(step)
                continue
            legs.extend(_legs(board, step, len(legs), scheduler))
            board.move(item, target, step.why)
        if len(left) == len(due):
            break
        due = left
    refused = [(step, board.refusal(step.item, step.target)) for step in due]
    board.show_all()
    return legs, refused


def _legs(board: Board, step: BoardStep, number: int, scheduler: Scheduler) -> list[Leg]:
    item, target = step.item, step.target
    rows = board.reach.rows(item)
    room = (rows.cpu[target], rows.memory[target])
    score = 0.0
    if item.new:
        board.show_all()
        score = scheduler.scores(item.parts[0].request, board.now).get(board.nodes[target].name, 0.0)
    vmids, lead = {part.vmid for part in item.parts}, item.parts[0]
    # Whether the HA manager moves the whole item when asked to move one of its guests.
    at_once = vmids <= {lead.vmid, *lead.mobility.together} or vmids <= companions_of(
        board.state.snapshot.ha_rules, lead.vmid
    )
    if item.new or not at_once:
        positions = [_position(board, item, part) for part in item.parts]
        return [
            Leg(number + offset, (part,), part.cores, part.memory, 1, source, target, room, step.why, score)
            for offset, (part, source) in enumerate(zip(item.parts, positions, strict=True))
        ]
    here = next((each for each in board.at[item.index] if each.node == target), Position(target))
    sources = tuple(each for each in board.at[item.index] if each.node != target)
    coming = (item.cores - here.cores, item.memory - here.memory, len(item.parts) - here.guests)
    return [Leg(number, item.parts, *coming, sources, target, room, step.why)]


def _position(board: Board, item: Item, part: Part) -> tuple[Position, ...]:
    """Return where a part takes room: on the node of its item, or at home if that is off the board. Nowhere if new."""
    if part.guest is None:
        return ()
    node = board.node_of(item)
    if node < 0 and (home := board.state.by_name.get(part.guest.node)) is not None:
        node = home.index
    return (Position(node, part.cores, part.memory, 1),)


def moves_of(board: Board, legs: Sequence[Leg]) -> tuple[tuple[Move, ...], tuple[Creation, ...]]:
    """Return the legs as moves and creations. Creations have the higher ids."""
    moving = [leg for leg in legs if leg.parts[0].guest is not None]
    making = [leg for leg in legs if leg.parts[0].guest is None]
    ids = {leg.number: position for position, leg in enumerate((*moving, *making), start=1)}
    moves = tuple(_move(board, leg, ids) for leg in moving)
    creations = tuple(
        Creation(ids[leg.number], _decision(board, leg), tuple(sorted(ids[n] for n in leg.after))) for leg in making
    )
    return moves, creations


def _move(board: Board, leg: Leg, ids: Mapping[int, int]) -> Move:
    """Return the move of a leg. ids are the numbers of all moves by those of their legs."""
    target = board.nodes[leg.target].name
    lead = next((part for part in leg.parts if part.guest is not None and part.guest.node != target), leg.parts[0])
    guest, mobility = lead.guest, lead.mobility
    if guest is None:
        raise ValueError("a move has a guest")
    others = tuple(sorted(part.vmid for part in leg.parts if part is not lead))
    copied = sum(part.bytes_to(target) for part in leg.parts)
    sizes = Counter[str]()
    for part in leg.parts:
        sizes.update({disk.slot: disk.size for disk in part.mobility.disks} if part.bytes_to(target) else {})
    memory = sum(part.memory for part in leg.parts if part.mobility.how_to(target) == LIVE)
    source = next((each.node for each in leg.sources if each.node != leg.target), leg.target)
    return Move(
        id=ids[leg.number],
        vmid=lead.vmid,
        name=guest.name or "",
        source=board.nodes[source].name,
        target=target,
        why=leg.why,
        kind=guest.kind,
        after=tuple(sorted(ids[number] for number in leg.after)),
        how=mobility.how_to(target),
        via=HA if others else mobility.via,
        cores=round(leg.cores, 6),
        memory=leg.memory,
        storages={slot: name for part in leg.parts for slot, name in _storages(board, part, target).items()},
        # Disks without a size are left out.
        sizes=dict(+sizes),
        copied=copied,
        together=others,
        estimate=round(SECONDS_PER_MOVE + (memory + copied) / BYTES_PER_SECOND, 1),
    )


def _storages(board: Board, part: Part, target: str) -> dict[str, str]:
    """Return the target storage of each disk that the move copies, by slot."""
    draft = board.drafts.get(part.vmid)
    if draft is None or draft.node != target:
        return {}
    chosen = {disk.storage: draft.storages[disk.slot] for disk in part.copied}
    return {disk.slot: chosen[disk.storage] for disk in part.mobility.disks}


def _decision(board: Board, leg: Leg) -> Decision:
    part, node = leg.parts[0], board.nodes[leg.target].name
    draft = board.drafts.get(part.vmid)
    if draft is None or draft.node != node:
        draft = Draft(part.request, node, 0.0, part.vmid)
    return replace(draft.decision(), score=leg.score)


def order_legs(board: Board, legs: Sequence[Leg], start: Sequence[tuple[float, float]]) -> None:
    """Set which legs each leg waits for."""
    put_in_order(legs, start, Relations([rule.vmids for rule in board.state.snapshot.ha_rules if not rule.disabled]))
    _keep_limits(board, legs)
    shorten(legs)


def _keep_limits(board: Board, legs: Sequence[Leg]) -> None:
    """Make legs wait where a limit other than CPU and memory needs it, such as the number of guests on a node.

    A leg must be allowed with everything on its target that may still be there or may already have arrived. If it is
    not, it waits for all that leaves the target before it, and all that arrives later waits for it.
    """
    board.undo(0)
    for leg in legs:
        item = board.item_of[leg.parts[0].vmid]
        if board.node_of(item) == leg.target:
            continue
        behind = ancestors(legs)
        there = [
            other
            for other in legs[: leg.number]
            if other.number not in behind[leg.number] and any(source.node == leg.target for source in other.sources)
        ]
        coming = [
            other for other in legs[leg.number + 1 :]
            if other.target == leg.target and leg.number not in behind[other.number]
        ]  # fmt: skip
        beside = [part for other in (*there, *coming) for part in other.parts if part not in item.parts]
        if beside and board.is_forbidden(item, leg.target, beside):
            leg.after.update(other.number for other in there)
            for other in coming:
                other.after.add(leg.number)
        board.move(item, leg.target, leg.why)


def courses(board: Board, legs: Sequence[Leg], start: Sequence[Load]) -> dict[str, NodeCourse]:
    """Return the load before, at the peak and after, for every node that the plan touches."""
    found: dict[str, NodeCourse] = {}
    for node in sorted({leg.target for leg in legs} | {source.node for leg in legs for source in leg.sources}):
        coming = [Position(node, leg.cores, leg.memory, leg.guests) for leg in legs if leg.target == node]
        leaving = [source for leg in legs for source in leg.sources if source.node == node]
        host, policy = board.nodes[node].node, board.reach.policy
        highest, before = peaks(legs, node), start[node]
        found[board.nodes[node].name] = NodeCourse(
            allocatable=Load(policy.cpu.allocatable(host), int(policy.memory.allocatable(host)), 0),
            before=before,
            peak=Load(before.cores + highest.cores, before.memory + highest.memory, before.guests + highest.guests),
            after=Load(
                round(before.cores + sum(e.cores for e in coming) - sum(e.cores for e in leaving), 6),
                before.memory + sum(e.memory for e in coming) - sum(e.memory for e in leaving),
                before.guests + sum(e.guests for e in coming) - sum(e.guests for e in leaving),
            ),
        )
    return found


def loads(board: Board) -> list[Load]:
    """Return what is allocated on each node now."""
    return [
        Load(round(cpu, 6), int(memory), len(info.guests))
        for cpu, memory, info in zip(board.cpu, board.memory, board.nodes, strict=True)
    ]
