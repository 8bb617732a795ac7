# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for tests of custom plugins: a small cluster, the outcome for a VM on it, and a check that shared verdicts
are the same as those of evaluating every node each time.
"""

from __future__ import annotations

import random
import typing as t
from collections.abc import Callable, Iterable, Mapping

from .engine.cache import ClusterState
from .engine.framework.interface import Plugin
from .engine.plugins.builtin import BUILTIN
from .engine.profiles import DEFAULT, Registry, build_profiles
from .engine.scheduling_cycle import Scheduler
from .engine.verdicts import Outcome
from .model import GIB, Decision, Disk, Guest, Node, Request, Snapshot, Storage

ROUNDS = 60
STEPS = 12


def node(name: str, cores: int = 8, gib: float = 32, **fields: t.Any) -> Node:
    """A node with so many logical CPUs and so much memory; fields are those of model.Node."""
    return Node(name, cores=cores, memory=int(gib * GIB), **fields)


def guest(vmid: int, node: str, cores: float = 1, gib: float = 1, **fields: t.Any) -> Guest:
    """A running VM called C(vm-VMID); fields are those of model.Guest."""
    fields = {"name": f"vm-{vmid}", "status": "running", **fields}
    return Guest(vmid, node=node, cores=cores, memory=int(gib * GIB), **fields)


def vm(name: str = "new", cores: float = 1, gib: float = 1, **fields: t.Any) -> Request:
    """A requested VM; fields are those of model.Request."""
    return Request(name, cores=cores, memory=int(gib * GIB), **fields)


class Placed:
    """The outcome for one VM.

    Attributes:
        node: where it goes; None when no node took it.
        message: the sentence that the user reads.
        outcome: the complete outcome.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.node = None if outcome.decision is None else outcome.decision.node
        self.message = outcome.message

    def reasons(self, plugin: str) -> dict[str, str]:
        """The plugin's reason for each node that it rejected."""
        return {v.node: v.status.text for v in self.outcome.verdicts() if v.status and v.status.plugin == plugin}

    def scores(self, plugin: str) -> dict[str, float]:
        """The plugin's score, 0..100, for each node that passed all filters."""
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
        """plugin_config is as in a task; fields are those of model.Snapshot. Raises InvalidPluginConfig."""
        self.state = ClusterState(Snapshot(nodes=nodes, guests=tuple(guests), **fields))
        self._scheduler = Scheduler(self.state, build_profiles(_registry(plugins), plugin_config))

    def place(self, request: Request) -> Placed:
        """Place a VM. It counts for those that are placed after it."""
        return Placed(self._scheduler.schedule(request))


def check_sharing(
    plugin: type[Plugin],
    plugin_config: Mapping[str, t.Any] | None = None,
    requests: Callable[[random.Random], Request] | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> None:
    """Place and remove random VMs on random clusters, with shared and with fresh verdicts, and compare the results.

    requests makes the VMs, so that they have what the plugin evaluates. Raises AssertionError with the plugin's name,
    the cluster and the steps that led to the difference.
    """
    profiles = build_profiles(_registry([plugin]), plugin_config)
    if not any(each.name == plugin.name for each in profiles[DEFAULT].all()):
        raise AssertionError(f"plugin {plugin.name} does not run: enable it in plugin_config")
    for number in range(rounds):
        chance = random.Random(f"{seed}/{number}")
        snapshot = _snapshot(chance)
        kept = Scheduler(ClusterState(snapshot), profiles)
        fresh = Scheduler(ClusterState(snapshot), profiles, sharing=False)
        steps: list[str] = []
        placed: list[Decision] = []
        for _step in range(STEPS):
            if placed and chance.random() < 0.25:
                decision = placed.pop(chance.randrange(len(placed)))
                steps.append(f"take back {decision.request.name} from {decision.node}")
                kept.undo(decision)
                fresh.undo(decision)
                continue
            request = _request(chance) if requests is None else requests(chance)
            steps.append(f"place {request}")
            expected, found = _told(fresh, request), _told(kept, request)
            if found != expected:
                raise AssertionError(_difference(plugin, snapshot, steps, expected, found))
            decision_made = fresh.schedule(request).decision
            kept.schedule(request)
            if decision_made is not None:
                placed.append(decision_made)


def _told(scheduler: Scheduler, request: Request) -> dict[str, t.Any]:
    """The scheduler's verdicts on a VM, in a form that does not depend on the order of the plugins."""
    refusals = {node: sorted(by_plugin) for node, by_plugin in scheduler.refusals(request).items()}
    outcome = scheduler.schedule(request)
    if outcome.decision is not None:
        scheduler.undo(outcome.decision)
    scores = {v.node: dict(v.scores) for v in outcome.verdicts() if v.feasible}
    node = None if outcome.decision is None else outcome.decision.node
    return {"node": node, "refused by": refusals, "scores": scores}


def _difference(
    plugin: type[Plugin], snapshot: Snapshot, steps: list[str], expected: dict[str, t.Any], found: dict[str, t.Any]
) -> str:
    what = next(key for key in expected if expected[key] != found[key])
    return "\n".join(
        [
            f"plugin {plugin.name} says something else when its verdicts are shared than when it is asked each time. "
            "Look for what its verdict depends on and signature(), group() or update() leave out; or share nothing.",
            f"{what}: shared {found[what]}, asked {expected[what]}",
            *(str(node) for node in snapshot.nodes),
            *(str(guest) for guest in snapshot.guests),
            *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
        ]
    )


def _registry(plugins: Iterable[type[Plugin]]) -> Registry:
    registry = Registry(BUILTIN)
    for plugin in plugins:
        if plugin not in BUILTIN:
            registry.register(plugin, origin="test")
    return registry


def _snapshot(chance: random.Random) -> Snapshot:
    """One to five different nodes with a local and a shared storage, and some guests."""
    nodes = tuple(
        node(
            f"n{number}",
            cores=chance.randint(1, 6),
            gib=chance.randint(2, 8),
            online=chance.random() < 0.9,
            labels={key: chance.choice("ab") for key in ("zone", "rack") if chance.random() < 0.8},
        )
        for number in range(chance.randint(1, 5))
    )
    names = [each.name for each in nodes]
    guests = tuple(
        guest(
            1000 + number,
            chance.choice(names),
            name=chance.choice(["web-old", "db-old"]),
            status=chance.choice(["running", "stopped"]),
            tags=frozenset(chance.sample(["blue", "green"], chance.randint(0, 2))),
        )
        for number in range(chance.randint(0, 6))
    )
    local = tuple(Storage("local", name, total=chance.randint(1, 30) * GIB) for name in names)
    shared = tuple(Storage("ceph", name, "rbd", shared=True, total=20 * GIB) for name in names)
    return Snapshot(nodes=nodes, guests=guests, storages=local + shared)


def _request(chance: random.Random) -> Request:
    """One of a few kinds of VM, so that some requests are of the same kind."""
    return vm(
        f"{chance.choice(['web', 'db'])}-{chance.randint(0, 1)}",
        cores=chance.randint(1, 2),
        gib=chance.randint(1, 2),
        tags=frozenset(chance.sample(["blue", "green"], chance.randint(0, 1))),
        pool=chance.choice([None, "prod"]),
        disks=chance.choice([(), (Disk("scsi0", GIB),), (Disk("scsi0", GIB, "ceph"),)]),
    )
