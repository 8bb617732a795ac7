# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUOvercommit: a limit to the vCPUs allocated per node."""

from __future__ import annotations

from ....model import Request
from ...allocatable import CPULimit
from ...allocation import COMMON_SETTINGS, Overcommit
from ...cache import NodeInfo
from ...framework.config import Setting
from ...texts import vcpus


class CPUOvercommit(Overcommit):
    """Rejects a node when (vCPUs of its running guests + the request's) / (its logical CPUs - reserved) exceeds the
    overcommit ratio, 4 by default.

    VMs, containers and earlier decisions of this run count. The ratio is that of the node (C(nodes)), else of the VM's
    pool, else the smallest of its tags, else C(ratio). Scores use the same limits. The run does not wait for a VM that
    even the empty node could not hold.
    """

    name = "CPUOvercommit"
    resource = "cpu"
    kind = CPULimit
    unit = 1
    reason = "would exceed the CPU overcommit ratio {}"
    settings = {
        "ratio": Setting("float", 4.0, "CPU overcommit ratio: vCPUs per logical CPU", minimum=0),
        "reserved": Setting("float", 0.0, "logical CPUs kept for the host", minimum=0),
        **COMMON_SETTINGS,
    }

    def allocated(self, node: NodeInfo) -> float:
        return node.cores_all if self.include_stopped else node.cores

    def asked(self, request: Request) -> float:
        return request.cores

    def text(self, wanted: float, allocatable: float) -> str:
        return f"{vcpus(wanted)} against a limit of {allocatable:g}"
