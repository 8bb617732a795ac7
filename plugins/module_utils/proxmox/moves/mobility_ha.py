# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What HA means for moves: which guests the HA manager moves, from where it would bring them back, and what holds them.

Pure functions.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...engine.ha_rules import NODES, companions_of, preferred_nodes
from ...engine.plugins.ha_placement import outside_of
from ...model import Guest, HARule, Processor, Snapshot
from ...plans import API, HA

UPDATE = "update the collection, or move it by hand"
"""The remedy where Proxmox says what this version does not know."""

STATES_OF_HA: Mapping[str, tuple[str, str]] = {
    "error": ("its HA resource is in state error", "correct the cause, then request the HA state disabled and started"),
    "fence": ("the HA manager is fencing its node", "wait until HA has recovered it"),
    "recovery": ("the HA manager is recovering it", "wait until HA has recovered it"),
    "freeze": ("HA is disarmed, so that the HA manager does not move it", "arm HA again"),
}
"""States in which the HA manager does not move a resource, each with the reason and the cure."""

OTHER_STATES_OF_HA = frozenset({
    "", "deleting", "disabled", "enabled", "ignored", "migrate", "queued", "relocate", "request_start",
    "request_start_balance", "request_stop", "started", "starting", "stopped",
})  # fmt: skip

Cause = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the mobility of a guest depends on besides the guest itself.

    Attributes:
        nodes: the bridges of each node by name; None where they are unknown.
        offline: the nodes that are offline.
        processors: the CPUs of the nodes where they are known.
        available: the nodes that the HA manager uses: those online and not in maintenance.
        drained: the nodes that are marked as drained, of which the HA manager knows nothing.
        types: the types of storages by name.
        shared: the names of shared storages.
        rules: the active HA rules.
        unknown_of_ha: what this version does not know of HA resources, by VMID.
        replicated: the target nodes of replication jobs by VMID.
    """

    nodes: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    offline: frozenset[str] = frozenset()
    processors: Mapping[str, Processor] = field(default_factory=dict)
    available: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    types: Mapping[str, str] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    rules: tuple[HARule, ...] = ()
    unknown_of_ha: Mapping[int, str] = field(default_factory=dict)
    replicated: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, replicated: Mapping[int, frozenset[str]]) -> Surroundings:
        """Return the surroundings of guests in a snapshot. replicated are the nodes that have replicas of each guest.
        """
        return cls(
            nodes={node.name: node.bridges for node in snapshot.nodes},
            offline=frozenset(node.name for node in snapshot.nodes if not node.online),
            processors={node.name: node.processor for node in snapshot.nodes if node.processor is not None},
            available=frozenset(node.name for node in snapshot.nodes if node.online and not node.maintenance),
            drained=frozenset(node.name for node in snapshot.nodes if node.drained),
            types={storage.name: storage.type for storage in snapshot.storages},
            shared=frozenset(storage.name for storage in snapshot.storages if storage.shared),
            rules=tuple(rule for rule in snapshot.ha_rules if not rule.disabled),
            unknown_of_ha=snapshot.unknown_of_ha,
            replicated=replicated,
        )


def via_of(guest: Guest) -> str:
    """Return who moves a guest."""
    return HA if guest.ha_managed and guest.ha_state != "ignored" else API


def obstacle_of_ha(guest: Guest, around: Surroundings) -> Cause | None:
    """Return why the HA manager does not move a guest, or what it will do is not known."""
    if not guest.ha_managed:
        return None
    state = guest.ha_state
    if state not in OTHER_STATES_OF_HA:
        return STATES_OF_HA.get(state, (f"its HA state {state!r} is not known to this version", UPDATE))
    if guest.vmid in around.unknown_of_ha:
        return f"its HA resource has {around.unknown_of_ha[guest.vmid]}, which this version does not know", UPDATE
    for rule in around.rules:
        if rule.unknown and guest.vmid in rule.vmids:
            return f"its {rule.label} has {rule.unknown}, which this version does not know", UPDATE
    return None


def against_ha(guest: Guest, around: Surroundings) -> Iterator[tuple[str, str]]:
    """Yield the nodes from which the HA manager would move it back at once."""
    if via_of(guest) != HA:
        return
    for rule in _node_rules(guest, around):
        for node in around.nodes:
            if rule.strict and not rule.wants(node):
                yield node, outside_of(rule)
        best = _brings_to(rule, guest, around)
        for node in around.nodes.keys() - best if best else ():
            yield node, f"would lose it to {' or '.join(sorted(best))} again, which {rule.label} prefers"


def _node_rules(guest: Guest, around: Surroundings) -> list[HARule]:
    """Return the node-affinity rules that hold for a guest or for one that is kept with it."""
    group = companions_of(around.rules, guest.vmid)
    return [rule for rule in around.rules if rule.type == NODES and not rule.unknown and rule.vmids & group]


def _brings_to(rule: HARule, guest: Guest, around: Surroundings) -> frozenset[str]:
    """Return the nodes to one of which the HA manager brings a guest at once from any other; empty if it does not."""
    group = companions_of(around.rules, guest.vmid)
    if not guest.running or rule.vmids & group <= rule.no_failback:
        return frozenset()
    return preferred_nodes(rule, around.available)


def cure_of_ha(guest: Guest, around: Surroundings) -> str:
    """Return what lets a guest of the HA manager leave the node to which it is brought back: nothing if no other node
    could take it then.
    """
    for rule in _node_rules(guest, around):
        best = _brings_to(rule, guest, around)
        next_best = preferred_nodes(rule, around.available - {guest.node})
        if guest.node in best and not around.available <= best and next_best - around.drained:
            of_group = f"set nofailback of {rule.label}"
            end = of_group if rule.from_group else "set failback of its HA resource to 0"
            enable = f"ha-manager crm-command node-maintenance enable {guest.node}"
            return f"put {guest.node} into HA maintenance ({enable}): the HA manager then moves it itself; or {end}"
    return ""


def together_with(guest: Guest, check: Mapping[str, t.Any], around: Surroundings) -> frozenset[int]:
    """Return the guests that the HA manager moves along with one of its own."""
    # The rules say it where the check does not: before 9 it has no such key.
    told = [re.fullmatch(r"(?:vm|ct):(\d{1,9})", str(sid)) for sid in check.get("dependent-ha-resources") or ()]
    return companions_of(around.rules, guest.vmid).union(int(sid[1]) for sid in told if sid) - {guest.vmid}
