# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Existing VMs: how they differ from their requests, and what is to be done with them."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from ...errors import (
    DriftNotApplicable,
    GuestLocked,
    GuestVanished,
    InvalidRequest,
)
from ...model import OFF, Guest, Request
from ...proxmox.api.failures import NotRecorded
from ...proxmox.api.reader import Reader
from ...proxmox.creations import BeingCreated, ask_if_unwritten
from ...proxmox.identity import identity_of
from ...proxmox.inventory.freshness import BEING_MADE, read_config
from ...proxmox.making import TEMPLATE, with_description
from ...proxmox.options.contradictions import config_with, contradictions
from ...proxmox.options.drift import ChangeSet, clone_adjustments, compare
from ...proxmox.options.drive_changes import obstacle_to_move
from ...proxmox.options.drives import is_drive
from ...proxmox.options.request import traits_of
from ...proxmox.pending import StoredConfig, read_stored_config
from ...proxmox.unfinished import Unfinished, read_mark
from ..lasting import with_tags
from ..options.entries import NOT_CREATED, PAUSED, Entry
from ..pools import missing_pool
from .ha_drift import ha_drift
from .hints import MarkReader
from .matching import abandoned_text
from .plan import ExistingPlan, power_action

if t.TYPE_CHECKING:
    from ..address_book import AddressBook


NAME, POOL = "name", "pool"

NOT_BEGUN = (
    "its notes say that its creation was not finished, of which the ledger knows nothing: it gets what the task says, "
    "as with update=true"
)

UNHINDERED = {"start": "suspended", "delete": "suspended", "pause": "backup", "resume": "backup"}
"""The lock with which Proxmox VE does an action all the same; a VM that has another lock is refused."""


class Checks(t.NamedTuple):
    """What the cluster as read, with the decisions so far, tells about existing VMs.

    check_birth raises NotTheSameGuest if a config is not that of the VM that was created for an entry. displaced
    returns, for a request and a VM's node and config, the slots of drives that are not on a storage of the class that
    they name. is_allowed_storage tells whether a request allows a storage on a node for a slot that it leaves open.
    is_begun tells whether the ledger knows of a creation that was not finished.
    """

    check_birth: Callable[[Entry, Guest, Mapping[str, t.Any]], None]
    displaced: Callable[[Request, str, Mapping[str, t.Any]], Collection[str]]
    is_allowed_storage: Callable[[Request, str, str, str], bool]
    is_begun: Callable[[Guest], bool]


NO_CHECKS = Checks(lambda *_of: None, lambda *_of: (), lambda *_of: False, lambda _guest: True)


class Comparison:
    """Compares existing VMs with their requests, and plans what is done with them."""

    def __init__(
        self,
        reader: Reader,
        abandoned: Collection[int] = (),
        addresses: AddressBook | None = None,
        attributes: Mapping[str, Mapping[str, t.Any]] = MappingProxyType({}),
        pools: Collection[str] = (),
        checks: Checks = NO_CHECKS,
    ) -> None:
        """abandoned: VMIDs of VMs that an aborted creation left locked; it may grow. addresses: those of the run's VMs,
        if they come from pools. attributes: those that the task gives to devices. pools: those that this user may see.
        """
        self._reader = reader
        self._addresses = addresses
        self._abandoned = abandoned
        self._pools = pools
        self._checks = checks
        self._marks = MarkReader(reader, addresses, attributes, checks.is_allowed_storage)

    def plan(self, entry: Entry, guest: Guest, cluster: Reader | None = None) -> ExistingPlan:
        """Compare the VM's current config with its request, and plan the actions. Only reads.

        An unfinished VM is always finished, even without update. cluster, if given, caches what is the same for all
        VMs.

        Raises BeingCreated and GuestLocked for a VM whose config is not written yet; GuestVanished; DriftNotApplicable
        when update is set and not all of it is possible.
        """
        if entry.state == "absent":
            entry.guard.check(entry.label, guest)
            return self._removal(entry, guest)
        if guest.template and entry.state not in ("present", "stopped"):
            raise InvalidRequest(f"state: {entry.label} ({guest.vmid}) is a template, which cannot be {entry.state}")
        guest, stored = self._config(entry, guest)
        config = stored.config
        self._checks.check_birth(entry, guest, config)
        mark = read_mark(config)
        begun = None if mark is None else self._marks.agree(mark, entry, guest, config)
        made = config if begun is None else {**config, **begun.addresses}
        cautions: list[str] = []
        if self._addresses is not None:
            entry, cautions = self._addresses.with_current_addresses(entry, guest, made)
        if begun is None:
            entry, changes = self._drift(cluster or self._reader, entry, guest, config)
        else:
            if not self._checks.is_begun(guest):
                cautions.append(NOT_BEGUN)
            entry, changes = self._rest_of_creation(entry, guest, config, begun)
        status = self._status(entry, guest)
        pending = {} if status in OFF else stored.pending
        runs = status not in OFF and entry.state != "stopped"
        if changes.moves or changes.unplaced or changes.resizes or changes.unset:
            changes = _with_fixed_disks(changes, config, pending, runs=runs)
        power = power_action(entry.label, entry.state, status, config.get("lock"))
        boots = entry.apply_pending == "reboot" or power in ("stop", "restart", "suspend")
        if self._addresses is not None and begun is None and status not in OFF and not boots:
            held = self._addresses.lost_addresses(changes.changes)
            changes = replace(changes, unappliable={**held, **changes.unappliable})
        intent = entry.request.ha
        ha = None if intent is None else ha_drift(cluster or self._reader, entry, guest, intent, power)
        plan = ExistingPlan(entry, guest, status, changes, config, pending, ha=ha, unfinished=begun)
        plan.identity, plan.digest = identity_of(config, guest.node), config.get("digest")
        plan.cautions.extend(f"{entry.label}: {text}" for text in cautions)
        _add_actions(plan, power)
        return plan

    def _removal(self, entry: Entry, guest: Guest) -> ExistingPlan:
        """Return the plan to delete a VM. Only what its config shows of it now will be deleted."""
        plan = ExistingPlan(entry, guest, guest.status, ChangeSet(), actions=["delete"])
        with suppress(NotRecorded):
            config = read_config(self._reader, guest.node, guest.vmid)
            if config is None:
                guest = plan.guest = replace(guest, node=self._node_of(entry, guest))
                config = read_config(self._reader, guest.node, guest.vmid)
            if config is None:
                raise GuestVanished(f"{entry.label} ({guest.vmid}) is no longer on node {guest.node}")
            check_name(entry, guest, config)
            self._checks.check_birth(entry, guest, config)
            plan.identity, plan.digest = identity_of(config, guest.node), config.get("digest")
            plan.is_protected = bool(config.get("protection"))
            if guest.template or config.get(TEMPLATE):
                from ...proxmox.inventory.linked_clones import read_linked_clones

                plan.clones = read_linked_clones(self._reader, guest.node, guest.vmid, config)
        return plan

    def _drift(
        self, reader: Reader, entry: Entry, guest: Guest, config: Mapping[str, t.Any]
    ) -> tuple[Entry, ChangeSet]:
        """Return how a complete VM differs from its request, and the entry with all tags that it shall have. reader
        caches what is the same for all VMs.
        """
        if entry.lasting and "tags" not in entry.given:
            # Those of lasting rules stand beside the VM's own ones.
            entry = replace(entry, request=with_tags(entry.request, traits_of(config)["tags"]))
        displaced: Collection[str] = ()
        if any(disk.storage_class is not None for disk in entry.request.disks):
            displaced = self._checks.displaced(entry.request, guest.node, config)
        changes = compare(entry.request.options, config, displaced=displaced)
        if changes:
            impossible = contradictions(config_with(config, entry.request.options), changes.changes.keys())
            changes = replace(changes, unappliable={**impossible, **changes.unappliable})
        if entry.request.pool and entry.request.pool != guest.pool:
            changes = self._with_pool(reader, changes, entry.request.pool, guest)
        return entry, _rename(changes, entry.request.name, config) if entry.rename else changes

    def _rest_of_creation(
        self, entry: Entry, guest: Guest, config: Mapping[str, t.Any], begun: Unfinished
    ) -> tuple[Entry, ChangeSet]:
        """Return what a VM still lacks whose creation was begun and not finished, and the entry with the drives that a
        clone has of its template.
        """
        if entry.clone is not None:
            from ..sources import with_drives_of

            entry = with_drives_of(entry, entry.clone, config)
        return entry, clone_adjustments(
            entry.request.options,
            with_description(config, begun.description),
            storages=begun.storages,
            devices=begun.devices,
            displaced=self._checks.displaced(entry.request, guest.node, config),
        )

    def _config(self, entry: Entry, guest: Guest) -> tuple[Guest, StoredConfig]:
        """Return the VM's config, and the guest with its current node: a clone for another node is created on the node
        of its template, and then moved.
        """
        stored = read_stored_config(self._reader, guest.node, guest.vmid, running=guest.status not in OFF)
        if stored is None:
            guest = replace(guest, node=self._node_of(entry, guest))
            stored = read_stored_config(self._reader, guest.node, guest.vmid, running=guest.status not in OFF)
        if stored is None:
            raise GuestVanished(f"{entry.label} ({guest.vmid}) is no longer on node {guest.node}")
        if ask_if_unwritten(self._reader, guest.node, guest.vmid, stored.config):
            if guest.vmid in self._abandoned:
                raise GuestLocked(f"{entry.label}: {abandoned_text(guest)}", vmid=guest.vmid, node=guest.node)
            raise BeingCreated(
                f"{entry.label} ({guest.vmid} on {guest.node}) is still being created, or was left locked by its "
                "creation; it is not changed",
                [guest],
            )
        check_name(entry, guest, stored.config)
        return guest, stored

    def _node_of(self, entry: Entry, guest: Guest) -> str:
        """Return the current node of a VM that is no longer on its known node."""
        row = row_of(self._reader, guest.vmid)
        if row is None or row["node"] == guest.node:
            raise GuestVanished(f"{entry.label} ({guest.vmid}) is no longer on node {guest.node}")
        return str(row["node"])

    def _with_pool(self, reader: Reader, changes: ChangeSet, wanted: str, guest: Guest) -> ChangeSet:
        """Return the changes, plus that of the pool, which is not part of the config."""
        missing = None if wanted in self._pools else missing_pool(reader, wanted)
        # A VM for which Proxmox shows no pool may be in one that this user cannot see.
        if missing is None and guest.pool is None and wanted not in self._pools:
            return changes
        return replace(
            changes,
            changes={**changes.changes, POOL: {"old": guest.pool, "new": wanted}},
            unappliable={**changes.unappliable, **({POOL: missing} if missing else {})},
        )

    def _status(self, entry: Entry, guest: Guest) -> str:
        """Return the VM's status, read from the node if a pause matters, as the cluster's list shows it late."""
        doubtful = entry.state in NOT_CREATED or (entry.state == "started" and guest.status == PAUSED)
        if guest.status not in ("assumed", "unknown") and not doubtful:
            return guest.status
        try:
            current = self._reader.get(f"/nodes/{guest.node}/qemu/{guest.vmid}/status/current")
        except NotRecorded:
            return guest.status
        return PAUSED if current.get("qmpstatus") == PAUSED else str(current["status"])


def check_name(entry: Entry, guest: Guest, config: Mapping[str, t.Any]) -> None:
    """Raise GuestVanished if the VM no longer has the name that is requested."""
    name = config.get("name", "")
    if entry.request.name not in ("", name) and not (entry.rename and name == (guest.name or "")):
        raise GuestVanished(f"{entry.label}: VMID {guest.vmid} on {guest.node} is now called {name!r}")


def row_of(reader: Reader, vmid: int) -> Mapping[str, t.Any] | None:
    """Return the guest's row in the cluster's list, where existence, node, tags, lock and pool show at once."""
    rows = reader.get("/cluster/resources", type="vm")
    return next((row for row in rows if row.get("vmid") == vmid), None)


def check_lock(plan: ExistingPlan) -> None:
    """Raise GuestLocked if the VM has a lock because of which Proxmox VE would refuse one of the actions."""
    lock = plan.config.get("lock") if plan.config else plan.guest.lock
    if not lock or lock in BEING_MADE:
        return
    for action in plan.actions:
        # The pool and the HA resource are not part of the config. For an HA resource, the HA manager starts and stops.
        free = action == "update" and plan.changes.changes.keys() <= {POOL}
        by_ha = plan.guest.ha_managed and action in ("start", "stop", "restart", "reboot")
        if not free and not by_ha and lock != UNHINDERED.get(action):
            raise locked_error(plan, action, str(lock))


def locked_error(plan: ExistingPlan, action: str, lock: str, **details: t.Any) -> GuestLocked:
    """Return the error for an action that the VM's lock forbids, with what ends the lock."""
    from ...proxmox.moves.mobility import CURES_OF_LOCKS, OTHER_LOCK

    guest, cure = plan.guest, CURES_OF_LOCKS.get(lock, OTHER_LOCK)
    message = (
        f"{plan.entry.label} ({guest.vmid} on {guest.node}) is locked ({lock}), so it is impossible to {action} it"
    )
    return GuestLocked(f"{message}: {cure}", **{**details, "vmid": guest.vmid, "node": guest.node, "lock": lock})


def _add_actions(plan: ExistingPlan, power: str | None) -> None:
    """Add the actions to the plan, of which power changes the status. Raises DriftNotApplicable if update is set and
    not all of it is possible.
    """
    entry = plan.entry
    if plan.unfinished is not None:
        plan.actions.append("finish")
    elif (plan.changes or plan.ha) and entry.update:
        if plan.unappliable:
            reasons = "; ".join(f"{key}: {reason}" for key, reason in sorted(plan.unappliable.items()))
            raise DriftNotApplicable(f"{entry.label} cannot be updated: {reasons}")
        if TEMPLATE in plan.changes.parameters and entry.state != "stopped" and plan.status not in OFF:
            raise DriftNotApplicable(
                f"{entry.label} cannot be updated: template: the VM runs; set state=stopped to stop it"
            )
        plan.actions.append("update")
    if power == "stop":
        # Before all else: only a stopped VM can become a template.
        plan.actions.insert(0, "stop")
    elif power is not None:
        plan.actions.append(power)
    elif entry.apply_pending == "reboot" and plan.is_rebooted:
        plan.actions.append("reboot")


def _rename(changes: ChangeSet, name: str, config: Mapping[str, t.Any]) -> ChangeSet:
    """Return the changes with that of the name, which is no option of the VM, but what identifies it."""
    if config.get("name", "") == name:
        return changes
    return replace(
        changes,
        changes={**changes.changes, NAME: {"old": config.get("name"), "new": name}},
        parameters={**changes.parameters, NAME: name},
    )


def _with_fixed_disks(
    changes: ChangeSet, config: Mapping[str, t.Any], pending: Collection[str], *, runs: bool
) -> ChangeSet:
    """Return the changes without those of disks that must stay as they are, which become unappliable, with the reason.
    """
    moving = {*changes.moves, *(config.keys() & set(changes.unplaced))}
    held = {slot: why for slot in moving if (why := obstacle_to_move(slot, config, pending, runs=runs)) is not None}
    grown = changes.resizes if config.get(TEMPLATE) else {}
    fixed = dict.fromkeys(grown, "it is a template, whose disks cannot be grown; grow those of its clones")
    if config.get("protection"):
        removed = [key for key in changes.unset if is_drive(key)]
        fixed |= dict.fromkeys(removed, "the VM is protected, which keeps its drives; set protection to false first")
    return replace(
        changes,
        moves={slot: storage for slot, storage in changes.moves.items() if slot not in held},
        resizes={slot: size for slot, size in changes.resizes.items() if slot not in fixed},
        unappliable={**fixed, **held, **changes.unappliable},
        unplaced=tuple(slot for slot in changes.unplaced if slot not in held),
    )
