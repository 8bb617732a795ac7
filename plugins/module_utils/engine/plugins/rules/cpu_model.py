# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUModel: the CPU that a VM is shown."""

from __future__ import annotations

from collections.abc import Hashable, Set

from ....model import Node, Request
from ...cache import ClusterState, NodeInfo
from ...framework.cycle_state import CycleState
from ...framework.interface import Event, FilterPlugin, PerNode, PreFilterPlugin, Subject
from ...framework.status import SKIP, Status, unresolvable

NO_MODEL = "couldn't run CPU type '{}'"
NO_FLAG = "didn't support CPU flag '{}'"

EVERYWHERE = frozenset({"host", "max", "kvm32", "kvm64", "qemu32", "qemu64"})
"""CPU types that every node can run."""
_ENLIGHTENMENT = "hv-"


class CPUModel(PerNode, PreFilterPlugin, FilterPlugin):
    """Rejects a node that cannot run the VM's CPU type, or lacks a CPU flag that the VM turns on.

    The types C(host), C(max), C(kvm32), C(kvm64), C(qemu32) and C(qemu64) run everywhere. A node whose CPU types or
    flags were not read is accepted. Flags whose name begins with C(hv-) are not checked, as Proxmox VE does not report
    which nodes support them.
    """

    name = "CPUModel"
    events = frozenset({Event.NODE})
    reads = frozenset({Subject.CPU})
    about = ("cpu_type", "cpu_flags")

    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        return request.cpu_type, request.cpu_flags

    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        return SKIP if request.cpu_type in (None, *EVERYWHERE) and not request.cpu_flags else None

    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        if request.cpu_type is not None and not runs(request.cpu_type, node.node):
            return unresolvable(NO_MODEL.format(request.cpu_type))
        missing = missing_flag(request.cpu_flags, node.node)
        return None if missing is None else unresolvable(NO_FLAG.format(missing))


def runs(cpu_type: str, node: Node) -> bool:
    """Whether node can run VMs of this CPU type, as far as is known."""
    return cpu_type in EVERYWHERE or node.cpu_models is None or cpu_type in node.cpu_models


def missing_flag(flags: Set[str], node: Node) -> str | None:
    """The first by name of the flags that node does not support, or None."""
    told = (flag for flag in flags if not flag.startswith(_ENLIGHTENMENT))
    return None if node.cpu_flags is None else min(set(told) - node.cpu_flags, default=None)
