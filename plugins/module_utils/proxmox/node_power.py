# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shuts nodes down, wakes them, and disarms HA meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from .api.reader import Reader
from .api.session import Session
from .inventory.rows import Row

ARMED, STANDBY, DISARMED = "armed", "standby", "disarmed"


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A node of the cluster. answers: whether it is the one that answers requests."""

    name: str
    online: bool
    answers: bool


@dataclass(frozen=True, slots=True)
class Membership:
    """The nodes of the cluster. quorate: whether it can be written to."""

    members: tuple[ClusterMember, ...]
    quorate: bool

    @property
    def offline(self) -> list[str]:
        return [member.name for member in self.members if not member.online]


def read_membership(reader: Reader) -> Membership:
    """Read which nodes are there. One request, which works without quorum."""
    rows: list[Row] = reader.get("/cluster/status")
    found = (
        ClusterMember(str(row["name"]), bool(row.get("online")), bool(row.get("local")))
        for row in rows
        if row.get("type") == "node"
    )
    lost = any(row.get("type") == "cluster" and not row.get("quorate") for row in rows)
    return Membership(tuple(sorted(found, key=lambda member: member.name)), not lost)


def shut_down_node(session: Session, node: str) -> None:
    """Shut a node down. Proxmox VE answers at once. Needs Sys.PowerMgmt on the node."""
    session.post(f"/nodes/{node}/status", command="shutdown")


def wake_node(session: Session, node: str) -> None:
    """Send a packet that wakes a node, from the one that answers. Needs Sys.PowerMgmt on the node.

    Raises ApiError if the node has no address for that in its configuration.
    """
    session.post(f"/nodes/{node}/wakeonlan")


def read_armed_state(reader: Reader) -> str:
    """Whether HA is armed; empty on releases that cannot disarm it. One request."""
    rows: list[Row] = reader.get("/cluster/ha/status/current")
    return next((str(row["armed-state"]) for row in rows if row.get("armed-state")), "")


def disarm(session: Session) -> None:
    """Release all watchdogs, and leave the resources to others: they can be shut down and started directly.

    Needs Sys.Console on C(/). Takes some rounds of the HA manager.
    """
    session.post("/cluster/ha/status/disarm-ha", {"resource-mode": "ignore"})


def arm(session: Session) -> None:
    """Let the HA manager manage its resources again."""
    session.post("/cluster/ha/status/arm-ha")
