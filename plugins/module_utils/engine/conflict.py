# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why the drives of a request cannot go to a node."""

from __future__ import annotations

from dataclasses import dataclass

from .framework.status import Code, Shortage, Status


@dataclass(frozen=True, slots=True)
class Conflict:
    """What is in the way on one node.

    reason is the same for all nodes that lack the same; detail is this node's. resolvable tells whether a change of the
    cluster may help. missing is how many bytes the first drive in the way lacks, when space is all that it lacks.
    """

    reason: str
    detail: str = ""
    resolvable: bool = True
    missing: int = 0

    def status(self) -> Status:
        """The same as a plugin's answer."""
        code = Code.UNSCHEDULABLE if self.resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        shortages = (Shortage("storage", self.missing),) if self.missing else ()
        return Status(code, self.reason, self.detail, shortages)
