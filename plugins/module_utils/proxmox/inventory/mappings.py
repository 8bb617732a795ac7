# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the passthrough devices of the cluster's resource mappings, and how much of each is in use."""

from __future__ import annotations

import enum
import typing as t
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...engine.devices.hardware import PCI, USB
from ...errors import PermissionDenied
from ...model import Device, Guest, Node
from ..api.failures import NodeUnreachable, NotRecorded
from ..api.reader import Reader, in_parallel
from .device_holdings import Holding, holdings, with_use
from .device_rows import (
    MappedPath,
    fault_of,
    function_addresses,
    given_attributes,
    mapped_paths,
    mediated_devices,
    present,
)
from .freshness import read_config
from .rows import Row

# By default, Proxmox does not list devices of the classes memory, bridge and processor. Crypto cards have the latter.
_OF_ANY_CLASS = {"pci-class-blacklist": ""}

# A node and a driver: Proxmox has a hardware list for each pair.
_Place = tuple[str, str]

SEVERAL = "several entries for this node, where Proxmox VE supports one per node for USB"


class _Unseen(enum.Enum):
    """Why a node's hardware list could not be read."""

    HIDDEN = "the user cannot see it"
    GONE = "the node does not answer"


class MappedDevices(t.NamedTuple):
    """The mapped devices of the nodes that were read, and the names of all mappings."""

    devices: tuple[Device, ...]
    mappings: frozenset[str]


def _any(*_what: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class DeviceNeeds:
    """Which devices to read.

    Attributes:
        node: tells whether a VM may be placed on a node; other nodes are not read.
        device: tells whether a device of a node, free or not, suits a VM; on nodes without such a device, the configs
            of guests are not read.
        attributes: the attributes that the user gives, by mapping, C(mapping@node) or C(address@node).
    """

    node: Callable[[Node], bool] = _any
    device: Callable[[Device, Node], bool] = _any
    attributes: Mapping[str, Mapping[str, t.Any]] = field(default_factory=dict)


def read_devices(reader: Reader, nodes: Iterable[Node], guests: Iterable[Guest], needs: DeviceNeeds) -> MappedDevices:
    """Read the mapped devices of the nodes that are online, and how much of each is held by guests, running or not.

    Takes two calls, and in addition
    - one per node and driver with mapped devices,
    - one more for each of these whose hardware the user cannot see, if a device there suits a VM,
    - one per card with mediated devices,
    - one per VM on nodes with a device that suits a VM.

    Only users with Sys.Audit (for USB Sys.Modify) on C(/) see the hardware. For others, devices are as the mappings
    describe them, without mediated devices. Devices of VMs that the user cannot see count as free. Nodes that do not
    answer have no devices.
    """
    wanted = {node.name: node for node in nodes if node.online and needs.node(node)}
    mapped = _read_mappings(reader)
    paths = [path for path in mapped if path.node in wanted]
    by_node: dict[str, list[Device]] = {}
    for device in _read_hardware(reader, paths, needs, wanted):
        by_node.setdefault(device.node, []).append(device)
    useful = [
        name
        for name, devices in by_node.items()
        if any(not device.fault and needs.device(device, wanted[name]) for device in devices)
    ]
    held = _read_holdings(reader, useful, guests)
    found: list[Device] = []
    for name, devices in sorted(by_node.items()):
        if name in held:
            found.extend(with_use(devices, held[name]))
        elif name not in useful:
            # No device here suits a VM, so holdings were not read: return the devices as in use, for their faults.
            found.extend(replace(device, in_use=device.capacity) for device in devices)
    return MappedDevices(tuple(found), frozenset(path.mapping for path in mapped))


def _read_mappings(reader: Reader) -> list[MappedPath]:
    """Return the entries of all mappings that the user can see."""

    def read(driver: str) -> list[Row]:
        try:
            rows: list[Row] = reader.get(f"/cluster/mapping/{driver}")
        except NotRecorded:
            return []
        return rows

    rows = in_parallel(read, (PCI, USB))
    return [*mapped_paths(PCI, rows[PCI]), *mapped_paths(USB, rows[USB])]


def _read_hardware(
    reader: Reader, paths: Sequence[MappedPath], needs: DeviceNeeds, nodes: Mapping[str, Node]
) -> list[Device]:
    """Read the devices behind mappings, with their faults. Types of mediated devices are devices of their own."""
    addresses: dict[_Place, set[str]] = {}
    for path in paths:
        addresses.setdefault((path.node, path.driver), set()).update(function_addresses(path))
    lists = in_parallel(lambda place: _read_list(reader, place, addresses[place]), addresses)
    devices: list[tuple[MappedPath, Device]] = []
    for path in paths:
        rows = lists[path.node, path.driver]
        if rows is _Unseen.GONE:
            continue
        for name, attributes in present(path, rows if isinstance(rows, list) else None):
            own = given_attributes(needs.attributes, path.mapping, path.node, name)
            device = Device(path.driver, path.mapping, path.node, name, attributes={**attributes, **own})
            devices.append((path, device))
    hidden = {
        (device.node, device.driver)
        for path, device in devices
        if lists[path.node, path.driver] is _Unseen.HIDDEN and needs.device(device, nodes[device.node])
    }
    faults = {
        **_faults(paths, lists),
        **{
            (node, driver, mapping): text
            for (node, driver), checks in in_parallel(lambda place: _read_checks(reader, *place), hidden).items()
            for mapping, text in checks.items()
        },
    }

    def fault(device: Device) -> str:
        return faults.get((device.node, device.driver, device.mapping), "")

    cards = [device for path, device in devices if path.mdev and not fault(device)]
    types = in_parallel(lambda card: _read_types(reader, *card), [(card.node, card.id) for card in cards])
    return [
        *(replace(device, capacity=0, fault=fault(device)) for _path, device in devices if fault(device)),
        *(device for path, device in devices if not path.mdev and not fault(device)),
        *(each for card in cards for each in mediated_devices(card, types[card.node, card.id])),
    ]


def _faults(
    paths: Sequence[MappedPath], lists: Mapping[_Place, list[Row] | _Unseen]
) -> dict[tuple[str, str, str], str]:
    """Return by node, driver and name why a mapping cannot be used on a node. One wrong entry is enough: before Proxmox
    starts a VM with a mapping, it checks all entries for the node.
    """
    faults: dict[tuple[str, str, str], str] = {}
    usb = Counter((path.node, path.mapping) for path in paths if path.driver == USB)
    for path in paths:
        rows = lists[path.node, path.driver]
        fault = fault_of(path, rows) if isinstance(rows, list) else ""
        if path.driver == USB and usb[path.node, path.mapping] > 1:
            fault = SEVERAL
        if fault:
            faults.setdefault((path.node, path.driver, path.mapping), fault)
    return faults


def _read_checks(reader: Reader, node: str, driver: str) -> dict[str, str]:
    """Return the first error that Proxmox reports for each mapping on a node. Users of the mapping may read it."""
    try:
        rows: list[Row] = reader.get(f"/cluster/mapping/{driver}", {"check-node": node})
    except (PermissionDenied, NotRecorded, NodeUnreachable):
        return {}
    found: dict[str, str] = {}
    for row in rows:
        for check in row.get("checks") or row.get("errors") or ():
            if check.get("severity") == "error":
                text = str(check.get("message", "")).strip().removeprefix("Invalid configuration: ")
                found.setdefault(str(row["id"]), text)
    return found


def _read_list(reader: Reader, place: _Place, addresses: set[str]) -> list[Row] | _Unseen:
    """Return a node's hardware list, or why it could not be read."""
    node, driver = place
    path = f"/nodes/{node}/hardware/{driver}"
    try:
        rows: list[Row] = reader.get(path)
    except (PermissionDenied, NotRecorded):
        return _Unseen.HIDDEN
    except NodeUnreachable:
        return _Unseen.GONE
    if driver == PCI and not addresses <= {str(row.get("id")) for row in rows}:
        try:
            rows = reader.get(path, _OF_ANY_CLASS)
        except (NotRecorded, NodeUnreachable):
            return rows
    return rows


def _read_types(reader: Reader, node: str, card: str) -> list[Row]:
    """Return the types of mediated devices that a card offers; none for an entry with several functions."""
    if ";" in card:
        return []
    try:
        rows: list[Row] = reader.get(f"/nodes/{node}/hardware/pci/{card if '.' in card else f'{card}.0'}/mdev")
    except (PermissionDenied, NotRecorded, NodeUnreachable):
        return []
    return rows


def _read_holdings(reader: Reader, nodes: Iterable[str], guests: Iterable[Guest]) -> dict[str, list[Holding]]:
    """Return what the VMs on each node hold. Templates, and nodes that do not answer, are left out."""
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
    """Read which devices a guest holds; None if its node does not answer."""
    try:
        config = read_config(reader, node, vmid)
    except NodeUnreachable:
        return None
    except NotRecorded:
        config = None
    return holdings(vmid, running, config or {})
