# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""StorageBalance: prefer the node whose storages are the least used."""

from __future__ import annotations

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, PreFilterPlugin, ScorePlugin
from ...framework.status import SKIP, Status
from ...volume_groups import SharedByVolumes
from ...volumes import volumes_on


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
