# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The votes of a cluster, and whether it keeps its quorum while nodes are away."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..engine.texts import join_words, whole_number
from .api.reader import Reader
from .inventory.rows import Row

LAST_MAN = "LMS"
"""The algorithm of a QDevice that has as many votes as all nodes but one. Every other one gives it one vote."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """Who votes.

    Attributes:
        votes: the votes of each node; empty for a node that is in no cluster.
        online: the nodes that are there.
        device: the votes of the QDevice; 0 without one.
        connected: whether the QDevice votes at present.
    """

    votes: Mapping[str, int] = field(default_factory=dict)
    online: frozenset[str] = frozenset()
    device: int = 0
    connected: bool = False

    @property
    def needed(self) -> int:
        """The votes that the cluster needs."""
        return (sum(self.votes.values()) + self.device) // 2 + 1

    def votes_without(self, away: Collection[str]) -> int:
        """Return the votes that are there while these nodes are away."""
        there = (votes for name, votes in self.votes.items() if name in self.online and name not in away)
        return sum(there) + (self.device if self.connected else 0)

    def objection(self, away: Collection[str]) -> str:
        """Return why these nodes must not be away, as a sentence part; empty if they may."""
        left = self.votes_without(away)
        if not self.votes or left >= self.needed:
            return ""
        missing = sorted(name for name in self.votes if name not in self.online and name not in away)
        causes = [f"{join_words(missing)} offline"] if missing else []
        causes += ["the QDevice not connected"] if self.device and not self.connected else []
        why = f", with {' and '.join(causes)}" if causes else ""
        total = sum(self.votes.values()) + self.device
        return f"without it, {left} of {total} votes are left, and {self.needed} are needed{why}"


def read_quorum(reader: Reader) -> Quorum:
    """Read who votes. Three requests, which need Sys.Audit on C(/)."""
    members: list[Row] = reader.get("/cluster/status")
    online = frozenset(str(row["name"]) for row in members if row.get("type") == "node" and row.get("online"))
    if not any(row.get("type") == "cluster" for row in members):
        return Quorum(online=online)
    rows: list[Row] = reader.get("/cluster/config/nodes")
    votes = {str(row["node"]): whole_number(str(row.get("quorum_votes", 1))) or 0 for row in rows}
    status: Mapping[str, t.Any] = reader.get("/cluster/config/qdevice") or {}
    device = 0
    if status:
        device = len(votes) - 1 if status.get("Algorithm") == LAST_MAN else 1
    return Quorum(votes, online, device, str(status.get("State", "")).startswith("Connected"))
