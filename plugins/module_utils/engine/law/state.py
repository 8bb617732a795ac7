# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The input of the law: a cluster, the decisions of a run, and the rules that were in force."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...model import Decision, Expression, Node, Request, Snapshot, StorageClass

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


@dataclass(frozen=True, slots=True)
class State:
    """The cluster before a run, with the reservations of others, and the run's decisions with the rules for each."""

    snapshot: Snapshot
    decided: tuple[tuple[Decision, InForce], ...]

    def under(self, rule: str) -> list[tuple[Decision, InForce]]:
        """The decisions for which a rule is in force."""
        return [(decision, in_force) for decision, in_force in self.decided if rule in in_force.rules]


class Drive(t.NamedTuple):
    """A drive that a decision makes: storage is the one that it must be on, if any, others are the slots of drives that
    must be there, too.
    """

    slot: str
    size: int
    storage: str | None
    storage_class: str | None
    content: str = "images"
    others: tuple[str, ...] = ()


def drives(decision: Decision, volumes: Mapping[tuple[str, str], int | None]) -> Iterator[Drive]:
    """The drives that a decision makes; volumes are the sizes of images, as in the snapshot."""
    request, clone, template = decision.request, decision.request.clone, decision.template
    asked = {disk.slot: disk for disk in request.disks}
    if clone is not None and template is not None:
        for slot, storage, size in template.volumes:
            disk = asked.pop(slot, None)
            wanted = disk.size if disk else 0
            copied = clone.full or slot in template.copied
            target = (clone.storage if clone.full else None) or storage
            grown = max(size, wanted) if copied else max(wanted - size, 0)
            yield Drive(slot, grown, target, disk.storage_class if disk else None)
    for disk in asked.values():
        if disk.volume is None:
            image = volumes.get((decision.node, disk.source)) if disk.source else None
            size = max(disk.size, image or 0)
            yield Drive(disk.slot, size, disk.storage, disk.storage_class, disk.content, disk.others)


def called(decision: Decision) -> str:
    """The name of a decision in reasons."""
    return f'VM "{decision.request.name}" ({decision.vmid}) on {decision.node}'


def asked_nodes(request: Request) -> tuple[str | None, str | None, tuple[Expression, ...]]:
    """The name, the pattern and the expressions by which a request asks for nodes."""
    regex = request.node_regex or request.context.get("node.qemu-scheduler/regex")
    return request.node, regex, request.node_required


def matches(expression: Expression, node: Node) -> bool:
    """Whether an expression holds for a node, by Kubernetes' rules."""
    value, values = label(node, expression.key), expression.values
    match expression.operator:
        case "In" | "NotIn" as operator:
            return (value in values) is (operator == "In")
        case "Exists" | "DoesNotExist" as operator:
            return (value is not None) is (operator == "Exists")
    try:
        number, limit = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > limit if expression.operator == "Gt" else number < limit


def label(node: Node, key: str) -> str | None:
    """The node's label; its name is one, too."""
    return node.name if key == "node" else node.labels.get(key)
