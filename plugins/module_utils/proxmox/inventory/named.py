# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads which nodes have what the options of VMs name: mappings of directories and devices, snippets, and storages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ...model import Node, Storage
from ..api.failures import UNREADABLE
from ..api.reader import Reader, in_parallel
from .rows import Row, read_rows

MAPPINGS = ("dir", "pci", "usb")
DEVICES = ("pci", "usb")
SNIPPET, STORAGE = "snippet", "storage"

_MAY_SEE = frozenset({"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.Audit"})
"""The privileges of which each shows a storage."""
_MAY_LIST = frozenset({"Datastore.Allocate"})
"""The privilege without which Proxmox VE leaves snippets out of the content of a storage."""

Named = tuple[str, str]


def with_named(
    reader: Reader, nodes: Sequence[Node], storages: Sequence[Storage], named: Collection[Named]
) -> tuple[Node, ...]:
    """Return nodes with what is known of these resources, as (kind, name).

    Takes one call per kind of mapping; one per node and kind of device that is named by its address; for snippets one
    per storage, and node if it is local; and one for the user's rights on a storage if nothing is seen of it.
    """
    found: dict[str, dict[Named, bool]] = {node.name: {} for node in nodes}
    for kind in MAPPINGS:
        names = {name for each, name in named if each == kind}
        rows = read_rows(reader, f"/cluster/mapping/{kind}") if names else None
        if rows is not None:
            _note_mappings(found, kind, names, rows)
    for kind in DEVICES:
        hosts = {name for each, name in named if each == f"{kind}-device"}
        if hosts:
            _note_devices(reader, found, kind, hosts)
    places = {
        name: {each.node for each in storages if each.name == name and each.active}
        for name in {_storage_of(each) for each in named if each[0] in (SNIPPET, STORAGE)}
    }
    for storage, where in places.items():
        if where or _ask_if_permitted(reader, storage, _MAY_SEE):
            wanted = [each for each in named if each[0] in (SNIPPET, STORAGE) and _storage_of(each) == storage]
            _note_places(found, wanted, where)
    volumes = {name for kind, name in named if kind == SNIPPET}
    for storage in sorted({volume.partition(":")[0] for volume in volumes}):
        wanted_of = [volume for volume in volumes if volume.partition(":")[0] == storage]
        _note_snippets(reader, found, wanted_of, [each for each in storages if each.name == storage and each.active])
    return tuple(replace(node, has={**node.has, **found[node.name]}) for node in nodes)


def _storage_of(named: Named) -> str:
    return named[1].partition(":")[0]


def _note_mappings(
    found: Mapping[str, dict[Named, bool]], kind: str, names: Iterable[str], rows: Iterable[Row]
) -> None:
    """Note in found for each node whether it has an entry in the mappings with these names."""
    entries = {str(row.get("id")): row.get("map") or () for row in rows}
    for name in names:
        there = {_node_of(str(entry)) for entry in entries.get(name, ())}
        for node, has in found.items():
            has[kind, name] = node in there


def _node_of(entry: str) -> str:
    properties = dict(part.partition("=")[::2] for part in entry.split(","))
    return properties.get("node", "")


def _note_devices(reader: Reader, found: Mapping[str, dict[Named, bool]], kind: str, hosts: Collection[str]) -> None:
    """Note in found for each node whether it has the devices with these addresses or ids."""
    # Without it, Proxmox VE leaves out classes of devices that are rarely passed through.
    everything = {"pci-class-blacklist": ""} if kind == "pci" else {}
    lists = in_parallel(lambda node: read_rows(reader, f"/nodes/{node}/hardware/{kind}", **everything), sorted(found))
    for node, rows in lists.items():
        for host in hosts if rows is not None else ():
            found[node][f"{kind}-device", host] = all(
                any(_is_named(kind, part, row) for row in rows or ()) for part in host.lower().split(";")
            )


def _is_named(kind: str, host: str, row: Row) -> bool:
    """Whether a host address, or the ids of a USB device, are those of a row."""
    if kind == "pci":
        address = host if host.count(":") == 2 else f"0000:{host}"
        return f"{row.get('id')}".lower() == address or f"{row.get('id')}".lower().startswith(f"{address}.")
    ids = ":".join(str(row.get(key, "")).lower().removeprefix("0x") for key in ("vendid", "prodid"))
    return host.replace("0x", "") == ids or host == f"{row.get('busnum')}-{row.get('usbpath')}"


def _note_places(found: Mapping[str, dict[Named, bool]], wanted: Iterable[Named], places: Collection[str]) -> None:
    """Note that nodes lack a storage, and with it its snippets."""
    for each in wanted:
        for node, has in found.items():
            if node not in places or each[0] == STORAGE:
                has[each] = node in places


def _note_snippets(
    reader: Reader, found: Mapping[str, dict[Named, bool]], volumes: Sequence[str], storages: Sequence[Storage]
) -> None:
    """Note in found for each node whether it has these snippets, all of them on one storage."""
    teller = {each.name: each.node for each in storages if each.shared}
    asked = {each.node: teller.get(each.name, each.node) for each in storages if "snippets" in each.content}
    lists = in_parallel(
        lambda node: read_rows(reader, f"/nodes/{node}/storage/{storages[0].name}/content", content="snippets"),
        sorted(set(asked.values())),
    )
    # Rights on a storage are the same for all nodes: who sees one snippet sees all.
    visible = any(lists.values()) or (bool(asked) and _ask_if_permitted(reader, storages[0].name, _MAY_LIST))
    for node, told_by in asked.items():
        rows = lists[told_by]
        for volume in volumes if rows is not None and visible else ():
            found[node][SNIPPET, volume] = any(row.get("volid") == volume for row in rows or ())


def _ask_if_permitted(reader: Reader, storage: str, privileges: Collection[str]) -> bool:
    """Whether the user certainly has one of the privileges on a storage."""
    path = f"/storage/{storage}"
    rights = read_rights(reader, path)
    return any(rights.get(privilege) for privilege in privileges)


def read_rights(reader: Reader, path: str) -> Mapping[str, object]:
    """Return the privileges of the user on a path; none if they cannot be read."""
    try:
        rights: Mapping[str, Mapping[str, object]] = reader.get("/access/permissions", path=path)
    except UNREADABLE:
        return {}
    return rights.get(path) or {}
