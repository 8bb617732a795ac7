# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads mappings that a user wrote. Each mistake is an error that names the option, the value and what was expected."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence

from ...engine.patterns.names import checked_pattern
from ...engine.texts import hint
from ...errors import InvalidRequest
from ...proxmox.options.values import boolean, invalid, number


class Fields:
    """One mapping that a user wrote.

    None counts as not given, as Ansible fills in None for every suboption. All methods raise InvalidRequest.
    """

    def __init__(self, where: str, body: t.Any, known: Collection[str]) -> None:
        """where is how the option is called in messages (C(vms[1].affinity[0])); known are the keys it may have."""
        if not isinstance(body, Mapping):
            raise invalid(where, body, "a mapping")
        unknown = sorted(str(key) for key in body if key not in known)
        if unknown:
            raise InvalidRequest(
                f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}{hint(known, unknown[0])}"
            )
        self.where = where
        self.body = body

    def __contains__(self, key: str) -> bool:
        return self.body.get(key) is not None

    def path(self, key: str) -> str:
        return f"{self.where}.{key}"

    def text(self, key: str) -> str | None:
        """A text that is not empty, or None."""
        return text_of(self.path(key), self.body[key]) if key in self else None

    def needed(self, key: str, expected: str = "a text") -> str:
        """A text that is required and not empty."""
        found = self.text(key)
        if found is None:
            raise InvalidRequest(f"{self.path(key)}: is missing, expected {expected}")
        return found

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of choices; it must be given when there is no default."""
        expected = f"one of {', '.join(choices)}"
        found = self.needed(key, expected) if default is None else self.text(key) or default
        if found not in choices:
            raise invalid(self.path(key), found, expected + hint(choices, found))
        return found

    def flag(self, key: str, default: bool) -> bool:
        if key not in self:
            return default
        found = boolean(self.body[key])
        if found is None:
            raise invalid(self.path(key), self.body[key], "true or false")
        return found

    def whole(self, key: str, minimum: int, maximum: int | None = None, default: int = 1) -> int:
        """A whole number within bounds."""
        if key not in self:
            return default
        return whole_of(self.path(key), self.body[key], minimum, maximum)

    def number(self, key: str, minimum: float = 0.0) -> float | None:
        """A number of at least minimum, or None."""
        return float(number(self.path(key), self.body[key], minimum)) if key in self else None

    def pattern(self, key: str) -> str | None:
        """A regular expression, or None."""
        found = self.text(key)
        if found is not None:
            checked_pattern(self.path(key), found)
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(text_of(where, item) for where, item in listed(self.path(key), self.body.get(key)))

    def maps(self, key: str, known: Collection[str]) -> Iterator[Fields]:
        """The entries of a list of mappings."""
        for where, item in listed(self.path(key), self.body.get(key)):
            yield Fields(where, item, known)


def listed(where: str, value: t.Any) -> Iterator[tuple[str, t.Any]]:
    """Yield each item of a list with its own name; nothing for None."""
    if value is None:
        return
    if not isinstance(value, (list, tuple)):
        raise invalid(where, value, "a list")
    for position, item in enumerate(value):
        yield f"{where}[{position}]", item


def text_of(where: str, value: t.Any) -> str:
    """A text that is not empty. Numbers and booleans become text as Ansible converts them elsewhere (C(yes) becomes
    C(True)), so that the same word in two options gives the same text.
    """
    if not isinstance(value, (str, int, float)) or value == "":
        raise invalid(where, value, "a text")
    return str(value)


def whole_of(where: str, value: t.Any, minimum: int, maximum: int | None = None) -> int:
    """A whole number within bounds."""
    return int(number(where, value, minimum, maximum, whole=True))
