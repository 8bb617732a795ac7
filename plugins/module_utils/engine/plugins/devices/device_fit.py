# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeviceFit: give a VM the node whose free devices its claims use up best."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Sequence

from ....model import Request
from ...cache import NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, ScorePlugin
from ...framework.status import Status
from .device_scarcity import left_free

if t.TYPE_CHECKING:
    from .device_claims import DevicesOn


class DeviceFit(ScorePlugin):
    """Scores the nodes for a VM that claims devices: 100 for the one with the fewest free devices left after the VM has
    taken its own, 0 for the one with the most, and the others in even steps between, in their order.

    Free devices are counted as in DeviceScarcity. With the default weight, this score dominates: scores of the nodes'
    load decide only among nodes that are equal here.
    """

    name = "DeviceFit"
    weight = 50.0
    events = frozenset({Event.NODE, Event.GUEST, Event.DEVICE})
    about = ("devices",)

    @functools.cached_property
    def devices_on(self) -> DevicesOn:
        """Finds devices for the claims of a request on a node. Not imported by a run without claims."""
        from ...devices.constraints import Matcher
        from ...devices.finding import devices_on

        return functools.partial(devices_on, matcher=Matcher())

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        found = self.devices_on(state, request, node)
        return 0.0 if isinstance(found, Status) else left_free(found.supply.free_by_pool())

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        levels = {score: level for level, score in enumerate(sorted(set(scores)))}
        highest = len(levels) - 1
        return [100.0 * levels[score] / highest if highest else 100.0 for score in scores]
