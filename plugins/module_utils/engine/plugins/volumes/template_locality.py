# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TemplateLocality: clones are made only where Proxmox can make them."""

from __future__ import annotations

from collections.abc import Hashable

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...cloning import source_for
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PerNode
from ...framework.status import Category, Status


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
