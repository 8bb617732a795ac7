# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds a storage for every drive of a request on one node, like the volume binder of kube-scheduler. Pure functions.

Named storages are checked. Unnamed ones are chosen for the largest drive first, each where the most space is left after
the drives before it. If that fails, other distributions of the drives are tried.
"""

from __future__ import annotations

import functools
import itertools
import typing as t
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import InvalidRequest
from ..model import GIB, MIB, CloneSource, Disk, Request, StorageClass, Template
from .cache import NodeInfo, NodeStorage, Shelf, StorageUse
from .cloning import bytes_to_move, cloned_disks, landing_of, misplacement_of, source_for
from .framework.status import Shortage, Status, unresolvable, unschedulable
from .patterns.names import name_pattern
from .texts import hint, join_words

NOT_FOUND = "didn't have storage '{}'"
NOT_ACTIVE = "had storage '{}' not active"
WRONG_CONTENT = "had storage '{}' without content type '{}'"
WRONG_CLASS = "had storage '{}' outside of storage class '{}'"
NO_SPACE = "had too little space on storage '{}'"
NO_CANDIDATE = "had no storage for {}"
NO_VOLUME = "didn't have '{}'"

ANY = StorageClass("")

ROUNDING = 4 * MIB
"""How much a storage may round up a size; LVM rounds the most, to its extents."""

MOST_TRIES = 200
"""How many times a drive is put on a storage of one node before the search is given up."""


@dataclass(slots=True)
class Binding:
    """The storages chosen for the drives.

    storages maps slots to storages; bytes maps a storage's name to what the request takes there; template is the guest
    to clone from, landing the storage that the clone is made on.
    """

    storages: dict[str, str] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    template: Template | None = None
    landing: str | None = None

    def put(self, disk: Disk, storage: str) -> None:
        """Assign the drive to a storage."""
        self.storages[disk.slot] = storage
        for slot in disk.others:
            self.storages[slot] = storage
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


@dataclass(frozen=True, slots=True, eq=False)
class DriveKind:
    """What drives of one kind need of a storage. There is one object per kind, so that it is found fast."""

    content: str
    wanted: StorageClass


kind_of = functools.cache(DriveKind)

Drives: t.TypeAlias = "tuple[Template | None, Sequence[tuple[Disk, DriveKind]]]"
"""The template to clone from, if any, and the drives to create, largest first."""


def find_volumes(
    request: Request, node: NodeInfo, classes: Mapping[str, StorageClass], drives: Drives | None = None
) -> Binding | Status:
    """Choose a storage for every drive of the request on node, or return why that is not possible. drives are those of
    the request, if they do not depend on the node. Raises InvalidRequest.
    """
    made = drives or _drives_on(request, node, classes)
    if isinstance(made, Status):
        return made
    template, disks = made
    binding = Binding(template=template)
    unnamed = []
    for disk, kind in disks:
        if disk.storage is None:
            unnamed.append((disk, kind))
            continue
        conflict = _check(disk, disk.storage, node, kind.wanted, binding)
        if conflict is not None:
            return conflict
    conflict = _StorageSearch(node, binding).place(unnamed) if unnamed else None
    if conflict is None and template is not None and request.clone is not None:
        conflict = _land(request.clone, template, node, binding)
    return conflict or binding


def _land(clone: CloneSource, template: Template, node: NodeInfo, binding: Binding) -> Status | None:
    """Choose the storage that the clone is made on, or return why it has no room there until its drives are moved."""
    binding.landing = landing_of(clone, template, node, binding.storages)
    for name, size in bytes_to_move(clone, template, binding.landing, binding.storages).items():
        free = room(node.storages[name], ANY, binding.bytes.get(name, 0))
        if size > max(free, 0):
            detail = f"the clone is made there, and {_needs(size, free)}, before its drives are moved"
            resolvable = _could_hold(node.storages[name], ANY, size)
            return _space_status(NO_SPACE.format(name), detail, size - free, resolvable=resolvable)
    return None


def class_of(disk: Disk, classes: Mapping[str, StorageClass]) -> StorageClass:
    """Return the storage class of the drive, or the class of all storages. Raises InvalidRequest for an unknown class.
    """
    if disk.storage_class is None:
        return ANY
    if disk.storage_class not in classes:
        known = f"{', '.join(sorted(classes)) or 'none is defined'}{hint(classes, disk.storage_class)}"
        raise InvalidRequest(f"{disk.slot}: unknown storage_class {disk.storage_class!r}; known classes: {known}")
    return classes[disk.storage_class]


def is_allowed(storage: NodeStorage, wanted: StorageClass) -> bool:
    """Whether a storage belongs to a class."""
    use = storage.use
    if wanted.shared is not None and use.shared is not wanted.shared:
        return False
    if wanted.types and use.type not in wanted.types:
        return False
    return not wanted.storages or _is_named(use.name, wanted.storages)


@dataclass(slots=True, eq=False)
class Ranking:
    """Active storages of one shelf that suit drives of one kind, by the space that is left.

    limits maps each to the bytes that the class may use of the empty storage.
    """

    shelf: Shelf
    limits: Mapping[str, tuple[StorageUse, int]]
    _seen: int = -1
    _ranked: Sequence[tuple[int, str]] = ()

    def first(self, taken: Mapping[str, int]) -> tuple[int, str]:
        """Return the storage with the most space left, with its negated free space, when the request has taken some
        bytes.
        """
        if self._seen != self.shelf.changes:
            self._ranked = sorted(self.place(name, 0) for name in self.limits)
            self._seen = self.shelf.changes
        first = self._ranked[0]
        if first[1] not in taken:
            return first
        rest = [self.place(name, taken[name]) for name in taken if name in self.limits]
        return min([*rest, *itertools.islice((place for place in self._ranked if place[1] not in taken), 1)])

    def place(self, name: str, taken: int) -> tuple[int, str]:
        """Return one storage with its negated free space, when the request has taken some bytes of it."""
        use, limit = self.limits[name]
        return use.used + use.pending + taken - limit, name


@dataclass(slots=True)
class Suitable:
    """The storages of a node that suit drives of one kind; rankings are those of the active ones."""

    storages: Sequence[NodeStorage]
    rankings: Sequence[Ranking]


def find_suitable(node: NodeInfo, kind: DriveKind) -> Suitable:
    """Find the storages that suit a drive, apart from their space. Computed once per node."""
    found: Suitable | None = node.suitable.get(kind)
    if found is None:
        storages = [s for s in node.storages.values() if kind.content in s.content and is_allowed(s, kind.wanted)]
        on: dict[Shelf, list[NodeStorage]] = {}
        for storage in storages:
            if storage.active:
                on.setdefault(storage.use.shelf, []).append(storage)
        rankings = [_shared_ranking(shelf, some, kind) for shelf, some in on.items()]
        found = node.suitable[kind] = Suitable(storages, rankings)
    return found


def _shared_ranking(shelf: Shelf, storages: Sequence[NodeStorage], kind: DriveKind) -> Ranking:
    """Return the ranking of these storages of a shelf: the same one for all nodes that see the same shared storages."""
    key = kind, tuple(storage.use.name for storage in storages)
    if key not in shelf.rankings:
        limits = {storage.use.name: (storage.use, _limit(storage, kind.wanted)) for storage in storages}
        shelf.rankings[key] = Ranking(shelf, limits)
    found: Ranking = shelf.rankings[key]
    return found


@functools.cache  # every class asks it of every storage on every node
def _is_named(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns matches the name of a storage."""
    return any(name_pattern(pattern).matches(name) for pattern in patterns)


def room(storage: NodeStorage, wanted: StorageClass, taken: int) -> int:
    """Return the bytes that a class may still use of a storage of which this request has taken some already; may be
    negative.
    """
    use = storage.use
    return _limit(storage, wanted) - use.used - use.pending - taken


def larger_than_asked(disk: Disk, sizes: Collection[int]) -> int | None:
    """Return the size of the smallest image that the drive may be imported from, if even that is larger than the drive;
    else None. An image file may be a little larger than its disk.
    """
    smallest = min(sizes, default=0)
    return smallest if 0 < disk.size < smallest - smallest // 512 - ROUNDING else None


def _limit(storage: NodeStorage, wanted: StorageClass) -> int:
    """Return the bytes that a class may use of the empty storage."""
    total = storage.use.total
    return int(total * wanted.overcommit - (wanted.reserved * total if wanted.reserved < 1 else wanted.reserved))


def _could_hold(storage: NodeStorage, wanted: StorageClass, size: int) -> bool:
    """Whether size bytes would fit on the empty storage within the class; True if the storage's size is not known."""
    return not storage.use.total or size <= _limit(storage, wanted)


def drives_anywhere(request: Request, classes: Mapping[str, StorageClass]) -> Drives | None:
    """Return the drives of a request, if they do not depend on the node."""
    if request.clone is not None or any(disk.volume or disk.source for disk in request.disks):
        return None
    return None, _largest_first(request.disks, classes)


def _drives_on(request: Request, node: NodeInfo, classes: Mapping[str, StorageClass]) -> Drives | Status:
    """Return the drives that a request has on a node, or why the node cannot have them at all."""
    template = source_for(request.clone, node) if request.clone is not None else None
    if isinstance(template, Status):
        return template
    elsewhere = misplacement_of(request, template) if template is not None else None
    if elsewhere is not None:
        return elsewhere
    made: list[Disk] = []
    for disk in request.disks if template is None else cloned_disks(request, template):
        for volume in (disk.volume, disk.source):
            conflict = _volume_conflict(volume, node) if volume else None
            if conflict is not None:
                return conflict
        if disk.volume is None:
            made.append(disk if disk.source is None else _with_source_size(disk, disk.source, node))
    return template, _largest_first(made, classes)


def _largest_first(disks: Sequence[Disk], classes: Mapping[str, StorageClass]) -> Sequence[tuple[Disk, DriveKind]]:
    return [
        (disk, kind_of(disk.content, class_of(disk, classes)))
        for disk in sorted(disks, key=lambda disk: (-disk.size, disk.slot))
    ]


def _volume_conflict(volume: str, node: NodeInfo) -> Status | None:
    """Return why an existing volume cannot be used on the node."""
    name, separator, _rest = volume.partition(":")
    conflict = _present(name, node) if separator else None
    if conflict is None and node.volumes.get(volume, 0) is None:
        return unresolvable(NO_VOLUME.format(volume))
    return conflict


def _with_source_size(disk: Disk, source: str, node: NodeInfo) -> Disk:
    """Return the drive with the size of its import source, if that is known and larger."""
    return replace(disk, size=max(disk.size, node.volumes.get(source) or 0))


def _present(name: str, node: NodeInfo) -> Status | None:
    storage = node.storages.get(name)
    if storage is None:
        return unresolvable(NOT_FOUND.format(name))
    return None if storage.active else unschedulable(NOT_ACTIVE.format(name))


def _check(disk: Disk, name: str, node: NodeInfo, wanted: StorageClass, binding: Binding) -> Status | None:
    """Put the drive on the storage that it names, or return why that is not possible."""
    conflict = _present(name, node)
    if conflict is not None:
        return conflict
    storage = node.storages[name]
    if disk.content not in storage.content:
        return unresolvable(WRONG_CONTENT.format(name, disk.content))
    if not is_allowed(storage, wanted):
        return unresolvable(WRONG_CLASS.format(name, wanted.name), disk.called)
    free = room(storage, wanted, binding.bytes.get(name, 0))
    # A drive that takes no space, like a linked clone, fits even on an overcommitted storage.
    if disk.size > max(free, 0):
        resolvable = _could_hold(storage, wanted, binding.bytes.get(name, 0) + disk.size)
        detail = f"{disk.called} {_needs(disk.size, free)}"
        return _space_status(NO_SPACE.format(name), detail, disk.size - free, resolvable=resolvable)
    binding.put(disk, name)
    return None


class _StorageSearch:
    """Searches storages for the drives that name none, on one node."""

    def __init__(self, node: NodeInfo, binding: Binding) -> None:
        self._node = node
        self._binding = binding
        self._tries_left = MOST_TRIES

    def place(self, disks: Sequence[tuple[Disk, DriveKind]]) -> Status | None:
        """Put each drive on the storage with the most free space; of equal ones, on the first by name.

        If a later drive then does not fit, the drive before it goes to the storage with the next most space.
        """
        return None if self._place_first(disks) else self._search(disks)

    def _place_first(self, disks: Sequence[tuple[Disk, DriveKind]]) -> bool:
        """Whether each drive fits on its first choice. If not, none is placed."""
        for number, (disk, kind) in enumerate(disks):
            first = self._first_candidate(kind)
            if first is None or disk.size > max(-first[0], 0):
                for placed, _kind in disks[:number]:
                    self._binding.take_back(placed)
                return False
            self._binding.put(disk, first[1])
        return True

    def _search(self, disks: Sequence[tuple[Disk, DriveKind]]) -> Status | None:
        """Find storages for these disks, the first one's candidates in order. Returns None, or why there are none."""
        (disk, kind), *others = disks
        storages = self._candidates(kind)
        if not storages:
            return self._no_candidate_status(disk, kind)
        most, first = storages[0]
        conflict: Status | None = None
        for negated, name in storages:
            if disk.size > max(-negated, 0) or not self._tries_left:
                break
            self._tries_left -= 1
            self._binding.put(disk, name)
            found = self._search(others) if others else None
            if found is None:
                return None
            conflict = conflict or found
            self._binding.take_back(disk)
        return conflict or self._no_room_status(disk, kind, -most, first)

    def _candidates(self, kind: DriveKind) -> list[tuple[int, str]]:
        """Return the active storages that suit a drive, each with its negated free space after the drives before it,
        the one with the most first.
        """
        taken = self._binding.bytes
        rankings = find_suitable(self._node, kind).rankings
        return sorted(ranking.place(name, taken.get(name, 0)) for ranking in rankings for name in ranking.limits)

    def _first_candidate(self, kind: DriveKind) -> tuple[int, str] | None:
        """Return the first of the candidates."""
        best: tuple[int, str] | None = None
        for ranking in find_suitable(self._node, kind).rankings:
            first = ranking.first(self._binding.bytes)
            if best is None or first < best:
                best = first
        return best

    def _no_room_status(self, disk: Disk, kind: DriveKind, most: int, name: str) -> Status:
        detail = f"{disk.called} {_needs(disk.size, most)} on {name}"
        storages = find_suitable(self._node, kind).storages
        resolvable = any(_could_hold(storage, kind.wanted, disk.size) for storage in storages)
        reason = NO_CANDIDATE.format(_label(disk, kind.wanted))
        return _space_status(reason, detail, disk.size - most, resolvable=resolvable)

    def _no_candidate_status(self, disk: Disk, kind: DriveKind) -> Status:
        """Return why no storage of the node is a candidate for a disk: none is active, or none exists."""
        storages = find_suitable(self._node, kind).storages
        inactive = sorted(storage.use.name for storage in storages if not storage.active)
        if inactive:
            detail = f"{disk.called}: {', '.join(inactive)} not active"
            return unschedulable(NO_CANDIDATE.format(_label(disk, kind.wanted)), detail)
        others = [
            f"{name} ({storage.use.type})"
            for name, storage in sorted(self._node.storages.items())
            if kind.wanted.name and disk.content in storage.content
        ]
        detail = f"{disk.called}: there is none{f' among {join_words(others)}' if others else ''}"
        return unresolvable(NO_CANDIDATE.format(_label(disk, kind.wanted)), detail)


def _space_status(reason: str, detail: str, missing: int, *, resolvable: bool) -> Status:
    """Return the status for missing space."""
    shortage = Shortage("storage", missing) if missing > 0 else None
    return (unschedulable if resolvable else unresolvable)(reason, detail, shortage)


def _label(disk: Disk, wanted: StorageClass) -> str:
    return f"storage class '{wanted.name}'" if wanted.name else f"content type '{disk.content}'"


def _needs(size: int, free: int) -> str:
    return f"needs {in_gib(size)} GiB, {in_gib(max(free, 0))} GiB free"


def in_gib(size: int) -> str:
    """Return bytes as a number of GiB for people."""
    return f"{size / GIB:.4g}" if size < 1000 * GIB else f"{size / GIB:.0f}"
