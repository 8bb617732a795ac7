# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the HA manager applies its rules to one VM: where it will run the VM, and which rules it refuses.

Pure functions. Except for find_rule, they take rules whose members already include the VM. HA groups are represented as
node-affinity rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import InvalidRequest
from ..model import HAIntent, HARule
from .texts import hint

NODES = "node-affinity"
RESOURCES = "resource-affinity"


@dataclass(frozen=True, slots=True)
class Enforced:
    """Where the HA manager will run a VM.

    Attributes:
        by_nodes: the node-affinity rule that holds for the VM.
        together: the node of the VMs that it is kept with, and the rule's name; None if it is kept with none.
        apart: nodes of the VMs that it is kept apart from, each with the rule's name.
    """

    by_nodes: HARule | None = None
    together: tuple[str, str] | None = None
    apart: Mapping[str, str] = field(default_factory=dict)


def find_rule(rules: Sequence[HARule], intent: HAIntent) -> HARule | None:
    """Return the rule or group that intent names; None when it names none. Raises InvalidRequest."""
    if intent.joins is None:
        return None
    groups = {rule.name: rule for rule in rules if rule.from_group}
    others = {rule.name: rule for rule in rules if not rule.from_group}
    kind, known, unused = ("rule", others, groups) if intent.rule is not None else ("group", groups, others)
    if intent.joins in known:
        require_known(known[intent.joins])
        return known[intent.joins]
    names = f"{', '.join(sorted(known)) or 'none'}{hint(known, intent.joins)}"
    text = f"ha.{kind}: unknown HA {kind} {intent.joins!r}; known {kind}s: {names}"
    if unused and not known:
        other = "rule" if kind == "group" else "group"
        text = f"{text}; this cluster has HA {other}s, use ha.{other}: {', '.join(sorted(unused))}"
    raise InvalidRequest(text)


def require_known(rule: HARule) -> None:
    """Raise InvalidRequest for a rule of which this version does not know everything."""
    if rule.unknown and not rule.disabled:
        kind = "group" if rule.from_group else "rule"
        text = f"ha.{kind}: {rule.name!r} has {rule.unknown}, which this version of the collection does not know"
        raise InvalidRequest(text)


def enforce(rules: Iterable[HARule], vmid: int, located: Mapping[int, str]) -> Enforced:
    """Return where the HA manager will run the VM. located maps VMIDs to their nodes. Disabled rules do not count.

    VMs that rules keep together share each other's rules. If they run on several nodes, the HA manager brings all of
    them to the node with the most of them; of equal nodes, to the first by name.
    """
    active = [rule for rule in sorted(rules, key=lambda rule: rule.name) if not (rule.disabled or rule.unknown)]
    group = companions_of(active, vmid)
    mine = [rule for rule in active if rule.vmids & group]
    by_nodes = [rule for rule in mine if rule.type == NODES]
    # The VM's own rule takes precedence over one that it has through another VM.
    by_nodes.sort(key=lambda rule: vmid not in rule.vmids)
    at = Counter(located[member] for member in group - {vmid} if member in located)
    together = next((rule.name for rule in mine if rule.type == RESOURCES and rule.positive), "")
    apart = {
        located[other]: rule.name
        for rule in mine
        if rule.type == RESOURCES and not rule.positive
        for other in rule.vmids - group
        if other in located
    }
    return Enforced(
        by_nodes=by_nodes[0] if by_nodes else None,
        together=(min(at, key=lambda node: (-at[node], node)), together) if at else None,
        apart=apart,
    )


def companions_of(rules: Iterable[HARule], vmid: int) -> frozenset[int]:
    """Return the VM and all that positive rules keep with it, directly or through others."""
    positive = [rule.vmids for rule in rules if rule.type == RESOURCES and rule.positive and not rule.disabled]
    group = frozenset({vmid})
    while True:
        larger = group.union(*(vmids for vmids in positive if vmids & group))
        if larger == group:
            return group
        group = larger


def refusal(rules: Iterable[HARule], name: str, vmid: int, node_count: int) -> str | None:
    """Return why Proxmox would refuse rule C(name) with the VM in it, or None. Groups and disabled rules are never
    refused.
    """
    active = {rule.name: _of_guests(rule) for rule in rules if not rule.disabled and not rule.from_group}
    rule = active.get(name)
    if rule is None:
        return None
    others = [other for other in active.values() if other.name != name]
    if rule.type == NODES:
        return _node_rule_refusal(others, vmid)
    touching = [other for other in others if other.type == NODES and other.vmids & rule.vmids]
    if len(rule.vmids) < 2 and not rule.planned:
        return "it would have one VM only, and is about two or more"
    if any(other.positive and len(set(other.nodes.values())) > 1 for other in touching):
        return "its VMs are in a node-affinity rule with several priorities, which excludes resource affinity"
    if rule.positive:
        return _positive_refusal(list(active.values()), others, rule, touching)
    return _negative_refusal(list(active.values()), rule, touching, node_count)


def _of_guests(rule: HARule) -> HARule:
    """Return the rule without the negative VMIDs by which guests that are being moved count on a second node."""
    return replace(rule, vmids=frozenset(vmid for vmid in rule.vmids if vmid >= 0))


def preferences(rule: HARule, nodes: Iterable[str]) -> Mapping[str, float]:
    """Return how much the HA manager prefers each of the nodes by a node-affinity rule:

    100 for the highest priority, evenly less for each lower one. Nodes on which the rule does not want its members get
    0; all nodes that a negative rule does not name have the same priority.
    """
    ranks = {node: rule.nodes.get(node, 0) for node in nodes if rule.wants(node)}
    levels = sorted(set(ranks.values()) | (set(rule.nodes.values()) if rule.positive else set()))
    worth = {level: 100.0 * number / len(levels) for number, level in enumerate(levels, 1)}
    return {node: worth[level] for node, level in ranks.items()}


def preferred_nodes(rule: HARule, available: Iterable[str]) -> frozenset[str]:
    """Return the nodes on which the HA manager keeps a member of a node-affinity rule, out of the available ones: those
    with the highest priority, or, unless the rule is strict, all others if it wants none of them.
    """
    available = list(available)
    wanted = [node for node in available if rule.wants(node)]
    highest = max((rule.nodes.get(node, 0) for node in wanted), default=0)
    best = frozenset(node for node in wanted if rule.nodes.get(node, 0) == highest)
    return best or (frozenset() if rule.strict else frozenset(available))


def _node_rule_refusal(others: Sequence[HARule], vmid: int) -> str | None:
    for other in others:
        if other.type == NODES and vmid in other.vmids:
            return f"the VM is in node-affinity rule '{other.name}' already, and may be in one only"
    return None


def _positive_refusal(
    active: Sequence[HARule], others: Sequence[HARule], rule: HARule, touching: Sequence[HARule]
) -> str | None:
    """Return why the HA manager refuses a rule that keeps VMs together; None if it accepts it. touching are the node-
    affinity rules about its VMs.
    """
    if len(touching) > 1:
        names = "' and '".join(sorted(other.name for other in touching))
        return f"its VMs are in several node-affinity rules: '{names}'"
    group = companions_of(active, min(rule.vmids))
    for other in others:
        if other.type == RESOURCES and not other.positive and len(group & other.vmids) >= 2:
            return f"it shares two or more VMs with rule '{other.name}', which keeps them apart"
    return None


def _negative_refusal(
    active: Sequence[HARule], rule: HARule, touching: Sequence[HARule], node_count: int
) -> str | None:
    """Return why the HA manager refuses a rule that keeps VMs apart; None if it accepts it. touching are the node-
    affinity rules about its VMs.
    """
    if len(rule.vmids) > node_count:
        return f"it would keep {len(rule.vmids)} VMs apart on {node_count} nodes"
    for vmid in sorted(rule.vmids):
        group = companions_of(active, vmid)
        if len(group & rule.vmids) >= 2:
            name = next(o.name for o in active if o.type == RESOURCES and o.positive and o.vmids & group)
            return f"it shares two or more VMs with rule '{name}', which keeps them together"
    strict = [other for other in touching if other.strict]
    bound = rule.vmids & frozenset[int]().union(*(other.vmids for other in strict))
    nodes = {node for other in strict if other.positive for node in other.nodes}
    # What a negative rule leaves is at least that many nodes, and they may be the others.
    left = max((node_count - len(other.nodes) for other in strict if not other.positive), default=0)
    count = max(len(nodes), left)
    if len(bound) >= 2 and count < len(bound):
        return f"{len(bound)} of its VMs are bound to {count} node(s) by strict node-affinity rules"
    return None
