# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drift: the differences in meaning between an existing VM's config and its request.

Only requested options are compared, and of a drive only requested properties. If the config does not set an option, a
requested value that equals Proxmox's default is no drift. C(cipassword) cannot be compared, as Proxmox shows asterisks:
any password that is set counts as the wanted one.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ...engine.texts import whole_number
from .drive_changes import compare_drive
from .drives import Destroyed, Drive, Value, media_of
from .kinds import absent_boot_devices
from .table import conversion_of, default_of
from .values import Secret, boolean


@dataclass
class ChangeSet:
    """Differences between a VM's config and its request.

    Attributes:
        changes: all differences by API parameter, for display: C({"old": ..., "new": ...}), None for a parameter that
            is not set, secrets masked.
        parameters: the parameters to send to C(PUT .../config). They may contain a secret.
        delete: the parameters to unset in the same request.
        destroyed: the drives to unset and to destroy with their volumes, in a request of their own.
        resizes: slot to bytes, for C(PUT .../resize).
        moves: slot to storage, for C(POST .../move_disk).
        unappliable: why some parameters cannot be changed.
        unplaced: drives to create or to move for which a storage has to be chosen first.
    """

    changes: dict[str, dict[str, t.Any]] = field(default_factory=dict)
    parameters: dict[str, str | int] = field(default_factory=dict, repr=False)
    delete: tuple[str, ...] = ()
    destroyed: tuple[str, ...] = ()
    moves: dict[str, str] = field(default_factory=dict)
    resizes: dict[str, int] = field(default_factory=dict)
    unappliable: dict[str, str] = field(default_factory=dict)
    unplaced: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def with_storages(
        self, wanted: Mapping[str, Value], config: Mapping[str, t.Any], storages: Mapping[str, str]
    ) -> ChangeSet:
        """Return the change set with drives on the chosen storages, given by slot.

        wanted and config are those that were compared.
        """
        placed = compare({slot: wanted[slot] for slot in storages}, config, storages=storages)
        return replace(
            self,
            changes={**self.changes, **placed.changes},
            parameters={**self.parameters, **placed.parameters},
            moves={**self.moves, **placed.moves},
            resizes={**self.resizes, **placed.resizes},
            unplaced=tuple(slot for slot in self.unplaced if slot not in storages),
        )

    @property
    def before(self) -> dict[str, t.Any]:
        """The present values of what differs, for a diff. Parameters that are not set are left out."""
        return {key: change["old"] for key, change in self.changes.items() if change["old"] is not None}

    @property
    def after(self) -> dict[str, t.Any]:
        """The requested values of what differs, for a diff."""
        return {key: change["new"] for key, change in self.changes.items() if change["new"] is not None}

    @property
    def unset(self) -> frozenset[str]:
        """The parameters that the VM does not have afterwards."""
        return frozenset((*self.delete, *self.destroyed))

    # --- while a VM is compared ---

    def set(self, key: str, value: str | int, current: t.Any) -> None:
        conversion = conversion_of(key)
        merged = value if current is None else conversion.merge(value, current)
        self.parameters[key] = t.cast("str | int", merged)
        self._change(key, current, merged)

    def remove(self, key: str, current: t.Any, *, destroy: bool) -> None:
        if destroy:
            self.destroyed += (key,)
        else:
            self.delete += (key,)
        self._change(key, current, "destroyed with its volume" if destroy else None)

    def compare_option(self, key: str, value: str | int, current: t.Any) -> None:
        """Note how an option differs from the current value. An empty value unsets it."""
        present = default_of(key) if current is None else current
        if value == "":
            if current is not None and str(current).strip():
                self.remove(key, current, destroy=isinstance(value, Destroyed))
        elif key == "template" and boolean(present) and not boolean(value):
            self._change(key, current, value)
            self.unappliable[key] = "a template cannot be converted back to a VM"
        elif present is None or not conversion_of(key).same(value, present):
            self.set(key, value, current)

    def move(self, slot: str, current: str, storage: str) -> None:
        here, _separator, rest = current.partition(":")
        if here != storage:
            self.moves[slot] = storage
            self._change(slot, current, f"{storage}:{rest}")

    def compare_drive(self, drive: Drive, current: str | None, storage: str | None, *, displaced: bool) -> None:
        """Note how a drive differs from the current one."""
        change = compare_drive(drive, current, storage, displaced=displaced)
        if change is None:
            return
        self.changes[drive.slot] = {"old": current, "new": change.new}
        if change.move is not None:
            self.moves[drive.slot] = change.move
        if change.value is not None:
            self.parameters[drive.slot] = change.value
        if change.resize is not None:
            self.resizes[drive.slot] = change.resize
        if change.reasons:
            self.unappliable[drive.slot] = "; ".join(change.reasons)
        if change.unplaced:
            self.unplaced += (drive.slot,)

    def _change(self, key: str, old: t.Any, new: t.Any) -> None:
        show = conversion_of(key).show
        if isinstance(new, int) and (number := whole_number(old)) is not None:
            # Some numbers are texts in a config.
            old = number
        self.changes[key] = {"old": show(old), "new": show(new)}


def compare(
    wanted: Mapping[str, Value],
    config: Mapping[str, t.Any],
    *,
    storages: Mapping[str, str] | None = None,
    displaced: Collection[str] = (),
) -> ChangeSet:
    """Return how a VM's config differs from the wanted options.

    Args:
        wanted: options by API name, as returned by to_api; an empty text unsets the option.
        config: the answer of C(GET .../config).
        storages: by slot, the required storages of drives for which the request names no storage.
        displaced: the slots of drives that are not on a storage of the requested storage class.
    """
    found = ChangeSet()
    for key, value in wanted.items():
        current = config.get(key)
        if isinstance(value, Drive):
            storage = value.storage or (storages or {}).get(key)
            found.compare_drive(value, None if current is None else str(current), storage, displaced=key in displaced)
        else:
            found.compare_option(key, value, current)
    if "boot" in found.parameters:
        given = {key for key, value in wanted.items() if value != ""}
        missing = absent_boot_devices(wanted["boot"], (config.keys() | given) - found.unset)
        if missing:
            found.unappliable["boot"] = f"it names {', '.join(missing)}, which the VM does not have"
    if wanted.get("boot") and media_of(found.parameters):
        # Proxmox appends CD drives to the boot order when they get a medium, so set the order again.
        found.parameters.setdefault("boot", t.cast("str | int", wanted["boot"]))
    return found


def clone_adjustments(
    wanted: Mapping[str, Value],
    config: Mapping[str, t.Any],
    *,
    storages: Mapping[str, str] | None = None,
    devices: Mapping[str, str] | None = None,
    displaced: Collection[str] = (),
) -> ChangeSet:
    """Return the changes that turn a new clone into the requested VM: options, larger disks, allocated devices.

    wanted, config and displaced are as for compare; storages are the required ones of all drives; devices are the
    parameters that attach the allocated devices. A requested password is always set, as the clone has that of its
    template.
    """
    found = compare(wanted, config, storages=storages, displaced=displaced)
    for slot, storage in (storages or {}).items():
        if slot not in wanted and slot in config:
            found.move(slot, str(config[slot]), storage)
    for key, value in wanted.items():
        if isinstance(value, Secret) and value:
            found.set(key, value, config.get(key))
    for key, device in (devices or {}).items():
        if config.get(key) != device:
            found.set(key, device, config.get(key))
    return found
