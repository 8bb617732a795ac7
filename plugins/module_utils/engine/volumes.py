# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding a storage for every drive of a request on one node: the volume binder's Find, as a pure function.

Named storages are checked, unnamed ones are chosen, largest drive first and each where the most space is left. What one
drive takes is gone for the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..model import GIB, Disk, Request, StorageClass, Template
from .cache import NodeInfo, NodeStorage

NOT_FOUND = "didn't have storage '{}'"
NOT_ACTIVE = "had storage '{}' not active"
WRONG_CONTENT = "had storage '{}' without content type '{}'"
NO_SPACE = "had too little space on storage '{}'"
NO_CANDIDATE = "had no storage for {}"
NO_TEMPLATE = "couldn't reach template '{}'"

ANY = StorageClass("")


@dataclass(slots=True)
class Binding:
    """Where the drives go.

    bytes maps a storage's name to what the request takes there; template is the guest to clone from.
    """

    storages: dict[str, str] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    template: Template | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why the drives cannot go to a node.

    reason is the same for all nodes that lack the same; detail is this node's. missing is how many bytes the first
    drive in the way lacks, when space is all that it lacks.
    """

    reason: str
    detail: str = ""
    resolvable: bool = True
    missing: int = 0


def find_volumes(request: Request, node: NodeInfo, classes: Mapping[str, StorageClass]) -> Binding | Conflict:
    """Bind every drive of the request on node, or say what is in the way."""
    binding = Binding()
    disks = list(request.disks)
    if request.clone is not None:
        template = reachable_template(request, node)
        if template is None:
            return Conflict(NO_TEMPLATE.format(request.clone.templates[0].name), resolvable=False)
        binding.template = template
        disks = list(_cloned_disks(request, template))
    for disk in sorted(disks, key=lambda d: (d.storage is None, -d.size, d.slot)):
        conflict = _bind(disk, node, classes, binding)
        if conflict is not None:
            return conflict
    return binding


def reachable_template(request: Request, node: NodeInfo) -> Template | None:
    """The template to clone from when the VM is to be on node: the node's own copy, else one whose volumes all lie on
    shared storage.

    Proxmox clones to another node only from shared storage, and a running VM with local disks only on its own node.
    """
    if request.clone is None:
        return None
    for template in request.clone.templates:
        if template.node == node.name:
            return template
    for template in request.clone.templates:
        volumes = (node.storages.get(storage) for _slot, storage, _size in template.volumes)
        if all(seen is not None and seen.use.shared and seen.active for seen in volumes):
            return template
    return None


def allowed(storage: NodeStorage, wanted: StorageClass) -> bool:
    """Whether a storage belongs to a class."""
    use = storage.use
    if wanted.shared is not None and use.shared is not wanted.shared:
        return False
    if wanted.types and use.type not in wanted.types:
        return False
    return not wanted.storages or any(re.fullmatch(pattern, use.name) for pattern in wanted.storages)


def room(storage: NodeStorage, wanted: StorageClass, taken: int) -> int:
    """Bytes that a class may still put on a storage from which this request has taken some already; may be negative."""
    use = storage.use
    reserved = wanted.reserved * use.total if wanted.reserved < 1 else wanted.reserved
    return int(use.total * wanted.overcommit - reserved) - use.used - use.pending - taken


def _cloned_disks(request: Request, template: Template) -> Iterator[Disk]:
    """The drives of the clone:

    the template's volumes, copied or linked, grown where the request asks for more, and new ones beside them.
    """
    clone = request.clone
    if clone is None:
        return
    given = {disk.slot: disk for disk in request.disks}
    for slot, storage, size in template.volumes:
        asked = given.pop(slot, None)
        if clone.full:
            grown = max(size, asked.size if asked else 0)
            yield Disk(slot, grown, clone.storage or storage, content="images")
        else:
            yield Disk(slot, max(asked.size - size, 0) if asked else 0, storage, content="images")
    yield from given.values()


def _bind(disk: Disk, node: NodeInfo, classes: Mapping[str, StorageClass], binding: Binding) -> Conflict | None:
    for volume in (disk.volume, disk.source):
        conflict = _present(volume.partition(":")[0], node) if volume and ":" in volume else None
        if conflict is not None:
            return conflict
    if disk.volume is not None:
        return None
    wanted = classes[disk.storage_class] if disk.storage_class else ANY
    storage = (
        _choose(disk, node, wanted, binding)
        if disk.storage is None
        else _check(disk, disk.storage, node, wanted, binding)
    )
    if isinstance(storage, Conflict):
        return storage
    binding.storages[disk.slot] = storage
    if disk.size:
        binding.bytes[storage] = binding.bytes.get(storage, 0) + disk.size
    return None


def _present(name: str, node: NodeInfo) -> Conflict | None:
    storage = node.storages.get(name)
    if storage is None:
        return Conflict(NOT_FOUND.format(name), resolvable=False)
    return None if storage.active else Conflict(NOT_ACTIVE.format(name))


def _check(disk: Disk, name: str, node: NodeInfo, wanted: StorageClass, binding: Binding) -> str | Conflict:
    conflict = _present(name, node)
    if conflict is not None:
        return conflict
    storage = node.storages[name]
    if disk.content not in storage.content:
        return Conflict(WRONG_CONTENT.format(name, disk.content), resolvable=False)
    free = room(storage, wanted, binding.bytes.get(name, 0))
    if disk.size > free:
        return Conflict(NO_SPACE.format(name), f"{disk.slot} {_needs(disk.size, free)}", missing=disk.size - free)
    return name


def _choose(disk: Disk, node: NodeInfo, wanted: StorageClass, binding: Binding) -> str | Conflict:
    """The storage with the most room; of equal ones the name that sorts first."""
    best: tuple[int, str] | None = None
    for name in sorted(node.storages):
        storage = node.storages[name]
        if not storage.active or disk.content not in storage.content or not allowed(storage, wanted):
            continue
        free = room(storage, wanted, binding.bytes.get(name, 0))
        if best is None or free > best[0]:
            best = free, name
    label = f"storage class '{wanted.name}'" if wanted.name else f"content type '{disk.content}'"
    if best is None:
        return Conflict(NO_CANDIDATE.format(label), f"{disk.slot}: none is active and fits", resolvable=True)
    if disk.size > best[0]:
        detail = f"{disk.slot} {_needs(disk.size, best[0])} on {best[1]}"
        return Conflict(NO_CANDIDATE.format(label), detail, missing=disk.size - best[0])
    return best[1]


def _needs(size: int, free: int) -> str:
    return f"needs {size / GIB:.4g} GiB, {max(free, 0) / GIB:.4g} GiB free"
