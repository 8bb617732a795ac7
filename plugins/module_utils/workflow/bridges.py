# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes' bridges decisions depend on, and whether those stand that were made while some were not known."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from ..engine.plugins.nodes import missing_bridge
from ..engine.scheduling_cycle import Scheduler
from ..errors import NoNodesAvailable, NoStorageAvailable
from ..model import Node, Request
from .access import Access
from .placement import Placement


def ask_if_bridges_lack(access: Access, placement: Placement) -> bool:
    """Whether the decisions depend on bridges that are not known: a chosen node lacks one, or a VM that needs one found
    no place. Takes one request for each chosen node whose bridges are not known.
    """
    hosts = {node.name: node for node in placement.before.nodes if node.online}
    if all(node.bridges is not None for node in hosts.values()):
        return False
    outcomes = [job.outcome for job in placement.new if job.outcome is not None and job.outcome.request.bridges]
    if any(isinstance(outcome.error, (NoNodesAvailable, NoStorageAvailable)) for outcome in outcomes):
        return True
    decisions = [each.decision for each in outcomes if each.decision is not None]
    # A profile may place VMs on nodes that are not online.
    chosen = [(each.node, each.request.bridges) for each in decisions if each.node in hosts]
    wanted = frozenset[str]().union(*(bridges for _node, bridges in chosen))
    found = access.bridges.read_for([hosts[name] for name, _bridges in chosen], wanted)
    return any(missing_bridge(bridges, replace(hosts[name], bridges=found[name])) for name, bridges in chosen)


def with_bridges_of_eligible(access: Access, scheduler: Scheduler, requests: Iterable[Request]) -> tuple[Node, ...]:
    """Return the nodes with the bridges of those that nothing else excludes for good, whatever else changes. Takes one
    request for each of them whose bridges are not known.

    If a VM finds its bridges on none of these, the other nodes are read as well, to tell which bridges there are.
    """
    online = {info.name: info.node for info in scheduler.cluster.nodes if info.node.online}
    with_cards = (each for each in requests if each.bridges)
    # Those of a count differ in nothing but the name.
    for _kind, same in groupby(with_cards, lambda each: replace(each, name="")):
        request = next(same)
        refusals = scheduler.refusals(request, math.inf)
        for_good = {name for name, refused in refusals.items() if not all(each.resolvable for each in refused.values())}
        eligible = [node for name, node in online.items() if name not in for_good]
        found = access.bridges.read_for(eligible, request.bridges)
        known = [replace(node, bridges=found[node.name]) for node in eligible]
        if known and all(missing_bridge(request.bridges, node) for node in known):
            access.bridges.read(online.values())
    return access.bridges.add_to(scheduler.cluster.snapshot.nodes, set(), of_all=False)
