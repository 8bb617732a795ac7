# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""FewestGuests: prefer the node that has the fewest guests."""

from __future__ import annotations

from collections.abc import Hashable

from ....model import Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import PerNode, ScorePlugin


class FewestGuests(PerNode, ScorePlugin):
    """Scores 100 for the node with the fewest guests, 0 for the one with the most. Off by default.

    Guests count whether they run or not, templates do not. Sizes do not matter: the loss of a node takes the fewest
    guests with it. The cluster resource scheduler of Proxmox VE places like this in its basic mode, but counts running
    guests only.
    """

    name = "FewestGuests"
    enabled = False

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return None

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        return float(-sum(not guest.template for guest in node.guests.values()))
