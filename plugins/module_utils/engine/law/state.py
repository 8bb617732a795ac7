# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The input of the law: a cluster, the decisions of a run, and the rules that were in force."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...model import Decision, Guest, Node, Snapshot, StorageClass

NAMES = "Names"
"""The rule that a new VM has a name of its own: there is no plugin for it."""

RULES = frozenset({
    "CPUOvercommit", "DeviceClaims", "GuestLimit", "HARules", "MemoryOvercommit", "NodeAffinity", "NodeName",
    "NodeReady", "NodeRegex", "TaintToleration", "TemplateLocality", "TopologySpread", "VCPULimit", "VMAffinity",
    "VolumeBinding",
})  # fmt: skip
"""The plugins whose rules the law knows."""


@dataclass(frozen=True, slots=True)
class Overcommit:
    """How much of a node's CPU or memory may be allocated; reserved is in the unit of the resource."""

    ratio: float
    reserved: float = 0.0
    pools: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, float] = field(default_factory=dict)
    include_stopped: bool = False


@dataclass(frozen=True, slots=True)
class InForce:
    """The rules in force for a decision, by the names of their plugins, with their settings."""

    rules: frozenset[str] = RULES
    cpu: Overcommit = Overcommit(4.0)
    memory: Overcommit = Overcommit(1.0)
    storage_classes: Mapping[str, StorageClass] = field(default_factory=dict)
    max_guests: int | None = None
    max_tagged: Mapping[str, int] = field(default_factory=dict)


class Placed(t.NamedTuple):
    """A decision, the rules in force for it, and the VM as rules about others see it."""

    decision: Decision
    in_force: InForce
    guest: Guest

    def __str__(self) -> str:
        return f'VM "{self.decision.request.name}" ({self.decision.vmid}) on {self.decision.node}'


@dataclass(frozen=True)
class State:
    """The cluster before a run, with the reservations of others, and the run's decisions with the rules for each."""

    snapshot: Snapshot
    decided: tuple[tuple[Decision, InForce], ...]

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.snapshot.nodes}

    @cached_property
    def guests(self) -> Sequence[Guest]:
        """All guests but templates."""
        return [guest for guest in self.snapshot.guests if not guest.template]

    @cached_property
    def placed(self) -> Sequence[Placed]:
        return [Placed(decision, in_force, arrived(decision)) for decision, in_force in self.decided]

    def under(self, rule: str) -> list[Placed]:
        """The decisions for which a rule is in force."""
        return [each for each in self.placed if rule in each.in_force.rules]


def arrived(decision: Decision) -> Guest:
    """The VM of a decision as a guest."""
    request = decision.request
    return Guest(
        decision.vmid, request.name, decision.node, status="assumed", cores=request.cores, memory=request.memory,
        tags=request.tags, pool=request.pool, constraints=request.constraints,
    )  # fmt: skip
