# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts frozen dataclasses to JSON data and back by their type hints, so that a new field needs no code here."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing as t

T = t.TypeVar("T")


def to_data(value: t.Any) -> t.Any:
    """Return the value as lists and mappings; of a dataclass only the fields that differ from their defaults."""
    if dataclasses.is_dataclass(value):
        given = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: to_data(found) for field, found in given if found != field.default}
    if isinstance(value, tuple):
        return [to_data(each) for each in value]
    return sorted(value) if isinstance(value, frozenset) else value


def from_data(kind: type[T], data: t.Any) -> T:
    """Return the dataclass that data was made from. Unknown keys are ignored: a newer version may have written them.

    Raises TypeError or KeyError when data does not describe a C(kind).
    """
    if not isinstance(data, dict):
        raise TypeError(f"expected a mapping for {kind.__name__}")
    hints = _hints(t.cast(t.Hashable, kind))
    return kind(**{name: _value(hint, data[name]) for name, hint in hints.items() if name in data})


@functools.cache
def _hints(kind: t.Hashable) -> dict[str, t.Any]:
    return t.get_type_hints(kind)


def _value(hint: t.Any, data: t.Any) -> t.Any:
    kind, inner = t.get_origin(hint), t.get_args(hint)
    if kind in (t.Union, types.UnionType):
        return None if data is None else _value(inner[0], data)
    if kind in (tuple, frozenset):
        if not isinstance(data, list):
            raise TypeError("expected a list")
        return kind(_value(inner[0], each) for each in data)
    if dataclasses.is_dataclass(hint):
        return from_data(t.cast(type, hint), data)
    if not isinstance(data, hint) or (isinstance(data, bool) and hint is not bool):
        raise TypeError(f"expected {hint.__name__}")
    return data
