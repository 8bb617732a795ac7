# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan of moves as a document."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InvalidRequest
from ...model import Identity
from ...plans import API, HA, LIVE, OFFLINE, RESTART, Load, Move, NodeCourse, Plan, Stuck
from ...proxmox.identity import SCHEMA as IDENTITY_SCHEMA
from ...proxmox.identity import as_json as identity_as_json
from ...proxmox.identity import from_json as identity_from_json
from ..documents import (
    Check,
    Key,
    a_count,
    a_flag,
    a_number,
    a_text,
    check_digest,
    each_written,
    list_of,
    map_of,
    one_of,
    optional,
    read_document,
    record,
    seal,
    unseal,
    values_written,
    writer_of,
    wrong,
)
from .premises import GuestPremise, Premises

FORMAT = "qemu_scheduler.proxmox plan"
ASSUMES = "assumes"


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """A plan with what it assumes, as it was read."""

    plan: Plan
    premises: Premises
    digest: str


def _identity(where: str, value: t.Any) -> Identity:
    try:
        return identity_from_json(value)
    except ValueError as error:
        raise wrong(where, value, str(error).removeprefix("expected ")) from error


an_identity = Check(_identity, IDENTITY_SCHEMA)


# --- the schema -------------------------------------------------------------------------------------------------------

LOAD = {
    "cores": Key("cores", a_number),
    "memory": Key("memory", a_count),
    "guests": Key("guests", a_count),
}

NODE = {name: Key(name, record(Load, LOAD), writer_of(LOAD)) for name in ("allocatable", "before", "peak", "after")}

MOVE = {
    "id": Key("id", a_count),
    "vmid": Key("vmid", a_count),
    "name": Key("name", a_text),
    "type": Key("kind", one_of("qemu", "lxc")),
    "from": Key("source", a_text),
    "to": Key("target", a_text),
    "why": Key("why", a_text),
    "after": Key("after", list_of(a_count), list),
    "how": Key("how", one_of(LIVE, OFFLINE, RESTART)),
    "via": Key("via", one_of(API, HA)),
    "cores": Key("cores", a_number),
    "memory": Key("memory", a_count),
    "storages": Key("storages", map_of(a_text), dict),
    "sizes": Key("sizes", map_of(a_count), dict),
    "copied": Key("copied", a_count),
    "together": Key("together", list_of(a_count), list),
    "estimate": Key("estimate", a_number),
}

STUCK = {name: Key(name, a_count if name == "vmid" else a_text) for name in ("vmid", "name", "node", "why", "cure")}

GUEST = {
    "name": Key("name", a_text),
    "node": Key("node", a_text),
    "running": Key("running", a_flag),
    "cores": Key("cores", a_number),
    "memory": Key("memory", a_count),
    "identity": Key("identity", an_identity, identity_as_json),
}

PREMISES = {
    "cluster": Key("cluster", a_text),
    "guests": Key("guests", map_of(record(GuestPremise, GUEST), int, "VMIDs"), values_written(writer_of(GUEST))),
}

PLAN = {
    "goal": Key("goal", a_text),
    "feasible": Key("feasible", a_flag),
    "optimal": Key("optimal", optional(a_flag)),
    "moves_lower_bound": Key("moves_lower_bound", optional(a_count)),
    "impossible": Key("impossible", optional(a_flag)),
    "moves": Key("moves", list_of(record(Move, MOVE)), each_written(writer_of(MOVE))),
    "stuck": Key("stuck", list_of(record(Stuck, STUCK)), each_written(writer_of(STUCK))),
    "nodes": Key("nodes", map_of(record(NodeCourse, NODE)), values_written(writer_of(NODE))),
}

_write_plan, _write_premises = writer_of(PLAN), writer_of(PREMISES)

# --- writing and reading ----------------------------------------------------------------------------------------------


def document_of(plan: Plan, premises: Premises) -> dict[str, t.Any]:
    """Return the document of a plan, as JSON has it."""
    return seal(FORMAT, {**_write_plan(plan), ASSUMES: _write_premises(premises)})


def plan_of(document: t.Any, where: str) -> PlanDocument:
    """Return the plan that a document holds. where stands before the keys in messages.

    Raises InvalidRequest, which names the key: for another format or version, a key that is missing, unknown or of the
    wrong type, moves that wait for each other, and a digest that is not the document's.
    """
    body = unseal(document, FORMAT, where)
    premises = take_premises(body, where)
    plan: Plan = record(Plan, PLAN)(where, body)
    check_moves(plan.moves, premises, where)
    check_digest(document, where)
    return PlanDocument(plan, premises, str(document["digest"]))


def take_premises(body: dict[str, t.Any], where: str) -> Premises:
    """Remove what a plan assumes from the body of its document, and return it. Raises InvalidRequest."""
    if ASSUMES not in body:
        raise InvalidRequest(f"{where}.{ASSUMES}: is missing")
    premises: Premises = record(Premises, PREMISES)(f"{where}.{ASSUMES}", body.pop(ASSUMES))
    return premises


def read_plan(source: t.Any, option: str) -> PlanDocument:
    """Return the plan that an option holds, or that is in the file which it names.

    Raises InvalidRequest, which names the option.
    """
    return plan_of(read_document(source, option), option)


def check_moves(moves: Sequence[Move], premises: Premises, where: str) -> None:
    """Raise InvalidRequest unless every move waits only for moves that are there, and none for itself, and all that is
    assumed of the guests is there.
    """
    waits = {move.id: set(move.after) for move in moves}
    if len(waits) != len(moves):
        raise InvalidRequest(f"{where}.moves: two have the same id")
    for move in moves:
        unknown = sorted(waits[move.id] - waits.keys())
        if unknown:
            raise InvalidRequest(f"{where}.moves: {move.id} waits for {unknown[0]}, which is not a move of the plan")
    while waits:
        free = {number for number, after in waits.items() if not after & waits.keys()}
        if not free:
            raise InvalidRequest(f"{where}.moves: {sorted(waits)} wait for each other")
        waits = {number: after for number, after in waits.items() if number not in free}
    lacking = sorted({vmid for move in moves for vmid in move.vmids} - premises.guests.keys())
    if lacking:
        raise InvalidRequest(f"{where}.assumes.guests: lacks {lacking[0]}, which is moved")
