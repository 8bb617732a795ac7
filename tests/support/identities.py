# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identities of guests, for tests that plan moves by hand, and VMIDs that are used again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulated_cluster.client import SimulatedCluster

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Identity
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plans import Move
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.identity import identity_of


def identity(number: int, name: str = "web", node: str = "pve1") -> Identity:
    """The identity of a VM of its own."""
    return Identity(name, node, ctime=number, uuid=f"{number:08d}-0000-4000-8000-000000000000")


def identified(session: Session, move: Move) -> Move:
    """The move of the guests that have these VMIDs now."""
    rows = {row["vmid"]: row for row in session.get("/cluster/resources", type="vm")}

    def read(vmid: int) -> Identity:
        node, kind = rows[vmid]["node"], rows[vmid]["type"]
        return identity_of(session.get(f"/nodes/{node}/{kind}/{vmid}/config"), node, kind)

    return replace(move, identities={vmid: read(vmid) for vmid in move.vmids})


def use_again(cluster: SimulatedCluster, vmid: int, name: str = "payroll", **more: Any) -> None:
    """Remove a guest, and use its VMID for a running one of another name on the same node."""
    before = cluster.state()["guests"][vmid]
    cluster.remove_guest(vmid)
    guest = {
        "vmid": vmid,
        "name": name,
        "node": before["node"],
        "type": before["type"],
        "cores": 1,
        "memory": 1024,
        "status": "running",
        "disks": {"scsi0": "shared:8"},
        **more,
    }
    cluster.add_guest(**guest)
