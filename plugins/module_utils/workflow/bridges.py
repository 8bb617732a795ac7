# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether decisions stand that were made while the bridges of some nodes were not known."""

from __future__ import annotations

from dataclasses import replace

from ..engine.plugins.nodes import missing_bridge
from ..errors import NoNodesAvailable, NoStorageAvailable
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
