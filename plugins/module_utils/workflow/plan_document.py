# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as a document: written as JSON, read back only if it is whole, and told from every other by its digest."""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..engine.texts import hint
from ..errors import InvalidRequest
from ..plans import API, HA, LIVE, OFFLINE, RESTART, Load, Move, NodeCourse, Plan, Stuck
from .premises import GuestPremise, Premises

VERSION = 1
"""The version of the documents that are written, and the only one that is read."""

FORMAT = "qemu_scheduler.proxmox plan"

LARGEST = 64 * 1024**2
"""Bytes that a file with a plan may have: one of 10,000 moves has 5 MiB."""

Check = Callable[[str, t.Any], t.Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a document: the attribute that it holds, and how a value is checked; check may convert it.

    write turns the attribute into what JSON has for it.
    """

    attribute: str
    check: Check
    write: Callable[[t.Any], t.Any] = lambda value: value


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """A plan with what it assumes, as it was read."""

    plan: Plan
    premises: Premises
    digest: str


# --- what values may be -----------------------------------------------------------------------------------------------


def _fail(where: str, value: t.Any, expected: str) -> InvalidRequest:
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return InvalidRequest(f"{where}: {shown} is not possible, expected {expected}")


def _text(where: str, value: t.Any) -> str:
    if not isinstance(value, str):
        raise _fail(where, value, "a text")
    return value


def _flag(where: str, value: t.Any) -> bool:
    if not isinstance(value, bool):
        raise _fail(where, value, "true or false")
    return value


def _whole(where: str, value: t.Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise _fail(where, value, "a whole number that is not negative")
    return value


def _number(where: str, value: t.Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**63:
        raise _fail(where, value, "a number that is not negative")
    return value


def _one_of(*choices: str) -> Check:
    def check(where: str, value: t.Any) -> str:
        if value not in choices:
            raise _fail(where, value, f"one of {', '.join(choices)}")
        return str(value)

    return check


def _optional(check: Check) -> Check:
    return lambda where, value: None if value is None else check(where, value)


def _list_of(check: Check) -> Check:
    def checked(where: str, value: t.Any) -> tuple[t.Any, ...]:
        if not isinstance(value, list):
            raise _fail(where, value, "a list")
        return tuple(check(f"{where}[{index}]", item) for index, item in enumerate(value))

    return checked


def _map_of(check: Check, key: Callable[[str], t.Any] = str) -> Check:
    def checked(where: str, value: t.Any) -> dict[t.Any, t.Any]:
        if not isinstance(value, Mapping):
            raise _fail(where, value, "a mapping")
        try:
            return {key(name): check(f"{where}.{name}", item) for name, item in value.items()}
        except ValueError as error:
            raise _fail(where, list(value), "VMIDs as keys") from error

    return checked


def _record(kind: type, keys: Mapping[str, Key]) -> Check:
    """A check that makes an object of kind from a mapping that has exactly these keys."""

    def checked(where: str, value: t.Any) -> t.Any:
        if not isinstance(value, Mapping):
            raise _fail(where, value, "a mapping")
        for name in keys:
            if name not in value:
                raise InvalidRequest(f"{where}.{name}: is missing")
        for name in value:
            if name not in keys:
                raise InvalidRequest(
                    f"{where}.{name}: is not a key of this version; known: {', '.join(keys)}{hint(keys, str(name))}"
                )
        return kind(**{key.attribute: key.check(f"{where}.{name}", value[name]) for name, key in keys.items()})

    return checked


def _written(keys: Mapping[str, Key]) -> Callable[[t.Any], dict[str, t.Any]]:
    return lambda value: {name: key.write(getattr(value, key.attribute)) for name, key in keys.items()}


def _each(write: Callable[[t.Any], t.Any]) -> Callable[[t.Any], t.Any]:
    return lambda values: [write(value) for value in values]


def _values(write: Callable[[t.Any], t.Any]) -> Callable[[t.Any], t.Any]:
    return lambda values: {str(key): write(value) for key, value in values.items()}


# --- the schema -------------------------------------------------------------------------------------------------------

LOAD = {
    "cores": Key("cores", _number),
    "memory": Key("memory", _whole),
    "guests": Key("guests", _whole),
}

NODE = {name: Key(name, _record(Load, LOAD), _written(LOAD)) for name in ("allocatable", "before", "peak", "after")}

MOVE = {
    "id": Key("id", _whole),
    "vmid": Key("vmid", _whole),
    "name": Key("name", _text),
    "type": Key("kind", _one_of("qemu", "lxc")),
    "from": Key("source", _text),
    "to": Key("target", _text),
    "why": Key("why", _text),
    "after": Key("after", _list_of(_whole), list),
    "how": Key("how", _one_of(LIVE, OFFLINE, RESTART)),
    "via": Key("via", _one_of(API, HA)),
    "memory": Key("memory", _whole),
    "storages": Key("storages", _map_of(_text), dict),
    "copied": Key("copied", _whole),
    "together": Key("together", _list_of(_whole), list),
    "estimate": Key("estimate", _number),
}

STUCK = {name: Key(name, _whole if name == "vmid" else _text) for name in ("vmid", "name", "node", "why", "cure")}

GUEST = {
    "name": Key("name", _text),
    "node": Key("node", _text),
    "running": Key("running", _flag),
    "cores": Key("cores", _number),
    "memory": Key("memory", _whole),
}

PREMISES = {
    "cluster": Key("cluster", _text),
    "guests": Key("guests", _map_of(_record(GuestPremise, GUEST), int), _values(_written(GUEST))),
}

PLAN = {
    "goal": Key("goal", _text),
    "feasible": Key("feasible", _flag),
    "optimal": Key("optimal", _optional(_flag)),
    "moves_lower_bound": Key("moves_lower_bound", _optional(_whole)),
    "impossible": Key("impossible", _optional(_flag)),
    "moves": Key("moves", _list_of(_record(Move, MOVE)), _each(_written(MOVE))),
    "stuck": Key("stuck", _list_of(_record(Stuck, STUCK)), _each(_written(STUCK))),
    "nodes": Key("nodes", _map_of(_record(NodeCourse, NODE)), _values(_written(NODE))),
}

OUTER = ("format", "version", "digest", "assumes")
"""The keys beside those of the plan itself."""


# --- writing and reading ----------------------------------------------------------------------------------------------


def document_of(plan: Plan, premises: Premises) -> dict[str, t.Any]:
    """Return the document of a plan, as JSON has it."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        **_written(PLAN)(plan),
        "assumes": _written(PREMISES)(premises),
    }
    return {**document, "digest": digest_of(document)}


def digest_of(document: Mapping[str, t.Any]) -> str:
    """Return what tells a document from every other, whatever its spacing and the order of its keys."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def plan_of(document: t.Any, where: str) -> PlanDocument:
    """Return the plan that a document holds. where stands before the keys in messages.

    Raises InvalidRequest, which names the key: for another format or version, a key that is missing, unknown or of the
    wrong type, moves that wait for each other, and a digest that is not the document's.
    """
    if not isinstance(document, Mapping):
        raise _fail(where, document, "a plan")
    if document.get("format") != FORMAT:
        raise InvalidRequest(f"{where}: is no plan of this collection: format is not {FORMAT!r}")
    if document.get("version") != VERSION:
        raise _fail(f"{where}.version", document.get("version"), f"{VERSION}; make the plan again")
    for key in OUTER:
        if key not in document:
            raise InvalidRequest(f"{where}.{key}: is missing")
    plan: Plan = _record(Plan, PLAN)(where, {key: value for key, value in document.items() if key not in OUTER})
    premises: Premises = _record(Premises, PREMISES)(f"{where}.assumes", document["assumes"])
    _check_order(plan, where)
    unknown = sorted({move.vmid for move in plan.moves} - premises.guests.keys())
    if unknown:
        raise InvalidRequest(f"{where}.assumes.guests: lacks {unknown[0]}, which is moved")
    if document["digest"] != digest_of(document):
        raise InvalidRequest(f"{where}.digest: is not that of the plan, which was changed after it was made")
    return PlanDocument(plan, premises, str(document["digest"]))


def read_plan(path: str, option: str) -> PlanDocument:
    """Return the plan in a file. Raises InvalidRequest, which names the option."""
    try:
        file = Path(path).expanduser()
        if file.stat().st_size > LARGEST:
            raise InvalidRequest(f"{option}: {path} is too large for a plan")
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise InvalidRequest(f"{option}: cannot read {path!r}: {reason}") from error
    return plan_of(document, option)


def _check_order(plan: Plan, where: str) -> None:
    """Raise InvalidRequest unless every move waits only for moves that are there, and none for itself."""
    waits = {move.id: set(move.after) for move in plan.moves}
    if len(waits) != len(plan.moves):
        raise InvalidRequest(f"{where}.moves: two have the same id")
    for move in plan.moves:
        unknown = sorted(waits[move.id] - waits.keys())
        if unknown:
            raise InvalidRequest(f"{where}.moves: {move.id} waits for {unknown[0]}, which there is not")
    while waits:
        free = {number for number, after in waits.items() if not after & waits.keys()}
        if not free:
            raise InvalidRequest(f"{where}.moves: {sorted(waits)} wait for each other")
        waits = {number: after for number, after in waits.items() if number not in free}
