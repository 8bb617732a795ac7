# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HA resources, groups (release 8), rules (release 9), and how the HA manager starts and stops guests, with delays."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING, Any

from . import ha_placement, ha_rules
from .ha_manager import MANAGER, MOVING, Manager
from .model import Guest, Node

if TYPE_CHECKING:
    from .cluster import Cluster


LOCK_LOST_SECONDS = 105.0
"""What the local manager of a node that was emptied needs before pve-ha-manager 5.1.2 to get its lock back."""


class HighAvailability:
    """HA configuration and the state that the manager has reached."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.resources: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.rules: dict[str, dict[str, Any]] = {}
        self.ever_active = False
        self.manager = Manager(cluster)
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._added_at: dict[str, float] = {}
        # Resources that the manager starts: until their node reports success, and where it reported failure.
        self._starting: set[str] = set()
        self._failed: set[str] = set()

    @staticmethod
    def sid(guest: Guest) -> str:
        return f"{'vm' if guest.kind == 'qemu' else 'ct'}:{guest.vmid}"

    def managed(self, guest: Guest) -> bool:
        return self.sid(guest) in self.resources

    def digest(self, section: object) -> str:
        return hashlib.sha1(json.dumps(section, sort_keys=True).encode()).hexdigest()

    def guest_of(self, sid: str) -> Guest | None:
        """The guest that a resource id names."""
        number = sid.partition(":")[2]
        return self._cluster.guests.get(int(number)) if number.isdigit() else None

    def add(self, sid: str, options: dict[str, Any]) -> None:
        self.resources[sid] = {"sid": sid, "type": sid.partition(":")[0], **options}
        self._added_at[sid] = self._cluster.clock.now()
        self.ever_active = True
        self.act(sid)

    def remove(self, sid: str, from_rules: bool = True) -> None:
        self.resources.pop(sid, None)
        self.manager.services.pop(sid, None)
        # The manager forgets the state, error too, of what is no longer configured.
        self._failed.discard(sid)
        if from_rules:
            for rule in self.rules.values():
                rest = [other for other in ha_rules.resources_of(rule) if other != sid]
                if len(rest) != len(ha_rules.resources_of(rule)):
                    rule["resources"] = ",".join(rest)
            for name in [name for name, rule in self.rules.items() if not rule["resources"]]:
                del self.rules[name]

    def set_state(self, sid: str, state: str) -> None:
        self.resources[sid]["state"] = state
        if state in ("stopped", "disabled"):
            self._failed.discard(sid)
        self.act(sid)

    def shown_state(self, guest: Guest) -> str | None:
        """``hastate`` in the guest's row: null on release 8 until the manager has seen a new resource."""
        sid = self.sid(guest)
        if self.is_new(sid) and not self._cluster.modern:
            return None
        return self.manager_state(sid)

    def manager_state(self, sid: str) -> str:
        """The state in the manager's records: C(started) from the request on, whether the guest runs or not."""
        doing = self.manager.state(sid)
        if doing is not None:
            return doing
        return "error" if sid in self._failed else str(self.resources[sid].get("state", "started"))

    def is_new(self, sid: str) -> bool:
        """Whether the manager does not manage a resource yet."""
        return self._cluster.clock.now() - self._added_at.get(sid, 0.0) < self._cluster.timing.ha_seconds

    def service_state(self, sid: str) -> str:
        """``state`` in the HA status: queued at first, then what the manager wants and gets."""
        doing = self.manager.state(sid)
        if doing is not None:
            return doing
        state = self.manager_state(sid)
        if self.is_new(sid) and state != "ignored":
            return "queued"
        guest = self.guest_of(sid)
        if state == "started" and guest is not None and (not guest.running or sid in self._starting):
            return "starting"
        return state

    def act(self, sid: str) -> None:
        """Schedule the manager's next step to bring a resource into its requested state."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        job = self._jobs.get(sid)
        if job is not None:
            job.cancel()
        self._jobs[sid] = loop.create_task(self._reach(sid))
        self.manager.nudge()

    async def _reach(self, sid: str) -> None:
        from .api.qemu_power import start_guest, stop_guest

        cluster = self._cluster
        await cluster.clock.sleep(cluster.timing.ha_seconds)
        resource, guest = self.resources.get(sid), self.guest_of(sid)
        if resource is None or guest is None or guest.kind != "qemu":
            return
        wanted = resource.get("state", "started")
        if wanted in ("started", "enabled") and not guest.running:
            target = ha_placement.wanted_node(cluster, sid, guest, starting=True)
            if target not in (None, guest.node):
                await self.manager.move_first(sid, guest, target)
            await self._follow(sid, start_guest(cluster, guest, MANAGER))
        elif wanted in ("stopped", "disabled") and guest.running:
            stop_guest(cluster, guest, MANAGER)

    async def _follow(self, sid: str, upid: str) -> None:
        """Learn from the guest's node how its start ended, as the manager does in its next round."""
        task = self._cluster.tasks.find(upid)
        if task is None or task.runner is None:
            return
        self._starting.add(sid)
        try:
            await asyncio.shield(task.runner)
            await self._cluster.clock.sleep(self._cluster.timing.ha_seconds)
        finally:
            self._starting.discard(sid)
        if task.exitstatus != "OK" and sid in self.resources:
            self._failed.add(sid)

    def stop_jobs(self) -> None:
        self.manager.stop()
        for job in self._jobs.values():
            job.cancel()

    def located(self) -> dict[str, str]:
        """Resource id to the node it is on."""
        return {sid: guest.node for sid in self.resources if (guest := self.guest_of(sid)) is not None}

    def heading_for(self) -> dict[str, str]:
        """Resource id to the node it is on or, while it moves, will be on."""
        located = self.located()
        for sid, service in self.manager.services.items():
            if service.state in MOVING and service.target is not None and sid in located:
                located[sid] = service.target
        return located

    def partners(self, sid: str) -> list[str]:
        """Resources that must be where ``sid`` is."""
        return ha_rules.bound_together(self.rules, sid)

    def blocking(self, sid: str, target: str) -> list[str]:
        """Resources on the target that must not meet ``sid``."""
        return ha_rules.blocking(self.rules, sid, self.located(), target)

    def in_maintenance(self, node: Node) -> bool:
        """True once the manager has taken note of a node's maintenance mode, until it has taken note of its end."""
        clock, timing = self._cluster.clock, self._cluster.timing
        if node.maintenance:
            since = node.maintenance_since
            return since is not None and (clock.instant or clock.now() - since >= timing.maintenance_seconds)
        if node.maintenance_ended is None or clock.instant:
            return False
        late = timing.maintenance_end_seconds if self._cluster.modern else LOCK_LOST_SECONDS
        return clock.now() - node.maintenance_ended < late

    def rule_rows(self) -> list[dict[str, Any]]:
        """The rules as the API lists them, with what is wrong with each."""
        wrong = ha_rules.problems(self.rules, len(self._cluster.nodes))
        digest = self.digest(self.rules)
        rows = []
        for order, (name, rule) in enumerate(self.rules.items(), start=1):
            row = {"rule": name, **rule, "order": order, "digest": digest}
            of_nodes = ha_rules.problems_of_nodes(rule, len(self._cluster.nodes))
            told = {"resources": wrong.get(name), "nodes": of_nodes}
            if any(told.values()):
                row["errors"] = {key: texts for key, texts in told.items() if texts}
            rows.append(row)
        return rows
