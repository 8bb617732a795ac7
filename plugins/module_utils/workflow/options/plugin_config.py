# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugin config of a run: the user's file or mapping, merged with the module options that are settings of
plugins.
"""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Mapping
from pathlib import Path

from ...engine.framework.profile import Profile
from ...engine.plugins.builtin import builtin_registry
from ...engine.profiles import DEFAULT, build_profiles
from ...errors import InvalidPluginConfig, InvalidRequest, MissingLibrary
from .plugin_loader import load_entry_points, load_plugin_paths

SETTINGS_OF_OPTIONS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "storage_classes": (("filters", "VolumeBinding", "storage_classes"),),
    "open_gates": (("gates", "SchedulingGates", "open"),),
}
"""The module options that are settings of plugins: section, plugin and key."""


def profiles_of(
    params: Mapping[str, t.Any], above: Mapping[str, t.Any] | None = None
) -> tuple[dict[str, Profile], str]:
    """The profiles by name, and the name of the default profile. above is merged into every profile.

    Raises InvalidPluginConfig, InvalidRequest.
    """
    config = _with_options(read_plugin_config(params.get("plugin_config")), params)
    registry = builtin_registry()
    load_plugin_paths(registry, params.get("plugin_paths") or ())
    load_entry_points(registry)
    return build_profiles(registry, config, above), DEFAULT


def read_plugin_config(given: t.Any) -> dict[str, t.Any]:
    """The plugin config as data, given as a mapping or as the path of a YAML file. Raises InvalidPluginConfig."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return copy.deepcopy(dict(given))
    if not isinstance(given, str):
        raise InvalidPluginConfig(f"plugin_config: expected a mapping or the path of a YAML file, got {given!r}")
    try:
        import yaml
    except ImportError as error:
        raise MissingLibrary("plugin_config: reading a file needs the Python package PyYAML") from error
    try:
        data = yaml.safe_load(Path(given).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPluginConfig(f"plugin_config: cannot read {given!r}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise InvalidPluginConfig(f"plugin_config: {given!r} is not YAML: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InvalidPluginConfig(
            f"plugin_config: {given!r} holds {type(data).__name__}, expected a mapping of sections"
        )
    return data


def _with_options(config: dict[str, t.Any], params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    for option, places in SETTINGS_OF_OPTIONS.items():
        value = params.get(option)
        if not value:
            continue
        for section, plugin, key in places:
            settings = _mapping(_mapping(_mapping(config, section), plugin), "config")
            if settings.get(key, value) != value:
                raise InvalidRequest(f"{option}: contradicts {section}.{plugin}.config.{key} of plugin_config")
            settings[key] = value
    return config


def _mapping(parent: dict[str, t.Any], key: str) -> dict[str, t.Any]:
    if parent.get(key) is None:
        parent[key] = {}
    child: dict[str, t.Any] = parent[key]
    if not isinstance(child, dict):
        raise InvalidPluginConfig(f"plugin_config: expected a mapping at {key!r}, got {child!r}")
    return child
