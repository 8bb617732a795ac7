# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the backup that C(archive) names, what its VM needs, and how it is restored.

Proxmox restores all disks of a backup to one storage. Options in the same request replace those of the backup's config,
except for drives.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ..engine.texts import join_words, known_names
from ..errors import AmbiguousName, ApiError, ArchiveNotFound, ConnectionFailed, InvalidRequest, PermissionDenied
from ..model import Archive, Decision, Disk, Request, Snapshot
from ..proxmox.api.failures import UNREADABLE
from ..proxmox.api.reader import Reader, ReadOnce
from ..proxmox.identity import identity_of
from ..proxmox.inventory import backups
from ..proxmox.making import TEMPLATE
from ..proxmox.options.drift import clone_adjustments
from ..proxmox.options.drives import Drive
from ..proxmox.options.kinds import NET, SMBIOS
from ..proxmox.options.request import traits_of
from .options.entries import Entry
from .options.source_options import Backup
from .sources import check_options, drives_from, sizes_from

_OWNER = re.compile(r"/vzdump-qemu-(\d{1,9})-|:backup/vm/(\d{1,9})/")
_KINDS_WITH_IDENTITY = {"net": (NET, "macaddr"), "smbios": (SMBIOS, "uuid")}

ARCHIVE = "archive"
"""The slot that represents the backup among the drives of a request, so that its node has to see the backup."""


def owner_of(volume: str) -> int | None:
    """Return the VMID of the VM that a backup was made of; None if its name does not tell."""
    found = _OWNER.search(volume)
    return int(found[1] or found[2]) if found else None


class Archives:
    """The backups of one run; each list and each config is read once.

    Attributes:
        volumes: whether the nodes see the backups that were found, by (node, volume); None if not.
        doubts: by volume, why it may not be the latest backup.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = ReadOnce(reader)
        self.volumes: dict[tuple[str, str], int | None] = {}
        self.doubts: dict[str, str] = {}

    def resolve(self, entry: Entry, snapshot: Snapshot) -> Entry:
        """Return the entry with the backup in its request, and the backup's sizes and disks where the entry gives none.

        Raises ArchiveNotFound, PermissionDenied, ApiError, ConnectionFailed, and InvalidRequest for what Proxmox cannot
        restore like this.
        """
        if entry.backup is None or entry.request.archive is not None:
            return entry
        backup, oldest = self._find(entry, entry.backup, snapshot)
        config = self._config(entry, backup)
        if oldest != backup and config.get("name") != entry.request.name:
            self._check_owner(entry, backup, config, oldest)
        check_options(entry, config, f"a VM that is restored from {backup.volume}")
        if config.get(TEMPLATE) and entry.request.running:
            raise InvalidRequest(f"state: {backup.volume} holds a template, which cannot be {entry.state}")
        for node in snapshot.nodes:
            self.volumes[node.name, backup.volume] = 0 if node.name in backup.nodes else None
        request = replace(
            entry.request,
            archive=Archive(backup.volume, config, entry.backup.unique),
            disks=(Disk(ARCHIVE, volume=backup.volume), *_disks(entry, entry.backup, config)),
            **sizes_from(entry, [config]),
            **traits_of({**config, **entry.request.options}),
        )
        return replace(entry, request=request)

    def _find(
        self, entry: Entry, wanted: Backup, snapshot: Snapshot
    ) -> tuple[backups.StoredBackup, backups.StoredBackup]:
        """Return the backup that is wanted, the latest one of a VMID, and the oldest one that may be wanted as well."""
        vmid = owner_of(wanted.volume or "") or wanted.vmid
        lists = backups.read_backups(self._reader, snapshot, wanted.kept_on, vmid)
        found = [each for each in lists.found if wanted.volume in (None, each.volume)]
        unread = "; ".join(f"backups on {place} cannot be read: {why}" for place, why in sorted(lists.unread.items()))
        if found:
            by_age = sorted(found, key=lambda each: (each.made, each.volume))
            oldest, latest = by_age[0], by_age[-1]
            if unread and wanted.volume is None:
                self.doubts[latest.volume] = f"{latest.volume} may not be the latest backup; {unread}"
            return latest, oldest
        what = wanted.volume or f"backup of VM {vmid}"
        where = f"storage {wanted.kept_on}" if wanted.kept_on else "any storage"
        others = known_names((each.volume for each in lists.found), wanted.volume or "") if lists.found else ""
        storages = {storage.name for storage in snapshot.storages if "backup" in storage.content}
        misnamed = wanted.kept_on is not None and wanted.kept_on not in {each.name for each in snapshot.storages}
        raise ArchiveNotFound(
            f"archive: there is no {what} on {where} that this user may restore, for {entry.label}"
            + (f"; {unread}" if unread else "")
            + (f"; known backups: {others}" if others else "")
            + (f"; storages with backups: {known_names(storages, wanted.kept_on or '')}" if misnamed else "")
        )

    def _check_owner(
        self, entry: Entry, latest: backups.StoredBackup, config: Mapping[str, t.Any], oldest: backups.StoredBackup
    ) -> None:
        """Raise AmbiguousName if the latest and the oldest backup of a VMID are of two VMs: it was used again."""
        try:
            before = backups.read_archived_config(self._reader, min(oldest.nodes), oldest.volume)
        except UNREADABLE as error:
            doubt = f"it is not known whether {latest.volume} is of the same VM as {oldest.volume}: {error.message}"
            self.doubts[latest.volume] = "; ".join(filter(None, [self.doubts.get(latest.volume), doubt]))
            return
        first, last = identity_of(before, ""), identity_of(config, "")
        is_renamed = first.uuid is not None and (first.uuid, first.ctime) == (last.uuid, last.ctime)
        if first.name == last.name or is_renamed:
            return
        told = [f'"{each.name}" ({volume})' for each, volume in ((first, oldest.volume), (last, latest.volume))]
        raise AmbiguousName(
            f"archive: the backups of this VMID are of several VMs, for {entry.label}: from {told[0]} to {told[1]}; "
            "name the volume to restore",
            volumes=[oldest.volume, latest.volume],
        )

    def _config(self, entry: Entry, backup: backups.StoredBackup) -> Mapping[str, t.Any]:
        """Read the config in a backup. Raises what reading raises, with the VM that it was for."""
        try:
            return backups.read_archived_config(self._reader, min(backup.nodes), backup.volume)
        except (ApiError, ConnectionFailed, PermissionDenied) as error:
            message = f"archive: {backup.volume} cannot be read, for {entry.label}: {error.message}"
            raise type(error)(message, **error.details) from error


def _disks(entry: Entry, backup: Backup, config: Mapping[str, t.Any]) -> list[Disk]:
    """Return the drives to create: those of the backup, combined into one as they go to one storage, and new ones."""
    given = {disk.slot: disk for disk in entry.request.disks}
    kept = drives_from(config).volumes
    asked = {slot: given.pop(slot) for slot, _storage, _size in kept if slot in given}
    if not kept:
        return list(given.values())
    size = sum(max(size, asked[slot].size if slot in asked else 0) for slot, _storage, size in kept)
    first, *others = (slot for slot, _storage, _size in kept)
    together = Disk(
        first,
        size,
        _agree(entry, "storage", {"storage": backup.storage, **{slot: disk.storage for slot, disk in asked.items()}}),
        _agree(entry, "storage class", {slot: disk.storage_class for slot, disk in asked.items()}),
        others=tuple(others),
    )
    return [together, *given.values()]


def _agree(entry: Entry, what: str, wanted: Mapping[str, str | None]) -> str | None:
    """Return the one name that all options name; None if they name none. Raises InvalidRequest."""
    named = {option: name for option, name in wanted.items() if name is not None}
    if len(set(named.values())) > 1:
        told = join_words([f"{name} for {option}" for option, name in named.items()])
        raise InvalidRequest(
            f"archive: Proxmox VE restores all disks of a backup to one {what}, but the task names {told}, for "
            f"{entry.label}; move disks with update=true afterwards"
        )
    return next(iter(named.values()), None)


def restore_parameters(decision: Decision, archive: Archive) -> dict[str, t.Any]:
    """Return the parameters of C(POST /nodes/NODE/qemu) that restore the VM, with the options that it can set as well.
    """
    request = decision.request
    config = _without_identity(archive.config) if archive.unique else archive.config
    options = {key: value for key, value in request.options.items() if not isinstance(value, Drive)}
    devices = {device.option: device.value for device in decision.devices}
    parameters = dict(clone_adjustments(options, config, devices=devices).parameters)
    parameters.pop(TEMPLATE, None)
    slots = [slot for slot, _storage, _size in drives_from(archive.config).volumes]
    storage = next((decision.storages[slot] for slot in slots if slot in decision.storages), None)
    asked = {"name": request.name, "pool": request.pool, "storage": storage}
    return {
        **parameters,
        **{key: value for key, value in asked.items() if value},
        "archive": archive.volume,
        "unique": archive.unique,
    }


def options_after_restore(request: Request) -> dict[str, t.Any]:
    """Return the options that can only be set after the restore: drives, and options to unset."""
    left = {key: value for key, value in request.options.items() if isinstance(value, Drive) or value == ""}
    # Proxmox appends new CD drives to it.
    return {**left, "boot": request.options["boot"]} if left and "boot" in request.options else left


def _without_identity(config: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a config without the MAC addresses and the UUID, which Proxmox replaces for a VM that is to be unique."""
    found = dict(config)
    for key, value in config.items():
        kind, identity = _KINDS_WITH_IDENTITY.get(key.rstrip("0123456789"), (None, ""))
        if kind is not None:
            found[key] = kind.format({name: each for name, each in kind.read(str(value)).items() if name != identity})
    return found
