# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins about drives: on which nodes there are storages for them, and how much is left there."""

from __future__ import annotations

import heapq
import math
import re
import typing as t
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import InvalidPluginConfig, InvalidRequest
from ...model import GIB, Disk, Guest, Request, StorageClass
from ..cache import ClusterState, NodeInfo
from ..cloning import source_for
from ..framework.interface import (
    CycleState,
    Draft,
    Event,
    FilterPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Setting,
    Subject,
    check_settings,
)
from ..framework.many_nodes import PerNode, SharedPlugin
from ..framework.status import SKIP, Category, Status
from ..patterns import InvalidPattern
from ..patterns.names import name_pattern
from ..volumes import class_of, drives_on, in_gib, larger_than_asked, room, share_out, suitable, volumes_on


class SharedByVolumes(SharedPlugin):
    """A plugin whose verdicts depend on the storages that a request's drives go to. All of them share the groups.

    Its C(pre_filter) calls C(find_groups).
    """

    regroups = True

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return request.disks, request.clone

    def find_groups(self, state: CycleState, request: Request) -> None:
        """Store the groups of the request in the state."""
        state[self.name] = state.once(VolumeGroups, VolumeGroups, request, self.policy.storage_classes)

    def group(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        groups: VolumeGroups = state[self.name]
        return state.once((VolumeGroups, node.index), groups.group, node)

    def update(
        self, state: CycleState, request: Request, guest: Guest, node: NodeInfo, sign: int
    ) -> Iterable[NodeInfo]:
        groups: VolumeGroups = state[self.name]
        return groups.update(guest, node)


STORAGE_CLASS: Mapping[str, Setting] = {
    "storages": Setting("list", [], "patterns of storage names, matched in full; empty: any name"),
    "types": Setting("list", [], "Proxmox storage types (zfspool, lvmthin, rbd, ...); empty: any type"),
    "shared": Setting("bool", None, "only shared (true) or only local (false) storages"),
    "overcommit": Setting("float", 1.0, "overcommit ratio: allocatable space per size", minimum=0),
    "reserved": Setting("str", None, "what is kept free: a percentage (10%) or GiB (50)"),
}
"""The keys of one storage class in C(storage_classes)."""


class VolumeBinding(SharedByVolumes, PreFilterPlugin, FilterPlugin, ReservePlugin):
    """Rejects a node without a storage for every drive: one that is active, has the content type and has enough space.
    Also rejects a node without an ISO image or an imported image of the request.

    A drive that names its storage needs that one; a drive that names none, or a storage class, gets the storage with
    the most space left. Bytes of other decisions count. A shared storage is counted once for the cluster. The run does
    not wait for a drive that even the empty storage could not hold. A drive that is smaller than its image is an error.
    """

    name = "VolumeBinding"
    category = Category.STORAGE
    events = frozenset({Event.NODE, Event.GUEST, Event.STORAGE})
    reads = frozenset({Subject.VOLUMES})
    about = ("disks", "clone")
    settings = {
        "storage_classes": Setting("dict", {}, "storage classes by name: storages, types, shared, overcommit, reserved")
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.sets = {"storage_classes": parse_storage_classes(config["storage_classes"])}

    def pre_enqueue(self, request: Request) -> Status | None:
        for disk in request.disks:
            class_of(disk, self.policy.storage_classes)
        return None

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        self.find_groups(state, request)
        for disk in request.disks:
            if disk.source is not None:
                _check_image(disk, disk.source, cluster)
        return None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        found = volumes_on(state, request, node, self.policy.storage_classes)
        return found if isinstance(found, Status) else None

    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        found = volumes_on(state, request, node, self.policy.storage_classes)
        if isinstance(found, Status):
            return found
        draft.storages.update(found.storages)
        draft.template = found.template
        for storage, size in found.bytes.items():
            draft.storage_bytes[storage, node.name] = size
        return None


def _check_image(disk: Disk, source: str, cluster: ClusterState) -> None:
    larger = larger_than_asked(disk, [size for node in cluster.nodes if (size := node.volumes.get(source))])
    if larger is not None:
        raise InvalidRequest(
            f"{disk.slot}: {source} has {in_gib(larger)} GiB and cannot shrink to {in_gib(disk.size)} GiB"
        )


def parse_storage_classes(classes: Mapping[str, t.Any]) -> dict[str, StorageClass]:
    """Return the classes by name. Raises InvalidPluginConfig."""
    return {name: _storage_class(f"storage_classes.{name}", name, body or {}) for name, body in classes.items()}


def _storage_class(where: str, name: str, body: Mapping[str, t.Any]) -> StorageClass:
    if isinstance(body, Mapping) and isinstance(body.get("reserved"), (int, float)):
        body = {**body, "reserved": str(body["reserved"])}
    values = check_settings(where, STORAGE_CLASS, body)
    for pattern in values["storages"]:
        if not isinstance(pattern, str):
            raise InvalidPluginConfig(f"{where}.storages: {pattern!r} is not valid, expected a regular expression")
        try:
            name_pattern(pattern)
        except InvalidPattern as error:
            raise InvalidPluginConfig(f"{where}.storages: invalid regular expression {pattern!r}: {error}") from error
    return StorageClass(
        name=name,
        storages=tuple(values["storages"]),
        types=frozenset(values["types"]),
        shared=values["shared"],
        overcommit=values["overcommit"],
        reserved=_reserved(where, values["reserved"]),
    )


def _reserved(where: str, text: str | None) -> float:
    """A fraction below 1, or bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", (text or "0").strip())
    if match is None or (match[2] and float(match[1]) >= 100):
        raise InvalidPluginConfig(
            f"{where}.reserved: expected a percentage below 100% or a number of GiB, got {text!r}"
        )
    return float(match[1]) / 100 if match[2] else float(match[1]) * GIB


class StorageBalance(SharedByVolumes, PreFilterPlugin, ScorePlugin):
    """Scores the percentage that would be free on the storages of the request's drives once the drives are there; the
    mean over these storages.

    A request without drives on a storage is not scored.
    """

    name = "StorageBalance"
    bounded = True
    events = frozenset({Event.GUEST, Event.STORAGE})
    about = ("disks", "clone")

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        self.find_groups(state, request)
        return None if request.clone is not None or any(disk.size for disk in request.disks) else SKIP

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        found = volumes_on(state, request, node, self.policy.storage_classes)
        if isinstance(found, Status) or not found.storages:
            return 0.0
        shares = []
        for name in sorted(set(found.storages.values())):
            use = node.storages[name].use
            free = max(use.free - found.bytes.get(name, 0), 0)
            shares.append(free / use.total if use.total else 0.0)
        return 100.0 * sum(shares) / len(shares)


class TemplateLocality(PerNode, FilterPlugin):
    """Rejects a node that has no copy of the template, and to which Proxmox cannot clone a copy on another node.

    Proxmox clones to another node only if all volumes of the template, including an image in a CD-ROM drive, and the
    storage of a full clone are shared, and both nodes have that storage.
    """

    name = "TemplateLocality"
    category = Category.PLACEMENT
    events = frozenset({Event.NODE, Event.STORAGE})
    about = ("clone",)

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return request.clone

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        found = source_for(request.clone, node) if request.clone is not None else None
        return found if isinstance(found, Status) else None


# --- groups of nodes that share verdicts ---


@dataclass(slots=True)
class View:
    """Shared storages that several nodes see in the same way.

    Attributes:
        node: one of the nodes.
        disks: the drives that shared storages may hold, largest first.
        least: the least free space of the storages that the drives go to; minus infinity if a drive does not fit.
        own: the negated free space of the largest local storage of each node, with the node; some entries are outdated.
        number: identifies the group.
    """

    node: NodeInfo
    disks: Sequence[Disk]
    least: float
    number: int
    own: list[tuple[float, int, NodeInfo]] = field(default_factory=list)


class VolumeGroups:
    """The groups of nodes on which the drives of one kind of request go to the same shared storages.

    A node belongs to its group as long as the shared storage of each drive has more free space than every suitable
    local storage of the node. Drives that only local storages can hold do not depend on the shared ones: what they
    leave there is part of what defines the group.
    """

    def __init__(self, request: Request, classes: Mapping[str, StorageClass]) -> None:
        self._request = request
        self._classes = classes
        self._views: dict[Hashable, View] = {}

    def group(self, node: NodeInfo) -> Hashable:
        """The group of a node; None if its local storages count. Raises InvalidRequest."""
        made = drives_on(self._request, node)
        if isinstance(made, Status):
            return made
        own = -math.inf
        seen: set[Hashable] = set()
        local: list[Disk] = []
        disks: list[Disk] = []
        for disk in made[1]:
            room_here, shared = self._candidates(disk, node)
            if room_here != -math.inf and not shared:
                local.append(disk)
            else:
                disks.append(disk)
                seen |= shared
                own = max(own, room_here)
        if local and not disks:
            return None
        key = tuple(disks), frozenset(seen)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = View(node, disks, self._least(node, disks), len(self._views))
        if own != -math.inf:
            if own >= view.least:
                return None
            heapq.heappush(view.own, (-own, node.index, node))
        return (view.number, self._on_local(local, node)) if local else view.number

    def _candidates(self, disk: Disk, node: NodeInfo) -> tuple[float, set[Hashable]]:
        """The most room of the local storages that a drive could go to, minus infinity without any; and the shared
        ones.
        """
        wanted = class_of(disk, self._classes)
        if disk.storage is not None:
            named = node.storages.get(disk.storage)
            if named is not None and not named.use.shared:
                return room(named, wanted, 0), set()
            return -math.inf, {(disk.storage, named and (named.active, named.content))}
        found = [(name, storage) for name, storage, _limit in suitable(node, disk.content, wanted)]
        own = (room(storage, wanted, 0) for _name, storage in found if not storage.use.shared)
        shared: set[Hashable] = {(name, s.active, s.content) for name, s in found if s.use.shared}
        return max(own, default=-math.inf), shared

    def _on_local(self, disks: Sequence[Disk], node: NodeInfo) -> Hashable:
        """What the verdicts depend on of drives that only local storages of the node can hold."""
        found = share_out(disks, node, self._classes)
        if isinstance(found, Status):
            return found
        uses = [(name, node.storages[name].use) for name in sorted(set(found.storages.values()))]
        return tuple((name, use.free - found.bytes.get(name, 0), use.total) for name, use in uses)

    def update(self, guest: Guest, node: NodeInfo) -> list[NodeInfo]:
        """The nodes whose local storages may count after a guest came to a node or left it."""
        turned: list[NodeInfo] = []
        pending = guest.storage_pending
        if any((seen := node.storages.get(name)) is not None and seen.use.shared for name, _node in pending):
            for view in self._views.values():
                view.least = self._least(view.node, view.disks)
                while view.own and -view.own[0][0] >= view.least:
                    turned.append(heapq.heappop(view.own)[2])
        return turned

    def _least(self, node: NodeInfo, disks: Sequence[Disk]) -> float:
        """The least free space of the shared storages that the drives go to, before each drive is put there."""
        least = math.inf
        taken: dict[str, int] = {}
        for disk in disks:
            if disk.storage is not None:
                taken[disk.storage] = taken.get(disk.storage, 0) + disk.size
        for disk in (disk for disk in disks if disk.storage is None):
            wanted = class_of(disk, self._classes)
            rooms = [
                (-room(storage, wanted, taken.get(name, 0)), name)
                for name, storage, _limit in suitable(node, disk.content, wanted)
                if storage.use.shared and storage.active
            ]
            negated, name = min(rooms, default=(math.inf, ""))
            if disk.size > max(-negated, 0):
                return -math.inf
            least = min(least, -negated)
            taken[name] = taken.get(name, 0) + disk.size
        return least
