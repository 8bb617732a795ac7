# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VolumeBinding: a storage for every drive, found with the node and taken with it."""

from __future__ import annotations

import typing as t
from collections.abc import Hashable, Mapping

from ....errors import InvalidRequest
from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.config import Setting
from ...framework.cycle_state import CycleState
from ...framework.draft import Draft
from ...framework.interface import Event, FilterPlugin, PreFilterPlugin, ReservePlugin
from ...framework.status import SKIP, Code, Shortage, Status
from ...storage_classes import parse_storage_classes
from ...volumes import Conflict, find_volumes


class VolumeBinding(PreFilterPlugin, FilterPlugin, ReservePlugin):
    """Rejects a node where a drive finds no storage that exists there, is active, has the content type and has the
    space.

    A drive that names its storage is checked; one that names none, or a storage class, gets the storage with the most
    space left. Bytes of other decisions count. A shared storage is counted once for the cluster.
    """

    name = "VolumeBinding"
    events = frozenset({Event.NODE, Event.GUEST, Event.STORAGE})
    settings = {
        "storage_classes": Setting("dict", {}, "storage classes by name: storages, types, shared, overcommit, reserved")
    }

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        super().__init__(config)
        self.classes = parse_storage_classes(config["storage_classes"])

    def signature(self, request: Request) -> Hashable:
        return request.disks, request.clone

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        if not request.disks and request.clone is None:
            return SKIP
        for disk in request.disks:
            if disk.storage_class is not None and disk.storage_class not in self.classes:
                known = ", ".join(sorted(self.classes)) or "none is defined"
                raise InvalidRequest(
                    f"{disk.slot}: unknown storage_class {disk.storage_class!r}; known classes: {known}"
                )
        return None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        found = find_volumes(request, node, self.classes)
        return _status(found) if isinstance(found, Conflict) else None

    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        found = find_volumes(request, node, self.classes)
        if isinstance(found, Conflict):
            return _status(found)
        draft.storages.update(found.storages)
        draft.template = found.template
        for storage, size in found.bytes.items():
            draft.storage_bytes[storage, node.name] = size
        return None


def _status(conflict: Conflict) -> Status:
    code = Code.UNSCHEDULABLE if conflict.resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    shortages = (Shortage("storage", conflict.missing),) if conflict.missing else ()
    return Status(code, conflict.reason, conflict.detail, shortages)
