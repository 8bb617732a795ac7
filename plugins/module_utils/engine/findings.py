# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would have to change for a VM that could not be placed, in words."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from .texts import first, join_words, vcpus

if t.TYPE_CHECKING:
    from .framework.status import Status

WHAT_IF = "WhatIf"
"""The plugin that makes the findings."""

CURES = {
    "TopologySpread": " (a constraint with when_unsatisfiable=schedule_anyway is a preference)",
    "VMAffinity": " (a rule of affinity with required=false is a preference, or use topology_spread)",
}
"""How a rule of the task becomes a preference."""

OPTIONS = {
    "CPUModel": "cpu",
    "DeviceClaims": "devices",
    "HARules": "HA rules",
    "NamedResources": "named resources",
    "NetworkBridge": "bridges",
    "NodeAffinity": "node_affinity",
    "NodeName": "node",
    "NodeRegex": "node_regex",
    "TaintToleration": "taints",
    "TemplateLocality": "clone",
    "TopologySpread": "topology_spread",
    "VMAffinity": "affinity",
}
"""What a user knows a rule by that makes nodes no place for a VM: mostly the option that makes it reject them."""

NODES_NAMED = 5
"""How many nodes the sentence names of each rule; the data has them all."""


def shortages_in(by_plugin: Mapping[str, Status]) -> dict[str, float]:
    """Return how much of each resource a node lacks: the most that any rule says."""
    missing: dict[str, float] = {}
    for status in by_plugin.values():
        for shortage in status.shortages:
            missing[shortage.resource] = max(missing.get(shortage.resource, 0), shortage.amount)
    return missing


def sentence(findings: Mapping[str, t.Any]) -> str:
    """Return the findings of WhatIf as a person reads them; empty when nothing was found."""
    text = "; ".join(findings_in_parts(findings))
    return text[:1].upper() + text[1:]


def findings_in_parts(findings: Mapping[str, t.Any], most_rules: int | None = None) -> list[str]:
    """Return the parts of that sentence, with at most so many of the rules: those that keep off the most nodes."""
    rules: list[tuple[str, list[str]]] = list(findings["rules"].items())
    if most_rules is not None:
        rules = sorted(rules, key=lambda rule: (-len(rule[1]), rule[0]))[:most_rules]
    parts = [
        f"without {OPTIONS.get(rule, rule)}, {join_words(first(nodes, NODES_NAMED))} would fit{CURES.get(rule, '')}"
        for rule, nodes in rules
    ]
    close = findings["nearest"]
    # What a single rule rejects is reported above, unless a resource is short.
    if close is not None and (close["missing"] or len(close["also"]) > 1):
        lacks = [amount_text(what, amount) for what, amount in close["missing"].items()]
        short = f"{join_words(lacks)} short" if lacks else ""
        by = f"refused by {join_words([OPTIONS.get(rule, rule) for rule in close['also']])}" if close["also"] else ""
        parts.append(f"the closest is {close['node']}: {', and '.join(filter(None, (short, by)))}")
    return parts


def amount_text(resource: str, amount: float) -> str:
    """Return an amount of CPU, memory or storage with its unit."""
    # Filters import this file in many workers, which need nothing of the model.
    from ..model import GIB

    return vcpus(amount) if resource == "cpu" else f"{amount / GIB:.1f} GiB of {resource}"
