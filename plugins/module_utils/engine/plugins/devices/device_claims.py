# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeviceClaims: the passthrough devices that a VM claims, found with the node and taken with it."""

from __future__ import annotations

import functools
from collections.abc import Hashable

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...devices.constraints import Matcher
from ...devices.finding import claims_signature, devices_on
from ...framework.cycle_state import CycleState
from ...framework.draft import Draft
from ...framework.interface import Event, FilterPlugin, PerNode, ReservePlugin
from ...framework.status import Category, Code, Status


class DeviceClaims(PerNode, FilterPlugin, ReservePlugin):
    """Rejects a node that cannot satisfy all device claims of the request.

    Devices come from the cluster's resource mappings. Devices that guests hold, running or not, and those of other
    decisions are not free. Two claims of one VM never get the same device. A request without claims may go anywhere.
    """

    name = "DeviceClaims"
    category = Category.DEVICE
    events = frozenset({Event.NODE, Event.GUEST, Event.DEVICE})
    about = ("devices",)

    @functools.cached_property
    def matcher(self) -> Matcher:
        """What compares devices with constraints."""
        return Matcher()

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return claims_signature(request)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        found = devices_on(state, request, node, self.matcher)
        return _hopeful(found, node) if isinstance(found, Status) else None

    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        found = devices_on(state, request, node, self.matcher)
        if isinstance(found, Status):
            return _hopeful(found, node)
        draft.devices.extend(found.allocations)
        return None


def _hopeful(refused: Status, node: NodeInfo) -> Status:
    """What a node that is offline has is known when it is back."""
    return refused if node.node.online else refused._replace(code=Code.UNSCHEDULABLE)
