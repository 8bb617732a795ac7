# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The events between two snapshots of a cluster that may help a VM that could not be placed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from ..model import Guest, HARule, Node, Snapshot
from .framework.interface import Event


def events_between(before: Snapshot, after: Snapshot) -> frozenset[Event]:
    """Return the kinds of events between the snapshots.

    Changes of live figures are no events, nor is a storage that only has less free space.
    """
    found = set()
    if _nodes(before) != _nodes(after) or _ha_rules(before) != _ha_rules(after):
        found.add(Event.NODE)
    if _guests(before) != _guests(after) or before.vmids_unseen != after.vmids_unseen:
        found.add(Event.GUEST)
    if _more_storage(before, after):
        found.add(Event.STORAGE)
    if _devices(before) != _devices(after):
        found.add(Event.DEVICE)
    return frozenset(found)


def _nodes(snapshot: Snapshot) -> Mapping[str, Node]:
    return {node.name: replace(node, cpu_used=0.0, memory_used=0, pressure=None) for node in snapshot.nodes}


def _ha_rules(snapshot: Snapshot) -> Mapping[str, HARule]:
    return {rule.name: rule for rule in snapshot.ha_rules}


def _guests(snapshot: Snapshot) -> Mapping[int, Guest]:
    return {guest.vmid: guest for guest in snapshot.guests}


def _more_storage(before: Snapshot, after: Snapshot) -> bool:
    """Whether a storage was added or became active, or has more free space or other contents."""
    known = {(storage.name, storage.node): storage for storage in before.storages}
    for storage in after.storages:
        old = known.get((storage.name, storage.node))
        if old is None or (storage.active and not old.active) or storage.content - old.content:
            return True
        if storage.total - storage.used > old.total - old.used:
            return True
    return False


def _devices(snapshot: Snapshot) -> Mapping[Hashable, Hashable]:
    return {(device.driver, device.node, device.id): (device.capacity, device.in_use) for device in snapshot.devices}
