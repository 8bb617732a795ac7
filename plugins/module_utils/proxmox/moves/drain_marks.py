# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mark of a drained node: an empty pool with the node's name in its own.

Proxmox has no such mark except HA maintenance, which its API cannot set. A pool is persistent, belongs to the whole
cluster, is visible in the GUI and in the list that every placement reads anyway, and needs no privilege but
Pool.Allocate on its own path. Its comment lists the guests that return when the node is active again.

A user who may change the pool may change the comment. It is a hint: a guest returns only if it is the one that was
there, by what its config shows of its creation.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ...model import Identity
from ..api.session import Session
from ..inventory.rows import mark_of
from .own_pools import create_pool, read_comment, remove_pool, write_comment

FINGERPRINT = r"(?:[\da-f]{8}|-)\.[\da-f]{8}"
"""What a fingerprint looks like, as a regular expression."""

_COMMENT = "qemu_scheduler.proxmox keeps {} free of guests; guests that come back: {}"
_DISK = r"[a-z]{2,10}\d{0,3}:[A-Za-z][A-Za-z\d._-]*"
_GUESTS = re.compile(r"guests that come back: ([A-Za-z\d,=.:_ -]*)$")
_GUEST = re.compile(rf"(\d{{1,9}})(?:=({FINGERPRINT}(?: {_DISK})*))?(?:, |$)")
_DIGITS = 8


Storages: t.TypeAlias = "Mapping[str, str]"
"""Names of storages by slot."""


@dataclass(frozen=True, slots=True)
class DrainMarks:
    """Reads and writes the marks of nodes. Raises what the API answers: PermissionDenied without Pool.Allocate.

    Guests are mappings from VMIDs to fingerprints, each with the storages that its disks left, where those on the other
    node have other names. A fingerprint is empty in a mark of an earlier version.
    """

    session: Session

    def guests(self, node: str) -> dict[int, str] | None:
        """Return the guests that return to a marked node; None for a node without a mark."""
        comment = read_comment(self.session, mark_of(node))
        if comment is None:
            return None
        match = _GUESTS.search(comment)
        return {int(vmid): mark for vmid, mark in _GUEST.findall(match[1])} if match else {}

    def set(
        self, node: str, guests: Mapping[int, Identity], *, marked: bool, storages: Mapping[int, Storages] | None = None
    ) -> bool:
        """Mark a node and add guests to those that return to it. Returns whether the mark changed.

        marked: whether it had a mark when the cluster was read. storages are those that disks of guests leave.
        """
        left = storages or {}
        new = {vmid: _with_storages(fingerprint(each), left.get(vmid, {})) for vmid, each in guests.items()}
        before = self.guests(node) if marked else None
        if before is None:
            if create_pool(self.session, mark_of(node), _comment(node, new)):
                return True
            before = self.guests(node) or {}
        known = {
            vmid: mark
            for vmid, mark in before.items()
            if vmid in guests and vmid not in left and recognizes(mark, guests[vmid])
        }
        return self.keep(node, {**before, **new, **known}, before)

    def keep(self, node: str, guests: Mapping[int, str], before: Mapping[int, str]) -> bool:
        """Write which guests return to a marked node, if that changes. Returns whether it did."""
        if guests != before:
            write_comment(self.session, mark_of(node), _comment(node, guests))
        return guests != before

    def clear(self, node: str) -> None:
        """Remove a node's mark. A node without one is not an error."""
        remove_pool(self.session, mark_of(node))


def fingerprint(identity: Identity) -> str:
    """Return a short text by which a guest is recognized later: its generation, and what it was born as.

    The first part is a dash for a guest without vmgenid. The second one is that of the name and the kind alone where
    nothing shows the creation of the guest, as with containers.
    """
    generation = "-" if identity.vmgenid is None else _digest(identity.vmgenid)
    return f"{generation}.{_digest(identity.kind, identity.ctime, identity.uuid, identity.name)}"


def recognizes(mark: str, identity: Identity) -> bool:
    """Whether a fingerprint is that of a guest, which may have been renamed since.

    What it was born as counts only without a generation: its owner can give that to a clone of the same template.
    """
    generation, _dot, birth = mark.partition(" ")[0].partition(".")
    now, _dot, born = fingerprint(identity).partition(".")
    return generation == now and (now != "-" or birth == born)


def storages_in(mark: str) -> dict[str, str]:
    """Return the storages that the disks of a guest left, by slot."""
    return dict(disk.split(":") for disk in mark.split(" ")[1:])


def _with_storages(mark: str, storages: Storages) -> str:
    return " ".join([mark, *(f"{slot}:{name}" for slot, name in sorted(storages.items()))])


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]


def _comment(node: str, guests: Mapping[int, str]) -> str:
    listed = (f"{vmid}={mark}" if mark else str(vmid) for vmid, mark in sorted(guests.items()))
    return _COMMENT.format(node, ", ".join(listed))
