# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""WhatIf: what would have to change for a VM that could not be placed."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ...model import Request
from ..cache import ClusterState
from ..cloning import cloned_disks
from ..findings import WHAT_IF, findings_in_parts, shortages_in
from ..framework.interface import PostFilterPlugin
from ..framework.status import Status

Refusals = Mapping[str, Mapping[str, Status]]


class WhatIf(PostFilterPlugin):
    """For a VM that no node accepts, finds which nodes would fit without a single one of the rules, and how much CPU,
    memory and storage is missing on the closest node.

    The closest node is the one that the fewest other rules reject; of several, the one that lacks the smallest fraction
    of the request. A node that is offline or in HA maintenance is named only if there is no other. If several drives
    find no space, only the first one counts.
    """

    name = WHAT_IF

    def post_filter(self, request: Request, cluster: ClusterState, refusals: Refusals) -> Mapping[str, t.Any]:
        """C(rules) maps a rule to the nodes that would fit without it; C(nearest) has C(node), C(missing) (C(cpu) in
        vCPUs, C(memory) and C(storage) in bytes) and C(also) (the other rules that refuse it), or is None where there
        is no node. C(summary) says of both what comes first.
        """
        ready = {info.name for info in cluster.nodes if info.node.is_open}
        considered = {node: by_plugin for node, by_plugin in refusals.items() if node in ready} or refusals
        found = {"rules": sole_refusals(refusals), "nearest": nearest_node(request, considered)}
        return {**found, "summary": "; ".join(findings_in_parts(found, most_rules=1))}


def sole_refusals(refusals: Refusals) -> dict[str, list[str]]:
    """Return for each rule the nodes that it alone refuses, both in order of name."""
    rules: dict[str, list[str]] = {}
    for node, by_plugin in sorted(refusals.items()):
        if len(by_plugin) == 1:
            rules.setdefault(next(iter(by_plugin)), []).append(node)
    return dict(sorted(rules.items()))


def nearest_node(request: Request, refusals: Refusals) -> dict[str, t.Any] | None:
    """Return the node that is the closest to fitting; None when there is none."""

    if not refusals:
        return None
    asked = {resource: _amount(request, resource) for resource in ("cpu", "memory", "storage")}

    def distance(node: str) -> tuple[int, float, str]:
        missing = shortages_in(refusals[node])
        others = sum(not status.shortages for status in refusals[node].values())
        return others, sum(amount / asked.get(what, 1.0) for what, amount in missing.items()), node

    best = min(refusals, key=distance)
    return {"node": best, "missing": shortages_in(refusals[best]), "also": _refusing_rules(refusals[best])}


def _amount(request: Request, resource: str) -> float:
    disks = request.disks if request.clone is None else cloned_disks(request, request.clone.templates[0])
    storage = sum(disk.size for disk in disks)
    asked: Mapping[str, float] = {"cpu": request.cores, "memory": request.memory, "storage": storage}
    return max(asked.get(resource, 1.0), 1.0)


def _refusing_rules(by_plugin: Mapping[str, Status]) -> list[str]:
    """Return the rules that refuse a node for something else than a shortage."""
    return sorted(plugin for plugin, status in by_plugin.items() if not status.shortages)
