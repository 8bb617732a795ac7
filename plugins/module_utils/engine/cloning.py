# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which template a clone on a given node is made from, and what it takes there: the rules of Proxmox VE, as pure
functions.

Proxmox VE makes a clone on the node of its source and then only moves the config to the target node. So every volume of
the source and of the clone must be on a storage that both nodes share, including the images in the source's CD-ROM
drives. It makes all drives of a clone on one storage, or on those of the source. Drives for other storages are moved
afterwards, on the target node, before the VM starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model import CloneSource, Disk, Request, Template
from .cache import NodeInfo
from .framework.status import Status, unresolvable, unschedulable

NO_TEMPLATE = "couldn't be cloned to from '{}'"
MISPLACED = "couldn't get a clone of '{}' with {} on storage '{}'"

OBSTACLES_TOLD = 3
"""The number of unreachable copies of a template whose reasons a message lists."""


def source_for(clone: CloneSource, node: NodeInfo) -> Template | Status:
    """Return the template to clone for a VM on node: the node's own copy, else the first one that can be cloned to it.
    """
    obstacles: list[str] = []
    resolvable = False
    for template in sorted(clone.templates, key=lambda template: template.node != node.name):
        obstacle = _obstacle(template, node)
        if obstacle is None:
            return template
        text, may_change = obstacle
        resolvable = resolvable or may_change
        if text not in obstacles:
            obstacles.append(text)
    detail = "; ".join(obstacles[:OBSTACLES_TOLD])
    return (unschedulable if resolvable else unresolvable)(NO_TEMPLATE.format(clone.templates[0].name), detail)


def misplacement_of(request: Request, template: Template) -> Status | None:
    """Return why template cannot be used: the request names another storage for a drive that a linked clone has on that
    of its template.
    """
    if request.clone is None or request.clone.full:
        return None
    places = {slot: storage for slot, storage, _size in template.volumes}
    for disk in request.disks:
        place = places.get(disk.slot)
        if place is not None and disk.storage not in (None, place):
            return unresolvable(MISPLACED.format(template.name, disk.slot, disk.storage), f"it is made on '{place}'")
    return None


def cloned_disks(request: Request, template: Template) -> Iterator[Disk]:
    """Yield the drives of the clone with the space that each takes: the template's volumes, copied or linked, grown if
    the request asks for more, and new drives.
    """
    clone = request.clone
    if clone is None:
        return
    given = {disk.slot: disk for disk in request.disks}
    for slot, storage, size in template.volumes:
        asked = given.pop(slot, None)
        wanted = asked.size if asked else 0
        copied = clone.full or slot in template.copied
        named, storage_class = (asked.storage, asked.storage_class) if asked else (None, None)
        if clone.full and not (named or storage_class):
            named, storage_class = clone.storage, clone.storage_class
        yield Disk(
            slot,
            size=max(size, wanted) if copied else max(wanted - size, 0),
            storage=named or (None if clone.full and storage_class else storage),
            storage_class=storage_class,
        )
    yield from given.values()


def landing_of(clone: CloneSource, template: Template, node: NodeInfo, chosen: Mapping[str, str]) -> str | None:
    """Return the storage on which a full clone makes all drives, so that as little as possible has to be moved
    afterwards; None: those of the template's. chosen are the storages of the drives, by slot.
    """
    wanted = {slot: chosen[slot] for slot, _storage, _size in template.volumes if slot in chosen}
    if not clone.full or all(wanted.get(slot) == storage for slot, storage, _size in template.volumes):
        # An explicit storage is passed on even if it changes nothing.
        return clone.storage if clone.full and set(wanted.values()) == {clone.storage} else None
    if template.node == node.name:
        largest, _storage, _size = max(template.volumes, key=lambda volume: volume[2])
        return wanted.get(largest)
    targets = set(wanted.values())
    use = node.storages[targets.pop()].use if len(targets) == 1 else None
    return use.name if use is not None and use.shared and template.node in use.nodes else None


def bytes_to_move(
    clone: CloneSource, template: Template, landing: str | None, chosen: Mapping[str, str]
) -> dict[str, int]:
    """Return the bytes by storage that a clone takes until its drives are moved."""
    found: dict[str, int] = {}
    for slot, storage, size in template.volumes if clone.full else ():
        here = landing or storage
        if chosen.get(slot, here) != here:
            found[here] = found.get(here, 0) + size
    return found


def _obstacle(template: Template, node: NodeInfo) -> tuple[str, bool] | None:
    """Return why template cannot be cloned to node, and whether that may change; None if it can."""
    if template.node == node.name:
        return None
    for slot, storage in _storages(template):
        seen = node.storages.get(storage)
        if seen is None:
            return f"its {slot} is on storage '{storage}' of {template.node}", False
        if not seen.use.shared:
            return f"its {slot} is on local storage '{storage}' of {template.node}", False
        if not seen.active:
            return f"storage '{storage}' of its {slot} is not active", True
    return None


def _storages(template: Template) -> list[tuple[str, str]]:
    """Return the slots and storages of all volumes and media of the template."""
    volumes = [(slot, storage) for slot, storage, _size in template.volumes]
    return [*volumes, *template.media]
