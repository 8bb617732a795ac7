# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drive of a VM: parsed from the playbook, turned into a request, and written as Proxmox expects it.

A drive is given as Proxmox's own string, of which the storage may be left out, or as a mapping of the same keys:

    vmdata:32,ssd=1                                   a new disk of 32 GiB on vmdata
    :32                                               a new disk of 32 GiB on a storage that the scheduler chooses
    vmdata:0,import-from=local:import/debian.qcow2    a copy of that image
    vmdata:cloudinit                                  a cloud-init drive
    local:iso/debian.iso,media=cdrom                  a CD image
    none,media=cdrom                                  an empty CD-ROM drive
    vmdata:vm-101-disk-0                              a volume that exists
    {size: 512M, storage_class: fast, ssd: true}      as a mapping; storage, volume and import_from are keys as well
    {ssd: true}                                       a drive that a clone has from its template, with that property
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from ...errors import InvalidRequest
from ...model import MIB, Disk
from .kinds import EFIDISK, IDE, SATA, SCSI, TPMSTATE, VIRTIO
from .property_strings import PropertyKind
from .values import format_gib, invalid, plain, size_in_config, size_in_gib

# The size of EFI variables (at most 528 KiB, but storages round up), a TPM state and a cloud-init drive.
SMALL_VOLUME = 4 * MIB

_KINDS = {"ide": IDE, "sata": SATA, "scsi": SCSI, "virtio": VIRTIO, "efidisk": EFIDISK, "tpmstate": TPMSTATE}
_NEW_DISK = re.compile(r"(?:([^/:\s]*):)?(\d{1,18}(?:\.\d{1,30})?)")
_CLOUDINIT = re.compile(r"(?:([^/:\s]*):)?cloudinit")
_CLOUDINIT_VOLUME = re.compile(r"(?:^|[:/])(?:vm-\d+-)?cloudinit(?:\.\w+)?$")
_OWNED_VOLUME = re.compile(
    r"[^:/]+:(?:(?:\d+/[^/]+/)?(?P<folder>\d{1,9})/[^/]+"
    r"|(?:base(?:vol)?-[^/]+/)?(?:vm|base|subvol|basevol)-(?P<name>\d{1,9})-[^/]+)"
)
_STORAGE = re.compile(r"[A-Za-z][\w.-]*")
_VOLUME = re.compile(r"([A-Za-z][\w.-]*):(\S+)")
_UNIT = re.compile(r"\d+(\.\d+)?[KMGTkmgt]i?[Bb]?")
_LIMITS_IN_BYTES = frozenset({"bps", "bps_rd", "bps_wr"})
# Keys of a mapping that are not properties of Proxmox.
_PLACE = ("storage", "storage_class")
_EXPECTED = "STORAGE:GIB, :GIB, STORAGE:cloudinit, a volume (STORAGE:NAME), none or cdrom"
# Properties that only apply when a volume is created; a config never shows them.
CREATION_ONLY = frozenset({"format", "import-from"})
REMOVE_DRIVE = "{remove: unused}, which keeps its volume, or {remove: destroy}"

SIZE_EXPECTED = "a size above 0 GiB, or import-from"


def kind_of(slot: str) -> PropertyKind:
    """Return the kind of property string that a slot (C(scsi0), C(efidisk0)) holds."""
    return _KINDS[slot.rstrip("0123456789")]


def is_drive(key: str) -> bool:
    """Whether a key of a config is the slot of a drive."""
    return key.rstrip("0123456789") in _KINDS


def is_cloudinit(volume: str) -> bool:
    """Whether a volume of a config is a cloud-init drive."""
    return _CLOUDINIT_VOLUME.search(volume) is not None


def owner_of(volume: str) -> int | None:
    """Return the VMID of the guest that a volume belongs to; None if its name does not tell. Before the name of a
    linked clone's volume is that of the template's. In the folder of a guest, a file may have any name.
    """
    found = _OWNED_VOLUME.fullmatch(volume)
    return int(found["folder"] or found["name"]) if found else None


def is_medium(drive: Mapping[str, str]) -> bool:
    """Whether a drive with these properties is a CD-ROM drive; a cloud-init drive is one too."""
    return "cdrom" in (drive.get("media"), drive.get("file"))


def media_of(parameters: Mapping[str, t.Any]) -> frozenset[str]:
    """Return the slots of CD-ROM drives among config parameters, with or without a medium."""
    kinds = {key: _KINDS.get(key.rstrip("0123456789")) for key in parameters}
    drives = {key: kind.read(str(parameters[key])) for key, kind in kinds.items() if kind is not None}
    return frozenset(
        slot for slot, drive in drives.items() if is_medium(drive) and not is_cloudinit(drive.get("file", ""))
    )


def volumes_of(option: str, value: t.Any) -> list[str]:
    """Return the volumes or paths that a drive names, as a request or a config has it, that of an import included."""
    if isinstance(value, Drive):
        return [volume for volume in (value.volume, value.source) if volume]
    drive = kind_of(option).read(str(value)) if is_drive(option) else {}
    return [volume for key in ("file", "import-from") if (volume := drive.get(key))]


def drive_size(slot: str, current: str) -> int:
    """Return the size of a drive in a config in bytes, 0 if it has none."""
    return size_in_config(kind_of(slot).read(current).get("size", "")) or 0


class Destroyed(str):
    """An empty text, which unsets a slot, for a drive whose volume is destroyed and not kept as an unused disk."""

    __slots__ = ()


Value: t.TypeAlias = "str | int | Drive"
"""A value of to_api. A drive is formatted later, when its storage is known."""


@dataclass(frozen=True, slots=True)
class Drive:
    """One requested drive.

    Attributes:
        size: in bytes, 0 if it was not given.
        storage: None if the scheduler chooses one, within storage_class if that is given.
        volume: for a drive without a new volume, an existing volume, C(none), C(cdrom) or a path.
        source: the image that is copied into a new volume.
        options: the other properties, in their normal form.
    """

    slot: str
    size: int = 0
    storage: str | None = None
    storage_class: str | None = None
    volume: str | None = None
    source: str | None = None
    cloudinit: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def small(self) -> bool:
        """Tell whether Proxmox sets the size: for EFI variables, TPM state and cloud-init."""
        return self.cloudinit or self.slot.startswith(("efidisk", "tpmstate"))

    @property
    def unsized(self) -> bool:
        """Tell whether the drive has no size, volume or source, and so can only describe an existing drive."""
        return not (self.volume or self.size or self.small or self.source)

    @property
    def cdrom(self) -> bool:
        """Tell whether it is a CD-ROM drive, with or without a medium."""
        return self.options.get("media") == "cdrom" or self.volume == "cdrom"

    def to_disk(self) -> Disk | None:
        """Return the disk to schedule; None if the drive needs neither space on a storage nor an existing volume."""
        if self.volume is None:
            return Disk(
                slot=self.slot,
                size=SMALL_VOLUME if self.small else self.size,
                storage=self.storage,
                storage_class=self.storage_class,
                source=self.source,
            )
        found = _VOLUME.fullmatch(self.volume)
        if found is None:
            return None
        folder = found[2].partition("/")[0]
        content = folder if folder in ("iso", "import") else "images"
        return Disk(slot=self.slot, storage=found[1], content=content, volume=self.volume)

    def to_api(self, storage: str | None) -> str:
        """Return the value for Proxmox, with new volumes on storage. An existing volume does not need one.

        An imported volume has the size of its source and is grown afterwards. An unsized drive is returned without a
        size, for display only: Proxmox would refuse it. Raises InvalidRequest if a storage is needed and none is given.
        """
        if self.volume is not None:
            file = self.volume
        elif storage is None:
            raise InvalidRequest(
                f"{self.slot}: the drive needs a storage, and none is set", option=self.slot, expected="a storage"
            )
        elif self.cloudinit:
            file = f"{storage}:cloudinit"
        elif self.source is not None:
            file = f"{storage}:0"
        elif self.unsized:
            file = storage
        else:
            # For EFI variables and TPM state, Proxmox requires a number but ignores it.
            file = f"{storage}:{1 if self.small else format_gib(self.size)}"
        source = {"import-from": self.source} if self.source is not None else {}
        return kind_of(self.slot).format({"file": file, **self.options, **source})


def parse_drive(slot: str, value: t.Any) -> Drive:
    """Return the drive that a string or a mapping describes.

    Raises InvalidRequest, which names slot, value and what was expected.
    """
    kind = kind_of(slot)
    storage = storage_class = None
    if isinstance(value, Mapping):
        given = {str(key): each for key, each in value.items() if each is not None}
        for key in _PLACE:
            if key in given and not _STORAGE.fullmatch(str(given[key])):
                raise invalid(f"{slot}.{key}", given[key], f"the name of a {key.replace('_', ' ')}")
        storage, storage_class = (str(given.pop(key)) if key in given else None for key in _PLACE)
        if slot.startswith("tpmstate"):
            given["version"] = "v" + str(given.get("version", "2.0")).removeprefix("v")
        options = kind.of(slot, given, also=_PLACE)
    else:
        options = kind.parse(slot, str(value))
        if "file" not in options:
            raise invalid(slot, value, _EXPECTED)

    file = options.pop("file", "")
    source = options.pop("import-from", None)
    asked = size_in_gib(f"{slot}.size", options.pop("size", "0"))
    new = _NEW_DISK.fullmatch(file)
    cloudinit = _CLOUDINIT.fullmatch(file)
    made = new or cloudinit
    named = made[1] or None if made else None
    size = size_in_gib(slot, new[2]) if new else 0
    if storage and (named or (file and not made)):
        raise invalid(slot, value, "the storage once, in the volume or with storage")
    if size and asked and size != asked:
        raise invalid(slot, value, "one size, in the volume or with size")

    for limit in _LIMITS_IN_BYTES & options.keys():
        # Proxmox accepts these, but takes the number for a boolean and stores a limit of 0.
        if f"m{limit}" in options:
            raise invalid(slot, value, f"{limit} or m{limit}")
        options[f"m{limit}"] = plain(Decimal(options.pop(limit)) / MIB)

    drive = Drive(
        slot=slot,
        size=size or asked,
        storage=storage or named,
        storage_class=storage_class,
        volume=None if made or not file else file,
        source=source,
        cloudinit=cloudinit is not None,
        options=options,
    )
    _check(drive, value)
    return drive


def _check(drive: Drive, value: t.Any) -> None:
    """Raise InvalidRequest for a drive that Proxmox would refuse, or accept and then fail to create."""
    if drive.volume is None:
        if drive.storage and not _STORAGE.fullmatch(drive.storage):
            raise invalid(drive.slot, value, _EXPECTED)
        if drive.storage and drive.storage_class:
            raise invalid(drive.slot, value, "a storage or a storage class, not both")
        if drive.unsized and not (isinstance(value, Mapping) and value.get("size") is None):
            raise invalid(drive.slot, value, SIZE_EXPECTED)
        return
    if drive.source or drive.storage_class:
        raise invalid(drive.slot, value, "import-from and storage_class for a new volume only")
    if drive.volume in ("none", "cdrom") or drive.volume.startswith("/"):
        return
    found = _VOLUME.fullmatch(drive.volume)
    if found is None:
        raise invalid(drive.slot, value, _EXPECTED)
    if _UNIT.fullmatch(found[2]):
        raise invalid(drive.slot, value, f"a size in GiB without a unit, for example {found[1]}:32")
    if found[2].endswith(".iso") and "/" not in found[2]:
        raise invalid(drive.slot, value, f"an ISO image with its folder, for example {found[1]}:iso/{found[2]}")
    if found[2].startswith("iso/") and not drive.cdrom:
        raise invalid(drive.slot, value, "media=cdrom beside an ISO image")
