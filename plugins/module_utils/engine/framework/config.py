# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a plugin: declared as data, checked here, documented from the same declaration."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import InvalidPluginConfig
from ..texts import hint

_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list": (list,),
    "dict": (dict,),
}

# Beyond it floats are not exact to the whole number. NaN is on no side of it.
_LARGEST = 1e15


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a plugin's config.

    Attributes:
        kind: bool, int, float, str, list or dict.
        default: used when the key is absent; None is allowed for every kind and means "not set".
        help: one sentence with the unit.
        minimum: smallest number allowed, for int and float.
        choices: the only values allowed, for str.
    """

    kind: str
    default: t.Any
    help: str
    minimum: float | None = None
    choices: tuple[str, ...] = ()

    def check(self, where: str, value: t.Any) -> t.Any:
        """Return value as this setting's kind, or raise InvalidPluginConfig; where names the plugin and key."""
        if value is None:
            return self.default
        value = _from_text(self.kind, value)
        fits: bool = isinstance(value, _KINDS[self.kind])
        if not fits or (isinstance(value, bool) and self.kind != "bool"):
            raise InvalidPluginConfig(f"{where}: expected {self.kind}, got {value!r}")
        if self.kind in ("int", "float") and not -_LARGEST < value < _LARGEST:
            raise InvalidPluginConfig(f"{where}: expected a number below 1e15, got {str(value)[:20]}")
        if self.minimum is not None and value < self.minimum:
            raise InvalidPluginConfig(f"{where}: expected at least {self.minimum:g}, got {value!r}")
        if self.choices and value not in self.choices:
            raise InvalidPluginConfig(f"{where}: expected one of {', '.join(self.choices)}, got {value!r}")
        return float(value) if self.kind == "float" else value


def check_settings(where: str, settings: Mapping[str, Setting], given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return all settings with the given ones checked and the others at their defaults; where is their place."""
    if not isinstance(given, Mapping):
        raise InvalidPluginConfig(f"{where}: expected a mapping, got {given!r}")
    if not given:
        return {key: setting.default for key, setting in settings.items()}
    unknown = sorted(set(given) - set(settings))
    if unknown:
        known = ", ".join(sorted(settings)) or "none: it takes no config"
        meant = hint(settings, str(unknown[0]))
        raise InvalidPluginConfig(f"{where}: unknown key {unknown[0]!r}; known keys: {known}{meant}")
    return {
        key: setting.check(f"{where}.{key}", given[key]) if key in given else setting.default
        for key, setting in settings.items()
    }


def _from_text(kind: str, value: t.Any) -> t.Any:
    """Numbers and booleans may arrive as text: Jinja2 templates make strings."""
    if isinstance(value, str):
        try:
            if kind in ("int", "float"):
                return int(value) if kind == "int" else float(value)
        except ValueError:
            return value
        if kind == "bool" and value.lower() in ("true", "yes", "on", "1", "false", "no", "off", "0"):
            return value.lower() in ("true", "yes", "on", "1")
    return value
