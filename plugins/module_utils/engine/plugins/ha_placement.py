# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HARules: where the HA manager would move the VM anyway."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ...errors import InvalidRequest
from ...model import HARule, Request
from ..cache import ClusterState, NodeInfo
from ..framework.interface import CycleState, PreFilterPlugin
from ..framework.many_nodes import FilterOfMany, ScoreOfMany
from ..framework.status import SKIP, SKIP_SCORE, Status, unresolvable, unschedulable
from ..ha_rules import RESOURCES, Enforced, enforce, preferences, refusal, require_known

NOT_A_NODE_OF = "weren't among the nodes of {}"
AVOIDED_BY = "were avoided by {}"
NOT_TOGETHER = "didn't hold the VMs of HA rule '{}'"
NOT_APART = "held a VM of HA rule '{}'"

NEW_VM = 0
"""Stands for the VMID that is not chosen yet; no guest has it."""


class Places(t.NamedTuple):
    """Where the HA manager would leave the VM, and the answers for the other nodes, which are made once for all nodes.

    Attributes:
        strict: the strict node-affinity rule, if one holds; outside is the answer for nodes on which it does not want
            the VM.
        together: the node of the VMs that this one is kept with, if there are any; elsewhere is the answer for others.
        apart: the answers for nodes of VMs that this one is kept apart from.
        preferred: how much the HA manager prefers nodes.
    """

    strict: HARule | None
    outside: Status
    together: str | None
    elsewhere: Status
    apart: Mapping[str, Status]
    preferred: Mapping[str, float]


class HARules(PreFilterPlugin, FilterOfMany, ScoreOfMany):
    """Rejects nodes from which the HA manager would move a VM that joins an HA rule or group: those outside of a strict
    node-affinity rule, or, if it is negative, those that it names; those without the VMs that a positive rule keeps it
    with, those with VMs that a negative rule keeps it apart from. Scores the nodes on which a node-affinity rule wants
    the VM by priority: the highest 100, all others 0.

    A rule that is unknown, that has keys or values unknown to this version, or that Proxmox would refuse with this VM
    in it, is an error. Disabled rules do not count.
    """

    name = "HARules"
    weight = 10.0
    bounded = True
    about = ("ha",)

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        intent = request.ha
        if intent is None or not is_concerned(request):
            return SKIP
        vmid = NEW_VM if request.vmid is None else request.vmid
        joined, rules = cluster.ha_rules.with_vm(vmid, intent)
        if joined is not None:
            require_known(joined)
        problem = refusal(rules, joined.name, vmid, len(cluster.nodes)) if joined is not None else None
        if joined is not None and problem is not None:
            raise InvalidRequest(f'ha: Proxmox would refuse rule {joined.name!r} with VM "{request.name}": {problem}')
        members = frozenset[int]().union(*(rule.vmids for rule in rules if rule.type == RESOURCES))
        located = {guest.vmid: guest.node for member in members if (guest := cluster.guests.get(member)) is not None}
        found = enforce(rules, vmid, located)
        state[self.name] = _places(found, [node.name for node in cluster.nodes])
        return SKIP_SCORE if found.by_nodes is None else None

    def filter_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[Status | None]:
        places: Places = state[self.name]
        names = [node.node.name for node in nodes]
        answers: list[Status | None] = [places.apart.get(name) for name in names]
        if places.together is not None:
            together, elsewhere = places.together, places.elsewhere
            answers = [elsewhere if name != together else answer for name, answer in zip(names, answers, strict=True)]
        if places.strict is not None:
            wants, outside = places.strict.wants, places.outside
            answers = [answer if wants(name) else outside for name, answer in zip(names, answers, strict=True)]
        return answers

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        places: Places = state[self.name]
        preferred = places.preferred
        return [preferred.get(node.node.name, 0.0) for node in nodes]


def is_concerned(request: Request) -> bool:
    """Whether a rule may hold for the request: it joins one, or has a VMID that may be in one already."""
    return request.ha is not None and (request.ha.joins is not None or request.vmid is not None)


def outside_of(rule: HARule) -> str:
    """Return why a node on which a node-affinity rule does not want its members is rejected."""
    return (NOT_A_NODE_OF if rule.positive else AVOIDED_BY).format(rule.label)


def _places(found: Enforced, nodes: Sequence[str]) -> Places:
    """Return what the enforced rules say of each node, as statuses that are made once."""
    rule = found.by_nodes
    together, kept_with = found.together or (None, "")
    return Places(
        strict=rule if rule is not None and rule.strict else None,
        outside=unresolvable(outside_of(rule) if rule is not None else ""),
        together=together,
        elsewhere=unschedulable(NOT_TOGETHER.format(kept_with)),
        apart={node: unschedulable(NOT_APART.format(name)) for node, name in found.apart.items()},
        preferred={} if rule is None else preferences(rule, nodes),
    )
