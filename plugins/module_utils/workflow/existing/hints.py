# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the mark of an unfinished VM says, as far as its request agrees, key by key.

The mark is in the notes, which the owner of the VM can edit, and the VM is finished with the rights of the scheduler.
So nothing in a mark is obeyed. It only tells which of the choices that the request leaves open was made, and counts if
the request allows that choice: a storage for a drive without one, a device for a claim, an address of a pool. What else
the VM lacks follows from the request.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...model import Device, Guest, Node, Request
from ...proxmox.api.reader import Reader
from ...proxmox.options.drives import Drive
from ...proxmox.unfinished import Unfinished
from ..options.entries import Entry

if t.TYPE_CHECKING:
    from ..address_book import AddressBook


@dataclass(frozen=True, slots=True)
class MarkReader:
    """Reads the marks of unfinished VMs.

    Attributes:
        attributes: those that the task gives to devices.
        is_allowed_storage: whether a request allows a storage on a node for a slot that it leaves open.
    """

    reader: Reader
    addresses: AddressBook | None
    attributes: Mapping[str, Mapping[str, t.Any]]
    is_allowed_storage: Callable[[Request, str, str, str], bool]

    def agree(self, begun: Unfinished, entry: Entry, guest: Guest, config: Mapping[str, t.Any]) -> Unfinished:
        """Return what a VM's mark says, as far as the request agrees.

        Raises DriftNotApplicable if it is not known which devices or addresses were chosen for the VM.
        """
        request, devices, addresses = entry.request, dict[str, str](), dict[str, str]()
        if request.devices:
            from .device_hints import agreed_devices

            devices = agreed_devices(begun.devices, config, request, entry.label, lambda: self._devices(guest))
        if self.addresses is not None:
            addresses = self.addresses.agree(entry, guest, config, begun.addresses)
        storages = self._storages(begun.storages, config, request, guest.node)
        return replace(begun, storages=storages, devices=devices, addresses=addresses)

    def _storages(
        self, hints: Mapping[str, t.Any], config: Mapping[str, t.Any], request: Request, node: str
    ) -> dict[str, str]:
        """Return the storages of drives that the request leaves open and the VM still lacks, by slot. For other drives
        without one, a storage is chosen again.
        """
        return {
            slot: storage
            for slot, storage in hints.items()
            if isinstance(drive := request.options.get(slot), Drive)
            and drive.storage is None
            and slot not in config
            and isinstance(storage, str)
            and self.is_allowed_storage(request, node, slot, storage)
        }

    def _devices(self, guest: Guest) -> Sequence[Device]:
        """Return the mapped devices of a VM's node, whatever guest has them."""
        from ...proxmox.inventory.mappings import DeviceNeeds, read_devices

        needs = DeviceNeeds(lambda node: True, lambda device, node: True, self.attributes)
        return read_devices(self.reader, [Node(guest.node)], [], needs)[0]
