# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PrioritySort: who is placed first."""

from __future__ import annotations

import typing as t

from ....model import Request
from ...framework.config import Setting
from ...framework.interface import QueueSortPlugin

PACKED, AS_GIVEN = "packed", "as_given"


class PrioritySort(QueueSortPlugin):
    """Places VMs with a higher C(priority) first and, of VMs with the same priority, the largest first.

    The default priority is 0. The size of a VM is its dominant share: of CPU or memory, whichever is the larger part of
    what the cluster may allocate. VMs that must share a node count as one. VMs of one size keep the order of the task.
    """

    name = "PrioritySort"
    settings = {
        "order": Setting(
            "str",
            PACKED,
            "the order of VMs with the same priority: C(packed) for the largest first, C(as_given) for the order of "
            "the task",
            choices=(PACKED, AS_GIVEN),
        )
    }

    @property
    def packs(self) -> bool:
        packed: bool = self.config["order"] == PACKED
        return packed

    def sort_key(self, request: Request, arrival: int) -> t.Any:
        return -request.priority, arrival
