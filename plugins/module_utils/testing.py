# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for tests of custom plugins: a small cluster, and the outcome for a VM on it."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from .engine.cache import ClusterState
from .engine.framework.interface import Plugin
from .engine.plugins.builtin import BUILTIN
from .engine.profiles import Registry, build_profiles
from .engine.scheduling_cycle import Scheduler
from .engine.verdicts import Outcome
from .errors import PluginFailed
from .model import GIB, Guest, Node, Request, Snapshot


def node(name: str, cores: int = 8, gib: float = 32, **fields: t.Any) -> Node:
    """Return a node with this many logical CPUs and GiB of memory; fields are those of model.Node."""
    return Node(name, cores=cores, memory=int(gib * GIB), **fields)


def guest(vmid: int, node: str, cores: float = 1, gib: float = 1, **fields: t.Any) -> Guest:
    """Return a running VM called C(vm-VMID), with this many vCPUs and GiB of memory; fields are those of model.Guest.
    """
    fields = {"name": f"vm-{vmid}", "status": "running", **fields}
    return Guest(vmid, node=node, cores=cores, memory=int(gib * GIB), **fields)


def vm(name: str = "new", cores: float = 1, gib: float = 1, **fields: t.Any) -> Request:
    """Return a requested VM with this many vCPUs and GiB of memory; fields are those of model.Request."""
    return Request(name, cores=cores, memory=int(gib * GIB), **fields)


class Placed:
    """The outcome for one VM.

    Attributes:
        node: the name of the chosen node; None if no node is feasible.
        message: the decision or the error in one sentence.
        outcome: the complete outcome.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.node = None if outcome.decision is None else outcome.decision.node
        self.message = outcome.message

    def __repr__(self) -> str:
        return f"<Placed: {self.message}>"

    def reasons(self, plugin: str) -> dict[str, str]:
        """Return the plugin's reason for each node that it rejected, without the details of the node."""
        return {v.node: v.status.reason for v in self.outcome.verdicts() if v.status and v.status.plugin == plugin}

    def scores(self, plugin: str) -> dict[str, float]:
        """Return the plugin's score, 0..100, for each node that passed all filters."""
        return {v.node: v.scores[plugin].normalized for v in self.outcome.verdicts() if plugin in v.scores}


class SmallCluster:
    """A small cluster on which the built-in and custom plugins place VMs."""

    def __init__(
        self,
        *nodes: Node,
        guests: Iterable[Guest] = (),
        plugins: Iterable[type[Plugin]] = (),
        plugin_config: Mapping[str, t.Any] | None = None,
        **fields: t.Any,
    ) -> None:
        """plugin_config is as in a task; fields are those of model.Snapshot.

        Raises InvalidPluginConfig, and ValueError for guests on a node that the cluster does not have.
        """
        guests = tuple(guests)
        for guest in guests:
            if guest.node not in {node.name for node in nodes}:
                names = ", ".join(node.name for node in nodes)
                raise ValueError(f"guest {guest.vmid}: there is no node {guest.node!r}; the nodes are {names}")
        self.state = ClusterState(Snapshot(nodes=nodes, guests=guests, **fields))
        self._scheduler = Scheduler(self.state, build_profiles(_registry(plugins), plugin_config))

    def place(self, request: Request) -> Placed:
        """Place a VM. It counts for those that are placed after it.

        Raises what a plugin raised, so that a test shows its line.
        """
        outcome = self._scheduler.schedule(request)
        if isinstance(outcome.error, PluginFailed) and outcome.error.__cause__ is not None:
            raise outcome.error.__cause__
        return Placed(outcome)


def _registry(plugins: Iterable[type[Plugin]]) -> Registry:
    registry = Registry(BUILTIN)
    for plugin in plugins:
        if plugin not in BUILTIN:
            registry.register(plugin, origin="test")
    return registry
