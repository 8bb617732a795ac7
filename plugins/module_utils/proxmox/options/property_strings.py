# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Property strings, such as C(virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1), as users and Proxmox write them.

A kind defines its properties. Parsing converts each to a normal form, so that values with the same meaning are equal.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...engine.texts import hint
from ...errors import InvalidRequest
from .values import boolean, check_length, invalid, number, such_as


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a kind.

    Attributes:
        type: string, boolean, integer, number, set (parts separated by semicolons, in any order) or mac.
        default: what Proxmox assumes when the property is absent; None if that is not a fixed value.
        generated: whether Proxmox generates a value when the property is absent.
        pattern, valid: the value must match pattern in full and satisfy valid.
        expected: both conditions in words, for errors.
        longest: the most characters that Proxmox takes; None without such a limit.
        switch: the choices that false and true stand for, as YAML reads an unquoted C(on) as a boolean.
    """

    type: str = "string"
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    default: str | None = None
    generated: bool = False
    pattern: str | None = None
    valid: Callable[[str], bool] | None = None
    expected: str = ""
    switch: tuple[str, str] | None = None
    longest: int | None = None

    def normalize(self, option: str, value: t.Any) -> str:
        """Return the normal form of a value. Raises InvalidRequest."""
        if self.type == "boolean":
            truth = boolean(value)
            if truth is None:
                raise invalid(option, value, "a boolean")
            return str(int(truth))
        if self.type in ("integer", "number"):
            return number(option, value, self.minimum, self.maximum, whole=self.type == "integer")
        if self.type == "set":
            parts = value if isinstance(value, list | tuple) else str(value).split(";")
            text = ";".join(sorted({str(part).strip() for part in parts} - {""}))
        else:
            text = str(value).strip()
        if self.type == "mac":
            text = text.upper()
        if self.switch and (truth := boolean(text)) is not None:
            text = self.switch[truth]
        if self.choices and text not in self.choices:
            raise invalid(option, value, f"one of {', '.join(self.choices)}{hint(self.choices, text)}")
        if "," in text or not text or (self.pattern and not re.fullmatch(self.pattern, text, re.ASCII)):
            raise invalid(option, value, self.expected or "a text without commas")
        if self.valid is not None and not self.valid(text):
            raise invalid(option, value, self.expected)
        if self.longest is not None:
            check_length(option, text, self.longest)
        return text


@dataclass(frozen=True, slots=True)
class PropertyKind:
    """The syntax of one kind of property string.

    default_key is the property whose name may be left out. aliases maps other names to properties. paired has two
    properties that may be written as one, the value of the first as the name: C(virtio=MAC) means model=virtio and
    macaddr=MAC. example is a string as users write it, for errors.
    """

    name: str
    properties: Mapping[str, Property]
    default_key: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    paired: tuple[str, str] | None = None
    example: str = ""

    def parse(self, option: str, text: str) -> dict[str, str]:
        """Return the properties of a string in their normal form. Raises InvalidRequest.

        One part may lack the key, and has the default one then.
        """
        given: list[tuple[str, str]] = []
        for part in filter(str.strip, text.split(",")):
            key, equals, value = part.strip().partition("=")
            if not equals:
                # Such as the second half of a number with a comma.
                taken = (self.default_key, *(self.properties[self.paired[0]].choices if self.paired else ()))
                if self.default_key is None or not dict(given).keys().isdisjoint(taken):
                    raise invalid(option, part.strip(), f"key=value{such_as(self.example)}")
                key, value = self.default_key, key
            given.append((key, value))
        return self._collect(option, given)

    def read(self, text: str) -> dict[str, str]:
        """Return the properties of a string in a config. Unknown properties are kept as they are."""
        properties: dict[str, str] = {}
        for part in filter(str.strip, text.split(",")):
            try:
                properties.update(self.parse("", part))
            except InvalidRequest:
                key, _equals, value = part.strip().partition("=")
                properties[key] = value
        return properties

    def of(self, option: str, value: t.Any, also: tuple[str, ...] = ()) -> dict[str, str]:
        """Return the properties of a value given as a string, a mapping or a single scalar.

        Raises InvalidRequest. also are further keys that the caller accepts, for the text of the error.
        """
        if isinstance(value, Mapping):
            return self._collect(option, [(str(key), each) for key, each in value.items() if each is not None], also)
        if isinstance(value, list):
            raise invalid(option, value, f"a string or a mapping of properties{such_as(self.example)}")
        return self.parse(option, str(value))

    def format(self, properties: Mapping[str, str]) -> str:
        """Return the property string: the default property first, the others by name."""
        rest = dict(properties)
        parts = []
        if self.paired and all(key in rest for key in self.paired):
            name, value = self.paired
            parts.append(f"{rest.pop(name)}={rest.pop(value)}")
        elif self.default_key in rest:
            parts.append(rest.pop(self.default_key))
        return ",".join([*parts, *(f"{key}={rest[key]}" for key in sorted(rest))])

    def keep_generated(self, wanted: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
        """Return the wanted properties, and those current ones that Proxmox generated and the request does not set."""
        kept = {
            key: value for key, value in current.items() if key in self.properties and self.properties[key].generated
        }
        return {**kept, **wanted}

    def same(self, wanted: Mapping[str, str], current: Mapping[str, str]) -> bool:
        """Whether both mean the same to Proxmox."""
        defaults = {key: each.default for key, each in self.properties.items() if each.default is not None}
        return {**defaults, **self.keep_generated(wanted, current)} == {**defaults, **current}

    def _collect(self, option: str, given: list[tuple[str, t.Any]], also: tuple[str, ...] = ()) -> dict[str, str]:
        """Return the properties in the form in which they are compared. Raises InvalidRequest.

        A key is the name of a property or its alias, or stands for a pair, such as the model and MAC of a card.
        """
        properties: dict[str, str] = {}
        for key, value in given:
            spellings = (self.aliases.get(name, name) for name in (key, key.replace("_", "-")))
            named = next((name for name in spellings if name in self.properties), None)
            if named is not None:
                found = [(named, value)]
            elif self.paired and key in self.properties[self.paired[0]].choices:
                found = [(self.paired[0], key), (self.paired[1], value)]
            else:
                raise self._unknown(option, key, value, also)
            for name, each in found:
                if name in properties:
                    raise InvalidRequest(f"{option}: {name!r} is given twice", option=option)
                properties[name] = self.properties[name].normalize(f"{option}.{name}", each)
        return properties

    def _unknown(self, option: str, key: str, value: t.Any, also: tuple[str, ...]) -> InvalidRequest:
        names = sorted({*self.properties, *also})
        known = f"{', '.join(names)}{such_as(self.example)}{hint(names, key)}"
        return invalid(option, f"{key}={value}", f"properties of {self.name}: {known}")
