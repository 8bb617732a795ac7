# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes devices with attributes from the rows of resource mappings and hardware lists. Pure: nothing is read here."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...engine.devices.hardware import PCI, USB, functions
from ...model import Device
from .rows import Row

_PAIR = re.compile(r"(?:^|[\s,;])([A-Za-z_][\w.-]*)=(\"[^\"]*\"|[^\s,;]+)")
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"-?\d{1,17}\.\d{1,17}")
_COMPARED = ("id", "iommugroup", "subsystem-id")


@dataclass(frozen=True, slots=True)
class MappedPath:
    """One entry of a resource mapping: the device that a VM gets on one node.

    path is a PCI address, several PCI addresses separated by semicolons, or a USB port; None for a USB device that is
    given only by its hardware id. hardware is C(vendor:device) in hexadecimal. mdev tells whether VMs get mediated
    devices of it. recorded are the properties that Proxmox compares with the hardware before it starts a VM.
    """

    driver: str
    mapping: str
    node: str
    path: str | None
    hardware: str
    mdev: bool = False
    attributes: Mapping[str, t.Any] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)


def mapped_paths(driver: str, rows: Sequence[Row]) -> Iterator[MappedPath]:
    """Yield the entries of the rows of C(/cluster/mapping/pci) or C(usb), in their order."""
    for row in rows:
        for text in row.get("map") or ():
            entry = dict(part.partition("=")[::2] for part in str(text).split(","))
            path = entry.get("path")
            yield MappedPath(
                driver=driver,
                mapping=row["id"],
                node=entry.get("node", ""),
                path=path.lower() if path else None,
                hardware=entry.get("id", "").lower(),
                mdev=bool(int(row.get("mdev") or 0)),
                attributes={
                    **_attributes_of_entry(entry),
                    **parse_description(row.get("description")),
                    **parse_description(entry.get("description")),
                },
                recorded={key: entry[key].lower() for key in _COMPARED if key in entry},
            )


def parse_description(description: object) -> dict[str, t.Any]:
    """Return the C(key=value) pairs in a mapping's description; a dash in a key becomes an underscore."""
    pairs = _PAIR.findall(str(description or ""))
    return {key.replace("-", "_"): typed_value(value.strip('"')) for key, value in pairs}


def typed_value(value: t.Any) -> t.Any:
    """Return the number or boolean that a text represents; any other value as it is."""
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value):
        return int(value)
    if _DECIMAL.fullmatch(value):
        return float(value)
    return {"true": True, "false": False}.get(value.lower(), value)


def present(entry: MappedPath, hardware: Sequence[Row] | None) -> list[tuple[str, dict[str, t.Any]]]:
    """Return the devices of an entry with id and attributes, without the attributes that the user gives.

    hardware is the node's hardware list for the entry's driver. If it is None, or does not have the device, the
    attributes are only those of the entry.
    """
    if entry.driver == PCI:
        rows = [row for row in hardware or () if _address(row) == function_addresses(entry)[0]]
    else:
        rows = [row for row in hardware or () if entry.path in (None, usb_port(row))]
    found = []
    for row in rows:
        attributes = _attributes_of_hardware(entry.driver, row)
        if entry.hardware in ("", f"{attributes.get('vendor')}:{attributes.get('device')}"):
            found.append((entry.path or usb_port(row), {**attributes, **entry.attributes}))
    return found or [(entry.path or entry.hardware, {**entry.attributes})]


def fault_of(entry: MappedPath, hardware: Sequence[Row]) -> str:
    """Return why this entry keeps Proxmox from starting VMs with the mapping on its node; empty if it does not.

    Proxmox compares the recorded properties of the entry with the hardware and requires all of them to be equal.
    """
    return _usb_fault(entry, hardware) if entry.driver == USB else _pci_fault(entry, hardware)


def _usb_fault(entry: MappedPath, hardware: Sequence[Row]) -> str:
    """Return how a USB device differs from its mapping: Proxmox does not start a VM with it then. Empty if it does not
    differ.
    """
    ids = {usb_port(row): _pair(row.get("vendid"), row.get("prodid")) for row in hardware}
    if entry.path is None:
        return "" if entry.hardware in ids.values() else f"USB device '{entry.hardware}' not found"
    if entry.path not in ids:
        return f"USB device '{entry.path}' not found"
    return _difference("id", ids[entry.path], entry.hardware, entry.path)


def _pci_fault(entry: MappedPath, hardware: Sequence[Row]) -> str:
    """Return how a PCI device differs from its mapping: Proxmox does not start a VM with it then. Empty if it does not
    differ.
    """
    rows = {_address(row): row for row in hardware}
    for number, address in enumerate(function_addresses(entry)):
        if address not in rows:
            return f"PCI device '{address}' not found"
        for key, real in _real(rows[address]).items():
            # Proxmox compares the group of the first function only.
            if key == "iommugroup" and number:
                continue
            recorded = str(int(entry.mdev)) if key == "mdev" else entry.recorded.get(key)
            if fault := _difference(key, real, recorded, address):
                return fault
    return ""


def _real(row: Row) -> dict[str, str | None]:
    """Return the properties of a PCI device that Proxmox compares, in its order."""
    subsystem = row.get("subsystem_vendor"), row.get("subsystem_device")
    group = int(row.get("iommugroup", -1))
    return {
        "id": _pair(row.get("vendor"), row.get("device")),
        "iommugroup": str(group) if group >= 0 else None,
        "mdev": str(int(row.get("mdev") or 0)),
        "subsystem-id": None if None in subsystem else _pair(*subsystem),
    }


def _difference(key: str, real: str | None, recorded: str | None, where: str) -> str:
    if recorded is not None:
        recorded = recorded.replace("0x", "")
    if real == recorded:
        return ""
    return f"'{key}' of {where} is {real or 'none'}, the mapping says {recorded or 'none'}"


def _pair(vendor: object, device: object) -> str:
    return f"{vendor}:{device}".replace("0x", "").lower()


def _address(row: Row) -> str:
    return str(row.get("id", "")).lower()


def function_addresses(entry: MappedPath) -> list[str]:
    """Return the PCI addresses of an entry's functions in a hardware list; function 0 if the entry means all."""
    return [each if "." in each else f"{each}.0" for each in functions(entry.path or "")]


def mediated_devices(device: Device, types: Sequence[Row]) -> Iterator[Device]:
    """Yield one device per type of mediated device that a card offers; capacity is the number available now."""
    for row in types:
        name = {"mdev_name": row["name"]} if row.get("name") else {}
        yield Device(
            driver=device.driver,
            mapping=device.mapping,
            node=device.node,
            id=f"{device.id}/{row['type']}",
            capacity=int(row.get("available") or 0),
            mdev=row["type"],
            attributes={**device.attributes, **name},
        )


def usb_port(row: Row) -> str:
    """Return the port of a row of a node's USB list, written as in mappings and configs."""
    return f"{row.get('busnum')}-{row.get('usbpath')}"


def given_attributes(
    given: Mapping[str, Mapping[str, t.Any]], mapping: str, node: str, device: str
) -> dict[str, t.Any]:
    """Return the attributes that the user gives for a device: those of its mapping, overridden by those of the mapping
    on the node, overridden by those of the device.
    """
    attributes: dict[str, t.Any] = {}
    for key in (mapping, f"{mapping}@{node}", f"{device}@{node}"):
        attributes.update({name.replace("-", "_"): typed_value(value) for name, value in given.get(key, {}).items()})
    return attributes


def _attributes_of_entry(entry: Mapping[str, str]) -> dict[str, t.Any]:
    """Return the attributes of a device that its mapping records."""
    vendor, _colon, device = entry.get("id", "").lower().partition(":")
    attributes: dict[str, t.Any] = {"vendor": vendor, "device": device} if device else {}
    if "subsystem-id" in entry:
        attributes["subsystem"] = entry["subsystem-id"].lower()
    if "iommugroup" in entry:
        attributes["iommugroup"] = typed_value(entry["iommugroup"])
    return attributes


def _attributes_of_hardware(driver: str, row: Row) -> dict[str, t.Any]:
    """Return the attributes of a device that its node reports."""
    attributes = {key: _without_prefix(value) for key, value in row.items() if isinstance(value, (str, int, float))}
    if driver == USB:
        attributes |= {"vendor": attributes.get("vendid"), "device": attributes.get("prodid")}
    elif "subsystem_vendor" in attributes and "subsystem_device" in attributes:
        attributes["subsystem"] = f"{attributes['subsystem_vendor']}:{attributes['subsystem_device']}"
    return attributes


def _without_prefix(value: t.Any) -> t.Any:
    if isinstance(value, str) and re.fullmatch(r"0x[0-9A-Fa-f]+", value):
        return value[2:].lower()
    return value
