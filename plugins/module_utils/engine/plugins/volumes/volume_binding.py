# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VolumeBinding: a storage for every drive, found with the node and taken with it."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ....errors import InvalidRequest
from ....model import Disk, Request
from ...cache import ClusterState, NodeInfo
from ...framework.config import Setting
from ...framework.cycle_state import CycleState, Draft
from ...framework.interface import Event, FilterPlugin, PreFilterPlugin, ReservePlugin, Subject
from ...framework.status import Category, Status
from ...volume_groups import SharedByVolumes
from ...volumes import class_of, in_gib, larger_than_asked, volumes_on


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
        if config["storage_classes"]:
            from ...storage_classes import parse_storage_classes

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
