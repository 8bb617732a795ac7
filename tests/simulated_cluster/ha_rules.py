# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which HA rules the HA manager of release 9 would refuse, and with which words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PRIORITIES = "resources are in node affinity rules with multiple priorities"
MULTIPLE_RULES = "resources are in multiple node affinity rules"
INEFFECTIVE = "rule is ineffective as there are less than two resources"
MORE_THAN_NODES = "rule defines more resources than available nodes"
ALL_NODES = "negative node affinity rule must not specify all cluster nodes"
PRIORITIZED = "negative node affinity rule must not specify node priorities"
RESTRICTED = "two or more resources are restricted to less nodes than available to the resources"


def resources_of(rule: dict[str, Any]) -> list[str]:
    return [sid for sid in str(rule.get("resources", "")).split(",") if sid]


def nodes_of(rule: dict[str, Any]) -> dict[str, int]:
    """Node name to priority."""
    nodes: dict[str, int] = {}
    for item in str(rule.get("nodes", "")).split(","):
        if item:
            name, _, priority = item.partition(":")
            nodes[name] = int(priority or 0)
    return nodes


def wanted_nodes(rule: dict[str, Any], cluster_nodes: Iterable[str]) -> dict[str, int]:
    """The nodes of a node-affinity rule with their priorities; of a negative one, all nodes that it does not name."""
    named = nodes_of(rule)
    if rule.get("affinity") != "negative":
        return named
    return {name: 0 for name in cluster_nodes if name not in named}


def _is_about_resources(rule: dict[str, Any], affinity: str) -> bool:
    return rule["type"] == "resource-affinity" and rule.get("affinity") == affinity


def problems_of_nodes(rule: dict[str, Any], node_count: int) -> list[str]:
    """What is wrong with the nodes of an enabled rule."""
    if rule["type"] != "node-affinity" or rule.get("affinity") != "negative" or rule.get("disable"):
        return []
    nodes = nodes_of(rule)
    return [*([ALL_NODES] if len(nodes) >= node_count else []), *([PRIORITIZED] if any(nodes.values()) else [])]


def problems(rules: dict[str, dict[str, Any]], node_count: int) -> dict[str, list[str]]:
    """Rule id to what is wrong with it among the enabled rules; rules without a problem are left out."""
    enabled = {name: rule for name, rule in rules.items() if not rule.get("disable")}
    by_node = {name: rule for name, rule in enabled.items() if rule["type"] == "node-affinity"}
    apart = {name: rule for name, rule in enabled.items() if _is_about_resources(rule, "negative")}
    together = {name: rule for name, rule in enabled.items() if _is_about_resources(rule, "positive")}
    found: dict[str, list[str]] = {}
    for name, rule in by_node.items():
        for sid in resources_of(rule):
            if any(sid in resources_of(other) for key, other in by_node.items() if key != name):
                _note(found, name, f"resource '{sid}' is already used in another node affinity rule")
    for name, rule in {**apart, **together}.items():
        if len(resources_of(rule)) < 2:
            _note(found, name, INEFFECTIVE)
    for name, rule in apart.items():
        if len(resources_of(rule)) > node_count:
            _note(found, name, MORE_THAN_NODES)
    _clashes(found, together, apart)
    _with_nodes(found, by_node, together, apart)
    return found


def _clashes(found: dict[str, list[str]], together: dict[str, Any], apart: dict[str, Any]) -> None:
    for name, rule in together.items():
        group = _connected(set(resources_of(rule)), together.values())
        for other, negative in apart.items():
            if len(group & set(resources_of(negative))) >= 2:
                _note(found, name, "rule shares two or more resources with a negative resource affinity rule")
                _note(found, other, "rule shares two or more resources with a positive resource affinity rule")


def _connected(group: set[str], rules: Iterable[dict[str, Any]]) -> set[str]:
    """Resources that positive rules bind to the group, directly or through others."""
    rules = list(rules)
    while True:
        larger = group.union(*(set(resources_of(rule)) for rule in rules if group & set(resources_of(rule))))
        if larger == group:
            return group
        group = larger


def _with_nodes(
    found: dict[str, list[str]], by_node: dict[str, Any], together: dict[str, Any], apart: dict[str, Any]
) -> None:
    for name, rule in {**together, **apart}.items():
        sids = set(resources_of(rule))
        touching = [other for other in by_node.values() if sids & set(resources_of(other))]
        if any(len(set(nodes_of(other).values())) > 1 for other in touching):
            _note(found, name, PRIORITIES)
        if name in together and len(touching) > 1:
            _note(found, name, MULTIPLE_RULES)
        if name in apart:
            strict = [other for other in touching if other.get("strict")]
            bound = {sid for other in strict for sid in sids & set(resources_of(other))}
            available = {node for other in strict for node in nodes_of(other)}
            if len(bound) >= 2 and len(available) < len(bound):
                _note(found, name, RESTRICTED)


def _note(found: dict[str, list[str]], name: str, text: str) -> None:
    texts = found.setdefault(name, [])
    if text not in texts:
        texts.append(text)


def blocking(rules: dict[str, dict[str, Any]], sid: str, located: dict[str, str], target: str) -> list[str]:
    """Resources on the target that negative rules keep away from ``sid`` or from what moves along with it."""
    group = {sid, *bound_together(rules, sid)}
    enemies: set[str] = set()
    for rule in rules.values():
        members = set(resources_of(rule))
        if _is_about_resources(rule, "negative") and not rule.get("disable") and group & members:
            enemies |= members
    enemies = _connected(enemies - group, _positive(rules)) - group
    return sorted(other for other in enemies if located.get(other) == target)


def bound_together(rules: dict[str, dict[str, Any]], sid: str) -> list[str]:
    """Resources that positive rules move along with ``sid``."""
    return sorted(_connected({sid}, _positive(rules)) - {sid})


def _positive(rules: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for rule in rules.values() if _is_about_resources(rule, "positive") and not rule.get("disable")]
