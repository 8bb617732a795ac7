# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding a storage for every drive of a request on one node: the volume binder's Find, as a pure function.

Named storages are checked, unnamed ones are chosen, largest drive first and each where the most space is left. What one
drive takes is gone for the next one. Where that leads nowhere the other ways to share the drives out are tried.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import InvalidRequest
from ..model import GIB, MIB, Disk, Request, StorageClass, Template
from .cache import NodeInfo, NodeStorage
from .cloning import cloned_disks, misplaced, source_for
from .framework.cycle_state import CycleState
from .framework.status import Shortage, Status, unresolvable, unschedulable
from .patterns.names import name_pattern
from .texts import hint

NOT_FOUND = "didn't have storage '{}'"
NOT_ACTIVE = "had storage '{}' not active"
WRONG_CONTENT = "had storage '{}' without content type '{}'"
WRONG_CLASS = "had storage '{}' outside of storage class '{}'"
NO_SPACE = "had too little space on storage '{}'"
NO_CANDIDATE = "had no storage for {}"
NO_VOLUME = "didn't have '{}'"

ANY = StorageClass("")

ROUNDING = 4 * MIB
"""Storages round sizes up, LVM by the most: to its extents."""

MOST_TRIES = 200
"""How often a drive is put on a storage, on one node, before the search for room is given up."""


@dataclass(slots=True)
class Binding:
    """Where the drives go.

    storages maps slots to storages; bytes maps a storage's name to what the request takes there; template is the guest
    to clone from.
    """

    storages: dict[str, str] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    template: Template | None = None

    def put(self, disk: Disk, storage: str) -> None:
        """Let the drive take its space."""
        self.storages.update(dict.fromkeys((disk.slot, *disk.others), storage))
        if disk.size:
            self.bytes[storage] = self.bytes.get(storage, 0) + disk.size

    def take_back(self, disk: Disk) -> None:
        """Undo put."""
        storage = self.storages.pop(disk.slot)
        for slot in disk.others:
            del self.storages[slot]
        if disk.size:
            self.bytes[storage] -= disk.size
            if not self.bytes[storage]:
                del self.bytes[storage]


def find_volumes(request: Request, node: NodeInfo, classes: Mapping[str, StorageClass]) -> Binding | Status:
    """Bind every drive of the request on node, or say what is in the way. Raises InvalidRequest."""
    made = drives_on(request, node)
    if isinstance(made, Status):
        return made
    template, disks = made
    binding = Binding(template=template)
    for disk in disks:
        conflict = _check(disk, disk.storage, node, class_of(disk, classes), binding) if disk.storage else None
        if conflict is not None:
            return conflict
    unnamed = [(disk, class_of(disk, classes)) for disk in disks if disk.storage is None]
    return (_Search(node, binding).place(unnamed) if unnamed else None) or binding


def volumes_on(
    state: CycleState, request: Request, node: NodeInfo, classes: Mapping[str, StorageClass]
) -> Binding | Status:
    """The same, found once per node and cycle for all plugins that ask. It must not be changed."""
    return state.once((find_volumes, node.index), find_volumes, request, node, classes)


def class_of(disk: Disk, classes: Mapping[str, StorageClass]) -> StorageClass:
    """The class that the drive asks for, or the one of all storages. Raises InvalidRequest when there is none such."""
    if disk.storage_class is None:
        return ANY
    if disk.storage_class not in classes:
        known = f"{', '.join(sorted(classes)) or 'none is defined'}{hint(classes, disk.storage_class)}"
        raise InvalidRequest(f"{disk.slot}: unknown storage_class {disk.storage_class!r}; known classes: {known}")
    return classes[disk.storage_class]


def allowed(storage: NodeStorage, wanted: StorageClass) -> bool:
    """Whether a storage belongs to a class."""
    use = storage.use
    if wanted.shared is not None and use.shared is not wanted.shared:
        return False
    if wanted.types and use.type not in wanted.types:
        return False
    return not wanted.storages or _named(use.name, wanted.storages)


def suitable(node: NodeInfo, content: str, wanted: StorageClass) -> Sequence[tuple[str, NodeStorage, int]]:
    """The storages of a node, active or not, that a class may put such content on, each with the bytes that it may put
    there when nothing else is there. They are found once for each node.
    """
    found = node.suitable.get((content, wanted))
    if found is None:
        found = node.suitable[content, wanted] = [
            (name, storage, _limit(storage, wanted))
            for name, storage in node.storages.items()
            if content in storage.content and allowed(storage, wanted)
        ]
    return found


@functools.cache  # every class asks it of every storage on every node
def _named(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns matches the name of a storage."""
    return any(name_pattern(pattern).matches(name) for pattern in patterns)


def room(storage: NodeStorage, wanted: StorageClass, taken: int) -> int:
    """Bytes that a class may still put on a storage from which this request has taken some already; may be negative."""
    use = storage.use
    return _limit(storage, wanted) - use.used - use.pending - taken


def larger_than_asked(disk: Disk, sizes: Collection[int]) -> int | None:
    """The bytes of the smallest of the images that the drive may be imported from, when even that is larger than the
    drive is to be; else None. An image in a file takes a little more there than the disk that it becomes.
    """
    smallest = min(sizes, default=0)
    return smallest if 0 < disk.size < smallest - smallest // 512 - ROUNDING else None


def _limit(storage: NodeStorage, wanted: StorageClass) -> int:
    """Bytes that a class may put on the storage when nothing else is on it."""
    total = storage.use.total
    return int(total * wanted.overcommit - (wanted.reserved * total if wanted.reserved < 1 else wanted.reserved))


def _could_hold(storage: NodeStorage, wanted: StorageClass, size: int) -> bool:
    """Whether a class could put size bytes on the storage when nothing else is on it; of an unknown size it could."""
    return not storage.use.total or size <= _limit(storage, wanted)


def drives_on(request: Request, node: NodeInfo) -> tuple[Template | None, list[Disk]] | Status:
    """The template to clone from, if any, and the drives to make, largest first; or what is in the way in any case."""
    template = source_for(request.clone, node) if request.clone is not None else None
    if isinstance(template, Status):
        return template
    elsewhere = misplaced(request, template) if template is not None else None
    if elsewhere is not None:
        return elsewhere
    if template is None and not any(disk.volume or disk.source for disk in request.disks):
        return None, _largest_first(request.disks)
    made: list[Disk] = []
    for disk in request.disks if template is None else cloned_disks(request, template):
        for volume in (disk.volume, disk.source):
            conflict = _held(volume, node) if volume else None
            if conflict is not None:
                return conflict
        if disk.volume is None:
            made.append(disk if disk.source is None else _sized(disk, disk.source, node))
    return template, _largest_first(made)


def _largest_first(disks: Sequence[Disk]) -> list[Disk]:
    return sorted(disks, key=lambda disk: (-disk.size, disk.slot)) if len(disks) > 1 else list(disks)


def _held(volume: str, node: NodeInfo) -> Status | None:
    """What is in the way of using a volume that exists somewhere."""
    name, separator, _rest = volume.partition(":")
    conflict = _present(name, node) if separator else None
    if conflict is None and node.volumes.get(volume, 0) is None:
        return unresolvable(NO_VOLUME.format(volume))
    return conflict


def _sized(disk: Disk, source: str, node: NodeInfo) -> Disk:
    """The drive as large as what is imported into it, if that is known and larger."""
    return replace(disk, size=max(disk.size, node.volumes.get(source) or 0))


def _present(name: str, node: NodeInfo) -> Status | None:
    storage = node.storages.get(name)
    if storage is None:
        return unresolvable(NOT_FOUND.format(name))
    return None if storage.active else unschedulable(NOT_ACTIVE.format(name))


def _check(disk: Disk, name: str, node: NodeInfo, wanted: StorageClass, binding: Binding) -> Status | None:
    """Put the drive on the storage that it names, or say what is in the way."""
    conflict = _present(name, node)
    if conflict is not None:
        return conflict
    storage = node.storages[name]
    if disk.content not in storage.content:
        return unresolvable(WRONG_CONTENT.format(name, disk.content))
    if not allowed(storage, wanted):
        return unresolvable(WRONG_CLASS.format(name, wanted.name), disk.called)
    free = room(storage, wanted, binding.bytes.get(name, 0))
    # What takes nothing, as a linked clone does, fits even on an overcommitted storage.
    if disk.size > max(free, 0):
        resolvable = _could_hold(storage, wanted, binding.bytes.get(name, 0) + disk.size)
        detail = f"{disk.called} {_needs(disk.size, free)}"
        return _short(NO_SPACE.format(name), detail, disk.size - free, resolvable=resolvable)
    binding.put(disk, name)
    return None


class _Search:
    """The search for storages for the drives that name none, on one node."""

    def __init__(self, node: NodeInfo, binding: Binding) -> None:
        self._node = node
        self._binding = binding
        self._tries_left = MOST_TRIES

    def place(self, disks: Sequence[tuple[Disk, StorageClass]]) -> Status | None:
        """Put each drive where the most room is; of equal storages where the name sorts first.

        When a later drive is then left over, its predecessor goes to the storage with the next most room.
        """
        if not disks:
            return None
        (disk, wanted), *others = disks
        storages = self._candidates(disk, wanted)
        if not storages:
            return self._nowhere(disk, wanted)
        heapq.heapify(storages)
        most, first = storages[0]
        conflict: Status | None = None
        while storages:
            negated, name = heapq.heappop(storages)
            if disk.size > max(-negated, 0) or not self._tries_left:
                break
            self._tries_left -= 1
            self._binding.put(disk, name)
            found = self.place(others)
            if found is None:
                return None
            conflict = conflict or found
            self._binding.take_back(disk)
        return conflict or self._no_room(disk, wanted, -most, first)

    def _candidates(self, disk: Disk, wanted: StorageClass) -> list[tuple[int, str]]:
        """The storages that will do but for their space, each with its negated room."""
        taken = self._binding.bytes
        return [
            (storage.use.used + storage.use.pending + taken.get(name, 0) - limit, name)
            for name, storage, limit in suitable(self._node, disk.content, wanted)
            if storage.active
        ]

    def _no_room(self, disk: Disk, wanted: StorageClass, most: int, name: str) -> Status:
        detail = f"{disk.called} {_needs(disk.size, most)} on {name}"
        storages = suitable(self._node, disk.content, wanted)
        resolvable = any(_could_hold(storage, wanted, disk.size) for _name, storage, _limit in storages)
        return _short(NO_CANDIDATE.format(_label(disk, wanted)), detail, disk.size - most, resolvable=resolvable)

    def _nowhere(self, disk: Disk, wanted: StorageClass) -> Status:
        inactive = sorted(
            name for name, storage, _limit in suitable(self._node, disk.content, wanted) if not storage.active
        )
        detail = f"{disk.called}: {', '.join(inactive)} not active" if inactive else f"{disk.called}: there is none"
        return (unschedulable if inactive else unresolvable)(NO_CANDIDATE.format(_label(disk, wanted)), detail)


def _short(reason: str, detail: str, missing: int, *, resolvable: bool) -> Status:
    """Says that so many bytes are missing."""
    shortage = Shortage("storage", missing) if missing > 0 else None
    return (unschedulable if resolvable else unresolvable)(reason, detail, shortage)


def _label(disk: Disk, wanted: StorageClass) -> str:
    return f"storage class '{wanted.name}'" if wanted.name else f"content type '{disk.content}'"


def _needs(size: int, free: int) -> str:
    return f"needs {in_gib(size)} GiB, {in_gib(max(free, 0))} GiB free"


def in_gib(size: int) -> str:
    """Return bytes as a number of GiB for people."""
    return f"{size / GIB:.4g}" if size < 1000 * GIB else f"{size / GIB:.0f}"
