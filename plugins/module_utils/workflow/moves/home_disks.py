# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The storages of local disks on the node that guests leave, and the way back to these.

A migration maps whole storages. Disks of several storages that met on one come back to one, and go on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from ...errors import CollectionError, Interrupted
from ...plans import Mobility, Move
from ...proxmox.api.failures import UNREADABLE
from ...proxmox.api.reader import Reader, in_parallel
from ...proxmox.api.session import Session
from ...proxmox.identity import identity_of
from ...proxmox.moves.drain_marks import recognizes, storages_in
from ...proxmox.moves.mobility_rules import storage_of
from ...proxmox.tasks import TaskFollower
from ...proxmox.writes import GuestWriter


def storages_left(
    reader: Reader, moves: Iterable[Move], known: Mapping[int, Mapping[str, str]]
) -> dict[int, dict[str, str]]:
    """Return the storages that disks of these guests leave, by VMID and slot, where those to which they go have other
    names. known are the storages of guests whose configs were read; one request for each other one with such disks.
    """
    copying = {move.vmid: move for move in moves if move.storages}

    def read(vmid: int) -> Mapping[str, str]:
        move = copying[vmid]
        try:
            config = reader.get(f"/nodes/{move.source}/{move.kind}/{vmid}/config")
        except UNREADABLE:
            return {}
        return {slot: storage_of(str(config.get(slot, ""))) for slot in move.storages}

    present = {**known, **in_parallel(read, copying.keys() - known.keys())}
    left = {
        vmid: {
            slot: name
            for slot, name in present[vmid].items()
            if name and name != move.storages.get(slot, name) and not slot.startswith("unused")
        }
        for vmid, move in copying.items()
    }
    return {vmid: storages for vmid, storages in left.items() if storages}


def with_homes(
    mobility: Mapping[int, Mobility], homes: Mapping[int, Mapping[str, str]], nodes: Mapping[int, str]
) -> dict[int, Mobility]:
    """Return how guests can be moved, with the storages of their disks on the nodes to which they return."""

    def bound(vmid: int, each: Mobility) -> Mobility:
        of = homes.get(vmid, {})
        disks = (replace(disk, home=(nodes[vmid], of[disk.slot])) if disk.slot in of else disk for disk in each.disks)
        return replace(each, disks=tuple(disks))

    return {vmid: bound(vmid, each) if vmid in homes else each for vmid, each in mobility.items()}


def bring_disks_home(
    session: Session, tasks: TaskFollower, node: str, marks: Mapping[int, str], shared: Collection[str]
) -> Iterator[str]:
    """Move disks of VMs that are back on a node to the storages that they left there, and yield a warning for each that
    stays. One that is on a shared storage by now was moved there on purpose.
    """
    for vmid, mark in sorted(marks.items()):
        homes = storages_in(mark)
        try:
            config = session.get(f"/nodes/{node}/qemu/{vmid}/config") if homes else {}
        except UNREADABLE:
            continue
        identity = identity_of(config, node, "qemu")
        guest = GuestWriter(session, tasks, vmid, identity, digest=config.get("digest"))
        for slot, home in homes.items():
            now = storage_of(str(config.get(slot, "")))
            if not now or now == home or now in shared or not recognizes(mark, identity):
                continue
            try:
                guest.move_disk(node, slot, home)
            except Interrupted:
                raise
            except CollectionError as error:
                yield f"{slot} of VM {vmid} is on {now}, and could not be moved back to {home}: {error.message}"
