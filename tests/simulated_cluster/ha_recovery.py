# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recovery of HA resources on a lost node: the node is fenced, and they start on other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import ha_placement
from .model import Guest

if TYPE_CHECKING:
    from .cluster import Cluster

FENCE, RECOVERY = "fence", "recovery"

REMOVED_LOCKS = frozenset({
    "backup", "mounted", "migrate", "clone", "rollback", "snapshot", "snapshot-delete", "suspending", "suspended",
})
"""Locks that a fenced node leaves behind, and that the manager removes."""


def recover(cluster: Cluster, sid: str, guest: Guest) -> bool:
    """One round for a resource whose node is lost; True if further rounds are needed."""
    ha, timing = cluster.ha, cluster.timing
    service, resource = ha.manager.service(sid), ha.resources[sid]
    if resource.get("state") in ("disabled", "ignored"):
        return False
    since = cluster.nodes[guest.node].offline_since
    lost = 0.0 if since is None else cluster.clock.now() - since
    if lost < timing.fence_after_seconds or not cluster.quorate:
        return True
    service.request, service.target = None, None
    if lost < timing.fence_after_seconds + timing.fence_seconds:
        service.state = FENCE
        return True
    service.state = RECOVERY
    target = ha_placement.wanted_node(cluster, sid, guest, recovering=True)
    if target is None:
        return True
    cluster.touch(guest)
    if guest.config_lock in REMOVED_LOCKS:
        cluster.set_config(guest, lock=None)
    guest.node, service.state = target, None
    cluster.touch(guest)
    ha.act(sid)
    return False


def back_again(cluster: Cluster, sid: str) -> None:
    """The node of a resource is back before the resource was recovered: if it ran, it starts there again."""
    service = cluster.ha.manager.service(sid)
    if service.state in (FENCE, RECOVERY):
        service.state = None
    cluster.ha.act(sid)
