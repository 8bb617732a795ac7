# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Corrects what C(/cluster/resources) shows late, from the nodes' own lists, and reads those only where needed.

The list of the cluster's resources shows existence, lock, tags and pool at once; names, sizes and status come from each
node's statistics, which are up to ten seconds old. So a new guest has no name there, one on a VMID that was in use
a moment ago has its former guest's name and sizes, and one that was just started still looks stopped. The nodes' own
lists are always fresh, and the list of tasks tells which guests changed recently.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from ..errors import ApiError, ConnectionFailed, PermissionDenied
from ..model import Guest, Snapshot
from .failures import NotRecorded
from .inventory_next_id import is_unfiltered
from .outcomes import is_missing
from .parallel import in_parallel
from .reader import Reader
from .rows import Row, guest_of_row

# After these tasks a guest's row is late in its name, its sizes, its being a template, or its running.
RESTORING = "qmrestore"
_CREATING = frozenset({"qmcreate", RESTORING, "vzcreate", "vzrestore"})
_SWITCHING = frozenset(
    f"{kind}{verb}"
    for kind in ("qm", "vz")
    for verb in ("start", "stop", "shutdown", "pause", "suspend", "resume", "reboot")
)
_DELETING = frozenset({"qmdestroy", "vzdestroy"})
_TELLING = _CREATING | _SWITCHING | _DELETING | {"qmtemplate", "vztemplate", "qmconfig"}
# These name the source, not the new guest: any guest of the node may be meant.
CLONING = frozenset({"qmclone", "vzclone"})
# The status in which these leave a VM.
_LEAVING = {
    "qmcreate": "stopped",
    "qmstart": "running",
    "qmreboot": "running",
    "qmresume": "running",
    "qmpause": "paused",
    "qmstop": "stopped",
    "qmshutdown": "stopped",
}
# Three rounds of the statistics, for clocks that differ between nodes.
_LATE_FOR = 30.0

BEING_MADE = frozenset({"create", "clone"})
"""Locks of a guest whose config is not written yet."""

SETTLING = 2.0
"""The longest wait, in seconds, for a guest whose config is being written."""

_POLL_EVERY = 0.25

_UNREADABLE = (ConnectionFailed, ApiError, PermissionDenied, NotRecorded)

# A node and a kind of guest: what one list holds.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class KnownGuest:
    """What the caller knows of a guest that may be shown late.

    Attributes:
        name: its name.
        whole: whether it has been made to its end.
        proven: whether the caller reads its config anyway, which will prove what is known, and only its status is
            wanted.
    """

    name: str
    whole: bool
    proven: bool = False


@dataclass(frozen=True, slots=True)
class _Doubts:
    """VMIDs of guests that may be shown late, those of them that had a guest which was deleted recently, further places
    where there may be new guests, the status of VMs as their tasks tell it, None where they do not, and the VMIDs of
    VMs that are being restored, and of VMs that may be paused."""

    vmids: frozenset[int]
    deleted: frozenset[int]
    places: frozenset[Place] = frozenset()
    statuses: Mapping[int, str | None] = field(default_factory=dict)
    restoring: frozenset[int] = frozenset()
    paused: frozenset[int] = frozenset()


def settle(
    reader: Reader,
    snapshot: Snapshot,
    *,
    known: Mapping[int, KnownGuest] = MappingProxyType({}),
    auditor: bool | None = None,
    patience: float = SETTLING,
    sleep: Callable[[float], None] = time.sleep,
) -> Snapshot:
    """Return snapshot with every guest that may be shown late replaced by what its node says now.

    Costs one call (C(/cluster/tasks)) when nothing changed recently, else one more for each node concerned. Guests that
    are gone are dropped, unless they are on another node by now. If a guest's config is still being written, the
    function waits, C(patience) seconds in all; then the guest's name stays None. Guests on nodes that are offline or do
    not answer stay as they were.

    Args:
        known: guests whose name and sizes the caller knows already, by VMID: they are not waited for, and read again
            only where something speaks against what is known. The status of those that are proven is corrected.
        auditor: whether the user has Sys.Audit and so sees all tasks. None: found out where it matters. Without it,
            every node with guests is read.
    """
    doubts = _doubts(reader, snapshot, auditor)
    listed = {guest.vmid for guest in snapshot.guests}
    trusted = _trusted(snapshot, known, doubts)
    snapshot = _with_statuses(snapshot, {vmid: doubts.statuses.get(vmid) for vmid in trusted if known[vmid].proven})
    doubtful = (doubts.vmids | listed & known.keys()) - trusted
    awaited = doubtful - {vmid for vmid, guest in known.items() if not guest.whole}
    online = frozenset(node.name for node in snapshot.nodes if node.online)
    places = {(guest.node, guest.kind) for guest in snapshot.guests if guest.vmid in doubtful} | doubts.places
    lists = _read_lists(reader, [place for place in sorted(places) if place[0] in online])
    settled = _merged(snapshot, lists, doubtful, doubts.restoring)
    waited = 0.0
    while waited < patience and (unfinished := _unfinished(settled, lists, awaited)):
        sleep(_POLL_EVERY)
        waited += _POLL_EVERY
        lists |= _read_lists(reader, unfinished)
        settled = _merged(snapshot, lists, doubtful, doubts.restoring)
    settled = _with_paused(settled, doubts.paused)
    missing = doubtful & listed - {guest.vmid for guest in settled.guests}
    return _with_moved(reader, settled, missing) if missing else settled


def read_config(reader: Reader, node: str, vmid: int, snapshot: str | None = None) -> dict[str, t.Any] | None:
    """Return the config of one VM as it will be after its next start, or None when there is no such VM on node.

    With snapshot it is the config that the snapshot of that name keeps; ApiError when there is none.
    """
    try:
        config: dict[str, t.Any] = reader.get(f"/nodes/{node}/qemu/{vmid}/config", snapshot=snapshot)
    except ApiError as error:
        if is_missing(error.message):
            return None
        raise
    return config


def _doubts(reader: Reader, snapshot: Snapshot, auditor: bool | None) -> _Doubts:
    tasks = _tasks(reader)
    if auditor is False or not (tasks or auditor or is_auditor(reader)):
        everyone = frozenset(guest.vmid for guest in snapshot.guests)
        return _Doubts(everyone, everyone)
    recent = _recent(tasks, reader.server_time())
    told = _vmids_of(recent, _TELLING)
    deleted = _vmids_of(recent, _DELETING)
    cloning = any(task["type"] in CLONING for task in recent)
    unfinished = {guest.vmid for guest in snapshot.guests if _is_unfinished(guest) or (cloning and guest.name is None)}
    listed = {guest.vmid for guest in snapshot.guests}
    places = _places_of_new_guests(recent, listed)
    doubtful = told | unfinished
    statuses = {vmid: _status_after(recent, vmid, cloning=cloning) for vmid in doubtful}
    restoring = _vmids_of((task for task in tasks if "endtime" not in task), {RESTORING})
    paused = frozenset(vmid for vmid in doubtful if _may_be_paused(recent, vmid))
    return _Doubts(doubtful, deleted, frozenset(places), statuses, restoring, paused)


def _vmids_of(tasks: Iterable[Row], types: Set[str]) -> frozenset[int]:
    return frozenset(vmid for task in tasks if task["type"] in types and (vmid := _vmid_of(task)) is not None)


def _status_after(tasks: Sequence[Row], vmid: int, *, cloning: bool) -> str | None:
    """Return the status in which recent tasks left a VM, None where they do not tell.

    One that no task is about was cloned, if anything was: the tasks of clones do not name it, and nothing started it.
    """
    own = [task for task in tasks if task["type"] in _TELLING and _vmid_of(task) == vmid]
    if not own:
        return "stopped" if cloning else None
    if any(task["type"] not in _LEAVING or task.get("status") != "OK" for task in own):
        return None
    newest = max(_began(task) for task in own)
    left = {_LEAVING[task["type"]] for task in own if _began(task) == newest}
    return left.pop() if len(left) == 1 else None


def _began(task: Row) -> tuple[float, bool]:
    """When a task began, in whole seconds: in the second in which a VM is created it may be started, after that."""
    return float(task.get("starttime") or 0), task["type"] != "qmcreate"


def _with_statuses(snapshot: Snapshot, statuses: Mapping[int, str | None]) -> Snapshot:
    guests = (dataclasses.replace(guest, status=statuses.get(guest.vmid) or guest.status) for guest in snapshot.guests)
    return dataclasses.replace(snapshot, guests=tuple(guests))


def _with_paused(snapshot: Snapshot, paused: Set[int]) -> Snapshot:
    """The lists of the nodes call a paused VM running. Its status is read before it is resumed."""
    running = {guest.vmid for guest in snapshot.guests if guest.status == "running"}
    return _with_statuses(snapshot, dict.fromkeys(running & paused, "paused"))


def _may_be_paused(tasks: Sequence[Row], vmid: int) -> bool:
    """Tell whether no task switched a VM later than one that paused it, as far as whole seconds show."""
    own = [task for task in tasks if task["type"] in _SWITCHING and _vmid_of(task) == vmid]
    newest = max((_began(task) for task in own), default=None)
    return any(task["type"] == "qmpause" and _began(task) == newest for task in own)


def _trusted(snapshot: Snapshot, known: Mapping[int, KnownGuest], doubts: _Doubts) -> frozenset[int]:
    """Return the VMIDs of known guests that nothing speaks against.

    A row under another name is a late one, or that of a guest that has the VMID by now. One that was made to its end is
    not being made again. A row that contradicts the tasks is older than they are, or the guest stopped by itself.
    """
    rows = {guest.vmid: guest for guest in snapshot.guests}
    return frozenset(
        vmid
        for vmid, of in known.items()
        if not (of.whole and vmid in doubts.deleted) and not (vmid in rows and _speaks_against(rows[vmid], of, doubts))
    )


def _speaks_against(row: Guest, known: KnownGuest, doubts: _Doubts) -> bool:
    if row.name not in (None, known.name) or (known.whole and row.lock in BEING_MADE):
        return True
    told = doubts.statuses.get(row.vmid)
    return known.proven and row.vmid in doubts.vmids and (told is None or row.status not in ("unknown", told))


def _places_of_new_guests(tasks: Sequence[Row], listed: Set[int]) -> Iterator[Place]:
    """Yield where tasks made guests that the snapshot lacks, being older, or that the tasks do not name."""
    for task in tasks:
        succeeding = "endtime" not in task or str(task.get("status")).startswith(("OK", "WARNINGS"))
        unlisted = task["type"] in _CREATING and _vmid_of(task) not in listed
        if succeeding and (unlisted or task["type"] in CLONING):
            yield task["node"], "lxc" if task["type"].startswith("vz") else "qemu"


def _vmid_of(task: Row) -> int | None:
    """Return the VMID that a task is about; of a clone it is the source's."""
    text = task.get("id") or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _tasks(reader: Reader) -> list[Row]:
    try:
        tasks: list[Row] = reader.get("/cluster/tasks")
    except (PermissionDenied, NotRecorded):
        return []
    return [task for task in tasks if task.get("type") and task.get("node")]


def is_auditor(reader: Reader) -> bool:
    """Tell whether the user has Sys.Audit on C(/): without, an empty list of tasks says nothing."""
    try:
        return is_unfiltered(reader.get("/cluster/options"))
    except (PermissionDenied, NotRecorded):
        return False


def _recent(tasks: Sequence[Row], now: float | None) -> list[Row]:
    """Return the tasks that run or ended recently; without a clock, the newest task defines the present time."""
    if now is None:
        now = max((float(task.get("endtime") or task.get("starttime") or 0) for task in tasks), default=0.0)
    return [task for task in tasks if "endtime" not in task or now - float(task["endtime"]) <= _LATE_FOR]


def _is_unfinished(guest: Guest) -> bool:
    # No name alone says nothing: a VM may have none. One that is just getting its name has a recent task, which for a
    # clone does not name it: one that was seen before it had its config keeps those sizes for a while.
    return guest.memory <= 0 or guest.cores <= 0 or guest.lock in BEING_MADE


def _read_lists(reader: Reader, places: Iterable[Place]) -> dict[Place, list[Guest]]:
    lists = in_parallel(lambda place: _read_list(reader, *place), places)
    return {place: guests for place, guests in lists.items() if guests is not None}


def _read_list(reader: Reader, node: str, kind: str) -> list[Guest] | None:
    try:
        rows: list[Row] = reader.get(f"/nodes/{node}/{kind}")
    except _UNREADABLE:
        return None
    return [guest_of_row({**row, "node": node, "type": kind}) for row in rows]


def _merged(
    snapshot: Snapshot,
    lists: Mapping[Place, Sequence[Guest]],
    doubtful: Set[int],
    restoring: Set[int] = frozenset(),
) -> Snapshot:
    # Proxmox does not lock a VM that it restores.
    fresh = {
        guest.vmid: dataclasses.replace(guest, lock="create")
        if guest.vmid in restoring and guest.name is None
        else guest
        for guests in lists.values()
        for guest in guests
    }
    merged = []
    for guest in snapshot.guests:
        now = fresh.pop(guest.vmid, None)
        if now is not None:
            # A node's list knows neither pool nor HA; the cluster's is never late in these.
            merged.append(
                dataclasses.replace(now, pool=guest.pool, ha_managed=guest.ha_managed, ha_state=guest.ha_state)
            )
        elif guest.vmid not in doubtful or (guest.node, guest.kind) not in lists:
            merged.append(guest)
    return dataclasses.replace(snapshot, guests=(*merged, *fresh.values()))


def _with_moved(reader: Reader, settled: Snapshot, missing: Set[int]) -> Snapshot:
    """Return the snapshot with those of the missing guests that are on another node than before.

    A clone for another node is made on that of its template, and moved when it is done.
    """
    try:
        rows: list[Row] = reader.get("/cluster/resources", type="vm")
    except _UNREADABLE:
        return settled
    moved = [guest_of_row(row) for row in rows if row.get("vmid") in missing]
    lists = _read_lists(reader, {(guest.node, guest.kind) for guest in moved})
    found = _merged(dataclasses.replace(settled, guests=tuple(moved)), lists, missing).guests
    return dataclasses.replace(settled, guests=(*settled.guests, *(each for each in found if each.vmid in missing)))


def _unfinished(snapshot: Snapshot, lists: Mapping[Place, object], doubtful: Set[int]) -> set[Place]:
    return {
        (guest.node, guest.kind)
        for guest in snapshot.guests
        if guest.vmid in doubtful
        and guest.name is None
        and guest.lock in BEING_MADE
        and (guest.node, guest.kind) in lists
    }
