# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts how many more VMs fit: places one shape, or several in turn, until one no longer fits, and reports why."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import NoNodesAvailable, NoStorageAvailable, NoVMIDAvailable
from ..model import Decision, Request
from .cache import ClusterState
from .framework.status import Category
from .profiles import Profile
from .scheduling_cycle import Scheduler
from .verdicts import Outcome

MOST = 10_000
"""The counting stops after this many VMs, as a shape that takes nothing would always fit."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """How many of the VMs fit on one node, and why no more do.

    limited_by is C(cpu), C(memory) or C(storage) if that ran out, else the plugin that rejects the node; None if the
    node would accept more. reason is that of the plugin.
    """

    node: str
    fit: int
    limited_by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """How many VMs fit.

    total counts the VMs of all shapes, shapes those of each shape in order. limited_by is what limits the most nodes,
    or the error code if no node is the cause (C(NoVMIDAvailable)); None if the counting stopped at its bound. reason is
    the message for the VM that no longer fitted.
    """

    total: int
    nodes: tuple[NodeCapacity, ...]
    shapes: tuple[int, ...]
    limited_by: str | None = None
    reason: str | None = None


def how_many(
    cluster: ClusterState,
    profiles: Mapping[str, Profile],
    shapes: Sequence[Request],
    *,
    default_profile: str = "balanced",
    most: int = MOST,
) -> CapacityReport:
    """Count how many VMs of the shapes fit. Several shapes are placed in turn until one no longer fits.

    Fixed VMIDs, scheduling gates, delays and groups of the shapes are ignored. The cluster is left as it was. Raises
    InvalidRequest and PluginFailed.
    """
    scheduler = Scheduler(cluster, profiles, default_profile)
    requests = [replace(shape, vmid=None) for shape in shapes]
    fits = [0] * len(shapes)
    per_node: Counter[str] = Counter()
    placed: list[Decision] = []
    last: Outcome | None = None
    try:
        for number in itertools.cycle(range(len(shapes))):
            outcome = scheduler.schedule(requests[number], math.inf)
            if outcome.decision is None:
                last = outcome
                break
            placed.append(outcome.decision)
            fits[number] += 1
            per_node[outcome.decision.node] += 1
            if len(placed) >= most:
                break
    finally:
        for decision in reversed(placed):
            scheduler.undo(decision)
    names = [info.name for info in cluster.nodes]
    if last is None:
        return CapacityReport(len(placed), tuple(NodeCapacity(name, per_node[name]) for name in names), tuple(fits))
    return _report(last, names, per_node, tuple(fits))


def _report(last: Outcome, names: Sequence[str], per_node: Counter[str], fits: tuple[int, ...]) -> CapacityReport:
    error = last.error
    if error is None:
        raise ValueError("the last outcome is one that found no place")
    if not isinstance(error, (NoNodesAvailable, NoStorageAvailable, NoVMIDAvailable)):
        raise error
    nodes = []
    never_meant = set()
    rejections = last.looked.rejections() if last.looked is not None else [None] * len(names)
    for name, rejection in zip(names, rejections, strict=True):
        if rejection is None:
            nodes.append(NodeCapacity(name, per_node[name]))
            continue
        limited_by = rejection.shortages[0].resource if rejection.shortages else rejection.plugin
        nodes.append(NodeCapacity(name, per_node[name], limited_by, rejection.text))
        if rejection.category is Category.PLACEMENT:
            never_meant.add(limited_by)
    votes = Counter(node.limited_by for node in nodes if node.limited_by is not None)
    meant = {limit: count for limit, count in votes.items() if limit not in never_meant} or votes
    limited_by = min(meant, key=lambda limit: (-meant[limit], limit), default=error.code)
    return CapacityReport(sum(fits), tuple(nodes), fits, limited_by, error.message)
