# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeviceClaims: the passthrough devices that a VM claims, found with the node and taken with it."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Hashable

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState, Draft
from ...framework.interface import Event, FilterPlugin, PerNode, ReservePlugin
from ...framework.status import Category, Code, Status

if t.TYPE_CHECKING:
    from ...devices.finding import Met

    DevicesOn = Callable[[CycleState, Request, NodeInfo], Met | Status]


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
    def devices_on(self) -> DevicesOn:
        """Finds devices for the claims of a request on a node. Not imported by a run without claims."""
        from ...devices.constraints import Matcher
        from ...devices.finding import devices_on

        return functools.partial(devices_on, matcher=Matcher())

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        from ...devices.finding import claims_signature

        return claims_signature(request)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        found = self.devices_on(state, request, node)
        return _hopeful(found, node) if isinstance(found, Status) else None

    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        found = self.devices_on(state, request, node)
        if isinstance(found, Status):
            return _hopeful(found, node)
        draft.devices.extend(found.allocations)
        return None


def _hopeful(refused: Status, node: NodeInfo) -> Status:
    """What a node that is offline has is known when it is back."""
    return refused if node.node.online else refused._replace(code=Code.UNSCHEDULABLE)
