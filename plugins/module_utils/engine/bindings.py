# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The storages of a request's drives on many nodes: searched once per node and cycle, and only once for all nodes on
which the search would find the same.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping

from ..model import Request, StorageClass
from .cache import NodeInfo, NodeStorage
from .framework.interface import CycleState
from .framework.status import Status
from .volumes import Binding, DriveKind, Drives, Ranking, drives_anywhere, find_suitable, find_volumes


def volumes_of(
    state: CycleState, request: Request, nodes: Iterable[NodeInfo], classes: Mapping[str, StorageClass]
) -> list[Binding | Status]:
    """Return what find_volumes answers for each node, computed once per node and cycle for all plugins. Nodes may share
    one result. The results must not be changed.
    """
    known: dict[int, Binding | Status] = state.setdefault(volumes_of, {})
    if drives_anywhere not in state:
        state[drives_anywhere] = drives_anywhere(request, classes)
    drives: Drives | None = state[drives_anywhere]
    for node in nodes:
        if node.index not in known:
            common: Common | None = state.get(Common)
            if common is not None and common.is_found_on(node):
                known[node.index] = common.binding
                continue
            found = known[node.index] = find_volumes(request, node, classes, drives)
            # Of the first node alone: it costs as much as a search.
            if Common not in state and drives is not None and isinstance(found, Binding):
                state[Common] = common_binding(found, drives, node)
    return [known[node.index] for node in nodes]


class Common(t.NamedTuple):
    """A binding to shared storages, which are the first choice on most nodes that see them.

    Attributes:
        named: the storages that drives name.
        chosen: for each kind of the other drives, the shared storages that suit it, and the place of theirs with the
            least space that a drive was put on.
    """

    binding: Binding
    named: Mapping[str, NodeStorage]
    chosen: Mapping[DriveKind, tuple[Ranking, tuple[int, str]]]

    def is_found_on(self, node: NodeInfo) -> bool:
        """Whether the search on node would find the same: it sees the same shared storages, and no local one comes
        before them.
        """
        for name, storage in self.named.items():
            if node.storages.get(name) is not storage:
                return False
        for kind, (shared, least) in self.chosen.items():
            rankings = find_suitable(node, kind).rankings
            if shared not in rankings:
                return False
            for ranking in rankings:
                if ranking is not shared and ranking.first({}) < least:
                    return False
        return True


def common_binding(binding: Binding, drives: Drives, node: NodeInfo) -> Common | None:
    """Return what other nodes may have in common with this one; None if a drive is on a local storage, or was not put
    on its first choice.
    """
    if not all(node.storages[name].use.shared for name in binding.storages.values()):
        return None
    _template, disks = drives
    named = {disk.storage: node.storages[disk.storage] for disk, _kind in disks if disk.storage is not None}
    taken = Counter[str]()
    for disk, _kind in disks:
        if disk.storage is not None:
            taken[disk.storage] += disk.size
    chosen: dict[DriveKind, tuple[Ranking, tuple[int, str]]] = {}
    for disk, kind in disks:
        if disk.storage is not None:
            continue
        name = binding.storages[disk.slot]
        ranking = next(each for each in find_suitable(node, kind).rankings if name in each.limits)
        first = ranking.first(taken)
        if first[1] != name:
            return None
        chosen[kind] = ranking, max(first, chosen[kind][1]) if kind in chosen else first
        taken[name] += disk.size
    return Common(binding, named, chosen)
