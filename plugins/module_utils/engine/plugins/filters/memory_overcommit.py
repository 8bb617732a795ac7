# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MemoryOvercommit: a limit to the memory allocated per node."""

from __future__ import annotations

from ....model import GIB, MIB, Request
from ...allocatable import MemoryLimit
from ...allocation import COMMON_SETTINGS, Overcommit
from ...cache import NodeInfo
from ...framework.config import Setting


class MemoryOvercommit(Overcommit):
    """Rejects a node when (memory of its running guests + the request's) / (its memory - reserved) exceeds the
    overcommit ratio, 1 by default.

    The configured memory counts, not what a guest uses at the moment. VMs, containers and earlier decisions of this run
    count. The ratio is that of the node (C(nodes)), else of the VM's pool, else the smallest of its tags, else
    C(ratio). Scores use the same limits. The run does not wait for a VM that even the empty node could not hold.
    """

    name = "MemoryOvercommit"
    resource = "memory"
    kind = MemoryLimit
    unit = MIB
    reason = "would exceed the memory overcommit ratio {}"
    settings = {
        "ratio": Setting("float", 1.0, "memory overcommit ratio", minimum=0),
        "reserved": Setting("float", 0.0, "MiB kept for the host", minimum=0),
        **COMMON_SETTINGS,
    }

    def allocated(self, node: NodeInfo) -> float:
        return node.memory_all if self.include_stopped else node.memory

    def asked(self, request: Request) -> float:
        return request.memory

    def text(self, wanted: float, allocatable: float) -> str:
        return f"{wanted / GIB:.1f} GiB against a limit of {allocatable / GIB:.1f} GiB"
