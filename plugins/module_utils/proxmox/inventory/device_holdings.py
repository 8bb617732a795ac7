# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives which devices guests hold from their configs. Pure: nothing is read here.

A config names a mapping, not the device that the VM gets: Proxmox picks one when it starts the VM. So the VMs of a
mapping are assigned to its devices one after the other, in the order in which Proxmox picks.
"""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...engine.devices.hardware import PCI, USB, share_hardware
from ...model import Device
from ..options.kinds import OF_DRIVER

_OPTION = re.compile(r"(hostpci|usb)\d+")


@dataclass(frozen=True, slots=True)
class Holding:
    """One C(hostpciN) or C(usbN) in a config, which names a mapping or the address of a device."""

    vmid: int
    running: bool
    driver: str
    mapping: str | None = None
    address: str = ""
    mdev: str | None = None


def holdings(vmid: int, running: bool, config: Mapping[str, t.Any]) -> list[Holding]:
    """Return what the config of a VM holds."""
    found = []
    for option in sorted(filter(_OPTION.fullmatch, config)):
        driver = PCI if option.startswith("hostpci") else USB
        properties = OF_DRIVER[driver].read(str(config[option]))
        # The numbers of a USB device may have a prefix.
        host = properties.get("host", "").lower().replace("0x", "")
        address = ";".join(map(_full_address, host.split(";"))) if driver == PCI and host else host
        found.append(Holding(vmid, running, driver, properties.get("mapping"), address, properties.get("mdev")))
    return found


def with_use(devices: Sequence[Device], held: Iterable[Holding]) -> list[Device]:
    """Return the devices of one node, each with the number of its instances that the node's guests hold.

    Holdings that name an address are counted first, then those that name a mapping, beginning with those that have the
    fewest devices to choose from. A mediated device of a running VM is not counted: capacity does not include it.
    """
    book = _Book(devices)
    counted = [each for each in held if not (each.mdev and each.running)]
    choices = [(each, book.choices(each)) for each in counted]
    for each, found in sorted(choices, key=lambda c: (c[0].mapping is not None, len(c[1]), c[0].vmid)):
        book.enter(each, found)
    return book.result()


class _Book:
    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._used: Counter[tuple[str, str]] = Counter()
        self._blocked: set[int] = set()

    def choices(self, held: Holding) -> list[str]:
        """Return the ids of the devices that a holding may refer to."""
        if held.mapping is not None:
            same = [d for d in self._devices if (d.driver, d.mapping) == (held.driver, held.mapping)]
            return [device.id for device in same if device.mdev == held.mdev]
        if held.driver == USB and ":" in held.address:
            same = [d for d in self._devices if d.driver == USB and _hardware(d) == held.address]
            return list(dict.fromkeys(device.id for device in same)) or [held.address]
        return [f"{held.address}/{held.mdev}" if held.mdev else held.address]

    def enter(self, held: Holding, choices: Sequence[str]) -> None:
        """Give a guest the first free device of those among which Proxmox picks, or the first one if none is free."""
        if not choices:
            return
        chosen = next((choice for choice in choices if self._is_free(held.driver, choice)), choices[0])
        self._used[held.driver, chosen] += 1
        for position, device in enumerate(self._devices):
            if device.driver == held.driver and device.id != chosen and share_hardware(PCI, chosen, device.id):
                self._blocked.add(position)

    def result(self) -> list[Device]:
        return [
            replace(device, in_use=max(self._own(device), device.capacity if position in self._blocked else 0))
            for position, device in enumerate(self._devices)
        ]

    def _is_free(self, driver: str, choice: str) -> bool:
        return all(
            self._own(device) < device.capacity and position not in self._blocked
            for position, device in enumerate(self._devices)
            if (device.driver, device.id) == (driver, choice)
        )

    def _own(self, device: Device) -> int:
        return self._used[device.driver, device.id]


def _full_address(address: str) -> str:
    return address if address.count(":") == 2 else f"0000:{address}"


def _hardware(device: Device) -> str:
    return f"{device.attributes.get('vendor')}:{device.attributes.get('device')}"
