# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests each run of a controller may write to, by their births, which no controller ever sees.

A run may write to what it was asked for: the guests for which it has made plans from their configs, those that it has
planned to move, and what controllers have made for these names. What has got a VMID since then is another guest, also
if it has the name that was asked for. A write may still reach one, if Proxmox takes no digest for it and the VMID
changes hands between the proof and the write: so it is forgiven if the thread has read the guest's config with the
request before, and that was one it may write to.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from simulated_cluster.cluster import Cluster
from simulated_cluster.model import Guest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Identity
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.identity import identity_of

from .tasks import APPLY, DRAIN, PLAN_FILE, TOUR, Task
from .wishes import TENANT

FORGED = ("net5", "scsi7", "hostpci3", "force")
"""Options that no task has, and forged notes do."""

_CONFIG = re.compile(r"/nodes/[^/]+/(?:qemu|lxc)/(\d+)/(?:config|pending)$")
_CLONE = re.compile(r"/nodes/[^/]+/qemu/\d+/clone$")
_CREATE = re.compile(r"/nodes/[^/]+/qemu(?:/\d+/clone)?$")
_LISTS = re.compile(r"/cluster/resources$|/nodes/[^/]+/(?:qemu|lxc)$")


@dataclass(eq=False)
class Permit:
    """What one run may write to. seen are the births, by VMID, that it has read since it last listed all guests;
    configs those of the configs that it has read, by VMID and identity.
    """

    task: Task
    births: set[int] = field(default_factory=set)
    seen: dict[int, set[int]] = field(default_factory=dict)
    configs: dict[tuple[int, Identity], set[int]] = field(default_factory=dict)


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

    def note_template(self, guest: Guest) -> None:
        """Somebody who may do that has replaced what controllers clone."""
        self._originals.add(guest.birth)

    def begin(self, pid: int, task: Task) -> None:
        """A run begins."""
        permit = self._runs[pid] = Permit(task)
        if APPLY in task.options:
            permit.births |= self._of_plans[task.options[APPLY]].births
        if PLAN_FILE in task.options:
            self._of_plans[task.options[PLAN_FILE]] = permit

    def planned(self, pid: int, vmids: Iterable[int], homes: Mapping[int, str]) -> None:
        """A run has planned to move these guests. homes are the nodes that guests return to as they were drained."""
        permit = self._runs.get(pid)
        for vmid in vmids if permit is not None else ():
            births = permit.seen.get(vmid, set())
            permit.births |= births & self._on.get(homes[vmid], set()) if vmid in homes else births

    def meant(self, pid: int, vmid: int, identity: Identity | None) -> None:
        """A run has made a plan for an existing VM, from the config that has shown this identity."""
        permit = self._runs.get(pid)
        if permit is None or identity is None or APPLY in permit.task.options:
            return
        guest = self._cluster.guests.get(vmid)
        foreign = {guest.birth} if guest is not None and self.is_foreign(guest) else set()
        permit.births |= permit.configs.get((vmid, replace(identity, node="")), set()) - foreign

    def note(self, exchange: Exchange) -> None:
        """Judge a request, and note what the run knows by its answer."""
        permit = self._runs.get(exchange.pid)
        proof = self._proofs.pop(exchange.thread, {})
        if exchange.method == "GET" and exchange.path.endswith("/tasks"):
            # The list of tasks shows what was destroyed: who reads it after a config has proved that guest until now.
            guests = self._cluster.guests
            self._proofs[exchange.thread] = {
                vmid: birth for vmid, birth in proof.items() if vmid in guests and guests[vmid].birth == birth
            }
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
            for guest in read:
                shown = identity_of({**guest.config, "digest": guest.digest()}, "")
                permit.configs.setdefault((guest.vmid, shown), set()).add(guest.birth)
        elif _LISTS.search(exchange.path):
            read = list(guests.values())
            if exchange.path.endswith("/resources"):
                permit.seen.clear()
        else:
            return
        for guest in read:
            permit.seen.setdefault(guest.vmid, set()).add(guest.birth)
            if permit.task.module in (DRAIN, TOUR) and guest.node in permit.task.names:
                self._on.setdefault(guest.node, set()).add(guest.birth)

    def _judge(self, permit: Permit, exchange: Exchange, proof: Mapping[int, int]) -> None:
        who, what = f"run {exchange.pid}", f"{exchange.method} {exchange.path}"
        if _CLONE.search(exchange.path):
            if not self._originals.issuperset(exchange.reached.values()):
                self.broken.append(f"{who} clones another template than the one that was meant: {what}")
            return
        # With a digest, Proxmox itself refuses a config that has changed since the proof.
        proven = {} if exchange.path.endswith("/config") else proof
        for vmid, birth in exchange.reached.items():
            name = self._called.get(birth)
            if not (self._may(permit, birth) or self._may(permit, proven.get(vmid))):
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
