# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node the HA manager wants a resource on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import ha_rules
from .model import Guest

if TYPE_CHECKING:
    from .cluster import Cluster


def reachable(cluster: Cluster, node: str) -> bool:
    """A node that the manager sends guests to."""
    known = cluster.nodes.get(node)
    return known is not None and known.online and not cluster.ha.in_maintenance(known)


def wanted_node(
    cluster: Cluster, sid: str, guest: Guest, *, starting: bool = False, recovering: bool = False
) -> str | None:
    """Where a guest has to go that runs, is to start, or is to be recovered; None when it may stay, or there is no such
    node.
    """
    ha = cluster.ha
    wanted = ha.resources[sid].get("state", "started") in ("started", "enabled")
    if not recovering and not (wanted and (guest.running or starting)):
        return None
    nodes = [name for name in cluster.nodes if reachable(cluster, name)]
    nodes = _by_affinity(cluster, sid, guest.node, nodes)
    partners = ha.partners(sid)
    where = ha.heading_for()
    if partners:
        home = _common_node(where, [sid, *partners], nodes)
        return None if home == guest.node else home
    nodes = [name for name in nodes if not ha_rules.blocking(ha.rules, sid, where, name)] or nodes
    former = ha.manager.service(sid).maintenance_node
    if former is not None and former in nodes:
        return former
    if not nodes or guest.node in nodes:
        return None
    return min(nodes, key=lambda name: (list(where.values()).count(name), name))


def evened_out(cluster: Cluster) -> tuple[str, Guest, str] | None:
    """The move with which the manager evens out the nodes by itself: a guest from the fullest to the emptiest node.

    None unless crs demands it, and while the nodes' memory differs by less than the threshold. A node is full by what
    its guests have, so that one that was emptied is the best target, whatever it was emptied for.
    """
    crs = cluster.options.get("crs") or {}
    if not int(crs.get("ha-auto-rebalance") or 0):
        return None
    used = {name: 0.0 for name in cluster.nodes if reachable(cluster, name)}
    for guest in cluster.guests.values():
        if guest.running and guest.node in used:
            used[guest.node] += guest.maxmem / cluster.nodes[guest.node].memory
    if not used:
        return None
    full, empty = max(used, key=lambda name: used[name]), min(used, key=lambda name: used[name])
    if used[full] - used[empty] <= float(crs.get("ha-auto-rebalance-threshold") or 30) / 100:
        return None
    for sid in cluster.ha.resources:
        moved = cluster.ha.guest_of(sid)
        if moved is not None and moved.running and moved.node == full and not cluster.ha.partners(sid):
            size = moved.maxmem / cluster.nodes[empty].memory
            allowed = _by_affinity(cluster, sid, full, list(used))
            free = not ha_rules.blocking(cluster.ha.rules, sid, cluster.ha.heading_for(), empty)
            if empty in allowed and free and used[empty] + size < used[full]:
                return sid, moved, empty
    return None


def _by_affinity(cluster: Cluster, sid: str, current: str, nodes: list[str]) -> list[str]:
    """Nodes that the resource's node-affinity rule (release 9) or group (release 8) leaves."""
    ha, resource = cluster.ha, cluster.ha.resources[sid]
    failback = bool(int(resource.get("failback", 1)))
    strict, listed = False, dict[str, int]()
    for rule in ha.rules.values():
        if rule["type"] == "node-affinity" and not rule.get("disable") and sid in ha_rules.resources_of(rule):
            strict, listed = bool(rule.get("strict")), ha_rules.wanted_nodes(rule, cluster.nodes)
    group = ha.groups.get(str(resource.get("group")))
    if group is not None:
        strict, listed = bool(group.get("restricted")), ha_rules.nodes_of(group)
        failback = not group.get("nofailback")
    if not listed:
        return nodes
    left = [name for name in nodes if name in listed]
    # A rule that is not strict allows all other nodes, with the lowest priority.
    if not failback and current in (left if strict else nodes):
        return [current]
    if not left:
        return [] if strict else nodes
    best = max(listed[name] for name in left)
    return [name for name in left if listed[name] == best]


def _common_node(where: dict[str, str], sids: list[str], nodes: list[str]) -> str:
    """The node where most of a group is or heads for, of those that are left."""
    counts: dict[str, int] = {}
    for sid in sids:
        if where.get(sid) in nodes:
            counts[where[sid]] = counts.get(where[sid], 0) + 1
    if counts:
        return min(counts, key=lambda name: (-counts[name], name))
    spread = list(where.values())
    return min(nodes, key=lambda name: (spread.count(name), name)) if nodes else where[sids[0]]
