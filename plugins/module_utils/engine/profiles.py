# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles: which plugins of the registry run at which point, with which weight and config.

The plugin config is upstream's file format: C(filters), C(scores) and C(vmids), each mapping a plugin's name to
C(enable) and C(config), extended by C(weight) for scores and by the other extension points.

A run can choose from the named profiles and from those that the user defines. A profile is merged from three layers.
For each plugin, a layer sets whether it is enabled, its weight, and single keys of its config; what a layer does not
set is taken from the layer below:

1. the named profile (below),
2. the plugin config's sections (C(filters), C(scores), ...), which are merged into every profile,
3. the plugin config's C(profiles), for the profile of that name.

An entry of C(profiles) with a new name defines a new profile; it C(extends) a named one, by default C(balanced).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import itertools
import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..errors import CollectionError, InvalidPluginConfig, InvalidRequest
from ..model import Request
from .allocatable import Policy
from .cache import ClusterState
from .framework import interface as points
from .framework.interface import Plugin, Setting, check_settings
from .texts import alike, hint, known_names

_ATTRIBUTES = frozenset(field.name for field in dataclasses.fields(Request))


class Registry:
    """Plugin classes by name. A name is taken once; a class that lacks a method of its interfaces is refused."""

    def __init__(self, plugins: Iterable[type[Plugin]] = ()) -> None:
        self.plugins: dict[str, type[Plugin]] = {}
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
                f"plugin {name} ({origin}) lacks the method(s) {missing}, which its interfaces require"
            )
        unknown = sorted(set(plugin.about) - _ATTRIBUTES)
        if unknown:
            raise InvalidPluginConfig(f"plugin {name} ({origin}) is about {unknown[0]!r}, which no request has")
        if name in self.plugins:
            raise InvalidPluginConfig(
                f"plugin name {name!r} ({origin}) is taken already ({self._origins[name]}): choose another one"
            )
        self.plugins[name] = plugin
        self._origins[name] = origin


SECTIONS: Mapping[str, type[points.Plugin]] = {
    "gates": points.PreEnqueuePlugin,
    "queue": points.QueueSortPlugin,
    "pre_filters": points.PreFilterPlugin,
    "filters": points.FilterPlugin,
    "post_filters": points.PostFilterPlugin,
    "scores": points.ScorePlugin,
    "vmids": points.VMIDPlugin,
    "reserves": points.ReservePlugin,
    "permits": points.PermitPlugin,
}

_ENABLE = Setting("bool", True, "whether the plugin runs at this point")
_POLICIES = frozenset(field.name for field in dataclasses.fields(Policy)) - {"enforced"}
_WEIGHT = Setting("float", None, "the score's weight in the weighted mean", minimum=0)


class PluginEntry(t.NamedTuple):
    """The entry of one plugin in one section of the plugin config."""

    enable: bool
    weight: float | None
    config: Mapping[str, t.Any]


class Concerned(t.NamedTuple):
    """The plugins of a profile that have anything to say about a request, by what they do for it.

    Attributes:
        profile: the profile itself.
        checking: those that check requests before a cluster is read.
        scorers: the score plugins with a weight above 0.
    """

    profile: Profile
    checking: Sequence[points.Plugin]
    pre_filters: Sequence[points.PreFilterPlugin]
    filters: Sequence[points.FilterPlugin]
    scorers: Sequence[points.ScorePlugin]
    vmids: Sequence[points.VMIDPlugin]
    reserves: Sequence[points.ReservePlugin]
    permits: Sequence[points.PermitPlugin]


class Profile:
    """The enabled plugins of a profile, in a fixed order (the registry's).

    Attributes:
        sections: the enabled plugins by section of the plugin config.
        plugins: every plugin that is enabled somewhere, once.
        weights: for each score plugin's name its weight.
        policy: the settings that all plugins share.
    """

    def __init__(self, name: str, registry: Registry, plugin_config: Mapping[str, t.Any] | None = None) -> None:
        """plugin_config is the parsed file. Raises InvalidPluginConfig."""
        self.name = name
        entries = _read(registry, plugin_config or {})
        self.weights: dict[str, float] = {}
        self.sections: dict[str, list[t.Any]] = {section: [] for section in SECTIONS}
        made = [plugin for each in registry.plugins.values() if (plugin := self._add(each, entries)) is not None]
        self.plugins = list({id(plugin): plugin for section in self.sections.values() for plugin in section}.values())
        values: dict[str, t.Any] = {}
        for plugin in made:
            values.update(plugin.sets)
        # What a disabled plugin sets is not enforced.
        self.policy = Policy(**values, enforced=frozenset(name for plugin in self.plugins for name in plugin.sets))
        for plugin in self.plugins:
            plugin.policy = self.policy
        self._about = sorted({attribute for plugin in self.plugins for attribute in plugin.about})
        self._about_cluster = sorted({attribute for plugin in self.plugins for attribute in plugin.about_cluster})
        self._concerned: dict[tuple[bool, ...], Concerned] = {}

    def plugins_about(self, request: Request, cluster: ClusterState | None = None) -> Concerned:
        """Return the plugins that have anything to say about the request on a cluster; None: on any cluster.

        Determined once for all requests that set the same attributes, on clusters that have the same.
        """
        given = map(bool, map(getattr, itertools.repeat(request), self._about))
        there = [cluster is None or bool(getattr(cluster, attribute)) for attribute in self._about_cluster]
        sets = (*given, *there)
        found = self._concerned.get(sets)
        if found is None:
            plugins = [plugin for plugin in self.plugins if _has_a_say(plugin, request, cluster)]
            sections = {name: [p for p in section if p in plugins] for name, section in self.sections.items()}
            found = self._concerned[sets] = Concerned(
                self,
                [p for p in plugins if type(p).pre_enqueue is not points.Plugin.pre_enqueue],
                [p for p in plugins if isinstance(p, points.PreFilterPlugin)],
                sections["filters"],
                [p for p in sections["scores"] if self.weights[p.name] > 0],
                sections["vmids"],
                sections["reserves"],
                sections["permits"],
            )
        return found

    def without(self, plugins: Collection[points.Plugin]) -> Profile:
        """Return the same profile, in which these plugins do not run."""
        less = copy.copy(self)
        less.sections = {name: [p for p in some if p not in plugins] for name, some in self.sections.items()}
        less.plugins = [plugin for plugin in self.plugins if plugin not in plugins]
        less._concerned = {}
        return less

    def _add(
        self, plugin_class: type[points.Plugin], entries: Mapping[tuple[str, str], PluginEntry]
    ) -> points.Plugin | None:
        """Create the plugin and add it to the sections in which it is enabled. What it sets in the policy applies even
        if it is disabled.
        """
        name = plugin_class.name
        sections = sections_of(plugin_class)
        given = {section: entries[section, name] for section in sections if (section, name) in entries}
        enabled = [s for s in sections if (given[s].enable if s in given else plugin_class.enabled or bool(given))]
        if not enabled and not given:
            return None
        merged: dict[str, t.Any] = {}
        for section, entry in given.items():
            for key, value in entry.config.items():
                if key in merged and merged[key] != value:
                    raise InvalidPluginConfig(
                        f"{section}.{name}.config.{key}: contradicts the value given in another section"
                    )
                merged[key] = value
        where = ".".join([*list(given)[:1], name])
        config = check_settings(f"{where}.config", plugin_class.settings, merged)
        try:
            plugin = plugin_class(config)
        except CollectionError:
            raise
        except Exception as error:  # a plugin may be anybody's code and raise anything
            raise InvalidPluginConfig(f"{where}: cannot be set up: {type(error).__name__}: {error}") from error
        if unknown := sorted(set(plugin.sets) - _POLICIES):
            raise InvalidPluginConfig(
                f"plugin {plugin.name} sets the policy {unknown[0]!r}, which does not exist; known: "
                f"{', '.join(sorted(_POLICIES))}"
            )
        for section in enabled:
            self.sections[section].append(plugin)
            if section == "scores":
                weight = given[section].weight if section in given else None
                self.weights[name] = (
                    t.cast("type[points.ScorePlugin]", plugin_class).weight if weight is None else weight
                )
        return plugin


def _has_a_say(plugin: points.Plugin, request: Request, cluster: ClusterState | None) -> bool:
    """Whether a plugin is called: its config, the request and the cluster have something that it evaluates."""
    if plugin.idle_without and not any(plugin.config[key] for key in plugin.idle_without):
        return False
    if not plugin.about and not plugin.about_cluster:
        return True
    if plugin.about_cluster and cluster is None:
        return True
    return any(getattr(request, attribute) for attribute in plugin.about) or any(
        getattr(cluster, attribute) for attribute in plugin.about_cluster
    )


@functools.cache
def sections_of(plugin_class: type[points.Plugin]) -> tuple[str, ...]:
    """Return the sections in which a plugin can be named.

    C(pre_filters) is only for plugins without other points: a PreFilter is enabled together with the plugin's other
    points.
    """
    sections = tuple(section for section, point in SECTIONS.items() if issubclass(plugin_class, point))
    return tuple(section for section in sections if section != "pre_filters") or sections


def _read(registry: Registry, plugin_config: Mapping[str, t.Any]) -> dict[tuple[str, str], PluginEntry]:
    """Return the entries of the plugin config by section and plugin. Raises InvalidPluginConfig."""
    if not isinstance(plugin_config, Mapping):
        raise InvalidPluginConfig(f"plugin_config: expected a mapping of sections, got {plugin_config!r}")
    entries: dict[tuple[str, str], PluginEntry] = {}
    for section, plugins in plugin_config.items():
        if section not in SECTIONS:
            meant = alike(registry.plugins, str(section))
            place = "" if meant is None else f"; {meant} belongs in {sections_of(registry.plugins[meant])[0]}"
            raise InvalidPluginConfig(
                f"plugin_config: unknown section {section!r}; known sections: {', '.join(SECTIONS)}"
                f"{hint(SECTIONS, str(section)) or place}"
            )
        if plugins is None:
            continue
        if not isinstance(plugins, Mapping):
            raise InvalidPluginConfig(f"{section}: expected a mapping of plugins, got {plugins!r}")
        for name, body in plugins.items():
            entries[section, name] = _read_entry(registry, section, name, {} if body is None else body)
    return entries


def _read_entry(registry: Registry, section: str, name: str, body: t.Any) -> PluginEntry:
    """Check one entry of the plugin config. Raises InvalidPluginConfig."""
    plugin_class = registry.plugins.get(name)
    if plugin_class is None or section not in sections_of(plugin_class):
        names = sorted(p.name for p in registry.plugins.values() if section in sections_of(p))
        there = f"{', '.join(names) or 'none'}{hint(names, str(name))}"
        raise InvalidPluginConfig(f"{section}: unknown plugin {name!r}; known plugins of this section: {there}")
    where = f"{section}.{name}"
    if not isinstance(body, Mapping):
        raise InvalidPluginConfig(f"{where}: expected a mapping with enable and config, got {body!r}")
    allowed = {"enable", "config"} | ({"weight"} if section == "scores" else set())
    unknown = sorted(set(body) - allowed)
    if unknown:
        there = f"{', '.join(sorted(allowed))}{hint(allowed, str(unknown[0]))}"
        raise InvalidPluginConfig(f"{where}: unknown key {unknown[0]!r}; known keys: {there}")
    config = body.get("config") or {}
    check_settings(f"{where}.config", plugin_class.settings, config)
    return PluginEntry(
        enable=_ENABLE.check(f"{where}.enable", body.get("enable")),
        weight=_WEIGHT.check(f"{where}.weight", body.get("weight")),
        config=config,
    )


# --- the profiles that a run can choose from ---

DEFAULT = "balanced"

_ON = {"enable": True}
_OFF = {"enable": False}

NAMED: Mapping[str, Mapping[str, t.Any]] = {
    # Keep every node's CPU, memory and storage equally free.
    "balanced": {},
    # Fill one node before using the next, so that some nodes can be switched off. BalancedAllocation avoids using up
    # only CPU or only memory, which would waste the rest of the other.
    "pack": {
        "scores": {
            "MostAllocated": _ON,
            "BalancedAllocation": {"enable": True, "weight": 0.25},
            "LeastAllocated": _OFF,
            "StorageBalance": _OFF,
        }
    },
    # Lose as few VMs as possible if a node fails; of equal nodes, prefer the one with the most free resources.
    "spread": {"scores": {"FewestGuests": {"enable": True, "weight": 3}}},
    # Place a VM where the HA manager of Proxmox VE would have placed it.
    "proxmox": {"scores": {"ProxmoxStatic": _ON, "LeastAllocated": _OFF, "StorageBalance": _OFF}},
}


def build_profiles(
    registry: Registry,
    plugin_config: Mapping[str, t.Any] | None = None,
    above: Mapping[str, t.Any] | None = None,
) -> dict[str, Profile]:
    """Return all profiles by name.

    plugin_config is the parsed file; above has sections that are merged into every profile last.
    Raises InvalidPluginConfig.
    """
    config = _checked_mapping("plugin_config", plugin_config)
    common = {section: plugins for section, plugins in config.items() if section != "profiles"}
    own = _checked_mapping("plugin_config.profiles", config.get("profiles"))
    layers: dict[str, dict[str, t.Any]] = {name: merge_layers(named, common) for name, named in NAMED.items()}
    for name, body in own.items():
        where = f"profiles.{name}"
        body = _checked_mapping(where, body)
        extends = body.get("extends", name if name in NAMED else DEFAULT)
        if extends not in NAMED:
            raise InvalidPluginConfig(
                f"{where}.extends: unknown profile {extends!r}; known: {known_names(NAMED, str(extends))}"
            )
        sections = {section: plugins for section, plugins in body.items() if section != "extends"}
        layers[name] = merge_layers(merge_layers(NAMED[extends], common), sections)
    return {name: Profile(name, registry, merge_layers(layer, above or {})) for name, layer in layers.items()}


def profile_of(request: Request, profiles: Mapping[str, Profile], default: str) -> Profile:
    """Return the profile that the request names, or the default one. Raises InvalidRequest when there is none such."""
    name = request.profile or default
    if name not in profiles:
        raise InvalidRequest(f"profile: unknown profile {name!r}; known profiles: {known_names(profiles, name)}")
    return profiles[name]


def merge_layers(below: t.Any, above: t.Any, depth: int = 4) -> t.Any:
    """Return the plugin config that results from two layers: mappings are merged down to depth (section, plugin, its
    entry, its config), other values replace each other.

    A value that should be a mapping and is not is passed on, so that the check of the config reports it.
    """
    if above is None:
        return below
    if not depth or not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    keys = [*below, *(key for key in above if key not in below)]
    return {key: merge_layers(below.get(key), above.get(key), depth - 1) for key in keys}


def _checked_mapping(where: str, value: t.Any) -> Mapping[str, t.Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidPluginConfig(f"{where}: expected a mapping, got {value!r}")
    return value
