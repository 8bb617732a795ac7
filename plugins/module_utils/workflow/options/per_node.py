# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates that have copies of the same name on several nodes, of which the node tells them apart."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...engine.node_selection import compile_node_regex, wanted_regex
from ...engine.texts import join_words
from ...errors import InvalidRequest
from ...model import Snapshot
from .uniqueness import check_unique

if t.TYPE_CHECKING:
    from .entries import Entry


def check_per_node(where: str, body: Mapping[str, t.Any], *, several_clusters: bool) -> None:
    """Refuse C(per_node) where a name that several VMs have would be a mistake. Raises InvalidRequest."""
    if several_clusters:
        raise InvalidRequest(f"{where}per_node: cannot be used with several clusters, expected one cluster")
    if body.get("state") != "absent" and not body.get("template"):
        raise InvalidRequest(
            f"{where}per_node: is for templates, which stay on their nodes; set template=true, or give each VM a name "
            "of its own, for example with count"
        )
    if not body.get("name"):
        raise InvalidRequest(f"{where}per_node: requires name, which is not set")
    if body.get("vmid") is not None and body.get("node") is None:
        raise InvalidRequest(f"{where}vmid: {body['vmid']} can be the VMID of one copy only; set node, too")


def on_each_node(entries: Sequence[Entry], cluster: Snapshot) -> tuple[list[Entry], list[str]]:
    """Return the entries, of which each for a template per node without a node is replaced by one for each node, and
    warnings. Raises InvalidRequest.
    """
    found: list[Entry] = []
    warnings: list[str] = []
    for entry in entries:
        if not (entry.request.per_node and entry.request.node is None):
            found.append(entry)
            continue
        copies, left = _copies(entry, cluster)
        found.extend(copies)
        if left:
            done = "removed" if entry.state == "absent" else "made"
            warnings.append(f"{entry.label}: no copy is {done} on {join_words(left)}, which cannot be used at present")
    found = [replace(entry, position=position) for position, entry in enumerate(found)]
    check_unique(found, "vms")
    return found, warnings


def _copies(entry: Entry, cluster: Snapshot) -> tuple[list[Entry], list[str]]:
    """Return the entries for the nodes that are ready, or have their copy, and the names of the others."""
    pattern = compile_node_regex(entry.request)
    nodes = sorted(cluster.nodes, key=lambda node: node.name)
    wanted = [node for node in nodes if pattern is None or pattern.matches(node.name)]
    there = {guest.node for guest in cluster.guests if guest.name == entry.request.name and guest.kind == "qemu"}
    if not wanted:
        raise InvalidRequest(f"node_regex: {wanted_regex(entry.request)!r} of {entry.label} matches no node")
    ready = [node for node in wanted if node.online and (node.name in there or not (node.maintenance or node.drained))]
    copies = [replace(entry, request=replace(entry.request, node=node.name)) for node in ready]
    return copies, [node.name for node in wanted if node not in ready and (entry.state != "absent" or not node.online)]
