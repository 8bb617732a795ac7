# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision that the Reserve plugins complete, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...model import Decision, DeviceAllocation, Request, Template


@dataclass(slots=True)
class Draft:
    """A mutable model.Decision, with the same fields."""

    request: Request
    node: str
    score: float
    vmid: int = 0
    storages: dict[str, str] = field(default_factory=dict)
    storage_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    devices: list[DeviceAllocation] = field(default_factory=list)
    template: Template | None = None

    def decision(self) -> Decision:
        return Decision(
            request=self.request,
            node=self.node,
            vmid=self.vmid,
            storages=self.storages,
            storage_bytes=self.storage_bytes,
            devices=tuple(self.devices),
            template=self.template,
            score=self.score,
        )
