# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins about drives: on which nodes there are storages for them, and how much is left there."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ...errors import InvalidPluginConfig, InvalidRequest
from ...model import GIB, Disk, Request, StorageClass
from ..bindings import volumes_of
from ..cache import ClusterState, NodeInfo
from ..cloning import source_for
from ..framework.interface import (
    CycleState,
    Draft,
    Event,
    FilterPlugin,
    PreFilterPlugin,
    ReservePlugin,
    Setting,
    Subject,
    check_settings,
)
from ..framework.many_nodes import FilterOfMany, ScoreOfMany
from ..framework.status import SKIP, Category, Status
from ..patterns import InvalidPattern
from ..patterns.names import name_pattern
from ..volumes import Binding, class_of, in_gib, larger_than_asked

STORAGE_CLASS: Mapping[str, Setting] = {
    "storages": Setting("list", [], "patterns of storage names, matched in full; empty: any name"),
    "types": Setting("list", [], "Proxmox storage types (zfspool, lvmthin, rbd, ...); empty: any type"),
    "shared": Setting("bool", None, "only shared (true) or only local (false) storages"),
    "overcommit": Setting("float", 1.0, "overcommit ratio: allocatable space per size", minimum=0),
    "reserved": Setting("str", None, "what is kept free: a percentage (10%) or GiB (50)"),
}
"""The keys of one storage class in C(storage_classes)."""


class VolumeBinding(PreFilterPlugin, FilterOfMany, ReservePlugin):
    """Rejects a node without a storage for every drive: one that is active, has the content type and has enough space.
    Also rejects a node without an ISO image or an imported image of the request.

    A drive that names its storage needs that one; a drive that names none, or a storage class, gets the storage with
    the most space left. Bytes of other decisions count. A shared storage is counted once for the cluster. The run does
    not wait for a drive that is larger than the empty storage. A drive that is smaller than its image is an error.
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
        classes: Mapping[str, t.Any] = config["storage_classes"]
        parsed = {name: _storage_class(f"storage_classes.{name}", name, body or {}) for name, body in classes.items()}
        self.sets = {"storage_classes": parsed}

    def pre_enqueue(self, request: Request) -> Status | None:
        for disk in request.disks:
            class_of(disk, self.policy.storage_classes)
        if request.clone is not None and request.clone.storage_class is not None:
            class_of(Disk("clone", storage_class=request.clone.storage_class), self.policy.storage_classes)
        return None

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        for disk in request.disks:
            if disk.source is not None:
                _check_image(disk, disk.source, cluster)
        return None

    def filter_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[Status | None]:
        found = volumes_of(state, request, nodes, self.policy.storage_classes)
        return [each if isinstance(each, Status) else None for each in found]

    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        (found,) = volumes_of(state, request, (node,), self.policy.storage_classes)
        if isinstance(found, Status):
            return found
        draft.storages.update(found.storages)
        draft.template, draft.landing = found.template, found.landing
        for storage, size in found.bytes.items():
            draft.storage_bytes[storage, node.name] = size
        return None


def _check_image(disk: Disk, source: str, cluster: ClusterState) -> None:
    larger = larger_than_asked(disk, [size for node in cluster.nodes if (size := node.volumes.get(source))])
    if larger is not None:
        raise InvalidRequest(
            f"{disk.slot}: {source} has {in_gib(larger)} GiB and cannot shrink to {in_gib(disk.size)} GiB"
        )


def _storage_class(where: str, name: str, body: Mapping[str, t.Any]) -> StorageClass:
    """Return a storage class from the config. Raises InvalidPluginConfig."""
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
        reserved=_reserve(where, values["reserved"]),
    )


def _reserve(where: str, text: str | None) -> float:
    """Return a fraction below 1, or bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", (text or "0").strip())
    if match is None or (match[2] and float(match[1]) >= 100):
        raise InvalidPluginConfig(
            f"{where}.reserved: expected a percentage below 100% or a number of GiB, got {text!r}"
        )
    return float(match[1]) / 100 if match[2] else float(match[1]) * GIB


class StorageBalance(PreFilterPlugin, ScoreOfMany):
    """Scores the percentage that would be free on the storages of the request's drives once the drives are there; the
    mean over these storages.

    A request without drives on a storage is not scored.
    """

    name = "StorageBalance"
    bounded = True
    events = frozenset({Event.GUEST, Event.STORAGE})
    about = ("disks", "clone")

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        return None if request.clone is not None or any(disk.size for disk in request.disks) else SKIP

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        found = volumes_of(state, request, nodes, self.policy.storage_classes)
        percentages: dict[int, float] = {}  # nodes that share a binding share its storages
        for each, node in zip(found, nodes, strict=True):
            if id(each) not in percentages:
                percentages[id(each)] = _free_percentage(each, node)
        return [percentages[id(each)] for each in found]


def _free_percentage(found: Binding | Status, node: NodeInfo) -> float:
    """Return how much the drives leave free of their storages, as the mean over these."""
    if isinstance(found, Status) or not found.storages:
        return 0.0
    names = set(found.storages.values())
    total = 0.0
    for name in sorted(names) if len(names) > 1 else names:
        use = node.storages[name].use
        free = use.free - found.bytes.get(name, 0)
        total += free / use.total if free > 0 and use.total else 0.0
    return 100.0 * total / len(names)


class TemplateLocality(FilterPlugin):
    """Rejects a node that has no copy of the template, and to which Proxmox cannot clone one from another node.

    Proxmox clones to another node only if all volumes of the template, including an image in a CD-ROM drive, are on
    storages that both nodes share. The drives of a full clone may be moved to local storages of that node afterwards.
    """

    name = "TemplateLocality"
    category = Category.PLACEMENT
    events = frozenset({Event.NODE, Event.STORAGE})
    about = ("clone",)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        found = source_for(request.clone, node) if request.clone is not None else None
        return found if isinstance(found, Status) else None
