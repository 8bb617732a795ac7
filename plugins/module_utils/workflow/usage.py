# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The usage of the nodes before and after a run, as the scheduler counts it: by the configured sizes of guests."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..engine.cache import ClusterState, NodeInfo
from ..engine.profiles import Profile
from ..model import GIB, MIB, Guest


@dataclass(slots=True)
class StorageUsage:
    """One storage of a node, in bytes; what is decided counts as used."""

    shared: bool
    total: int
    before: int
    after: int


@dataclass(slots=True)
class NodeUsage:
    """One node. Memory is in bytes; the limits are the profile's for a VM without pool and tags, None for none.

    guests are those that were there before, without templates. cluster is set where a task is about several.
    """

    node: str
    online: bool
    maintenance: bool
    cores: int
    memory: int
    cores_limit: float | None
    memory_limit: float | None
    cores_before: float
    memory_before: int
    cores_after: float = 0
    memory_after: int = 0
    storages: dict[str, StorageUsage] = field(default_factory=dict)
    guests: tuple[Guest, ...] = ()
    cluster: str | None = None

    def as_result(self, *, with_guests: bool = False) -> dict[str, t.Any]:
        """The entry of C(nodes) in the module's result."""
        by_vmid = sorted(self.guests, key=lambda guest: guest.vmid) if with_guests else ()
        guests = {"guests": [_guest(guest) for guest in by_vmid]} if with_guests else {}
        return {
            **({} if self.cluster is None else {"cluster": self.cluster}),
            "node": self.node,
            "online": self.online,
            "maintenance": self.maintenance,
            "cores": self.cores,
            "cores_limit": self.cores_limit,
            "cores_before": self.cores_before,
            "cores_after": self.cores_after,
            "memory": self.memory // MIB,
            "memory_limit": None if self.memory_limit is None else int(self.memory_limit / MIB),
            "memory_before": self.memory_before // MIB,
            "memory_after": self.memory_after // MIB,
            "storages": [
                {
                    "storage": name,
                    "shared": storage.shared,
                    "total": round(storage.total / GIB, 1),
                    "before": round(storage.before / GIB, 1),
                    "after": round(storage.after / GIB, 1),
                }
                for name, storage in sorted(self.storages.items())
            ],
            **guests,
        }


def usage_before(cluster: ClusterState, profile: Profile) -> list[NodeUsage]:
    """The current usage of the nodes, in order of name. Only storages that can hold disks are included."""
    return [_usage(info, profile) for info in cluster.nodes]


def note_after(usage: Sequence[NodeUsage], cluster: ClusterState) -> None:
    """Note the usage of the same nodes including the decisions since then."""
    for node, info in zip(usage, cluster.nodes, strict=True):
        node.cores_after, node.memory_after = info.cores, info.memory
        for name, storage in node.storages.items():
            use = info.storages[name].use
            storage.after = use.used + use.pending


def note_change(usage: Sequence[NodeUsage], guest: Guest, actions: Sequence[str]) -> None:
    """Count the CPU and memory that an existing VM releases when it is stopped or deleted.

    The space that the disks of a deleted VM release is not known.
    """
    if not {"stop", "delete"} & set(actions) or not guest.running:
        return
    for node in usage:
        if node.node == guest.node:
            node.cores_after -= guest.cores
            node.memory_after -= guest.memory


def keep_before(earlier: Sequence[NodeUsage], latest: list[NodeUsage]) -> list[NodeUsage]:
    """The latest usage, with the values "before" of the earlier one."""
    known = {node.node: node for node in earlier}
    for node in latest:
        if node.node in known:
            first = known[node.node]
            node.guests = first.guests
            node.cores_before, node.memory_before = first.cores_before, first.memory_before
            for name, storage in node.storages.items():
                storage.before = first.storages[name].before if name in first.storages else storage.before
    return latest


def _usage(info: NodeInfo, profile: Profile) -> NodeUsage:
    host = info.node
    policy = profile.policy
    cores_limit = policy.cpu.allocatable(host) if "cpu" in policy.enforced else None
    memory_limit = policy.memory.allocatable(host) if "memory" in policy.enforced else None
    return NodeUsage(
        node=info.name,
        online=host.online,
        maintenance=host.maintenance,
        cores=host.cores,
        memory=host.memory,
        cores_limit=cores_limit,
        memory_limit=memory_limit,
        cores_before=info.cores,
        memory_before=info.memory,
        storages={
            name: StorageUsage(storage.use.shared, storage.use.total, used, used)
            for name, storage in info.storages.items()
            if storage.active and "images" in storage.content
            for used in [storage.use.used + storage.use.pending]
        },
        guests=tuple(guest for guest in info.guests.values() if not guest.template),
    )


def _guest(guest: Guest) -> dict[str, t.Any]:
    return {
        "vmid": guest.vmid,
        "name": guest.name,
        "type": guest.kind,
        "status": guest.status,
        "cores": guest.cores,
        "memory": guest.memory // MIB,
    }
