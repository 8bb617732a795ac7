# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened in a cluster between two looks at it, in the scheduler's words."""

from __future__ import annotations

from ..engine.framework.interface import Event
from ..model import Guest, Node, Snapshot


def events_between(before: Snapshot, after: Snapshot) -> frozenset[Event]:
    """The kinds of change that may let a VM be placed that could not be before.

    A node came back, or grew; a guest went, stopped, moved or shrank, or a new one came (which others may want to be
    near); a storage got space or became active. Guests that are shown late cause an event more at most.
    """
    events: set[Event] = set()
    nodes = {node.name: node for node in before.nodes}
    if any(_better(nodes.get(node.name), node) for node in after.nodes):
        events.add(Event.NODE)
    if {guest.vmid: _load(guest) for guest in before.guests} != {guest.vmid: _load(guest) for guest in after.guests}:
        # A guest that goes gives its devices back as well.
        events |= {Event.GUEST, Event.DEVICE}
    free = {
        (storage.name, storage.node): _free(storage.active, storage.total, storage.used) for storage in before.storages
    }
    for storage in after.storages:
        if _free(storage.active, storage.total, storage.used) > free.get((storage.name, storage.node), -1):
            events.add(Event.STORAGE)
    return frozenset(events)


def _better(before: Node | None, after: Node) -> bool:
    if before is None:
        return True
    usable_before, usable_after = before.online and not before.maintenance, after.online and not after.maintenance
    return (usable_after and not usable_before) or after.cores > before.cores or after.memory > before.memory


def _load(guest: Guest) -> tuple[str, bool, float, int]:
    return guest.node, guest.running, guest.cores, guest.memory


def _free(active: bool, total: int, used: int) -> int:
    return total - used if active else -1
