# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small clusters, each defined in one line, and a scheduler for them."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState, NodeInfo
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    CycleState,
    Plugin,
    ScorePlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Guest, Node, Request, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.testing import guest, node, vm

__all__ = [
    "cluster",
    "guest",
    "made",
    "node",
    "profile",
    "scheduler",
    "score",
    "vm",
]


def cluster(nodes: Iterable[Node], guests: Iterable[Guest] = (), **fields: t.Any) -> ClusterState:
    return ClusterState(Snapshot(nodes=tuple(nodes), guests=tuple(guests), **fields))


def profile(
    plugin_config: Mapping[str, t.Any] | None = None, own: Iterable[type[Plugin]] = (), name: str = "balanced"
) -> Profile:
    """A profile with the built-in plugins and further ones."""
    registry = builtin_registry()
    for plugin in own:
        registry.register(plugin, origin="test")
    return Profile(name, registry, plugin_config)


def scheduler(
    state: ClusterState, plugin_config: Mapping[str, t.Any] | None = None, own: Iterable[type[Plugin]] = ()
) -> Scheduler:
    return Scheduler(state, {"balanced": profile(plugin_config, own)})


def made(plugin: type[Plugin], **config: t.Any) -> t.Any:
    """A plugin with some settings given and the others at their defaults."""
    return plugin({key: config.get(key, setting.default) for key, setting in plugin.settings.items()})


def score(plugin: ScorePlugin, request: Request, info: NodeInfo) -> float:
    return plugin.score(CycleState(), request, info)
