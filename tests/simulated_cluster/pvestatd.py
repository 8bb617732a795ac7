# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``/cluster/resources`` knows: figures that each node publishes now and then, cached by each API worker.

Existence, lock, tags and pool of a guest are read from the shared configuration and are right at once. Name,
sizes and status come from the last round of the statistics daemon of the node that runs the guest.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .model import Guest, Node

if TYPE_CHECKING:
    from .cluster import Cluster

WORKERS = 3


@dataclass(frozen=True)
class GuestFigures:
    """One guest as its node's daemon last saw it."""

    name: str
    status: str
    maxcpu: int
    maxmem: int
    maxdisk: int
    template: int
    started_at: float
    cpu: float
    mem: int
    node: str
    hastate: str | None = None


@dataclass
class View:
    """Published figures as one API worker holds them."""

    guests: dict[int, GuestFigures] = field(default_factory=dict)
    storages: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    taken_at: float = -math.inf


class Statistics:
    """The rounds of every node's daemon and the caches of the API workers.

    Rounds are computed when somebody looks or is about to change something: ``settle`` must run before a change,
    so that a round that fell due earlier still sees the old state.
    """

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._published = View()
        self._workers = [View() for _ in range(WORKERS)]
        self._phase = {name: rng.random() for name in cluster.nodes}
        self._round: dict[str, int] = {}
        self._dirty: dict[str, set[int]] = {name: set() for name in cluster.nodes}
        self._next_due = -math.inf

    @property
    def _period(self) -> float:
        return self._cluster.timing.pvestatd_seconds

    def publish_all(self) -> None:
        """Start with everything known, as a cluster that has been up for a while."""
        now = self._cluster.clock.now()
        for node in self._cluster.nodes.values():
            self._round[node.name] = self._due_round(node.name, now)
            self._publish_storages(node)
        for guest in self._cluster.guests.values():
            self._published.guests[guest.vmid] = self._figures(guest)
        self._next_due = -math.inf

    def _due_round(self, node: str, now: float) -> int:
        return math.floor(now / self._period - self._phase[node])

    def round_time(self, node: str) -> float:
        """When the node's daemon last ran."""
        if self._cluster.clock.instant or self._period <= 0:
            return self._cluster.clock.now()
        return (self._round[node] + self._phase[node]) * self._period

    def touch(self, guest: Guest) -> None:
        """Announce that a guest is about to change (or was just added)."""
        self.settle()
        self._dirty[guest.node].add(guest.vmid)

    def settle(self) -> None:
        """Publish every round that has fallen due since the last look."""
        cluster = self._cluster
        now = cluster.clock.now()
        always = cluster.clock.instant or self._period <= 0
        if now < self._next_due and not always:
            return
        for node in cluster.nodes.values():
            due = 0 if always else self._due_round(node.name, now)
            if not node.online or (due <= self._round[node.name] and not always):
                continue
            self._round[node.name] = due
            self._publish(node)
        if not always:
            self._next_due = min(
                (self._round[name] + 1 + self._phase[name]) * self._period for name in cluster.nodes
            )

    def _publish(self, node: Node) -> None:
        for vmid in self._dirty[node.name]:
            guest = self._cluster.guests.get(vmid)
            if guest is not None and guest.node == node.name:
                self._published.guests[vmid] = self._figures(guest)
        self._dirty[node.name].clear()
        self._publish_storages(node)

    def _publish_storages(self, node: Node) -> None:
        for storage in self._cluster.storages.values():
            if storage.usable(node.name):
                self._published.storages[storage.name, node.name] = (
                    storage.used(node.name), storage.total(node.name),
                )

    def _figures(self, guest: Guest) -> GuestFigures:
        node = self._cluster.nodes[guest.node]
        return GuestFigures(
            name=guest.name, status=guest.qmpstatus if guest.running else guest.status,
            maxcpu=guest.maxcpu(node.cores), maxmem=guest.maxmem, maxdisk=guest.maxdisk, template=int(guest.template),
            started_at=guest.started_at,
            cpu=guest.cpu_use if guest.running else 0,
            mem=int(guest.maxmem * guest.memory_use) if guest.running else 0, node=guest.node,
        )

    def view(self, worker: int) -> View:
        """The figures as this API worker shows them now: up to two seconds old."""
        self.settle()
        now = self._cluster.clock.now()
        held = self._workers[worker]
        if self._cluster.clock.instant or now - held.taken_at >= self._cluster.timing.worker_cache_seconds:
            held.guests = dict(self._published.guests)
            held.storages = dict(self._published.storages)
            held.taken_at = now
        return held

    def offline_known(self, node: Node) -> bool:
        """True once the others have noticed that a node is gone."""
        if node.offline_since is None:
            return False
        return self._cluster.clock.now() - node.offline_since >= self._cluster.timing.offline_seconds

    def expired(self, node: Node) -> bool:
        """True when a dead node's last figures are too old to be shown."""
        if node.offline_since is None:
            return False
        return self._cluster.clock.now() - node.offline_since >= self._cluster.timing.expires_seconds

    def guest_row(self, guest: Guest, view: View, whole: bool = True) -> dict[str, Any]:
        """The guest's row; ``whole`` adds what pools leave out: lock, tags, pool and HA state."""
        cluster = self._cluster
        row: dict[str, Any] = {
            "id": f"{guest.kind}/{guest.vmid}", "type": guest.kind, "vmid": guest.vmid, "node": guest.node,
            "status": "unknown",
        }
        if whole:
            if guest.config_lock:
                row["lock"] = guest.config_lock
            if guest.tags:
                row["tags"] = guest.tags
            pool = cluster.access.pool_of(guest.vmid)
            if pool:
                row["pool"] = pool
            if cluster.ha.managed(guest):
                row["hastate"] = cluster.ha.shown_state(guest)
        figures = view.guests.get(guest.vmid)
        if figures is None or self.expired(cluster.nodes[guest.node]):
            return row
        running = figures.status != "stopped"
        node = figures.node if figures.node in cluster.nodes else guest.node
        row |= {
            "status": figures.status, "name": figures.name, "maxcpu": figures.maxcpu, "maxmem": figures.maxmem,
            "maxdisk": figures.maxdisk, "template": figures.template, "cpu": figures.cpu, "mem": figures.mem,
            "uptime": max(0, int(self.round_time(node) - figures.started_at)) if running else 0,
            "disk": 0, "diskread": 0, "diskwrite": 0, "netin": 0, "netout": 0,
        }
        if cluster.modern:
            row["memhost"] = figures.mem
        return row
