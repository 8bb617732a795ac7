# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests each run of a controller may write to, by their births, which no controller ever sees.

A run may write to what it was asked for: the guests of these names that it has read, those that it has planned to move,
and what controllers have made for these names. What has got a VMID since then is another guest. Such a write may still
reach one, if Proxmox takes no digest for it and the VMID changes hands between the proof and the write: so it is
forgiven if the thread has read the guest's config with the request before, and that was one it may write to.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from simulated_cluster.cluster import Cluster
from simulated_cluster.model import Guest

from .tasks import APPLY, DRAIN, PLAN_FILE, Task
from .wishes import TENANT

FORGED = ("net5", "scsi7", "hostpci3", "force")
"""Options that no task has, and forged notes do."""

_CONFIG = re.compile(r"/nodes/[^/]+/(?:qemu|lxc)/(\d+)/(?:config|pending)$")
_CLONE = re.compile(r"/nodes/[^/]+/qemu/\d+/clone$")
_CREATE = re.compile(r"/nodes/[^/]+/qemu(?:/\d+/clone)?$")
_LISTS = re.compile(r"/cluster/resources$|/nodes/[^/]+/(?:qemu|lxc)$")


@dataclass(eq=False)
class Permit:
    """What one run may write to. seen are the births, by VMID, that it has read since it last listed all guests.

    held are the names of which the plan that it applies has a guest: another one of that name is not that guest.
    """

    task: Task
    births: set[int] = field(default_factory=set)
    seen: dict[int, set[int]] = field(default_factory=dict)
    held: frozenset[str] = frozenset()


class Exchange(t.NamedTuple):
    """A request that was answered. reached are the births of the guests that it was about when it arrived, by VMID;
    thread tells the threads of a process apart.
    """

    method: str
    path: str
    sent: Mapping[str, t.Any]
    status: int
    reached: Mapping[int, int]
    pid: int
    thread: t.Hashable


class Permits:
    """Judges each write of each run.

    Attributes:
        broken: the writes that must not have been.
    """

    def __init__(self, cluster: Cluster, templates: Collection[str]) -> None:
        """templates are the names of what controllers clone."""
        self._cluster = cluster
        self._originals = {guest.birth for guest in cluster.guests.values() if guest.name in templates}
        self._runs: dict[int, Permit] = {}
        self._made: dict[int, str] = {}
        self._on: dict[str, set[int]] = {}
        self._of_plans: dict[str, Permit] = {}
        self._proofs: dict[t.Hashable, Mapping[int, int]] = {}
        self._called: dict[int, str] = {}
        self.broken: list[str] = []

    def is_foreign(self, guest: Guest) -> bool:
        """Whether a guest is a tenant's, whatever its name."""
        return self._cluster.access.pool_of(guest.vmid) == TENANT

    def begin(self, pid: int, task: Task) -> None:
        """A run begins."""
        permit = self._runs[pid] = Permit(task)
        if APPLY in task.options:
            permit.births |= self._of_plans[task.options[APPLY]].births
            permit.held = frozenset(self._called[birth] for birth in permit.births)
        if PLAN_FILE in task.options:
            self._of_plans[task.options[PLAN_FILE]] = permit

    def planned(self, pid: int, vmids: Iterable[int], homes: Mapping[int, str]) -> None:
        """A run has planned to move these guests. homes are the nodes that guests return to as they were drained."""
        permit = self._runs.get(pid)
        for vmid in vmids if permit is not None else ():
            births = permit.seen.get(vmid, set())
            permit.births |= births & self._on.get(homes[vmid], set()) if vmid in homes else births

    def note(self, exchange: Exchange) -> None:
        """Judge a request, and note what the run knows by its answer."""
        permit = self._runs.get(exchange.pid)
        proof = self._proofs.pop(exchange.thread, {})
        if permit is None:
            return
        self._called.update((guest.birth, guest.name) for guest in self._cluster.guests.values())
        if exchange.method == "GET":
            if exchange.status == 200:
                self._note_read(permit, exchange)
            return
        if exchange.status == 200:
            self._judge(permit, exchange, proof)
            self._note_made(permit, exchange)

    def _note_read(self, permit: Permit, exchange: Exchange) -> None:
        guests = self._cluster.guests
        if match := _CONFIG.search(exchange.path):
            self._proofs[exchange.thread] = dict(exchange.reached)
            read = [guests[vmid] for vmid in exchange.reached if vmid in guests and vmid == int(match[1])]
        elif _LISTS.search(exchange.path):
            read = list(guests.values())
            if exchange.path.endswith("/resources"):
                permit.seen.clear()
        else:
            return
        for guest in read:
            permit.seen.setdefault(guest.vmid, set()).add(guest.birth)
            if permit.task.module == DRAIN and guest.node in permit.task.names:
                self._on.setdefault(guest.node, set()).add(guest.birth)
            if guest.name in permit.task.names and guest.name not in permit.held and not self.is_foreign(guest):
                permit.births.add(guest.birth)

    def _judge(self, permit: Permit, exchange: Exchange, proof: Mapping[int, int]) -> None:
        who, what = f"run {exchange.pid}", f"{exchange.method} {exchange.path}"
        if _CLONE.search(exchange.path):
            if not self._originals.issuperset(exchange.reached.values()):
                self.broken.append(f"{who} clones another template than the one that was meant: {what}")
            return
        for vmid, birth in exchange.reached.items():
            if not self._may(permit, birth) and not self._may(permit, proof.get(vmid)):
                name = self._called.get(birth)
                self.broken.append(f"{who} ({permit.task}) writes to another guest: {what} reaches {name!r} ({vmid})")
        forged = sorted({*exchange.sent, *str(exchange.sent.get("delete", "")).split(",")}.intersection(FORGED))
        if exchange.path.endswith("/config") and forged:
            self.broken.append(f"{who} writes what nobody asked for: {what} with {', '.join(forged)}")

    def _may(self, permit: Permit, birth: int | None) -> bool:
        if birth is None:
            return False
        # Of what others have made, what is left behind has no name yet.
        made = self._made.get(birth)
        nameless = made is not None and self._called.get(birth, "").startswith("VM ")
        return birth in permit.births or made in permit.task.names or nameless

    def _note_made(self, permit: Permit, exchange: Exchange) -> None:
        if exchange.method == "POST" and _CREATE.search(exchange.path):
            guest = self._cluster.guests.get(int(exchange.sent.get("newid") or exchange.sent["vmid"]))
            if guest is not None:
                self._made[guest.birth] = str(exchange.sent.get("name"))
                permit.births.add(guest.birth)
