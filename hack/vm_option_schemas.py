# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON Schemas of the options of VMs, from the table that checks them.

A schema refuses only what the table refuses. It accepts more: what depends on other options or on the cluster.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PLUGINS = "ansible_collections.qemu_scheduler.proxmox.plugins"
OPTIONS = f"{PLUGINS}.module_utils.proxmox.options"

conversions = importlib.import_module(f"{OPTIONS}.conversions")
drives = importlib.import_module(f"{OPTIONS}.drives")
table = importlib.import_module(f"{OPTIONS}.table")
values = importlib.import_module(f"{OPTIONS}.values")
choice = importlib.import_module(f"{PLUGINS}.module_utils.engine.vmids.choice")

Schema = dict[str, Any]

CHARACTER = r"([A-Za-z0-9]|\{n(:0[1-9])?\})"
LABEL = rf"{CHARACTER}(({CHARACTER}|-)*{CHARACTER})?"
"""A part of a name. A number may stand for a character."""

TEMPLATE: Schema = {"type": "string", "pattern": r"\{[{%]"}
"""What may stand for another value in a file of variables."""

OF_A_DRIVE = dict.fromkeys(("storage", "storage_class", "remove"))
"""The keys of a drive that are no properties of Proxmox."""

VOLUME = (
    r"([A-Za-z][\w.-]*:(?!\d+(\.\d+)?[KMGTkmgt]i?[Bb]?\s*(,|$))[^\s,=]+|:?\d+(\.\d+)?|:?cloudinit|none|cdrom|/[^,=]*)"
)
"""A drive as a text, without its properties: a new volume of a size without a unit, or one that exists."""


def known_schemas() -> dict[str, Schema]:
    """The schemas of options of which more than the type is known, by option."""
    found = {each.name: _of_option(each) for each in table.VM_OPTIONS}
    return {
        **{key: schema for key, schema in found.items() if schema is not None},
        "count": _number(0, None, whole=True),
        "vmid": _number(choice.VMID_MIN, choice.VMID_MAX, whole=True),
        "vmid_range": {"anyOf": [{"type": "string", "pattern": r"^[\d\s,-]*$"}, {"type": "integer"}, TEMPLATE]},
        "name": {"anyOf": [{"type": "string", "pattern": rf"^{LABEL}(\.{LABEL})*$"}, {"type": "integer"}, TEMPLATE]},
    }


def numbered() -> list[Schema]:
    """That a name has a place for a number if, and only if, the VM has a count."""
    place = {"name": {"type": "string", "pattern": r"\{n(:0[1-9])?\}", "not": TEMPLATE}}
    given = {"required": ["count"], "properties": {"count": {"not": {"type": "null"}}}}
    return [
        {"if": given, "then": {"properties": {"name": {"pattern": r"\{n|\{[{%]"}}}},
        {"if": {"properties": place, "required": ["name"]}, "then": {"required": ["count"]}},
    ]


def or_null(schema: Schema) -> Schema:
    """The schema of an option that may be there without a value, which is the same as without the option."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "type" in schema:
        kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        return {**schema, "type": [*kinds, "null"]}
    return schema


def _of_option(option: Any) -> Schema | None:
    value = _of_conversion(option.name, option.conversion)
    if not option.count:
        return value
    numbers = "|".join(map(str, range(option.count)))
    return {
        "type": ["object", "string"],
        "patternProperties": {f"^{option.api}({numbers})$": value or {}},
        "additionalProperties": False,
    }


def _of_conversion(name: str, conversion: Any) -> Schema | None:
    if isinstance(conversion, conversions.Number):
        return _number(conversion.minimum, conversion.maximum, conversion.whole)
    if isinstance(conversion, conversions.Tags):
        return _words(r"^\s*[A-Za-z0-9_][A-Za-z0-9_+.-]*\s*$")
    if isinstance(conversion, conversions.Words):
        return _words(r"^\s*[^\s,;]+\s*$")
    if isinstance(conversion, conversions.Drives):
        return _properties(drives.kind_of(name), OF_A_DRIVE, VOLUME) if conversion.suboptions is None else None
    if isinstance(conversion, conversions.Properties):
        return _properties(conversion.kind)
    if isinstance(conversion, conversions.Text) and conversion.empty is None:
        pattern = rf"^\s*({conversion.pattern})?\s*$"
        return {"anyOf": [{"type": "string", "pattern": pattern}, {"type": ["number", "boolean"]}, TEMPLATE]}
    return None


def _number(minimum: float | None, maximum: float | None, whole: bool) -> Schema:
    limits = {key: each for key, each in (("minimum", minimum), ("maximum", maximum)) if each is not None}
    text = r"^\s*\d+(\.0*)?\s*$" if whole else r"^\s*\d+(\.\d*)?\s*$"
    number = {"type": "integer" if whole else "number", **limits}
    return {"anyOf": [number, {"type": "string", "pattern": text}, TEMPLATE]}


def _words(pattern: str) -> Schema:
    item = {"anyOf": [{"type": "string", "pattern": pattern}, {"type": "integer"}, TEMPLATE]}
    return {"type": ["array", "string"], "items": item}


def _properties(kind: Any, also: Mapping[str, Any] = MappingProxyType({}), bare: str = "[^,=]*") -> Schema:
    """A property string, or a mapping of properties."""
    keys = {**kind.properties, **{alias: kind.properties.get(name) for alias, name in kind.aliases.items()}}
    keys |= {key.replace("-", "_"): each for key, each in keys.items()}
    if kind.paired:
        model, of_model = kind.paired
        keys |= dict.fromkeys(kind.properties[model].choices, kind.properties[of_model])
    parts = [rf"{_literal(key)}\s*=\s*{_value_pattern(each)}" for key, each in sorted(keys.items())]
    if kind.default_key:
        parts.append(_value_pattern(kind.properties[kind.default_key], bare))
    part = rf"\s*(?:{'|'.join(parts)})\s*"
    mapping = {key: _value_schema(each) for key, each in sorted({**keys, **also}.items())}
    text = {"type": "string", "pattern": rf"^(?:{part}|\s*)(?:,(?:{part}|\s*))*$"}
    return {
        "anyOf": [
            text,
            {"type": "object", "properties": mapping, "additionalProperties": False},
            {"type": ["number", "boolean", "null"]},
            TEMPLATE,
        ]
    }


def _literal(text: str) -> str:
    """A text in a pattern. Editors refuse some of what re.escape() escapes."""
    return re.sub(r"[.+*?()|\[\]{}^$\\]", r"\\\g<0>", text)


def _value_pattern(of_property: Any, any_text: str = "[^,]*") -> str:
    if of_property.choices and not of_property.switch:
        return rf"(?:{'|'.join(map(_literal, of_property.choices))})"
    if of_property.type == "integer":
        return r"-?\d+(?:\.0*)?"
    if of_property.type == "mac":
        return r"[0-9A-Fa-f][02468ACEace](?::[0-9A-Fa-f]{2}){5}"
    if of_property.expected == values.SIZES:
        return r"\d+(?:\.\d+)?[KMGTkmgt]?"
    if of_property.type == "string" and of_property.pattern and "(?!" not in of_property.pattern:
        return rf"(?:{of_property.pattern.replace('{,', '{0,')})"
    return any_text


def _value_schema(of_property: Any) -> Schema:
    if of_property is None:
        return {}
    if of_property.type in ("integer", "number"):
        number = _number(of_property.minimum, of_property.maximum, of_property.type == "integer")
        return {"anyOf": [*number["anyOf"], {"type": "null"}]}
    pattern = _value_pattern(of_property, "")
    if not pattern:
        return {}
    text = {"type": "string", "pattern": rf"^\s*{pattern}\s*$"}
    return {"anyOf": [text, {"type": ["number", "boolean", "null"]}, TEMPLATE]}
