# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mark of an unfinished VM: the first line of its description, until the last step of its creation is done.

Creating a VM may take several calls, and the process may die between any two of them. The first call sets the mark. It
is part of the VM's config, so that every later run sees it, whatever ledger it uses.

The owner of a VM can edit its notes, so what a mark says is a hint at most: see workflow/existing/hints.py. Pure.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model import Decision
from .options.drives import Drive

MARK = "qemu_scheduler.proxmox: not finished; run the task again"

# Proxmox's own limit for a description, in characters.
_LONGEST = 8192


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a mark stores for the run that finishes the VM.

    Attributes:
        description: the final description of the VM, empty for none.
        storages: the decided storages, by slot, of drives to create for which the request names no storage.
        devices: the allocated devices, as config keys with their values.
        addresses: the chosen addresses, as config keys with their values.
    """

    description: str = ""
    storages: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def copy_of(cls, decision: Decision, description: str) -> Unfinished:
        """Return what is needed, besides the request, to finish a clone or a restored VM as decided."""
        copied = {slot for slot, _storage, _size in decision.template.volumes} if decision.template else set()
        homeless = {
            slot
            for slot, drive in decision.request.options.items()
            if isinstance(drive, Drive) and drive.storage is None and slot not in copied
        }
        storages = {slot: decision.storages[slot] for slot in sorted(homeless & decision.storages.keys())}
        devices = {device.option: device.value for device in decision.devices}
        return cls(description, storages, devices, decision.request.addresses)

    @property
    def marked_description(self) -> str:
        """The description that the VM has until it is finished: the mark, and the final one if both fit."""
        parts = {"storages": self.storages, "devices": self.devices, "addresses": self.addresses}
        kept = {key: dict(value) for key, value in parts.items() if value}
        mark = f"{MARK} {json.dumps(kept, sort_keys=True)}" if kept else MARK
        whole = f"{mark}\n{self.description}" if self.description else mark
        return whole if len(whole) <= _LONGEST else mark


def read_mark(config: Mapping[str, t.Any]) -> Unfinished | None:
    """Return what the mark in a VM's config stores, None if it has no mark."""
    first, _separator, description = str(config.get("description") or "").partition("\n")
    if not first.startswith(MARK):
        return None
    try:
        kept = json.loads(first.removeprefix(MARK) or "{}")
        storages, devices, addresses = (dict(kept.get(key, {})) for key in ("storages", "devices", "addresses"))
    except (ValueError, TypeError, AttributeError, RecursionError):
        # The line was edited by hand: its owner may write anything there, also thousands of brackets.
        storages, devices, addresses = {}, {}, {}
    return Unfinished(description.rstrip("\n"), storages, devices, addresses)
