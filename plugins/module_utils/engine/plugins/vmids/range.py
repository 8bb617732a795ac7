# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Range: a VMID within bounds."""

from __future__ import annotations

from ....errors import InvalidRequest
from ....model import Request
from ...framework.interface import VMIDPlugin
from ...vmids.choice import InvalidVMIDChoice, VMIDChoice, parse_range

CONTEXT_KEY = "vmid.qemu-scheduler/range"


class Range(VMIDPlugin):
    """The lowest free VMID in C(vmid_range), or in the context key C(vmid.qemu-scheduler/range).

    Written C(100-150), both ends included.
    """

    name = "Range"
    about = ("vmid_range", "context")

    def choice(self, request: Request) -> VMIDChoice | None:
        text = request.vmid_range or request.context.get(CONTEXT_KEY)
        if not text:
            return None
        try:
            return parse_range(text)
        except InvalidVMIDChoice as error:
            raise InvalidRequest(f"vmid_range: {error}") from error
