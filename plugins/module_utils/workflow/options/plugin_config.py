# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins of a run: their config, custom plugins, and what plugins check before a cluster is read.

The plugin config is the user's file or mapping, merged with the module options that are settings of plugins. Custom
plugins are classes from Python files and from installed packages, registered beside the built-in ones.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.metadata
import importlib.util
import inspect
import sys
import types
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...engine.framework.interface import Plugin, Setting
from ...engine.guard import check_request
from ...engine.plugins.builtin import builtin_registry
from ...engine.profiles import DEFAULT, Profile, Registry, build_profiles, profile_of, sections_of
from ...engine.texts import shorten
from ...errors import InvalidPluginConfig, InvalidRequest, MissingLibrary, PluginFailed
from ...files import MIB, read_text, reason_of
from ...secret_options import quote
from ...zipped import ARCHIVE
from .entries import Entry

LARGEST = MIB
"""Bytes that the file of plugin_config may have."""

SETTINGS_OF_OPTIONS = {
    "storage_classes": ("filters", "VolumeBinding", "storage_classes"),
    "open_gates": ("gates", "SchedulingGates", "open"),
}
"""The module options that are settings of plugins: section, plugin and key."""


def profiles_of(
    params: Mapping[str, t.Any], above: Mapping[str, t.Any] | None = None
) -> tuple[Mapping[str, Profile], str]:
    """Return the profiles by name, and the name of the default profile. above is merged into every profile.

    Raises InvalidPluginConfig, InvalidRequest.
    """
    given = params.get("plugin_config")
    config = {} if given is None else read_plugin_config(given)
    if any(params.get(option) for option in SETTINGS_OF_OPTIONS):
        config = _with_options(config, params)
    registry = builtin_registry()
    if params.get("plugin_paths"):
        load_plugin_paths(registry, params["plugin_paths"])
    load_entry_points(registry)
    return build_profiles(registry, config, above), DEFAULT


def read_plugin_config(given: t.Any) -> dict[str, t.Any]:
    """Return the plugin config as data, given as a mapping or as the path of a YAML file. Raises InvalidPluginConfig.
    """
    if isinstance(given, Mapping):
        return copy.deepcopy(dict(given))
    if not isinstance(given, str):
        raise InvalidPluginConfig(f"plugin_config: expected a mapping or the path of a YAML file, got {given!r}")
    shown = quote("plugin_config", given)
    try:
        import yaml
    except ImportError as error:
        raise MissingLibrary("plugin_config: reading a file needs the Python package PyYAML") from error
    try:
        data = yaml.safe_load(read_text(given, LARGEST))
    except yaml.YAMLError as error:
        raise InvalidPluginConfig(f"plugin_config: {shown} is not YAML: {error}") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidPluginConfig(f"plugin_config: cannot read {shown}: {reason_of(error)}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InvalidPluginConfig(f"plugin_config: {shown} holds {type(data).__name__}, expected a mapping of sections")
    return data


def _with_options(config: dict[str, t.Any], params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Add the module options that are settings of plugins. Raises InvalidRequest if they contradict the config."""
    for option, (section, plugin, key) in SETTINGS_OF_OPTIONS.items():
        value = params.get(option)
        if not value:
            continue
        settings = _ensure_mapping(_ensure_mapping(_ensure_mapping(config, section), plugin), "config")
        if settings.get(key, value) != value:
            raise InvalidRequest(f"{option}: contradicts {section}.{plugin}.config.{key} of plugin_config")
        settings[key] = value
    return config


def _ensure_mapping(parent: dict[str, t.Any], key: str) -> dict[str, t.Any]:
    """Return the mapping at a key, which is added if there is none. Raises InvalidPluginConfig."""
    if parent.get(key) is None:
        parent[key] = {}
    child: dict[str, t.Any] = parent[key]
    if not isinstance(child, dict):
        raise InvalidPluginConfig(f"plugin_config: expected a mapping at {key!r}, got {child!r}")
    return child


ENTRY_POINT_GROUP = "qemu_scheduler.plugins"


def load_plugin_paths(registry: Registry, paths: Iterable[str]) -> None:
    """Register the plugins of files, and of all files named C(*.py) in directories (in order of name, not deeper).

    Every class of a file that is a plugin counts, but for those whose name begins with an underscore; files whose name
    does are left out of directories. Raises InvalidPluginConfig, which names the file and the reason.
    """
    for path in paths:
        for file in _files(path):
            plugins = _plugins_of(_import(file))
            if not plugins:
                raise InvalidPluginConfig(f"plugin_paths: {file} defines no plugin")
            for plugin in plugins:
                _register(registry, plugin, str(file))


def load_entry_points(registry: Registry) -> None:
    """Register the plugins that installed packages offer: entry points that name a plugin class, or a module of them.

    Raises InvalidPluginConfig, which names the package and the reason.
    """
    # entry_points() would parse the metadata of all packages. Ansible's archive has none, and takes long to read.
    path = [folder for folder in sys.path if folder != ARCHIVE]
    offering = {
        package.name
        for package in importlib.metadata.distributions(path=path)
        if ENTRY_POINT_GROUP in (package.read_text("entry_points.txt") or "")
    }
    # Of several versions, the first one on the path counts.
    found = [
        entry
        for name in offering
        for entry in importlib.metadata.distribution(name).entry_points.select(group=ENTRY_POINT_GROUP)
    ]
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
    """Add a plugin of others. Raises InvalidPluginConfig if it is none."""
    registry.register(plugin, origin)
    if not sections_of(plugin):
        raise InvalidPluginConfig(f"plugin {plugin.name} ({origin}) implements no extension point")
    wrong = [key for key, setting in plugin.settings.items() if not isinstance(setting, Setting)]
    if wrong:
        raise InvalidPluginConfig(f"plugin {plugin.name} ({origin}): settings.{wrong[0]} is not a Setting")


def _files(given: str) -> list[Path]:
    """Return the files that a path of plugin_paths stands for. Raises InvalidPluginConfig."""
    shown = shorten(quote("plugin_paths", given))
    try:
        path = Path(given).expanduser()
        if path.is_dir():
            # A pipe would wait for a writer.
            return sorted(file for file in path.glob("*.py") if file.is_file() and not file.name.startswith("_"))
        is_file = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, with a null, of a user that there is not
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InvalidPluginConfig(f"plugin_paths: {shown} cannot be read: {reason}") from error
    if not is_file:
        raise InvalidPluginConfig(f"plugin_paths: {shown} is neither a file nor a directory")
    return [path]


def _import(file: Path) -> types.ModuleType:
    """Return the file as a module, under a name that no other module has."""
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    name = f"qemu_scheduler_plugin_{digest}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidPluginConfig(f"plugin_paths: {file} is not a Python file, expected a name that ends in .py")
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
    """Return the plugin classes that a module defines itself, in the order of its text."""
    return [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, Plugin)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def profiles_in_use(entries: Sequence[Entry], profiles: Mapping[str, Profile], default: str) -> dict[str, Profile]:
    """Return the default profile and those that entries name. Nothing is read for the others."""
    names = {default, *(entry.request.profile for entry in entries)}
    return {name: profiles[name] for name in profiles if name in names}


def check_entries(entries: Sequence[Entry], profiles: Mapping[str, Profile], default: str) -> None:
    """Raise InvalidRequest for an unknown profile, and for what a plugin of the profile finds invalid in a request.

    VMs that shall be absent are not checked: they are not placed, and may name what no longer exists.
    """
    for entry in entries:
        if entry.state == "absent":
            continue
        try:
            profile = profile_of(entry.request, profiles, default)
            # Another exception of a plugin fails only its VM, when that is placed.
            with contextlib.suppress(PluginFailed):
                check_request(profile.plugins_about(entry.request), entry.request)
        except InvalidRequest as error:
            text = error.message if len(entries) == 1 else f"{error.message}, for {entry.label}"
            raise InvalidRequest(text, **error.details) from error
