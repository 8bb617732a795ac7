# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan that moves two guests, and the cluster for which it was made."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Load, Move, NodeCourse, Plan, Stuck

from .identities import identity
from .small_cluster import guest, node

ROOM = Load(16, 64 * GIB, 0)
WEB = Move(1, 101, "web-1", "pve1", "pve2", "drains pve1", identities={101: identity(1, "web-1")})
DB = Move(2, 102, "db-1", "pve1", "pve2", "drains pve1", identities={102: identity(2, "db-1")})
PLAN = Plan(
    goal="drain pve1",
    feasible=False,
    moves=(
        replace(WEB, memory=4 * GIB, estimate=11.5),
        replace(DB, after=(1,), storages={"scsi0": "fast"}, sizes={"scsi0": 8 * GIB}, copied=8 * GIB),
    ),
    stuck=(Stuck(103, "old", "pve1", "it is locked (backup)", "wait for the backup to end"),),
    nodes={"pve2": NodeCourse(ROOM, Load(0, 0, 0), Load(4, 12 * GIB, 2), Load(4, 12 * GIB, 2))},
)
GUESTS = (guest(101, "pve1", 2, 4, name="web-1"), guest(102, "pve1", 2, 8, name="db-1"))
SNAPSHOT = Snapshot(nodes=(node("pve1"), node("pve2")), guests=GUESTS, cluster="ca:1")
