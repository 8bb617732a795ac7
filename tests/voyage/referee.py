# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold after every event, by the law and by what was there before."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Mapping, Sequence

from simulated_cluster.cluster import Cluster
from simulated_cluster.model import Guest as SimulatedGuest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.law.law import broken
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.law.state import InForce, Overcommit, State
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Decision, Guest, Node, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.entries import build_entries
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options import one_vm_argument_spec

RULES = InForce(frozenset({"MemoryOvercommit", "VMAffinity"}), memory=Overcommit(1.0, include_stopped=True))
MIB = 1024**2


class Broken(AssertionError):
    """What must hold does not."""


class Referee:
    """Looks at the cluster itself, not at what its API shows.

    Attributes:
        removed: VMIDs of VMs that a human has removed.
    """

    def __init__(self, cluster: Cluster, params: Mapping[str, t.Any]) -> None:
        self._cluster = cluster
        entries = build_entries(params, one_vm_argument_spec(), 0.0)
        self._requests = {entry.request.name: entry.request for entry in entries}
        nodes = tuple(Node(node.name, cores=node.cores, memory=node.memory) for node in cluster.nodes.values())
        base = tuple(
            Guest(guest.vmid, guest.name, guest.node, status="running", cores=1, memory=guest.maxmem)
            for guest in cluster.guests.values()
            if not guest.template
        )
        self._before = Snapshot(nodes, base)
        self._seen: tuple[t.Any, ...] = ()
        self._whole: dict[int, str] = {}
        self.removed: set[int] = set()

    def ours(self) -> list[SimulatedGuest]:
        """The VMs that controllers have made."""
        return [guest for guest in self._cluster.guests.values() if guest.name in self._requests]

    def knows_all_on(self, node: str) -> bool:
        """Whether the cluster knows the names of all guests on a node. When it is lost, it cannot learn them any more,
        and a VM that is asked for by its name is treated as missing, with a warning.
        """
        published = self._cluster.statistics._published.guests
        return all(
            guest.vmid in published and published[guest.vmid].name == guest.name
            for guest in self._cluster.guests.values()
            if guest.node == node
        )

    def check(self) -> None:
        """Raise Broken when something does not hold; costs little while nothing has changed."""
        guests = self._cluster.guests
        seen = tuple((guest.vmid, guest.name, guest.node, guest.config_lock, guest.status) for guest in guests.values())
        if seen == self._seen:
            return
        self._seen = seen
        ours = self.ours()
        twice = [name for name, count in Counter(guest.name for guest in ours).items() if count > 1]
        if twice:
            raise Broken(f"there are several VMs of one name: {twice}")
        decided = tuple((Decision(self._requests[guest.name], guest.node, guest.vmid), RULES) for guest in ours)
        reasons = broken(State(self._before, decided))
        if reasons:
            raise Broken(f"the law is broken: {'; '.join(reasons)}")
        for vmid, name in self._whole.items():
            if vmid not in self.removed and (vmid not in guests or guests[vmid].name != name):
                raise Broken(f"VM {vmid} ({name}) is lost")
        for guest in ours:
            if guest.running:
                self._whole[guest.vmid] = guest.name

    def check_goal(self, names: Sequence[str]) -> None:
        """Raise Broken unless each of these VMs is there once and runs."""
        running = sorted(guest.name for guest in self.ours() if guest.running)
        if running != sorted(names):
            raise Broken(f"of {', '.join(names)} only {', '.join(running)} run")
