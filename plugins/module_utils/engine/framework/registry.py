# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which plugins there are, by name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Iterator

from ...errors import InvalidPluginConfig
from ...model import Request
from .interface import Plugin

_ATTRIBUTES = frozenset(field.name for field in dataclasses.fields(Request))


class Registry:
    """Plugin classes by name. A name is taken once; a class that lacks a method of its interfaces is refused."""

    def __init__(self, plugins: Iterable[type[Plugin]] = ()) -> None:
        self._plugins: dict[str, type[Plugin]] = {}
        self._origins: dict[str, str] = {}
        for plugin in plugins:
            self.register(plugin)

    def register(self, plugin: type[Plugin], origin: str = "built in") -> None:
        """Add a class; origin says where it came from, for the error texts."""
        name = getattr(plugin, "name", None)
        if not isinstance(name, str) or not name:
            raise InvalidPluginConfig(f"plugin class {plugin.__name__} ({origin}) has no name: set 'name' in the class")
        if inspect.isabstract(plugin):
            missing = ", ".join(sorted(plugin.__abstractmethods__))
            raise InvalidPluginConfig(
                f"plugin {name} ({origin}) lacks the method(s) {missing}, which its interfaces demand"
            )
        unknown = sorted(set(plugin.about) - _ATTRIBUTES)
        if unknown:
            raise InvalidPluginConfig(f"plugin {name} ({origin}) is about {unknown[0]!r}, which no request has")
        if name in self._plugins:
            raise InvalidPluginConfig(
                f"plugin name {name!r} ({origin}) is taken already ({self._origins[name]}): choose another one"
            )
        self._plugins[name] = plugin
        self._origins[name] = origin

    def get(self, name: str) -> type[Plugin] | None:
        return self._plugins.get(name)

    def __iter__(self) -> Iterator[type[Plugin]]:
        return iter(self._plugins.values())
