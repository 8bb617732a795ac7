# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which a batch of requests is placed if the largest come first: small VMs then fill the gaps that large
ones leave, and loads come out even.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Request
from .cache import ClusterState
from .framework.profile import Profile


def packing_order(cluster: ClusterState, profile: Profile, requests: Sequence[Request]) -> list[int] | None:
    """Return the positions of the requests, largest first; None if that is their order already.

    The size of a request is its dominant share of what the nodes may allocate. VMs that must share a node count as one,
    and stay next to each other. VMs of a gang, which may be on different nodes, count one by one, because more batches
    fit that way. Requests of one size keep their order.
    """
    nodes = [info.node for info in cluster.nodes if info.node.online]
    cores = sum(profile.policy.cpu.allocatable(node) for node in nodes) or 1.0
    memory = sum(profile.policy.memory.allocatable(node) for node in nodes) or 1.0
    sizes = [max(request.cores / cores, request.memory / memory) for request in requests]
    keys = [(-size, position) for position, size in enumerate(sizes)]
    for group in _that_share_a_node(requests):
        room = sum(sizes[position] for position in group)
        for position in group:
            keys[position] = (-room, group[0])
    order = sorted(range(len(requests)), key=lambda position: (keys[position], -sizes[position]))
    return None if order == list(range(len(requests))) else order


def _that_share_a_node(requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """Return the positions of the requests of each group whose VMs must be on one node."""
    if not any(request.affinity for request in requests):
        return []
    # Few runs need the planner.
    from .planner.items import requests_together

    return requests_together(requests)
