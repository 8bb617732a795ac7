# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one node has left of its devices, while a search takes from it and gives back."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from ...model import Device
from ..cache import DeviceUse
from .hardware import PCI, card, functions, share_hardware

PoolKey = tuple[str, str]
"""The mapping and the driver of a pool."""


class Supply:
    """The devices of one node by position, in list order: by mapping, driver and id.

    Proxmox picks itself which device of a mapping a VM gets, so what counts is the number of VMs per mapping: where
    more VMs were booked on a device than it can serve, the surplus takes the next free devices of its mapping.

    Attributes:
        devices: all devices, each once per mapping that names it.
        pools: for each mapping and driver the positions of its devices.
    """

    def __init__(self, uses: Iterable[DeviceUse]) -> None:
        ordered = sorted(uses, key=lambda use: (use.device.mapping, use.device.driver, use.device.id))
        self.devices: Sequence[Device] = [use.device for use in ordered]
        self.pools: dict[PoolKey, list[int]] = {}
        for position, device in enumerate(self.devices):
            self.pools.setdefault((device.mapping, device.driver), []).append(position)
        self._left = [use.left for use in ordered]
        self._blocked = [use.blocked for use in ordered]
        self._sharing_positions = _sharing_positions(tuple((device.driver, device.id) for device in self.devices))
        self._place_surplus()

    def free(self, position: int) -> int:
        """Return how many VMs the device can still serve."""
        return 0 if self._blocked[position] else max(self._left[position], 0)

    def take(self, position: int) -> None:
        """Give one instance of the device away."""
        self._count(position, 1)

    def give_back(self, position: int) -> None:
        """Undo one take."""
        self._count(position, -1)

    def stands_alone(self, position: int) -> bool:
        """Whether taking the device leaves every other device as it is."""
        return self._sharing_positions[position] == (position,)

    def free_by_pool(self) -> list[int]:
        """Return how many instances each pool has left."""
        return [sum(map(self.free, positions)) for positions in self.pools.values()]

    def _count(self, position: int, sign: int) -> None:
        """Take a device once (sign 1), or give it back (sign -1). What shares its hardware is blocked meanwhile."""
        device = self.devices[position]
        for other in self._sharing_positions[position]:
            if self.devices[other].id == device.id:
                self._left[other] -= sign
            else:
                self._blocked[other] += sign

    def _place_surplus(self) -> None:
        """Move the uses that exceed a device's capacity to free devices of its mapping: Proxmox picks those."""
        surplus = [(position, -left) for position, left in enumerate(self._left) if left < 0]
        for position, count in surplus:
            device = self.devices[position]
            for _each in range(count):
                free = next((p for p in self.pools[device.mapping, device.driver] if self.free(p)), None)
                if free is not None:
                    self.take(free)


@functools.lru_cache(maxsize=1024)
def _sharing_positions(devices: tuple[tuple[str, str], ...]) -> tuple[tuple[int, ...], ...]:
    """Return for each device, given as driver and id, the positions of those that share hardware with it, itself
    included.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for position, device in enumerate(devices):
        for place in _places(*device):
            places.setdefault(place, []).append(position)
    related = []
    for driver, id in devices:
        near = sorted({position for place in _places(driver, id) for position in places[place]})
        related.append(tuple(position for position in near if share_hardware(driver, id, devices[position][1])))
    return tuple(related)


def _places(driver: str, id: str) -> set[tuple[str, str]]:
    """Only devices with a place in common can share hardware."""
    if driver != PCI:
        return {(driver, id)}
    return {(PCI, card(address)) for address in functions(id)}
