# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a request names and the cluster does not have: most often a slip of the pen."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Request
from .cache import ClusterState
from .node_selection import compiled_regex
from .texts import known

NO_STORAGES = "no storage is visible: the user needs Datastore.Audit on /storage"


def unknown_names(request: Request, cluster: ClusterState) -> list[str]:
    """For each name that nothing bears, and a pattern that no node matches, a text with the names that there are.

    Where there is no storage at all, that is told of a request with disks.
    """
    nodes = [info.name for info in cluster.nodes]
    texts = []
    if request.node is not None and request.node not in nodes:
        texts.append(f"no node '{request.node}', known: {known(nodes, request.node)}")
    pattern = compiled_regex(request)
    if pattern is not None and not any(pattern.matches(name) for name in nodes):
        texts.append(f"no node matches '{pattern.text}', known: {known(nodes, pattern.text)}")
    storages = {name for info in cluster.nodes for name in info.storages}
    if not storages and (request.disks or request.clone is not None):
        return [*texts, NO_STORAGES]
    for name in dict.fromkeys(_storages(request)):
        if name not in storages:
            texts.append(f"no storage '{name}', known: {known(storages, name)}")
    return texts


def _storages(request: Request) -> Iterator[str]:
    if request.clone is not None and request.clone.storage:
        yield request.clone.storage
    for disk in request.disks:
        if disk.storage:
            yield disk.storage
        for volume in (disk.volume, disk.source):
            name, separator, _rest = (volume or "").partition(":")
            if separator:
                yield name
