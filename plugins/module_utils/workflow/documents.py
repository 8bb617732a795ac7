# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents: JSON files that are written atomically, read only if every key is valid, and identified by a digest."""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..engine.texts import hint, shorten
from ..errors import InvalidRequest
from ..files import read_text, reason_of
from ..secret_options import quote

VERSION = 2
"""The version of the documents that are written, and the only one that is read."""

LARGEST = 64 * 1024**2
"""Bytes that a file with a document may have: a plan of 10,000 moves has 5 MiB."""

SEAL = ("format", "version", "digest")
"""The keys that every document has."""

Schema = Mapping[str, t.Any]
"""A JSON Schema."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a value. read takes the name of the value for messages, and the value; it returns the value, converted
    if necessary, or raises InvalidRequest. schema says the same to other programs.
    """

    read: Callable[[str, t.Any], t.Any]
    schema: Schema

    def __call__(self, where: str, value: t.Any) -> t.Any:
        return self.read(where, value)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a document: the attribute that it holds, and how a value is checked; check may convert it.

    write turns the attribute into what JSON has for it. A document does not have the key if the attribute is left_out.
    """

    attribute: str
    check: Check
    write: Callable[[t.Any], t.Any] = lambda value: value
    left_out: t.Any = None


# --- whole documents --------------------------------------------------------------------------------------------------


def seal(kind: str, body: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the document with its format, version and digest."""
    document = {"format": kind, "version": VERSION, **body}
    return {**document, "digest": digest_of(document)}


def digest_of(document: Mapping[str, t.Any]) -> str:
    """Return the digest of a document, which does not depend on spacing and the order of keys."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def unseal(document: t.Any, kind: str, where: str) -> dict[str, t.Any]:
    """Return the body of a document. Raises InvalidRequest for another format or version, and without a digest."""
    if not isinstance(document, Mapping):
        raise wrong(where, document, "a plan")
    if document.get("format") != kind:
        found = shorten(repr(document.get("format")))
        raise InvalidRequest(f"{where}: is not a plan for this module: format is {found}, expected {kind!r}")
    if document.get("version") != VERSION:
        raise wrong(f"{where}.version", document.get("version"), f"{VERSION}; make the plan again")
    if "digest" not in document:
        raise InvalidRequest(f"{where}.digest: is missing")
    return {key: value for key, value in document.items() if key not in SEAL}


def check_digest(document: Mapping[str, t.Any], where: str) -> None:
    """Raise InvalidRequest if the digest does not match the document."""
    if document["digest"] != digest_of(document):
        raise InvalidRequest(
            f"{where}.digest: does not match: the plan was changed after it was made; make the plan again"
        )


def read_document(source: t.Any, option: str) -> t.Any:
    """Return the document that an option contains, also as JSON text, or that is in the file which it names.

    Raises InvalidRequest, which names the option.
    """
    if not isinstance(source, str):
        return source
    try:
        text = source if source.lstrip().startswith("{") else read_text(source, LARGEST)
    except (OSError, ValueError, RuntimeError) as error:
        shown = shorten(quote(option, source))
        raise InvalidRequest(f"{option}: cannot read {shown}: {reason_of(error)}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{option}: cannot read {shorten(quote(option, source))}: it is not JSON") from error


def document_schema(kind: str, keys: Mapping[str, Key]) -> dict[str, t.Any]:
    """Return the JSON Schema of a document with these keys. It says nothing about what the values have in common."""
    body = keys_schema(keys)
    seal_schema = {
        "format": {"const": kind},
        "version": {"const": VERSION},
        "digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
    }
    return {**body, "properties": {**seal_schema, **body["properties"]}, "required": [*SEAL, *body["required"]]}


def keys_schema(keys: Mapping[str, Key]) -> dict[str, t.Any]:
    """Return the JSON Schema of a mapping that has these keys and no others."""
    return {
        "type": "object",
        "properties": {name: dict(key.check.schema) for name, key in keys.items()},
        "required": [name for name, key in keys.items() if key.left_out is None],
        "additionalProperties": False,
    }


# --- what values may be -----------------------------------------------------------------------------------------------


def wrong(where: str, value: t.Any, expected: str) -> InvalidRequest:
    """Return the error for an invalid value."""
    return InvalidRequest(f"{where}: {shorten(repr(value), 57)} is not possible, expected {expected}")


def _text(where: str, value: t.Any) -> str:
    if not isinstance(value, str):
        raise wrong(where, value, "a text")
    return value


def _flag(where: str, value: t.Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(where, value, "true or false")
    return value


def _count(where: str, value: t.Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise wrong(where, value, "a whole number that is not negative")
    return value


def _number(where: str, value: t.Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**63:
        raise wrong(where, value, "a number that is not negative")
    return value


a_text = Check(_text, {"type": "string"})
a_flag = Check(_flag, {"type": "boolean"})
a_count = Check(_count, {"type": "integer", "minimum": 0})
a_number = Check(_number, {"type": "number", "minimum": 0})
anything = Check(lambda _where, value: value, {})


def one_of(*choices: str) -> Check:
    """Return a check for one of these words."""

    def check(where: str, value: t.Any) -> str:
        if value not in choices:
            raise wrong(where, value, f"one of {', '.join(choices)}")
        return str(value)

    return Check(check, {"enum": list(choices)})


def optional(check: Check) -> Check:
    """Return a check that also lets null pass."""
    return Check(
        lambda where, value: None if value is None else check(where, value),
        {"anyOf": [dict(check.schema), {"type": "null"}]},
    )


def list_of(check: Check) -> Check:
    """Return a check for a list, each item of which passes check; it returns a tuple."""

    def check_items(where: str, value: t.Any) -> tuple[t.Any, ...]:
        if not isinstance(value, list):
            raise wrong(where, value, "a list")
        return tuple(check(f"{where}[{index}]", item) for index, item in enumerate(value))

    return Check(check_items, {"type": "array", "items": dict(check.schema)})


def map_of(check: Check, key: Callable[[str], t.Any] = str, keys: str = "texts") -> Check:
    """Return a check for a mapping, each value of which passes check. key converts a key, or refuses it with ValueError
    where keys, in words, were expected.
    """

    def check_mapping(where: str, value: t.Any) -> dict[t.Any, t.Any]:
        if not isinstance(value, Mapping):
            raise wrong(where, value, "a mapping")
        try:
            return {key(name): check(f"{where}.{name}", item) for name, item in value.items()}
        except ValueError as error:
            raise wrong(where, list(value), f"{keys} as keys") from error

    return Check(check_mapping, {"type": "object", "additionalProperties": dict(check.schema)})


def record(kind: type, keys: Mapping[str, Key]) -> Check:
    """Return a check that makes an object of kind from a mapping that has these keys and no others."""

    def make_record(where: str, value: t.Any) -> t.Any:
        if not isinstance(value, Mapping):
            raise wrong(where, value, "a mapping")
        for name, key in keys.items():
            if name not in value and key.left_out is None:
                raise InvalidRequest(f"{where}.{name}: is missing")
        for name in value:
            if name not in keys:
                raise InvalidRequest(
                    f"{where}.{name}: is not a key of this version; known: {', '.join(keys)}{hint(keys, str(name))}"
                )
        found = {key.attribute: key.left_out for name, key in keys.items() if name not in value}
        there = ((name, key) for name, key in keys.items() if name in value)
        return kind(**found, **{key.attribute: key.check(f"{where}.{name}", value[name]) for name, key in there})

    return Check(make_record, keys_schema(keys))


def writer_of(keys: Mapping[str, Key]) -> Callable[[t.Any], dict[str, t.Any]]:
    """Return a function that converts an object to a mapping with these keys, as record reads it."""

    def write(value: t.Any) -> dict[str, t.Any]:
        attributes = {name: getattr(value, key.attribute) for name, key in keys.items()}
        return {
            name: keys[name].write(attribute)
            for name, attribute in attributes.items()
            if keys[name].left_out is None or attribute != keys[name].left_out
        }

    return write


def each_written(write: Callable[[t.Any], t.Any]) -> Callable[[t.Any], t.Any]:
    """Return a function that converts a list of objects, each with write."""
    return lambda values: [write(value) for value in values]


def values_written(write: Callable[[t.Any], t.Any]) -> Callable[[t.Any], t.Any]:
    """Return a function that converts the values of a mapping, each with write."""
    return lambda values: {str(key): write(value) for key, value in values.items()}
