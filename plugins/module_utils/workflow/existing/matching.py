# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds which VMs of a task exist already, by VMID or else by name. A case of doubt is an error, never a guess."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...engine.knowledge import Absent, Answer, Known, NotKnown
from ...engine.texts import first, join_words
from ...errors import AmbiguousName, CollectionError, InvalidRequest, OtherPool, VMIDConflict, VMNotKnown
from ...model import Guest, Request
from ...proxmox.creations import removal_of
from ...proxmox.inventory.freshness import BEING_MADE
from ...reservations.ledger import AlreadyReserved
from ...reservations.records import Reservation
from ..counting import guest_of
from ..options.entries import Entry

Key: t.TypeAlias = "str | int | tuple[str, str]"
"""What identifies a reservation: its name, its VMID, or its name and its node."""

VMIDS_TOLD = 10
"""How many VMIDs a warning lists."""


class Match(t.NamedTuple):
    """What was found for one entry: the guest, an error, a VMID to take over from a dead process, or nothing.

    If nothing was found, nameless are VMs without a name yet that others are creating; each of them may be the
    requested one.
    """

    guest: Guest | None = None
    error: CollectionError | None = None
    take_over: int | None = None
    nameless: tuple[Guest, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether the VM does not exist, so that it has to be placed if it is requested."""
        return self.guest is None and self.error is None


def nameless_text(nameless: Sequence[Guest]) -> str:
    """Return the text about a VM that was not found by its name, and may be one of those that others are creating."""
    which = ", ".join(first([f"{guest.vmid} on {guest.node}" for guest in nameless], VMIDS_TOLD))
    return f"may be the VM that others are creating and that has no name yet ({which})"


def is_nameless(guest: Guest) -> bool:
    """Whether a VM is being created and has no name yet."""
    return guest.kind == "qemu" and guest.name is None and guest.lock in BEING_MADE


def match_entries(
    entries: Sequence[Entry],
    guests: Iterable[Guest],
    pending: Iterable[Reservation],
    shown: Mapping[int, Guest],
    abandoned: Collection[int] = (),
) -> list[Match]:
    """Match each entry with the settled guests and with the reservations that stand in for guests.

    shown are the guests that the cluster shows in any form, by VMID; abandoned the VMIDs of those that are locked by
    their creation although nobody is creating them any more.
    """
    by_vmid = {guest.vmid: guest for guest in guests}
    by_name: dict[str, list[Guest]] = {}
    for guest in by_vmid.values():
        if guest.name is not None:
            by_name.setdefault(guest.name, []).append(guest)
    reserved: dict[Key, Reservation] = {
        key: each for each in pending for key in (each.name, each.vmid, (each.name, each.node))
    }
    names = _Names(by_name, tuple(guest for guest in by_vmid.values() if is_silent(guest)))
    matches = [_match(entry, by_vmid, names, reserved, shown) for entry in entries]
    nameless = tuple(guest for guest in by_vmid.values() if is_nameless(guest) and guest.vmid not in abandoned)
    if nameless:
        doubtful = Match(nameless=nameless)
        matches = [doubtful if m == Match() and _may_be_any(e) else m for e, m in zip(entries, matches, strict=True)]
    found = [match.guest.vmid for match in matches if match.guest is not None]
    return matches if len(set(found)) == len(found) else _without_twins(entries, matches)


def _may_be_any(entry: Entry) -> bool:
    """Whether a VM is requested that only its name identifies."""
    return entry.state != "absent" and entry.request.vmid is None


def abandoned_text(guest: Guest) -> str:
    """Return the text about a VM that is locked by its aborted creation."""
    return (
        f"VM {guest.vmid} on {guest.node} is locked by its creation, and no task is working on it; as root on "
        f"{guest.node}, remove it with '{removal_of(guest.vmid)}' or keep it with 'qm unlock {guest.vmid}'"
    )


def doubts(
    entries: Iterable[Entry],
    matches: Iterable[Match],
    guests: Iterable[Guest],
) -> list[str]:
    """Return the warnings about VMs that are treated as missing although they may be one of those without a name."""
    silent = [guest for guest in guests if is_silent(guest)]
    risked = [
        guest
        for entry, match in zip(entries, matches, strict=True)
        if entry.accept_unknown and match.is_new and entry.request.vmid is None
        for guest in silent
        if _may_be(entry, guest)
    ]
    if not risked:
        return []
    return [f"{silent_text(risked)}: a VM that is requested by name, and may be one of them, is treated as missing"]


def silent_text(silent: Iterable[Guest]) -> str:
    """Return the text about VMs whose names Proxmox VE does not tell."""
    found = sorted({guest.vmid: guest for guest in silent}.values(), key=lambda guest: guest.vmid)
    nodes = join_words(sorted({guest.node for guest in found}))
    vmids = ", ".join(first([str(guest.vmid) for guest in found], VMIDS_TOLD))
    return f"{nodes} cannot be reached, and the names of the VMs there are not known ({vmids})"


def is_silent(guest: Guest) -> bool:
    """Whether a VM exists whose name is not known: some minutes after a node has gone offline, Proxmox VE no longer
    tells the names of the VMs there.
    """
    return guest.kind == "qemu" and guest.name is None and guest.status == "unknown"


def _without_twins(entries: Sequence[Entry], matches: Iterable[Match]) -> list[Match]:
    """Return the matches, with errors for entries that mean the same VM, one by its VMID and another by its name."""
    found = list(matches)
    of_guest: dict[int, list[int]] = {}
    for number, match in enumerate(found):
        if match.guest is not None:
            of_guest.setdefault(match.guest.vmid, []).append(number)
    for vmid, same in of_guest.items():
        for number in same if len(same) > 1 else ():
            others = " and ".join(entries[other].label for other in same if other != number)
            message = f"{entries[number].label}: is the same VM as {others}, {vmid}; expected one entry of vms for it"
            found[number] = Match(error=InvalidRequest(message))
    return found


@dataclass(frozen=True, slots=True)
class _Names:
    """The guests by their names, and those whose names are not known."""

    by_name: Mapping[str, Sequence[Guest]]
    silent: Sequence[Guest]

    def guests_named_by(self, request: Request) -> list[Guest]:
        """Return the guests of the requested name, where there may be only one of them."""
        found = [guest for guest in self.by_name.get(request.name, ()) if guest.kind == "qemu"] if request.name else []
        return [guest for guest in found if guest.node == request.node] if request.per_node else found

    def find(self, entry: Entry) -> Answer[Guest]:
        """Return the VM that an entry identifies by its name alone. Raises AmbiguousName and OtherPool."""
        found = _in_its_pool(entry, self.guests_named_by(entry.request))
        if len(found) > 1:
            raise AmbiguousName(f"{entry.label}: {len(found)} guests have this name: {_name_guests(found)}; set vmid")
        if found:
            return Known(found[0])
        perhaps = tuple(guest for guest in self.silent if _may_be(entry, guest))
        return NotKnown(perhaps) if perhaps else Absent()

    def check_case(self, entry: Entry, reserved: Mapping[Key, Reservation]) -> None:
        """Refuse a new VM whose name another one has in another case: names of hosts do not differ by that."""
        name = entry.request.name
        folded = name.casefold()
        others = [
            guest
            for key, namesakes in self.by_name.items()
            if key and key != name and key.casefold() == folded
            for guest in namesakes
            if guest.kind == "qemu"
        ]
        told = [_name_guests(others)] if others else []
        told += [
            f"{key}, which is being created"
            for key in reserved
            if isinstance(key, str) and key.casefold() == folded and key != name
        ]
        if told:
            raise AmbiguousName(f"{entry.label}: the name differs only in case from that of {told[0]}; choose another")


def _in_its_pool(entry: Entry, namesakes: Sequence[Guest]) -> Sequence[Guest]:
    """Return the guests of a name that the entry may mean: everybody may give a VM of their own any name, and only the
    pool tells whose it is. One in no pool may be in one that this user cannot see. Raises OtherPool if there is none.
    """
    pool = entry.request.pool
    if pool is None:
        return namesakes
    own = [guest for guest in namesakes if guest.pool == pool] or [g for g in namesakes if g.pool is None]
    if namesakes and not own and not entry.adopt:
        raise _other_pool(entry, namesakes[0])
    return own or namesakes


def _other_pool(entry: Entry, guest: Guest) -> OtherPool:
    """Return the error for a VM that has the name but is in another pool."""
    return OtherPool(
        f"{entry.label}: {_name_guests([guest])} is in pool {guest.pool}, requested in pool {entry.request.pool}: it "
        "is not taken for the same VM; set adopt=true if it is",
        vmid=guest.vmid,
        node=guest.node,
    )


def _may_be(entry: Entry, guest: Guest) -> bool:
    """Whether a guest without a name may be the VM that an entry identifies by its name."""
    if entry.request.per_node and guest.node != entry.request.node:
        return False
    return entry.adopt or entry.request.pool is None or guest.pool in (None, entry.request.pool)


def _match(
    entry: Entry,
    by_vmid: Mapping[int, Guest],
    names: _Names,
    reserved: Mapping[Key, Reservation],
    shown: Mapping[int, Guest],
) -> Match:
    """Return the existing VM that an entry means, or why that is not known."""
    request = entry.request
    key = (request.name, request.node or "") if request.per_node else request.name
    reservation = reserved.get(key) if request.name else None
    try:
        if request.vmid is not None:
            held = reserved.get(request.vmid) or reservation
            return _match_by_vmid(entry, request.vmid, by_vmid.get(request.vmid), names, held, shown)
        answer = names.find(entry)
        if isinstance(answer, Known):
            return Match(guest=answer.thing)
        if reservation is not None:
            return _match_reservation(entry, reservation, shown)
        if isinstance(answer, NotKnown) and not entry.accept_unknown:
            raise _not_known(entry, answer.perhaps)
        if entry.state != "absent":
            names.check_case(entry, reserved)
        return Match()
    except CollectionError as error:
        return Match(error=error)


def _not_known(entry: Entry, perhaps: Sequence[Guest]) -> VMNotKnown:
    """Return the error for a VM that may be one of those without a known name."""
    done = "nothing is removed" if entry.state == "absent" else "it is not created"
    return VMNotKnown(
        f"{entry.label}: was not found, and may be one of those: {silent_text(perhaps)}. So {done}. Bring the node "
        "back, set vmid, or set accept_unknown=true if the VM is none of them",
        vmids=[guest.vmid for guest in perhaps],
    )


def _match_by_vmid(
    entry: Entry,
    vmid: int,
    guest: Guest | None,
    names: _Names,
    reservation: Reservation | None,
    shown: Mapping[int, Guest],
) -> Match:
    """Return the VM with the VMID of an entry, if its name and pool are those of the entry."""
    name, namesakes = entry.request.name, names.guests_named_by(entry.request)
    if guest is not None:
        if guest.kind != "qemu":
            raise VMIDConflict(f"{entry.label}: VMID {vmid} belongs to container {_name_guests([guest])}")
        if name and guest.name != name and not is_silent(guest):
            _check_rename(entry, guest, namesakes, names.silent)
        _in_its_pool(entry, [guest])
        return Match(guest=guest)
    if namesakes:
        raise VMIDConflict(f"{entry.label}: expected VMID {vmid}, but the name belongs to {_name_guests(namesakes)}")
    if reservation is not None and reservation.vmid != vmid:
        raise VMIDConflict(f"{entry.label}: expected VMID {vmid}, but the VM is being created as {reservation.vmid}")
    if reservation is not None and name not in ("", reservation.name):
        raise VMIDConflict(f"{entry.label}: VMID {vmid} belongs to {reservation.name} on {reservation.node}")
    if reservation is not None:
        return _match_reservation(entry, reservation, shown)
    if entry.state != "absent" and not name:
        raise InvalidRequest(f"name: VM {vmid} does not exist; set name to create it")
    return Match()


def _check_rename(entry: Entry, guest: Guest, namesakes: Sequence[Guest], silent: Sequence[Guest]) -> None:
    """Refuse to take a guest of another name for the requested one, unless it is to be renamed."""
    label = f"{entry.label}: VMID {guest.vmid} belongs to {_name_guests([guest])}"
    if not entry.rename:
        raise VMIDConflict(f"{label}; set rename=true if it is to have this name")
    if namesakes:
        raise VMIDConflict(f"{label}, and cannot be renamed: the name belongs to {_name_guests(namesakes)}")
    if silent and not entry.accept_unknown:
        raise VMNotKnown(
            f"{label}, and is not renamed, as others may have the name: {silent_text(silent)}. Bring the node back, "
            "or set accept_unknown=true if none of them has it",
            vmids=[each.vmid for each in silent],
        )


def _match_reservation(entry: Entry, reservation: Reservation, shown: Mapping[int, Guest]) -> Match:
    """Match a VM that the cluster does not show completely: it exists, is being created, or was cut off.

    Its pool, and what a removal is guarded by, are those that are shown: its VMID may belong to others by now.
    """
    guest, row = guest_of(reservation), shown.get(reservation.vmid)
    exists = reservation.phase == "created" or (reservation.forsaken and row is not None)
    if exists and row is not None and entry.state == "absent":
        guest = replace(guest, pool=row.pool, tags=row.tags)
    elif exists and row is not None and row.pool is not None:
        guest = replace(guest, pool=row.pool)
    _in_its_pool(entry, [guest])
    if exists:
        return Match(guest=guest)
    if reservation.forsaken:
        return Match(take_over=reservation.vmid)
    raise AlreadyReserved(
        f"{entry.label}: is being created as {reservation.vmid} on {reservation.node} by {reservation.holder}",
        vmid=reservation.vmid,
        node=reservation.node,
    )


def _name_guests(guests: Sequence[Guest]) -> str:
    ordered = sorted(guests, key=lambda guest: guest.vmid)
    return ", ".join(f"{each.name or 'a guest without a name yet'} ({each.vmid} on {each.node})" for each in ordered)
