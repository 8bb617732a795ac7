# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a snapshot of the cluster: nodes, guests and storages in one call, other subjects only if they are needed."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...model import Node, Snapshot, Storage
from ..api.failures import NotRecorded
from ..api.reader import Reader, in_parallel
from .freshness import SETTLING, KnownGuest, settle
from .nodes import with_bridges, with_cpu_flags, with_cpu_types, with_pressure
from .rows import (
    GUEST_KINDS,
    MARK,
    NextId,
    Row,
    guest_of_row,
    node_of_row,
    read_next_id,
    read_rows,
    storage_of_row,
)

if t.TYPE_CHECKING:
    from .mappings import DeviceNeeds


IDENTIFIED_BY_AUTHORITY = "ca:"
# C(localhost) is the node that answers the call.
_CERTIFICATES = "/nodes/localhost/certificates/info"
_OWN_AUTHORITY = "O=PVE Cluster Manager CA"
_FINGERPRINT_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Needs:
    """Which subjects to read besides nodes, guests and storages; each takes further calls.

    next_id: the bounds for automatic VMIDs (one call, or two without Sys.Audit).
    bridges: the nodes' bridges and VNets (one call per node).
    cpu_types: the CPU types that the nodes know (one call per node).
    cpu_flags: the CPU flags that the nodes support (one call).
    pressure: the nodes' pressure stall information for CPU, memory and disk (one call per node).
    maintenance: nodes that have just gone into maintenance (one call, on clusters that use HA).
    ha_rules: the HA manager's rules or groups (one to three calls).
    ha_resources: what is set for single HA resources (one call); C(where it matters): only if a rule depends on it,
        and then with the nodes that have just gone into maintenance (one more call).
    volumes: where these volumes are, and their sizes (see read_volumes for the calls).
    new_bytes: how many bytes the disks of new VMs may take; used to read what is available on storages near their limit
        (see with_available for the calls).
    devices: mapped passthrough devices and who holds them (see read_devices for the calls); None: not read.
    """

    next_id: bool = False
    bridges: bool = False
    cpu_types: bool = False
    cpu_flags: bool = False
    named: frozenset[tuple[str, str]] = frozenset()
    pressure: bool = False
    maintenance: bool = False
    ha_rules: bool = False
    ha_resources: t.Literal[False, "where it matters", True] = False
    volumes: frozenset[str] = frozenset()
    new_bytes: int = 0
    devices: DeviceNeeds | None = None


def read_snapshot(reader: Reader, needs: Needs | None = None) -> Snapshot:
    """Read the cluster: one call, and those of the subjects in needs.

    Guests are as C(/cluster/resources) shows them, up to some ten seconds late: the names of new guests are None, and
    a reused VMID may show the previous guest's name. C(read_settled) corrects that.
    """
    needs = needs or Needs()
    return complete_snapshot(reader, _read(reader, needs)[0], needs)


def read_settled(
    reader: Reader,
    needs: Needs | None = None,
    known: Mapping[int, KnownGuest] = MappingProxyType({}),
    patience: float = SETTLING,
) -> Snapshot:
    """Read the cluster as C(read_snapshot) does, then correct outdated guests by C(freshness.settle)."""
    needs = needs or Needs()
    snapshot, next_id = _read(reader, needs)
    settled = settle(reader, snapshot, known=known, auditor=next_id.auditor, patience=patience)
    return complete_snapshot(reader, settled, needs)


def complete_snapshot(reader: Reader, snapshot: Snapshot, needs: Needs) -> Snapshot:
    """Return a settled snapshot with the subjects in needs read and added."""
    nodes = snapshot.nodes
    if needs.maintenance and any(node.ha_managed for node in nodes):
        from .ha_state import with_maintenance

        nodes = with_maintenance(reader, nodes)
    for is_needed, add in (
        (needs.bridges, with_bridges),
        (needs.cpu_types, with_cpu_types),
        (needs.cpu_flags, with_cpu_flags),
        (needs.pressure, with_pressure),
    ):
        if is_needed:
            nodes = add(reader, nodes)
    snapshot = replace(snapshot, nodes=nodes)
    if needs.new_bytes:
        snapshot = replace(snapshot, storages=with_available(reader, nodes, snapshot.storages, needs.new_bytes))
    if needs.named:
        from .named import with_named

        nodes = with_named(reader, nodes, snapshot.storages, needs.named)
        snapshot = replace(snapshot, nodes=nodes)
    if needs.ha_rules:
        snapshot = _with_ha_rules(reader, snapshot, needs)
    if needs.volumes:
        from .named_volumes import read_volumes

        snapshot = replace(snapshot, volumes=read_volumes(reader, nodes, snapshot.storages, needs.volumes))
    if needs.devices is not None:
        from .mappings import read_devices

        # Read last, as this depends on which guests exist and run.
        devices, mappings = read_devices(reader, nodes, snapshot.guests, needs.devices)
        snapshot = replace(snapshot, devices=devices, mappings=mappings)
    return snapshot


def _with_ha_rules(reader: Reader, snapshot: Snapshot, needs: Needs) -> Snapshot:
    """Return the snapshot with the HA manager's rules and what is needed of its resources."""
    from .ha_state import depend_on_failback, read_ha_rules, with_maintenance, with_resources

    rules, unknown = read_ha_rules(reader), dict[int, str]()
    if needs.ha_resources is True:
        rules, unknown = with_resources(reader, rules)
    elif needs.ha_resources and depend_on_failback(rules):
        rules, unknown = with_resources(reader, rules)
        snapshot = replace(snapshot, nodes=with_maintenance(reader, snapshot.nodes))
    return replace(snapshot, ha_rules=rules, unknown_of_ha=unknown)


def identity(reader: Reader) -> str:
    """Return a text that identifies this cluster: C(ca:) and part of the fingerprint of its certificate authority.

    Every user can read it, without any privilege, from every node, and without quorum. Proxmox VE creates one authority
    per installation, so that two standalone nodes with the same name differ. It does not change when nodes join, leave,
    or get other addresses and certificates, nor when the cluster is renamed. A node that joins a cluster gives up its
    own authority.

    If the authority was replaced by one that several clusters may share, or a recording lacks it, the names of all
    nodes identify the cluster instead; every user can read these too.
    """
    try:
        rows: list[Row] = reader.get(_CERTIFICATES)
    except NotRecorded:
        rows = []
    for row in rows:
        if row.get("filename") == "pve-root-ca.pem" and _OWN_AUTHORITY in str(row.get("subject")):
            return IDENTIFIED_BY_AUTHORITY + str(row["fingerprint"]).replace(":", "").lower()[:_FINGERPRINT_DIGITS]
    rows = reader.get("/cluster/resources")
    return ",".join(sorted(str(row["node"]) for row in rows if row.get("type") == "node"))


def _read(reader: Reader, needs: Needs) -> tuple[Snapshot, NextId]:
    """Read the cluster as its list shows it. A pool of a certain name marks a node as drained."""
    rows: list[Row] = reader.get("/cluster/resources")
    next_id = read_next_id(reader) if needs.next_id else NextId()
    pools = frozenset(str(row["pool"]) for row in rows if row.get("type") == "pool" and "pool" in row)
    drained = {pool.removeprefix(MARK) for pool in pools if pool.startswith(MARK)}
    nodes = (node_of_row(row) for row in rows if row.get("type") == "node")
    snapshot = Snapshot(
        nodes=tuple(replace(node, drained=True) if node.name in drained else node for node in nodes),
        guests=tuple(guest_of_row(row) for row in rows if row.get("type") in GUEST_KINDS),
        storages=tuple(storage_of_row(row) for row in rows if row.get("type") == "storage"),
        next_id=(next_id.lower, next_id.upper),
        vmids_unseen=next_id.unseen,
        pools=pools,
    )
    return snapshot, next_id


FILE_SYSTEMS = frozenset({"btrfs", "cephfs", "cifs", "dir", "glusterfs", "nfs"})
"""Types on which less than the unused space may be available, because of a quota, blocks reserved for root, or data of
other users.
"""

_LARGE_PART = 10
_NEARLY_FULL = 4


def with_available(
    reader: Reader, nodes: Sequence[Node], storages: Sequence[Storage], size: int
) -> tuple[Storage, ...]:
    """Return storages with space that is not available counted as used, for those that size bytes of new disks may
    fill.

    C(/cluster/resources) shows only total and used. Takes one call per node with a file system that is three quarters
    full, or of whose free space size is more than a tenth; for a shared one, only one node is asked. Storages that
    cannot be read are not changed.
    """
    online = {node.name for node in nodes if node.online}
    doubtful = []
    for storage in storages:
        holds_images = storage.active and storage.node in online and "images" in storage.content
        free = storage.total - storage.used
        fills = size * _LARGE_PART > free or free * _NEARLY_FULL < storage.total
        if storage.type in FILE_SYSTEMS and holds_images and fills:
            doubtful.append(storage)
    return _with_space(reader, storages, doubtful) if doubtful else tuple(storages)


def _with_space(reader: Reader, storages: Sequence[Storage], doubtful: list[Storage]) -> tuple[Storage, ...]:
    """Return the storages, the doubtful ones with the space that their nodes call available."""
    doubtful.sort(key=lambda each: each.node)
    # The first node of each shared storage.
    shared = {each.name: each.node for each in reversed(doubtful) if each.shared}
    asked = {shared.get(each.name, each.node) for each in doubtful}
    lists = in_parallel(lambda node: _available(reader, node), sorted(asked))

    def correct(storage: Storage) -> Storage:
        available = lists.get(shared.get(storage.name, storage.node), {}).get(storage.name)
        if available is None or available >= storage.total - storage.used:
            return storage
        return replace(storage, used=storage.total - available)

    names = {(each.node, each.name) for each in doubtful}
    return tuple(correct(each) if (each.node, each.name) in names else each for each in storages)


def _available(reader: Reader, node: str) -> dict[str, int]:
    rows = read_rows(reader, f"/nodes/{node}/storage", content="images")
    return {row["storage"]: int(row["avail"]) for row in rows or () if row.get("avail") is not None}
