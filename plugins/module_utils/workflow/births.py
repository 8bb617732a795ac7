# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a guest is the one that a reservation is about: its VMID may belong to another one by now."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ..errors import NotTheSameGuest
from ..model import Guest, Identity
from ..proxmox.api.failures import UNREADABLE
from ..proxmox.api.reader import Reader
from ..proxmox.identity import Sameness, as_json, compare, guest_label, identity_of
from ..proxmox.tasks import Fate, Upid, ask_fate_since, task_rows
from ..reservations.records import Reservation
from .options.entries import Entry

_WAITS = 5
"""Seconds for which a task that creates a VM may wait for a lock before it writes the time into the config. If the VM
seems to be younger than that, the end of the task is read.
"""


def ask_if_another(reader: Reader, reservation: Reservation, found: Identity) -> bool:
    """Whether a guest is not the one that a reservation is about, or does not look like it in every respect.

    A VM whose creation was not followed to its end is known by the task of its creation only. Tasks are read only
    then: an unchanged run after a creation costs no further request.
    """
    known = reservation.identity
    if known is None:
        try:
            return bool(reservation.task) and _ask_if_made_by_others(reader, reservation, found)
        except UNREADABLE:
            return False
    sameness = compare(known, found)
    if sameness is Sameness.UNKNOWN:
        # It was rolled back or restored, or is a clone of the same template that its owner has made look like it.
        return known.is_marked and not reservation.source and reservation.phase == "binding"
    return sameness is Sameness.OTHER and not _has_its_time(reservation, known, found)


def _has_its_time(reservation: Reservation, known: Identity, found: Identity) -> bool:
    """Whether a VM was made when the one was that a reservation is about: nobody else used its VMID then. For a clone
    or a restored VM, the time is that of its source.
    """
    try:
        is_new = Upid.parse(reservation.task).type == "qmcreate"
    except UNREADABLE:
        return False
    return is_new and known.ctime is not None and (known.kind, known.ctime) == (found.kind, found.ctime)


def check_birth(
    reader: Reader,
    reservations: Iterable[Reservation],
    entry: Entry,
    guest: Guest,
    config: Mapping[str, t.Any],
) -> None:
    """Raise NotTheSameGuest if a VM has the VMID and the name of one that was created, and is another one, or may be.

    It may seem to be unfinished: its owner writes its notes.
    """
    found = identity_of(config, guest.node)
    for each in reservations:
        is_asked = (each.vmid, each.name) == (guest.vmid, config.get("name")) and not each.source
        if not is_asked or entry.adopt or not ask_if_another(reader, each, found):
            continue
        raise NotTheSameGuest(
            f"{entry.label}: VMID {guest.vmid} belongs to a VM other than the one that was created, or the VM was "
            f"rolled back since: found {guest_label(found)}, which is unchanged; if it is the requested VM, set "
            "adopt=true",
            vmid=guest.vmid,
            planned=None if each.identity is None else as_json(each.identity),
            found=as_json(found),
        )


def is_begun(reservations: Iterable[Reservation], guest: Guest) -> bool:
    """Whether the ledger knows of the creation of a VM, which may not have been finished."""
    return any(each.vmid == guest.vmid and not each.source for each in reservations)


def ask_if_proved(reader: Reader, reservations: Iterable[Reservation], guest: Guest, found: Identity) -> bool:
    """Whether the ledger proves that a VM is the one that a run has created. found is what its config shows.

    Where the run did not come to read the config, the task of the creation proves it: the VM was not destroyed since.
    """
    for each in reservations:
        if each.source or (each.vmid, each.name) != (guest.vmid, guest.name):
            continue
        if each.identity is not None:
            return compare(each.identity, found) is Sameness.SAME
        if not each.task:
            return False
        try:
            task = Upid.parse(each.task)
            made = _time_of_creation(task, found)
            is_other = made is not None and _ask_if_made_at_another_time(reader, each, task, made)
            return not is_other and not _ask_if_destroyed(reader, each, task)
        except UNREADABLE:
            return False
    return False


def _ask_if_made_by_others(reader: Reader, reservation: Reservation, found: Identity) -> bool:
    """Whether a VM was made before or after the task of a reservation; where its config does not tell, whether the one
    that the task made was destroyed since. Raises the errors in UNREADABLE.
    """
    task = Upid.parse(reservation.task)
    made = _time_of_creation(task, found)
    if made is None:
        return _ask_if_destroyed(reader, reservation, task)
    return _ask_if_made_at_another_time(reader, reservation, task, made)


def _time_of_creation(task: Upid, found: Identity) -> int | None:
    """Return when a VM was made, which Proxmox VE writes into its config while the task runs. None if its config does
    not tell: for a clone or a restored VM, that is the time of its source.
    """
    return found.ctime if task.type == "qmcreate" else None


def _ask_if_made_at_another_time(reader: Reader, reservation: Reservation, task: Upid, made: int) -> bool:
    """Whether a VM was made before or after the task of a reservation."""
    waited = _WAITS if reservation.phase == "created" else 0
    if made <= task.started + waited:
        return made < task.started
    rows = task_rows(reader, task.node, reservation.vmid)
    ended = next((row.get("endtime") for row in rows if row.get("upid") == task.text), None)
    return ended is not None and made > int(ended)


def _ask_if_destroyed(reader: Reader, reservation: Reservation, task: Upid) -> bool:
    """Whether the VM that a task made was destroyed. A clone is made on the node of its template, and the same task
    moves it to its own.
    """
    nodes = {reservation.node: None, task.node: None}
    fates = (ask_fate_since(reader, node, reservation.vmid, task.text, None) for node in nodes)
    return any(fate is Fate.DESTROYED for fate in fates)
