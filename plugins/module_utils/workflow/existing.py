# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that exist: how they differ from what is asked for, and bringing them there."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..errors import CollectionError, DriftNotApplicable, GuestVanished, InvalidRequest, TaskTimeout
from ..model import OFF, Guest
from ..proxmox.binder import TEMPLATE, Adjustment, Binder, Ending, described
from ..proxmox.freshness import BEING_MADE, read_config
from ..proxmox.options.drift import ChangeSet, clone_adjustments, compare
from ..proxmox.reader import Reader
from ..proxmox.unfinished import Unfinished, unfinished
from .entries import Entry
from .existing_ha import HA, HADrift, ha_drift
from .pools import is_elsewhere, missing_pool
from .report import VMReport

POOL = "pool"

POLL_EVERY = 0.5


@dataclass(slots=True)
class ExistingPlan:
    """What is to be done with one VM that exists.

    actions are delete, stop, finish, update and start, in the order they are done. unfinished is what its mark says of
    a VM that somebody began to make: then changes are what is left to do.
    """

    entry: Entry
    guest: Guest
    status: str
    changes: ChangeSet
    ha: HADrift | None = None
    actions: list[str] = field(default_factory=list)
    unfinished: Unfinished | None = None

    @property
    def drift(self) -> dict[str, Mapping[str, t.Any]]:
        """Everything that differs: the config, and the care of the HA manager."""
        drift = dict(self.changes.changes)
        if self.ha is not None:
            drift[HA] = {"old": self.ha.old, "new": self.ha.new}
        if self.misplaced:
            drift["node"] = {"old": self.guest.node, "new": self.entry.request.node}
        return drift

    @property
    def misplaced(self) -> bool:
        """Whether the VM is on another node than the one that is asked for. It is told, and left so."""
        return self.entry.request.node not in (None, self.guest.node)

    @property
    def description(self) -> str:
        """The description that an unfinished VM is to have: what is asked for, or else what its mark keeps."""
        kept = self.unfinished.description if self.unfinished is not None else ""
        return str(self.entry.request.options.get("description", kept))

    def report(self) -> VMReport:
        """The report as it will be when the plan is carried out."""
        gone = "delete" in self.actions
        status = "running" if "start" in self.actions else "stopped" if "stop" in self.actions else self.status
        report = VMReport(
            self.entry,
            actions=list(self.actions),
            found_name=self.guest.name,
            node=None if gone else self.guest.node,
            vmid=self.guest.vmid,
            status="absent" if gone else status,
            drift=self.drift,
            before={**self.changes.before, "status": self.status},
            after=None if gone else {**self.changes.before, "status": status},
        )
        if self.unfinished is not None:
            report.before = {
                **self.changes.before,
                "description": self.unfinished.marked_description,
                "status": self.status,
            }
            report.after = described({**self.changes.after, "status": status}, self.description)
            report.warnings.extend(
                f"{self.entry.label}: {key} stays as it is: {why}" for key, why in self.changes.unappliable.items()
            )
        elif "update" in self.actions:
            report.after = {**self.changes.after, "status": status}
        elif (self.changes or self.ha) and not gone:
            listed = ", ".join(_told(key, change) for key, change in sorted(self.drift.items()) if key != "node")
            report.warnings.append(
                f"{self.entry.label} differs from what is asked for: {listed}; update=true applies it"
            )
            if self.ha is not None and self.ha.problem is not None:
                report.warnings.append(f"{self.entry.label} cannot be given that: {self.ha.problem}")
        if self.entry.state == "started" and self.status not in ("running", *OFF):
            report.warnings.append(f"{self.entry.label} runs, but stands still ({self.status}): it is not resumed")
        if self.misplaced and not gone:
            report.warnings.append(
                f"{self.entry.label} is on {self.guest.node}, asked for on {self.entry.request.node}: it is not moved"
            )
        return report


class Converger:
    """Plans for existing VMs, and carries plans out. patience: seconds to wait for a VM that is still being made.

    Attributes:
        pools: those that this user may see.
    """

    def __init__(
        self,
        reader: Reader,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reader = reader
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self.pools: Collection[str] = frozenset()

    def plan(self, entry: Entry, guest: Guest, cluster: Reader | None = None) -> ExistingPlan:
        """Compare the VM with what is asked for, by its fresh config. Only reads. An unfinished one is to be finished,
        whether update is asked for or not. What is the same for all VMs of a run is read from cluster, if given.

        Raises GuestVanished; DriftNotApplicable when update is asked for and not all of it is possible.
        """
        if entry.state == "absent":
            return ExistingPlan(entry, guest, guest.status, ChangeSet(), actions=["delete"])
        if guest.template and entry.state == "started":
            raise InvalidRequest(f"state: {entry.label} ({guest.vmid}) is a template, which cannot be started")
        guest, config = self._config(entry, guest)
        begun = unfinished(config)
        if begun is None:
            changes = compare(entry.request.options, config)
            changes = self._with_pool(cluster or self._reader, changes, entry, guest)
        else:
            changes = clone_adjustments(
                entry.request.options,
                described(config, begun.description),
                storages=begun.storages,
                devices=begun.devices,
            )
        status = self._status(guest)
        starts = entry.state == "started" and status in OFF
        stops = entry.state == "stopped" and status not in OFF
        ha = ha_drift(cluster or self._reader, entry, guest, "started" if starts else "stopped" if stops else None)
        plan = ExistingPlan(entry, guest, status, changes, ha=ha, unfinished=begun)
        if begun is not None:
            plan.actions.append("finish")
        elif (changes or ha) and entry.update:
            unappliable = dict(changes.unappliable)
            if ha is not None and ha.problem is not None:
                unappliable[HA] = ha.problem
            if unappliable:
                reasons = "; ".join(f"{key}: {reason}" for key, reason in sorted(unappliable.items()))
                raise DriftNotApplicable(f"{entry.label} cannot be updated: {reasons}")
            if TEMPLATE in changes.parameters and entry.state != "stopped" and status not in OFF:
                raise DriftNotApplicable(f"{entry.label} cannot be updated: template: it runs; state=stopped stops it")
            plan.actions.append("update")
        if starts:
            plan.actions.append("start")
        if stops:
            # Before all else: only a stopped VM can become a template.
            plan.actions.insert(0, "stop")
        return plan

    def carry_out(self, plan: ExistingPlan, binder: Binder, *, force: bool) -> VMReport:
        """Do what the plan says. force: stop a VM that does not shut down in time."""
        report = plan.report()
        done: list[str] = []
        for action in plan.actions:
            try:
                node, changed = self._carry_out(action, plan, report.node or plan.guest.node, binder, force=force)
            except CollectionError as error:
                if done:
                    error.details["applied"] = done
                raise
            if changed:
                done.append(action)
            if report.node is not None:
                report.node = node
        report.actions = done
        if "update" in done and plan.status not in OFF and "stop" not in done:
            report.warnings.extend(self._waiting(plan))
        return report

    def _waiting(self, plan: ExistingPlan) -> list[str]:
        """A warning of what Proxmox took for a VM that runs, and shows as if it were in force already."""
        with suppress(CollectionError):
            rows = self._reader.get(f"/nodes/{plan.guest.node}/qemu/{plan.guest.vmid}/pending")
            keys = ", ".join(sorted(str(row["key"]) for row in rows if "pending" in row or row.get("delete")))
            if keys:
                return [f"{plan.entry.label} runs: {keys} will be in force when it was stopped and started again"]
        return []

    def _carry_out(
        self, action: str, plan: ExistingPlan, node: str, binder: Binder, *, force: bool
    ) -> tuple[str, bool]:
        """Do one of a plan's actions, on node; return the node that the VM is on then, and whether it was needed."""
        vmid = plan.guest.vmid
        if action == "delete":
            return node, binder.delete(node, vmid, plan.entry.request.name or None)
        if action == "finish":
            self._finish(plan, binder)
            return node, True
        if action == "update":
            self._update(plan, binder)
            return node, True
        if action == "start":
            return binder.start(node, vmid), True
        return binder.shutdown(node, vmid, force=force), True

    def _finish(self, plan: ExistingPlan, binder: Binder) -> None:
        adjustment = adjustment_of(plan.changes, without={"description"})
        ending = Ending.of(plan.entry.request, plan.description)
        binder.finish(plan.guest.node, plan.guest.vmid, adjustment, ending)

    def _update(self, plan: ExistingPlan, binder: Binder) -> None:
        guest, ha = plan.guest, plan.entry.request.ha
        adjustment = adjustment_of(plan.changes)
        binder.update(guest.node, guest.vmid, adjustment.changes, adjustment.resizes)
        if TEMPLATE in plan.changes.parameters:
            binder.convert_to_template(guest.node, guest.vmid)
        if POOL in plan.changes.changes:
            binder.move_to_pool(guest.vmid, str(plan.changes.after[POOL]))
        if plan.ha is not None and ha is not None:
            binder.join_ha(guest.vmid, ha)

    def _config(self, entry: Entry, guest: Guest) -> tuple[Guest, Mapping[str, t.Any]]:
        """The VM's config, once it is written: somebody may still be creating it. With it the guest, where it is then:
        a clone for another node is made on that of its template.
        """
        deadline = self._clock() + self._patience
        while True:
            config = read_config(self._reader, guest.node, guest.vmid)
            if config is None:
                guest = replace(guest, node=self._node_of(entry, guest))
            elif config.get("lock") not in BEING_MADE:
                break
            if self._clock() >= deadline:
                raise TaskTimeout(
                    f"{entry.label} ({guest.vmid} on {guest.node}) is still being created, or whoever did so left it "
                    "locked; it is left alone"
                )
            self._sleep(POLL_EVERY)
        name = config.get("name", "")
        if entry.request.name and name != entry.request.name:
            raise GuestVanished(f"{entry.label}: VMID {guest.vmid} on {guest.node} is now called {name!r}")
        return guest, config

    def _node_of(self, entry: Entry, guest: Guest) -> str:
        """The node on which the VM is, not being where it was said to be."""
        rows = self._reader.get("/cluster/resources", type="vm")
        node = next((str(row["node"]) for row in rows if row.get("vmid") == guest.vmid), None)
        if node in (None, guest.node):
            raise GuestVanished(f"{entry.label} ({guest.vmid}) is not on node {guest.node} any more")
        return str(node)

    def _with_pool(self, reader: Reader, changes: ChangeSet, entry: Entry, guest: Guest) -> ChangeSet:
        """The changes, and that of the pool, which is not in the config."""
        wanted = entry.request.pool
        if not wanted or wanted == guest.pool:
            return changes
        missing = None if wanted in self.pools else missing_pool(reader, wanted)
        if missing is None and not is_elsewhere(wanted, guest.pool, self.pools):
            return changes
        return replace(
            changes,
            changes={**changes.changes, POOL: {"old": guest.pool, "new": wanted}},
            unappliable={**changes.unappliable, **({POOL: missing} if missing else {})},
        )

    def _status(self, guest: Guest) -> str:
        if guest.status not in ("assumed", "unknown"):
            return guest.status
        return str(self._reader.get(f"/nodes/{guest.node}/qemu/{guest.vmid}/status/current")["status"])


def adjustment_of(changes: ChangeSet, without: Collection[str] = ()) -> Adjustment:
    """What of changes goes into the config; becoming a template does not, and those left out by name."""
    parameters: dict[str, t.Any] = {
        key: value for key, value in changes.parameters.items() if key != TEMPLATE and key not in without
    }
    unset = [key for key in changes.delete if key not in without]
    if unset:
        parameters["delete"] = ",".join(unset)
    return Adjustment(parameters, changes.resizes)


def _told(key: str, change: Mapping[str, t.Any]) -> str:
    old, new = ("unset" if change[side] is None else change[side] for side in ("old", "new"))
    return f"{key} is {old}, asked for {new}"
