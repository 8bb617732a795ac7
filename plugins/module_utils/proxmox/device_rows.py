# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the rows of resource mappings and hardware lists to devices with attributes. Pure: nothing is read here."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..engine.devices.addresses import PCI, USB, functions
from ..model import Device
from .rows import Row

_PAIR = re.compile(r"(?:^|[\s,;])([A-Za-z_][\w.-]*)=(\"[^\"]*\"|[^\s,;]+)")
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_DECIMAL = re.compile(r"-?\d{1,17}\.\d{1,17}")


@dataclass(frozen=True, slots=True)
class MappedPath:
    """One entry of a resource mapping: what one VM gets on one node.

    path is a PCI address, several of them between semicolons, or a USB port; None for a USB device that is known by its
    hardware id alone. hardware is C(vendor:device) in hexadecimal. mdev tells that VMs get mediated devices of it.
    """

    driver: str
    mapping: str
    node: str
    path: str | None
    hardware: str
    mdev: bool = False
    attributes: Mapping[str, t.Any] = field(default_factory=dict)


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
                    **_of_entry(entry),
                    **described(row.get("description")),
                    **described(entry.get("description")),
                },
            )


def described(description: object) -> dict[str, t.Any]:
    """Return the C(key=value) pairs in a mapping's description; a dash in a key becomes an underscore."""
    pairs = _PAIR.findall(str(description or ""))
    return {key.replace("-", "_"): typed(value.strip('"')) for key, value in pairs}


def typed(value: t.Any) -> t.Any:
    """Return a text as the number or boolean that it spells; anything else as it is."""
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value):
        return int(value)
    if _DECIMAL.fullmatch(value):
        return float(value)
    return {"true": True, "false": False}.get(value.lower(), value)


def present(entry: MappedPath, hardware: Sequence[Row] | None) -> list[tuple[str, dict[str, t.Any]]]:
    """Return the devices that an entry stands for: id and attributes, without those of the user.

    hardware is the node's list of its driver; without it (None) the entry is believed. Empty when the node does not
    have the device, or has another one in its place: Proxmox would not start a VM with it.
    """
    if hardware is None:
        return [(entry.path or entry.hardware, {**entry.attributes})]
    if entry.driver == PCI:
        rows = [row for row in hardware if str(row.get("id", "")).lower() == first_function(entry)]
    else:
        rows = [row for row in hardware if entry.path in (None, usb_port(row))]
    found = []
    for row in rows:
        attributes = _of_hardware(entry.driver, row)
        if entry.hardware in ("", f"{attributes.get('vendor')}:{attributes.get('device')}"):
            found.append((entry.path or usb_port(row), {**attributes, **entry.attributes}))
    return found


def first_function(entry: MappedPath) -> str:
    """Return the PCI address under which a node's hardware list shows an entry's device."""
    address = functions(entry.path or "")[0]
    return address if "." in address else f"{address}.0"


def mediated(device: Device, types: Sequence[Row]) -> Iterator[Device]:
    """Yield one device per type of mediated device that a card offers; capacity is what is available now."""
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
    """Return the port of a row of a node's USB list, as mappings and configs name it."""
    return f"{row.get('busnum')}-{row.get('usbpath')}"


def given_attributes(
    given: Mapping[str, Mapping[str, t.Any]], mapping: str, node: str, device: str
) -> dict[str, t.Any]:
    """Return what the user says of a device: for its mapping, for the mapping on its node, for itself; later wins."""
    attributes: dict[str, t.Any] = {}
    for key in (mapping, f"{mapping}@{node}", f"{device}@{node}"):
        attributes.update({name.replace("-", "_"): typed(value) for name, value in given.get(key, {}).items()})
    return attributes


def _of_entry(entry: Mapping[str, str]) -> dict[str, t.Any]:
    vendor, _colon, device = entry.get("id", "").lower().partition(":")
    attributes: dict[str, t.Any] = {"vendor": vendor, "device": device} if device else {}
    if "subsystem-id" in entry:
        attributes["subsystem"] = entry["subsystem-id"].lower()
    if "iommugroup" in entry:
        attributes["iommugroup"] = typed(entry["iommugroup"])
    return attributes


def _of_hardware(driver: str, row: Row) -> dict[str, t.Any]:
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
