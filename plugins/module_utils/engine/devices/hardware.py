# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices are the same hardware. Pure text: nothing but the ids of devices is looked at.

The id of a PCI device is its address (C(0000:01:00.0)), the address of all its functions (C(0000:01:00)), or several
of them between semicolons; a type of mediated device is added behind a slash (C(0000:01:00.0/nvidia-222)). The id of a
USB device is its port (C(1-2.3)), or C(vendor:product) where the port is not known.
"""

from __future__ import annotations

PCI = "pci"
USB = "usb"

OPTIONS = {PCI: ("hostpci", 16), USB: ("usb", 14)}
"""For each driver the config options that attach a device, and how many of them Proxmox has."""


def share_hardware(driver: str, one: str, other: str) -> bool:
    """Whether two devices of one driver on one node cannot be given to two VMs.

    Types of mediated devices on one card share it: most cards offer no second type while one is in use.
    """
    if one == other:
        return True
    if driver != PCI:
        return False
    return any(_overlap(a, b) for a in functions(one) for b in functions(other))


def functions(device: str) -> list[str]:
    """Return the addresses that a PCI device's id consists of."""
    return device.partition("/")[0].split(";")


def card(address: str) -> str:
    """Return the part of a PCI address that all functions of one card have in common."""
    return address.partition(".")[0]


def _overlap(one: str, other: str) -> bool:
    return card(one) == card(other) and (one == other or "." not in one or "." not in other)
