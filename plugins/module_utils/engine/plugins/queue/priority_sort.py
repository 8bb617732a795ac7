# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PrioritySort: who is placed first."""

from __future__ import annotations

import typing as t

from ....model import Request
from ...framework.interface import QueueSortPlugin


class PrioritySort(QueueSortPlugin):
    """Places VMs with a higher C(priority) first; VMs with the same priority in the order of the task.

    The default priority is 0.
    """

    name = "PrioritySort"

    def sort_key(self, request: Request, arrival: int) -> t.Any:
        return -request.priority, arrival
