# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HARules: where the HA manager would move the VM anyway."""

from __future__ import annotations

from collections.abc import Mapping

from ....errors import InvalidRequest
from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import FilterPlugin, PreFilterPlugin, ScorePlugin
from ...framework.status import SKIP, SKIP_SCORE, Status, unresolvable, unschedulable
from ...ha_rules import RESOURCES, Enforced, enforced, preferences, refusal

NOT_A_NODE_OF = "weren't among the nodes of HA rule '{}'"
NOT_TOGETHER = "didn't hold the VMs of HA rule '{}'"
NOT_APART = "held a VM of HA rule '{}'"

NEW_VM = 0
"""Stands for the VMID that is not chosen yet; no guest has it."""


class HARules(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes from which the HA manager would move a VM that joins an HA rule or group: those outside of a strict
    node-affinity rule, those without the VMs that a positive rule keeps it with, those with VMs that a negative rule
    keeps it apart from. Scores the nodes of a node-affinity rule by priority: the highest 100, 0 outside of the rule.

    A rule that is unknown, or that Proxmox would refuse with this VM in it, is an error. Disabled rules do not count.
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
        problem = refusal(rules, joined.name, vmid, len(cluster.nodes)) if joined is not None else None
        if joined is not None and problem is not None:
            raise InvalidRequest(f'ha: Proxmox would refuse rule {joined.name!r} with VM "{request.name}": {problem}')
        members = frozenset[int]().union(*(rule.vmids for rule in rules if rule.type == RESOURCES))
        located = {guest.vmid: guest.node for member in members if (guest := cluster.get(member)) is not None}
        found = enforced(rules, vmid, located)
        state[self.name] = found, {} if found.by_nodes is None else preferences(found.by_nodes)
        return SKIP_SCORE if found.by_nodes is None else None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        found: Enforced = state[self.name][0]
        return fits(found, node.name)

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        preferred: Mapping[str, float] = state[self.name][1]
        return preferred.get(node.name, 0.0)


def is_concerned(request: Request) -> bool:
    """Whether a rule may hold for the request: it joins one, or has a VMID that may be in one already."""
    return request.ha is not None and (request.ha.joins is not None or request.vmid is not None)


def fits(found: Enforced, node: str) -> Status | None:
    """None when the HA manager would leave the VM on node, as far as rules go; else the status."""
    rule = found.by_nodes
    if rule is not None and rule.strict and node not in rule.nodes:
        return unresolvable(NOT_A_NODE_OF.format(rule.name))
    if found.together is not None and node != found.together[0]:
        return unschedulable(NOT_TOGETHER.format(found.together[1]))
    if node in found.apart:
        return unschedulable(NOT_APART.format(found.apart[node]))
    return None
