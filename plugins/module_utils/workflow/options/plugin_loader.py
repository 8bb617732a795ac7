# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Custom plugins: classes from Python files and from installed packages, registered beside the built-in ones.

A plugin's author imports the interfaces from
C(ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import sys
import types
from collections.abc import Iterable
from pathlib import Path

from ...engine.framework.config import Setting
from ...engine.framework.interface import Plugin
from ...engine.framework.profile import sections_of
from ...engine.framework.registry import Registry
from ...engine.texts import shortened
from ...errors import InvalidPluginConfig

ENTRY_POINT_GROUP = "qemu_scheduler.plugins"


def load_plugin_paths(registry: Registry, paths: Iterable[str]) -> None:
    """Register the plugins of files, and of all files named C(*.py) in directories (in order of name, not deeper).

    Every class of a file that is a plugin counts, but for those whose name begins with an underscore; files whose name
    does are left out of directories. Raises InvalidPluginConfig, which names the file and the reason.
    """
    for path in paths:
        for file in _files(path):
            plugins = _plugins_of(_imported(file))
            if not plugins:
                raise InvalidPluginConfig(f"plugin_paths: {file} defines no plugin")
            for plugin in plugins:
                _register(registry, plugin, str(file))


def load_entry_points(registry: Registry) -> None:
    """Register the plugins that installed packages offer: entry points that name a plugin class, or a module of them.

    Raises InvalidPluginConfig, which names the package and the reason.
    """
    found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    for entry in sorted(found, key=lambda entry: (entry.name, entry.value)):
        package = f"package {entry.dist.name}" if entry.dist is not None else "a package"
        origin = f"{package}, entry point {entry.name}"
        try:
            loaded = entry.load()
        except (Exception, SystemExit) as error:  # what is imported may be anybody's code and raise anything
            raise InvalidPluginConfig(
                f"plugins of {origin}: {entry.value} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        plugins = _plugins_of(loaded) if isinstance(loaded, types.ModuleType) else [loaded]
        if not plugins or not all(inspect.isclass(plugin) and issubclass(plugin, Plugin) for plugin in plugins):
            raise InvalidPluginConfig(
                f"plugins of {origin}: {entry.value} is neither a plugin nor a module with plugins"
            )
        for plugin in plugins:
            _register(registry, plugin, origin)


def _register(registry: Registry, plugin: type[Plugin], origin: str) -> None:
    registry.register(plugin, origin)
    if not sections_of(plugin):
        raise InvalidPluginConfig(f"plugin {plugin.name} ({origin}) implements no extension point")
    wrong = [key for key, setting in plugin.settings.items() if not isinstance(setting, Setting)]
    if wrong:
        raise InvalidPluginConfig(f"plugin {plugin.name} ({origin}): settings.{wrong[0]} is not a Setting")


def _files(given: str) -> list[Path]:
    try:
        path = Path(given).expanduser()
        if path.is_dir():
            return sorted(file for file in path.glob("*.py") if not file.name.startswith("_"))
        is_file = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, with a null, of a user that there is not
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InvalidPluginConfig(f"plugin_paths: {shortened(given)} cannot be read: {reason}") from error
    if not is_file:
        raise InvalidPluginConfig(f"plugin_paths: {path} is neither a file nor a directory")
    return [path]


def _imported(file: Path) -> types.ModuleType:
    """The file as a module, under a name that no other module has."""
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    name = f"qemu_scheduler_plugin_{digest}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidPluginConfig(f"plugin_paths: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # what is imported may be anybody's code and raise anything
        del sys.modules[name]
        raise InvalidPluginConfig(
            f"plugin_paths: {file} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module


def _plugins_of(module: types.ModuleType) -> list[type[Plugin]]:
    """The plugin classes that a module defines itself, in the order of its text."""
    return [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, Plugin)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]
