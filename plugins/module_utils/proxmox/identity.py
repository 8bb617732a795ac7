# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of guests: read from a config, compared, proved before a write, and kept as JSON.

Proxmox VE writes the marks of a guest's creation as follows (qemu-server: API2/Qemu.pm, QemuConfig.pm, QemuServer.pm):

==========================  =======================  =====================  =========================
what is done                meta (ctime)             smbios1 (uuid)         vmgenid
==========================  =======================  =====================  =========================
create                      the time                 new, unless requested  new, unless requested
clone                       that of the source       new                    new, if the source has one
restore                     that of the backup       that of the backup     new, if the backup has one
restore with unique         that of the backup       new                    new, if the backup has one
rollback to a snapshot      that of the snapshot     that of the snapshot   new, if there is one
migrate, convert            stays                    stays                  stays
set by                      nobody                   VM.Config.HWType       root@pam
==========================  =======================  =====================  =========================

So another time means another guest, but all clones of a template share its time. The same C(vmgenid) means the same
guest: no owner can choose it. With another C(vmgenid), a guest of the same UUID and name was rolled back, was restored
in place, or is a clone of the same template to which its owner has given that UUID: which of them is not known. The
UUID counts only for VMs without a C(vmgenid).
"""

from __future__ import annotations

import enum
import re
import typing as t
from collections.abc import Collection, Mapping

from ..errors import NotTheSameGuest
from ..foreign_text import visible
from ..model import Identity
from .api.reader import Reader

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CTIME = re.compile(r"(?:^|,)ctime=(\d{1,18})(?:,|$)")
_UUID_OF_SMBIOS = re.compile(r"(?:^|,)uuid=([^,]*)")
MARKS: Mapping[str, str] = {"smbios1": "uuid", "vmgenid": "vmgenid"}
"""The options that set marks of a guest's creation, and the marks."""

OWN: Mapping[str, str] = {**MARKS, "name": "name"}
"""The options that change an identity, and what of it."""

_TEXTS = ("name", "node", "kind", "uuid", "vmgenid", "digest")
SCHEMA: Mapping[str, t.Any] = {
    "type": "object",
    "properties": {**{name: {"type": "string"} for name in _TEXTS}, "ctime": {"type": "integer"}},
    "required": ["node", "kind"],
    "additionalProperties": False,
}
"""The JSON Schema of what from_json takes."""


class Sameness(enum.Enum):
    """Whether a guest is the one that was planned for."""

    SAME = "the same guest"
    OTHER = "another guest"
    UNKNOWN = "not known"


def identity_of(config: Mapping[str, t.Any], node: str, kind: str = "qemu") -> Identity:
    """Return the identity of the guest with this config."""
    time = _CTIME.search(str(config.get("meta", "")))
    smbios = _UUID_OF_SMBIOS.search(str(config.get("smbios1", "")))
    name, digest = config.get("name" if kind == "qemu" else "hostname"), config.get("digest")
    found = Identity(
        None if name is None else visible(str(name)),
        node,
        kind,
        ctime=int(time[1]) if time else None,
        uuid=_uuid(smbios[1]) if smbios else None,
        vmgenid=_uuid(config.get("vmgenid", "")),
    )
    if found.is_marked or digest is None:
        return found
    return Identity(found.name, node, kind, digest=str(digest))


def compare(planned: Identity, found: Identity) -> Sameness:
    """Whether the guest that was found is the one that was planned for."""
    if (planned.kind, planned.ctime) != (found.kind, found.ctime):
        return Sameness.OTHER
    if planned.vmgenid is not None and planned.vmgenid == found.vmgenid:
        return Sameness.SAME
    if planned.is_marked or found.is_marked:
        # Without a UUID in either, the time has to do.
        born = planned.uuid == found.uuid and (planned.uuid, planned.ctime) != (None, None)
        if not born or planned.name != found.name:
            return Sameness.OTHER
        return Sameness.SAME if planned.vmgenid is found.vmgenid is None else Sameness.UNKNOWN
    if planned.name != found.name:
        return Sameness.OTHER
    known = planned.digest is not None and planned.digest == found.digest
    return Sameness.SAME if known else Sameness.UNKNOWN


def is_changed_by_us(before: Identity, now: Identity, touched: Collection[str]) -> bool:
    """Whether a change of the config that we have made explains every difference between two identities.

    It may set the name and the marks that are touched, and it changes the digest, which is all that unmarked guests
    have.
    """
    kept = {"kind", "ctime", "is_marked", *(key for option, key in OWN.items() if option not in touched)}
    return all(getattr(before, key) == getattr(now, key) for key in kept)


def require_same(vmid: int, planned: Identity, found: Identity) -> None:
    """Raise NotTheSameGuest unless the guest that was found is the one that was planned for."""
    sameness = compare(planned, found)
    if sameness is Sameness.SAME:
        return
    if sameness is Sameness.OTHER:
        what = "it belongs to another guest now"
    else:
        what = "its config has changed since, and does not show whether it is the same guest, rolled back or changed"
    raise NotTheSameGuest(
        f"VMID {vmid}: {what}: planned {guest_label(planned)}, found {guest_label(found)}; nothing was done with the "
        "latter",
        vmid=vmid,
        planned=as_json(planned),
        found=as_json(found),
    )


def prove(reader: Reader, node: str, vmid: int, planned: Identity) -> dict[str, t.Any]:
    """Read a guest's config and return it, with its digest, if it is that of the guest that was planned for.

    To be called right before a write to the guest; where Proxmox VE takes a digest, the write carries that of the
    config. Raises NotTheSameGuest; ApiError as Proxmox VE answers, also if there is no such guest on the node.
    """
    config: dict[str, t.Any] = reader.get(f"/nodes/{node}/{planned.kind}/{vmid}/config")
    require_same(vmid, planned, identity_of(config, node, planned.kind))
    return config


def as_json(identity: Identity) -> dict[str, t.Any]:
    """Return an identity as plain data, without what is not known."""
    fields = ("name", "node", "kind", "ctime", "uuid", "vmgenid", "digest")
    return {key: value for key in fields if (value := getattr(identity, key)) is not None}


def from_json(data: object) -> Identity:
    """Return the identity that as_json has made into data. Raises ValueError for anything else."""
    if not isinstance(data, Mapping) or not {"node", "kind"} <= data.keys() <= {*_TEXTS, "ctime"}:
        raise ValueError("expected an identity: a mapping with node, kind, and marks of a guest's creation")
    ctime = data.get("ctime")
    if any(not isinstance(data[key], str) for key in _TEXTS if key in data):
        raise ValueError("expected an identity whose values are text")
    if "ctime" in data and (not isinstance(ctime, int) or isinstance(ctime, bool)):
        raise ValueError("expected an identity whose ctime is a whole number")
    return Identity(**{"name": None, **data})


def _uuid(text: object) -> str | None:
    lower = str(text).lower()
    return lower if _UUID.fullmatch(lower) else None


def guest_label(identity: Identity) -> str:
    """Return a guest as messages name it."""
    word = "VM" if identity.kind == "qemu" else "container"
    name = f'{word} "{identity.name}"' if identity.name else f"a {word} without a name"
    return f"{name} on {identity.node}"
