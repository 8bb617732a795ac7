# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The moves of the HA manager: in rounds, it moves guests because of requests, rules and maintenance.

A request is not always carried out: a move to a node that is down or in maintenance, or while HA is disarmed, is
accepted and dropped. A move that a rule forbids is carried out and reverted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import ha_placement, ha_recovery
from .access import Identity
from .migration.containers import ContainerMigration
from .migration.terms import Options
from .migration.worker import Migration
from .model import Guest
from .tasks import Task

if TYPE_CHECKING:
    from .cluster import Cluster

MANAGER = Identity("root@pam")
MAX_WORKERS = 4
MOVING = ("migrate", "relocate")


@dataclass
class Service:
    """The manager's record of one resource. ``state`` is None if the resource is in its requested state."""

    state: str | None = None
    target: str | None = None
    request: tuple[str, str] | None = None
    maintenance_node: str | None = None
    done: bool | None = None


class Manager:
    """The cluster's resource manager and the local ones of its nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.services: dict[str, Service] = {}
        self.disarmed: str | None = None
        self._rounds: asyncio.Task[None] | None = None
        self._moves: set[asyncio.Task[None]] = set()
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._lost: set[str] = set()
        self._uneven = 0

    def service(self, sid: str) -> Service:
        return self.services.setdefault(sid, Service())

    def state(self, sid: str) -> str | None:
        """What the manager does with a resource; None if it is in its requested state."""
        return "freeze" if self.disarmed else self.service(sid).state

    def request(self, sid: str, how: str, target: str) -> None:
        """Request a move, together with partners in a positive rule. A request for a resource that the manager does not
        manage yet, or no longer, is lost.
        """
        ha = self._cluster.ha
        for each in (sid, *ha.partners(sid)):
            if each in ha.resources and not ha.is_new(each):
                self.service(each).request = (how, target)
        self.nudge()

    def nudge(self) -> None:
        """Start rounds after a change. They end when there is nothing left to do."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._rounds is None or self._rounds.done():
            self._rounds = loop.create_task(self._run())

    async def _run(self) -> None:
        busy = True
        while busy:
            await self._pause(self._cluster.timing.ha_seconds)
            busy = self._round()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(max(0.005, seconds * self._cluster.clock.scale))

    def stop(self) -> None:
        for job in (*self._moves, *([self._rounds] if self._rounds else [])):
            job.cancel()

    def _round(self) -> bool:
        """One round over all resources; True if further rounds are needed."""
        ha, busy = self._cluster.ha, False
        if self.disarmed:
            for service in self.services.values():
                service.request = None
            return bool(self._moves)
        for sid in list(ha.resources):
            guest = ha.guest_of(sid)
            if guest is not None:
                busy |= self._look_at(sid, guest)
        pending = any(node.maintenance != ha.in_maintenance(node) for node in self._cluster.nodes.values())
        return busy or pending or self._even_out()

    def _even_out(self) -> bool:
        """Move a guest because the nodes have been uneven for some rounds; True while they are."""
        found = ha_placement.evened_out(self._cluster)
        self._uneven = self._uneven + 1 if found is not None else 0
        crs = self._cluster.options.get("crs") or {}
        if found is not None and self._uneven > float(crs.get("ha-auto-rebalance-hold-duration") or 3):
            sid, guest, target = found
            self._uneven = 0
            self._send(sid, self.service(sid), guest, "migrate", target)
        return found is not None

    def _look_at(self, sid: str, guest: Guest) -> bool:
        if not self._cluster.nodes[guest.node].online:
            self._lost.add(sid)
            return ha_recovery.recover(self._cluster, sid, guest)
        if sid in self._lost:
            self._lost.discard(sid)
            ha_recovery.back_again(self._cluster, sid)
        return self._settle(sid, guest)

    def _settle(self, sid: str, guest: Guest) -> bool:
        service, resource = self.service(sid), self._cluster.ha.resources[sid]
        if service.state in MOVING and not self._arrived(service, resource, guest):
            return True
        if service.state == "request_stop" and service.done is None:
            service.state = None
        request, service.request = service.request, None
        if resource.get("state") == "ignored":
            return False
        how, target = request or ("migrate", None)
        if target is not None and not ha_placement.reachable(self._cluster, target):
            target = None
        if target is None:
            target = ha_placement.wanted_node(self._cluster, sid, guest)
        if target is not None and target != guest.node:
            self._send(sid, service, guest, how, target)
        return service.state is not None

    def _arrived(self, service: Service, resource: dict[str, Any], guest: Guest) -> bool:
        """Whether a move has ended, successfully or not."""
        if service.done is None:
            return False
        stopped = resource.get("state") in ("stopped", "disabled")
        service.state = "request_stop" if stopped and service.done else None
        if service.maintenance_node == guest.node:
            service.maintenance_node = None
        service.target = service.done = None
        return True

    async def move_first(self, sid: str, guest: Guest, target: str) -> None:
        """Move a guest that is to start to the node where it should run."""
        await asyncio.shield(self._send(sid, self.service(sid), guest, "migrate", target))

    def _send(self, sid: str, service: Service, guest: Guest, how: str, target: str) -> asyncio.Task[None]:
        ha = self._cluster.ha
        if ha.in_maintenance(self._cluster.nodes[guest.node]):
            service.maintenance_node = guest.node
        service.state, service.target, service.done = how, target, None
        job = asyncio.ensure_future(self._carry_out(service, guest, how, target))
        self._moves.add(job)
        job.add_done_callback(self._moves.discard)
        return job

    async def _carry_out(self, service: Service, guest: Guest, how: str, target: str) -> None:
        """The local manager of the source: it looks a little later, and works on a few guests at a time."""
        await self._pause(self._cluster.timing.lrm_seconds)
        slots = self._slots.setdefault(guest.node, asyncio.Semaphore(self._max_workers))
        async with slots:
            service.done = (not guest.running or how == "migrate" or await self._shut_down(guest)) and (
                await self._migrate(guest, target)
            )
        self.nudge()

    @property
    def _max_workers(self) -> int:
        return int(self._cluster.options.get("max_workers", MAX_WORKERS))

    async def _migrate(self, guest: Guest, target: str) -> bool:
        cluster = self._cluster
        options = Options(online=guest.running and guest.kind == "qemu", local_disks=True, by_manager=True)
        make, kind = (Migration, "qmigrate") if guest.kind == "qemu" else (ContainerMigration, "vzmigrate")
        upid = cluster.tasks.start(
            guest.node, kind, guest.vmid, MANAGER, make(cluster, guest, target, MANAGER, options).run)
        return await self._succeeds(upid)

    async def _shut_down(self, guest: Guest) -> bool:
        from .api.qemu_power import off, powerdown

        cluster = self._cluster

        async def work(task: Task) -> None:
            await cluster.hold(guest, task=task)
            try:
                await powerdown(cluster, guest, task, 60.0, force=True)
                off(cluster, guest)
            finally:
                guest.lock.release()

        return await self._succeeds(cluster.tasks.start(guest.node, "qmshutdown", guest.vmid, MANAGER, work))

    async def _succeeds(self, upid: str) -> bool:
        task = self._cluster.tasks.find(upid)
        assert task is not None
        assert task.runner is not None
        await asyncio.wait({task.runner})
        return task.exitstatus == "OK"
