# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The passthrough devices of the cluster's resource mappings, and how many VMs each can still serve."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..engine.devices.addresses import PCI, USB
from ..errors import PermissionDenied
from ..model import Device, Guest, Node
from .device_holdings import Holding, holdings, with_use
from .device_rows import MappedPath, first_function, given_attributes, mapped_paths, mediated, present
from .failures import NodeUnreachable, NotRecorded
from .freshness import read_config
from .parallel import in_parallel
from .reader import Reader
from .rows import Row

# The default leaves out bridges and memory, and processors, which crypto cards call themselves.
_WITH_PROCESSORS = {"pci-class-blacklist": "05;06"}

# A node and a driver: what one hardware list shows.
_Place = tuple[str, str]


def _any(*_what: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class DeviceNeeds:
    """Which devices to read.

    Attributes:
        node: tells whether a VM may go to a node; other nodes are not looked at.
        device: tells whether a VM may be given a device of a node, free or not; nodes without such a one are left out,
            and their guests are not read.
        attributes: what the user says of devices, by mapping, C(mapping@node) or C(address@node).
    """

    node: Callable[[Node], bool] = _any
    device: Callable[[Device, Node], bool] = _any
    attributes: Mapping[str, Mapping[str, t.Any]] = field(default_factory=dict)


def read_devices(
    reader: Reader, nodes: Iterable[Node], guests: Iterable[Guest], needs: DeviceNeeds
) -> tuple[Device, ...]:
    """Read the mapped devices of the nodes that are online, with what guests hold of them, running or not.

    Costs two calls; one more per node and driver with mapped devices; one per card with mediated devices; and one per
    VM on the nodes that are left. A user without Sys.Audit (for USB Sys.Modify) on C(/) is not shown the hardware: then
    only what the mappings say is known, and mediated devices not at all. VMs that the user may not see hold nothing
    here. Nodes that do not answer have no devices.
    """
    wanted = {node.name: node for node in nodes if node.online and needs.node(node)}
    paths = [path for path in _read_mappings(reader) if path.node in wanted]
    by_node: dict[str, list[Device]] = {}
    for device in _read_hardware(reader, paths, needs.attributes):
        by_node.setdefault(device.node, []).append(device)
    kept = {
        name: devices
        for name, devices in by_node.items()
        if any(needs.device(device, wanted[name]) for device in devices)
    }
    held = _read_holdings(reader, kept, guests)
    return tuple(device for node in sorted(held) for device in with_use(kept[node], held[node]))


def _read_mappings(reader: Reader) -> list[MappedPath]:
    """Return the entries of all mappings that the user may see, and that Proxmox can use."""

    def read(driver: str) -> list[Row]:
        try:
            rows: list[Row] = reader.get(f"/cluster/mapping/{driver}")
        except NotRecorded:
            return []
        return rows

    rows = in_parallel(read, (PCI, USB))
    usb = list(mapped_paths(USB, rows[USB]))
    # Proxmox starts no VM with a USB mapping that has several entries for one node.
    entries = Counter((path.mapping, path.node) for path in usb)
    return [*mapped_paths(PCI, rows[PCI]), *(path for path in usb if entries[path.mapping, path.node] == 1)]


def _read_hardware(
    reader: Reader, paths: Sequence[MappedPath], given: Mapping[str, Mapping[str, t.Any]]
) -> list[Device]:
    addresses: dict[_Place, set[str]] = {}
    for path in paths:
        addresses.setdefault((path.node, path.driver), set()).add(first_function(path))
    lists = in_parallel(lambda place: _read_list(reader, place, addresses[place]), addresses)
    devices: list[Device] = []
    cards: list[Device] = []
    for path in paths:
        for name, attributes in present(path, lists[path.node, path.driver]):
            own = given_attributes(given, path.mapping, path.node, name)
            device = Device(path.driver, path.mapping, path.node, name, attributes={**attributes, **own})
            (cards if path.mdev else devices).append(device)
    types = in_parallel(lambda card: _read_types(reader, *card), [(card.node, card.id) for card in cards])
    return [*devices, *(each for card in cards for each in mediated(card, types[card.node, card.id]))]


def _read_list(reader: Reader, place: _Place, addresses: set[str]) -> list[Row] | None:
    """Return a node's list of hardware; None when the user may not see it."""
    node, driver = place
    path = f"/nodes/{node}/hardware/{driver}"
    try:
        rows: list[Row] = reader.get(path)
    except (PermissionDenied, NotRecorded):
        return None
    except NodeUnreachable:
        return []
    if driver == PCI and not addresses <= {str(row.get("id")) for row in rows}:
        try:
            rows = reader.get(path, _WITH_PROCESSORS)
        except (NotRecorded, NodeUnreachable):
            return rows
    return rows


def _read_types(reader: Reader, node: str, card: str) -> list[Row]:
    """Return the types of mediated devices that a card offers; Proxmox makes none of several functions together."""
    if ";" in card:
        return []
    try:
        rows: list[Row] = reader.get(f"/nodes/{node}/hardware/pci/{card if '.' in card else f'{card}.0'}/mdev")
    except (PermissionDenied, NotRecorded, NodeUnreachable):
        return []
    return rows


def _read_holdings(reader: Reader, nodes: Iterable[str], guests: Iterable[Guest]) -> dict[str, list[Holding]]:
    """Return what the VMs of each node hold, without the nodes that do not answer. Templates hold nothing."""
    held: dict[str, list[Holding]] = {node: [] for node in nodes}
    wanted = [(g.node, g.vmid, g.running) for g in guests if g.kind == "qemu" and not g.template and g.node in held]
    found = in_parallel(lambda guest: _read_holding(reader, *guest), sorted(wanted))
    for (node, _vmid, _running), holding in found.items():
        if holding is None:
            held.pop(node, None)
        elif node in held:
            held[node].extend(holding)
    return held


def _read_holding(reader: Reader, node: str, vmid: int, running: bool) -> list[Holding] | None:
    try:
        config = read_config(reader, node, vmid)
    except NodeUnreachable:
        return None
    except NotRecorded:
        config = None
    return holdings(vmid, running, config or {})
