# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names in a request that the cluster does not have, usually because of typing errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model import Request
from .cache import ClusterState
from .node_selection import NODE_KEY, compile_node_regex
from .texts import NAMED_KINDS, known_names

UNSEEN = "this user cannot see it"

NO_STORAGES = "no storage is visible: the user needs Datastore.Audit on /storage"


def unknown_names(request: Request, cluster: ClusterState) -> list[str]:
    """Return a text with the known names for each unknown name, and for each pattern that matches no node.

    If there is no storage at all, a text says so for a request with disks.
    """
    nodes = [info.name for info in cluster.nodes]
    texts = []
    if request.node is not None and request.node not in nodes:
        texts.append(f"no node '{request.node}', known: {known_names(nodes, request.node)}")
    pattern = compile_node_regex(request)
    if pattern is not None and not any(pattern.matches(name) for name in nodes):
        texts.append(f"no node matches '{pattern.text}', known: {known_names(nodes, pattern.text)}")
    texts += _labels(request, cluster)
    storages = {name for info in cluster.nodes for name in info.storages}
    if not storages and (request.disks or request.clone is not None):
        return [*texts, NO_STORAGES]
    for name in dict.fromkeys(_storages(request)):
        if name not in storages:
            texts.append(f"no storage '{name}', or {UNSEEN}, known: {known_names(storages, name)}")
    texts += [*_volumes(request, cluster), *_mappings(request, cluster), *_bridges(request, cluster)]
    return [*texts, *_unknown_resources(request, cluster), *_cpu_types(request, cluster)]


def _labels(request: Request, cluster: ClusterState) -> Iterator[str]:
    """Yield the texts about labels of required rules that no node has."""
    there = {NODE_KEY, *(key for info in cluster.nodes for key in info.node.labels)}
    wanted = [each.topology_key for each in request.topology_spread if each.hard]
    wanted += [each.topology_key for each in request.affinity if each.required]
    wanted += [each.key for each in request.node_required if each.operator not in ("NotIn", "DoesNotExist")]
    for key in dict.fromkeys(wanted):
        if key not in there:
            yield f"no node has the label '{key}', known: {known_names(there, key)}"


def _volumes(request: Request, cluster: ClusterState) -> Iterator[str]:
    """Yield the texts about volumes that were looked for and exist on no node."""
    for volume in dict.fromkeys(name for disk in request.disks for name in (disk.volume, disk.source) if name):
        looked = [info.volumes for info in cluster.nodes if volume in info.volumes]
        if looked and all(there[volume] is None for there in looked):
            kind = volume.partition("/")[0]
            others = {name for there in looked for name, size in there.items() if size is not None}
            others = {name for name in others if name.partition("/")[0] == kind}
            yield f"no volume '{volume}', or {UNSEEN}, known: {known_names(others, volume)}"


def _mappings(request: Request, cluster: ClusterState) -> Iterator[str]:
    there = cluster.snapshot.mappings
    claimed = [each.mapping for claim in request.devices for each in (claim.one_of or (claim,))]
    for name in dict.fromkeys(filter(None, claimed)):
        if there is not None and name not in there:
            yield f"no device mapping '{name}' that the user may use, known: {known_names(there, name)}"


def _bridges(request: Request, cluster: ClusterState) -> Iterator[str]:
    there = _union_over_nodes([info.node.bridges for info in cluster.nodes if info.node.online])
    if there is not None:
        for name in sorted(request.bridges - there):
            yield f"no bridge '{name}', or this user may not use it, known: {known_names(there, name)}"


def _unknown_resources(request: Request, cluster: ClusterState) -> Iterator[str]:
    """Yield the texts about what options of the VM name and no node has."""
    online = [info.node for info in cluster.nodes if info.node.online]
    for kind, name in sorted(request.named):
        if online and all(node.has.get((kind, name)) is False for node in online):
            yield f"no {NAMED_KINDS[kind]} '{name}', or {UNSEEN}"


def _cpu_types(request: Request, cluster: ClusterState) -> Iterator[str]:
    there = _union_over_nodes([info.node.cpu_models for info in cluster.nodes if info.node.online])
    if request.cpu_type is not None and there is not None and request.cpu_type not in there:
        yield f"no CPU type '{request.cpu_type}', known: {known_names(there, request.cpu_type)}"


def _union_over_nodes(names: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """Return the union of what was read of each node; None if something was not read."""
    read = [each for each in names if each is not None]
    return frozenset().union(*read) if read and len(read) == len(names) else None


def _storages(request: Request) -> Iterator[str]:
    """Yield the storages that a request names, also those of its volumes and images."""
    if request.clone is not None and request.clone.storage:
        yield request.clone.storage
    for disk in request.disks:
        if disk.storage:
            yield disk.storage
        for volume in (disk.volume, disk.source):
            name, separator, _rest = (volume or "").partition(":")
            if separator:
                yield name
