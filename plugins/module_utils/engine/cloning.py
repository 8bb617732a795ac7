# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which template a clone on a given node is made from, and what it takes there: the rules of Proxmox VE, as pure
functions.

Proxmox VE makes a clone on the node of its source and then only moves the config to the target node. So every volume of
the source and of the clone must be on a storage that both nodes share, including the images in the source's CD-ROM
drives.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..model import CloneSource, Disk, Request, Template
from .cache import NodeInfo
from .framework.status import Status, unresolvable, unschedulable

NO_TEMPLATE = "couldn't be cloned to from '{}'"
MISPLACED = "couldn't get a clone of '{}' with {} on storage '{}'"

OBSTACLES_TOLD = 3
"""The number of unreachable copies of a template whose reasons a message lists."""


def source_for(clone: CloneSource, node: NodeInfo) -> Template | Status:
    """The template to clone for a VM on node: the node's own copy, else the first one that can be cloned to it."""
    obstacles: list[str] = []
    resolvable = False
    for template in sorted(clone.templates, key=lambda template: template.node != node.name):
        obstacle = _obstacle(template, clone, node)
        if obstacle is None:
            return template
        text, may_change = obstacle
        resolvable = resolvable or may_change
        if text not in obstacles:
            obstacles.append(text)
    detail = "; ".join(obstacles[:OBSTACLES_TOLD])
    return (unschedulable if resolvable else unresolvable)(NO_TEMPLATE.format(clone.templates[0].name), detail)


def misplaced(request: Request, template: Template) -> Status | None:
    """Why template cannot be used: the request names a storage for a drive that the clone gets on another one."""
    clone = request.clone
    if clone is None:
        return None
    places = {slot: clone.storage or storage for slot, storage, _size in template.volumes}
    for disk in request.disks:
        place = places.get(disk.slot)
        if place is not None and disk.storage not in (None, place):
            reason = MISPLACED.format(template.name, disk.slot, disk.storage)
            cure = "; set storage to have all drives elsewhere" if clone.full else ""
            return unresolvable(reason, f"it is made on '{place}'{cure}")
    return None


def cloned_disks(request: Request, template: Template) -> Iterator[Disk]:
    """The drives of the clone with the space that each takes: the template's volumes, copied or linked, grown if the
    request asks for more, and new drives.
    """
    clone = request.clone
    if clone is None:
        return
    given = {disk.slot: disk for disk in request.disks}
    for slot, storage, size in template.volumes:
        asked = given.pop(slot, None)
        wanted = asked.size if asked else 0
        copied = clone.full or slot in template.copied
        yield Disk(
            slot,
            size=max(size, wanted) if copied else max(wanted - size, 0),
            storage=(clone.storage if clone.full else None) or storage,
            storage_class=asked.storage_class if asked else None,
        )
    yield from given.values()


def _obstacle(template: Template, clone: CloneSource, node: NodeInfo) -> tuple[str, bool] | None:
    """Why template cannot be cloned to node, and whether that may change; None if it can."""
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
    target = node.storages.get(clone.storage) if clone.storage else None
    if target is None:
        return None
    if not target.use.shared:
        return f"it is on {template.node}, and storage '{clone.storage}' is not shared", False
    if template.node not in target.use.nodes:
        return f"it is on {template.node}, where storage '{clone.storage}' is not active", True
    return None


def _storages(template: Template) -> list[tuple[str, str]]:
    """The slots and storages of all volumes and media of the template."""
    volumes = [(slot, storage) for slot, storage, _size in template.volumes]
    return [*volumes, *template.media]
