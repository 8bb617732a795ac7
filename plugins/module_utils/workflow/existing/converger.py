# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out the plans for existing VMs."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ...errors import (
    ApiError,
    CollectionError,
    ConnectionFailed,
    DriftNotApplicable,
    GuestVanished,
    PermissionDenied,
    TaskFailed,
)
from ...model import OFF
from ...proxmox.api.failures import AnswerLost
from ...proxmox.api.reader import Reader
from ...proxmox.making import TEMPLATE, Ending, adjustment_of
from ...proxmox.options.request import traits_of
from ...proxmox.outcomes import is_paused, is_shutdown_timeout, lock_named
from ...proxmox.pending import read_pending
from .comparison import NAME, POOL, Comparison, check_name, locked_error, row_of
from .plan import RENEWING, Carried, ExistingPlan, Shutdown

if t.TYPE_CHECKING:
    from ...proxmox.binder import Binder
    from ...proxmox.writes import GuestWriter


@dataclass(frozen=True, slots=True)
class Converger:
    """Changes existing VMs. May be used from many threads. comparison tells how a VM is after a failure."""

    reader: Reader
    comparison: Comparison

    def carry_out(self, plan: ExistingPlan, binder: Binder, shutdown: Shutdown) -> Carried:
        """Do what the plan says with the VM that it is for."""
        node, done = plan.guest.node, list[str]()
        if plan.identity is None:
            unknown = f"{plan.entry.label} ({plan.guest.vmid}): its config was not read, so nothing is done with it"
            return Carried(done, node, error=GuestVanished(unknown))
        guest = binder.lifecycle.writer(
            plan.guest.vmid, plan.identity, digest=plan.digest, check=lambda config: self._check_still(plan, config)
        )
        for action in plan.actions:
            try:
                node, changed = self._carry_out(action, plan, node, binder, guest, shutdown)
            except CollectionError as error:
                lock = lock_named(error.message)
                told = error if lock is None else locked_error(plan, action, lock, **error.details)
                return Carried(done, plan.guest.node, error=told, found=self._find(plan, error))
            if changed:
                done.append(action)
        pending = None
        if "update" in done and plan.status not in OFF and not RENEWING & set(plan.actions):
            with suppress(CollectionError):
                pending = read_pending(self.reader, plan.guest.node, plan.guest.vmid)
        return Carried(done, node, pending)

    def _find(self, plan: ExistingPlan, error: CollectionError) -> ExistingPlan | None:
        """Return the VM as it is now; None when that is unknown."""
        if isinstance(error, ConnectionFailed) and not isinstance(error, AnswerLost):
            return None
        with suppress(CollectionError):
            entry = replace(plan.entry, state="present", update=False)
            return self.comparison.plan(entry, replace(plan.guest, status="unknown"))
        return None

    def _carry_out(
        self, action: str, plan: ExistingPlan, node: str, binder: Binder, guest: GuestWriter, shutdown: Shutdown
    ) -> tuple[str, bool]:
        """Do one of a plan's actions on node. Returns the VM's node after it, and whether the action was necessary."""
        if action in ("finish", "update") and plan.changes.unplaced:
            slots = ", ".join(plan.changes.unplaced)
            raise DriftNotApplicable(f"{plan.entry.label}: no storage was chosen for {slots}; run the task again")
        if action == "delete":
            return node, binder.lifecycle.delete(node, guest)
        if action == "finish":
            self._finish(plan, binder, guest)
            return node, True
        if action == "update":
            self._update(plan, binder, guest)
            return node, True
        commands = {
            "start": binder.lifecycle.start,
            "pause": binder.lifecycle.pause,
            "resume": binder.lifecycle.resume,
            "suspend": binder.lifecycle.suspend,
        }
        if action in commands:
            return commands[action](node, guest), True
        if action == "reboot" and not (plan.updated_cloud_init or read_pending(self.reader, node, guest.vmid)):
            return node, False
        node = self._shut_down(plan, node, binder, guest, shutdown)
        return node if action == "stop" else binder.lifecycle.start(node, guest), True

    def _check_still(self, plan: ExistingPlan, config: Mapping[str, t.Any]) -> None:
        """Check the VM by the config that it has right before a write. Raises GuestVanished, RemovalRefused."""
        check_name(plan.entry, plan.guest, config)
        if "delete" in plan.actions:
            self._guard(plan, config)

    def _guard(self, plan: ExistingPlan, config: Mapping[str, t.Any]) -> None:
        """Check the guard by what the VM has now. Raises RemovalRefused."""
        guard, guest = plan.entry.guard, replace(plan.guest, tags=traits_of(config)["tags"])
        if guard.pool is not None:
            guest = replace(guest, pool=(row_of(self.reader, guest.vmid) or {}).get("pool"))
        guard.check(plan.entry.label, guest)

    @staticmethod
    def _shut_down(plan: ExistingPlan, node: str, binder: Binder, guest: GuestWriter, shutdown: Shutdown) -> str:
        """Shut the VM down, or stop it if the task permits that."""
        if shutdown.force and shutdown.seconds == 0:
            return binder.lifecycle.stop(node, guest)
        try:
            return binder.lifecycle.shutdown(node, guest, seconds=shutdown.seconds, force=shutdown.force)
        except (ApiError, TaskFailed) as error:
            if is_shutdown_timeout(error.message):
                reason = "did not shut down in time"
            elif is_paused(error.message):
                reason = "is paused"
            else:
                raise
            message = f"{plan.entry.label} {reason}; set force=true to stop it: {error.message}"
            raise type(error)(message, **error.details) from error

    @staticmethod
    def _finish(plan: ExistingPlan, binder: Binder, guest: GuestWriter) -> None:
        adjustment = adjustment_of(plan.changes, without={"description"})
        ending = Ending.of(plan.entry.request, plan.description)
        binder.finish(plan.guest.node, guest, adjustment, ending)

    @staticmethod
    def _update(plan: ExistingPlan, binder: Binder, guest: GuestWriter) -> None:
        """Send the changes of the plan: config, disks, cloud-init, name, template, pool and HA, in this order."""
        node, ha = plan.guest.node, plan.entry.request.ha
        adjustment = adjustment_of(plan.changes)
        told = binder.lifecycle.update(
            node, guest, adjustment.changes, adjustment.resizes, adjustment.moves, adjustment.destroyed
        )
        plan.cautions.extend(f"{plan.entry.label}: {line}" for line in told)
        if plan.new_cloud_init:
            try:
                binder.lifecycle.regenerate_cloud_init(node, guest)
            except (ApiError, PermissionDenied) as error:
                plan.is_outdated = True
                plan.cautions.append(
                    f"{plan.entry.label}: its cloud-init drive was not regenerated; the guest gets the new data when "
                    f"the VM is stopped and started: {error.message}"
                )
        if NAME in plan.changes.changes:
            _wait_for_name(plan, binder)
        if TEMPLATE in plan.changes.parameters:
            binder.lifecycle.convert_to_template(node, guest)
        if POOL in plan.changes.changes:
            binder.lifecycle.move_to_pool(node, guest, str(plan.changes.after[POOL]))
        if plan.ha is not None and ha is not None:
            binder.lifecycle.join_ha(node, guest, ha)


def _wait_for_name(plan: ExistingPlan, binder: Binder) -> None:
    """Wait until the cluster's list shows the new name: a task that looked for it before would make another VM."""
    shown = False
    with suppress(CollectionError):
        shown = binder.lifecycle.wait_for_name(plan.guest.vmid, plan.entry.request.name)
    if not shown:
        plan.cautions.append(
            f"{plan.entry.label}: the cluster's list does not show its new name yet; until then, a task that looks for "
            "this name does not find the VM"
        )
