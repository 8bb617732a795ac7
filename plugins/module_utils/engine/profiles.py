# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles that a run can choose from: the named ones, with the user's plugin config merged into them, and those
that the user defines.

A profile is merged from three layers. For each plugin, a layer sets whether it is enabled, its weight, and single keys
of its config; what a layer does not set is taken from the layer below:

1. the named profile (below),
2. the plugin config's sections (C(filters), C(scores), ...), which are merged into every profile,
3. the plugin config's C(profiles), for the profile of that name.

An entry of C(profiles) with a new name defines a new profile; it C(extends) a named one, by default C(balanced).
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping

from ..errors import InvalidPluginConfig, InvalidRequest
from ..model import Request
from .framework.profile import Profile, Registry
from .texts import known

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


class Profiles(Mapping[str, Profile]):
    """All profiles by name. Each is built when it is used for the first time."""

    def __init__(self, registry: Registry, configs: Mapping[str, Mapping[str, t.Any]]) -> None:
        self._registry = registry
        self._configs = configs
        self._built: dict[str, Profile] = {}

    def __getitem__(self, name: str) -> Profile:
        if name not in self._built:
            self._built[name] = Profile(name, self._registry, self._configs[name])
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in self._configs

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)


def build_profiles(
    registry: Registry,
    plugin_config: Mapping[str, t.Any] | None = None,
    above: Mapping[str, t.Any] | None = None,
) -> Profiles:
    """Return all profiles by name. The default profile and those of the user are built, and so checked, at once.

    plugin_config is the parsed file; above has sections that are merged into every profile last.
    Raises InvalidPluginConfig.
    """
    config = _mapping("plugin_config", plugin_config)
    common = {section: plugins for section, plugins in config.items() if section != "profiles"}
    own = _mapping("plugin_config.profiles", config.get("profiles"))
    layers: dict[str, dict[str, t.Any]] = {name: laid_over(named, common) for name, named in NAMED.items()}
    for name, body in own.items():
        where = f"profiles.{name}"
        body = _mapping(where, body)
        extends = body.get("extends", name if name in NAMED else DEFAULT)
        if extends not in NAMED:
            raise InvalidPluginConfig(
                f"{where}.extends: unknown profile {extends!r}; known: {known(NAMED, str(extends))}"
            )
        sections = {section: plugins for section, plugins in body.items() if section != "extends"}
        layers[name] = laid_over(laid_over(NAMED[extends], common), sections)
    profiles = Profiles(registry, {name: laid_over(layer, above or {}) for name, layer in layers.items()})
    for name in (DEFAULT, *own):
        profiles[name]
    return profiles


def profile_of(request: Request, profiles: Mapping[str, Profile], default: str) -> Profile:
    """The profile that the request names, or the default one. Raises InvalidRequest when there is none such."""
    name = request.profile or default
    if name not in profiles:
        raise InvalidRequest(f"profile: unknown profile {name!r}; known profiles: {known(profiles, name)}")
    return profiles[name]


def laid_over(below: Mapping[str, t.Any], above: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The plugin config that results from two layers.

    A value that should be a mapping and is not is passed on, so that the check of the config reports it.
    """
    merged: dict[str, t.Any] = _merged(below, above, depth=4)
    return merged


def _merged(below: t.Any, above: t.Any, depth: int) -> t.Any:
    """Merge mappings down to depth: section, plugin, its entry, its config. Other values replace each other."""
    if above is None:
        return below
    if not depth or not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    keys = [*below, *(key for key in above if key not in below)]
    return {key: _merged(below.get(key), above.get(key), depth - 1) for key in keys}


def _mapping(where: str, value: t.Any) -> Mapping[str, t.Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidPluginConfig(f"{where}: expected a mapping, got {value!r}")
    return value
