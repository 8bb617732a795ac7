# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM that is created again and again, as a task of ours and as one of the peer's."""

from __future__ import annotations

import typing as t

from .playbooks import Task

VM: dict[str, t.Any] = {"cores": 1, "memory": 1024, "net": {"net0": "virtio,bridge=vmbr0"}}
DISK_GIB = 8

OURS = "qemu_scheduler.proxmox.qemu_schedule"
PEER = "community.proxmox.proxmox_kvm"


def ours(**options: t.Any) -> Task:
    """A task of ours: no node and no storage is named."""
    return {"name": "ours", OURS: {**VM, "scsi": {"scsi0": {"size": DISK_GIB}}, **options}}


def ours_many(names: list[str], **options: t.Any) -> Task:
    """One task of ours for all the VMs."""
    return ours(vms=[{"name": name} for name in names], **options)


def peer(name: str, node: str, **keywords: t.Any) -> Task:
    """A task of the peer's: node and storage are chosen by hand. keywords are those of the task."""
    disk = {"scsi0": f"local-lvm:{DISK_GIB}"}
    return {"name": "peer", PEER: {**VM, "name": name, "node": node, "scsi": disk}, **keywords}


def peer_loop(names: list[str], nodes: int) -> Task:
    """One task of the peer's that loops over the VMs, dealt out to the nodes by hand."""
    items = [{"name": name, "node": by_hand(number, nodes)} for number, name in enumerate(names)]
    return peer("{{ item.name }}", "{{ item.node }}", loop=items)


def by_hand(number: int, nodes: int) -> str:
    """The node that a user would write for the VM with this number: the nodes in turn."""
    return f"pve{number % nodes + 1}"
