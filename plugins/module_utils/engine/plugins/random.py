# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random: upstream's random score, made repeatable."""

from __future__ import annotations

import hashlib

from ...model import Request
from ..cache import NodeInfo
from ..framework.interface import CycleState, Event, ScorePlugin, Setting


class Random(ScorePlugin):
    """Scores 0..100 at random; equal for the same C(seed), VM name and node name. Off by default."""

    name = "Random"
    enabled = False
    bounded = True
    events = frozenset({Event.NODE})
    settings = {"seed": Setting("int", 0, "a different seed gives a different, equally repeatable choice")}

    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        text = f"{self.config['seed']}/{request.name}/{node.name}"
        digest = hashlib.sha256(text.encode()).digest()
        return 100.0 * int.from_bytes(digest[:8], "big") / 2**64
