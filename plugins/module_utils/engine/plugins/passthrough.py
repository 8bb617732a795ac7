# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugins about passthrough devices: who gets them, and who stays away from them."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Sequence

from ...model import Request
from ..cache import ClusterState, NodeInfo
from ..devices.supply import Supply
from ..framework.interface import CycleState, Draft, Event, FilterPlugin, PreFilterPlugin, ReservePlugin, ScorePlugin
from ..framework.status import SKIP, Category, Code, Status

if t.TYPE_CHECKING:
    from ..devices.finding import Met

    DevicesOn = Callable[[CycleState, Request, NodeInfo], "Met | Status"]


class FindsDevices:
    """What the plugins need that look for the devices of a request's claims."""

    @functools.cached_property
    def devices_on(self) -> DevicesOn:
        """Find devices for the claims of a request on a node. Not imported by a run without claims."""
        from ..devices.constraints import Matcher
        from ..devices.finding import devices_on

        return functools.partial(devices_on, matcher=Matcher())


class DeviceClaims(FindsDevices, FilterPlugin, ReservePlugin):
    """Rejects a node that cannot satisfy all device claims of the request.

    Devices come from the cluster's resource mappings. Devices that guests hold, running or not, and those of other
    decisions are not free. Two claims of one VM never get the same device. A request without claims may go anywhere.
    """

    name = "DeviceClaims"
    category = Category.DEVICE
    events = frozenset({Event.NODE, Event.GUEST, Event.DEVICE})
    about = ("devices",)

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        found = self.devices_on(state, request, node)
        return _as_temporary(found, node) if isinstance(found, Status) else None

    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        found = self.devices_on(state, request, node)
        if isinstance(found, Status):
            return _as_temporary(found, node)
        draft.devices.extend(found.allocations)
        return None


def _as_temporary(refused: Status, node: NodeInfo) -> Status:
    """Return the refusal; of a node that is offline, as one that may change: its devices are known when it is back."""
    return refused if node.node.online else refused._replace(code=Code.UNSCHEDULABLE)


class DeviceScarcity(PreFilterPlugin, ScorePlugin):
    """Scores a node for a VM that claims no devices: 100 without free devices, less the more free devices it has.

    The score is 100 / (1 + the sum over the node's mappings of free / (1 + free)). The first free device of a mapping
    weighs most: many virtual functions of one network card count little more than one. With the default weight, half of
    LeastAllocated's, the VM goes to a node with one free device if LeastAllocated scores the nodes without free devices
    about 17 points lower.
    """

    name = "DeviceScarcity"
    weight = 0.5
    bounded = True
    events = frozenset({Event.NODE, Event.GUEST, Event.DEVICE})
    about_cluster = ("devices",)

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        return SKIP if request.devices else None

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        return scarcity_score(Supply(node.devices).free_by_pool()) if node.devices else 100.0


def scarcity_score(counts: Sequence[int]) -> float:
    """Return the score of a node whose pools have that many devices left."""
    return 100.0 / (1.0 + sum(count / (1.0 + count) for count in counts))


class DeviceFit(FindsDevices, ScorePlugin):
    """Scores the nodes for a VM that claims devices: 100 for the one with the fewest free devices left after the VM has
    taken its own, 0 for the one with the most, and the others in even steps between, in their order.

    Free devices are counted as in DeviceScarcity. With the default weight, this score dominates: scores of the nodes'
    load decide only among nodes that are equal here.
    """

    name = "DeviceFit"
    weight = 50.0
    events = frozenset({Event.NODE, Event.GUEST, Event.DEVICE})
    about = ("devices",)

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        found = self.devices_on(state, request, node)
        return 0.0 if isinstance(found, Status) else scarcity_score(found.supply.free_by_pool())

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        levels = {score: level for level, score in enumerate(sorted(set(scores)))}
        highest = len(levels) - 1
        return [100.0 * levels[score] / highest if highest else 100.0 for score in scores]
