# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Corrects outdated rows of C(/cluster/resources) with the nodes' own guest lists, which it reads only where needed.

The list of the cluster's resources shows existence, lock, tags and pool at once; names, sizes and status come from each
node's statistics, which are up to ten seconds old. So a new guest has no name there, a guest whose VMID was in use
a moment ago has the previous guest's name and sizes, and a guest that was just started still looks stopped. The nodes'
own lists are always up to date, and the list of tasks shows which guests changed recently.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from ...engine.texts import whole_number
from ...errors import ApiError, PermissionDenied
from ...model import Guest, Snapshot
from ..api.failures import NotRecorded
from ..api.reader import Reader, in_parallel
from ..outcomes import is_missing
from ..tasks import MIGRATIONS
from .rows import GUEST_KINDS, Row, guest_of_row, is_unfiltered, read_rows

# Tasks after which a guest's row may show an old name, size, status or template flag for a while.
RESTORING = "qmrestore"
_CREATING = frozenset({"qmcreate", RESTORING, "vzcreate", "vzrestore"})
_SWITCHING = frozenset(
    f"{kind}{verb}"
    for kind in ("qm", "vz")
    for verb in ("start", "stop", "shutdown", "pause", "suspend", "resume", "reboot")
)
_DELETING = frozenset({"qmdestroy", "vzdestroy"})
_CONVERTING = frozenset({"qmtemplate", "vztemplate"})
_TELLING = _CREATING | _SWITCHING | _DELETING | _CONVERTING | {"qmconfig"}
# Tasks that name the source and not the new guest, which may be any guest of the node.
CLONING = frozenset({"qmclone", "vzclone"})
# The status that a VM has after a successful task of each type.
_LEAVING = {
    "qmcreate": "stopped",
    "qmstart": "running",
    "qmreboot": "running",
    "qmresume": "running",
    "qmpause": "paused",
    "qmstop": "stopped",
    "qmshutdown": "stopped",
}
# Seconds for which a row may be outdated: three rounds of the statistics, as clocks differ between nodes.
_LATE_FOR = 30.0

BEING_MADE = frozenset({"create", "clone"})
"""Locks of a guest whose config is not written yet."""

HA_MOVING = frozenset({"migrate", "relocate"})
"""States of HA resources that are being moved."""

HA_BEGINS_WITHIN = 15.0
"""Seconds within which the HA manager begins a move: it works in rounds of ten seconds."""

SETTLING = 2.0
"""The longest wait, in seconds, for a guest whose config is being written."""

_POLL_EVERY = 0.25

# A node and a kind of guest: what one list holds.
Place = tuple[str, str]


class KnownGuest(t.NamedTuple):
    """What the caller knows of a guest whose row may be outdated.

    Attributes:
        name: its name.
        whole: whether its creation is complete.
        proven: whether the caller reads the guest's config anyway, which verifies this knowledge, and needs only its
            status from here.
    """

    name: str
    whole: bool
    proven: bool = False


@dataclass(frozen=True, slots=True)
class _Doubts:
    """What may be outdated in the list of the cluster's resources.

    Attributes:
        vmids: VMIDs whose rows may be outdated.
        deleted: VMIDs of which a guest was deleted recently.
        places: places that may have guests which the list lacks.
        statuses: the status of VMs as shown by their tasks; None where the tasks do not show it.
        restoring: VMIDs of VMs that are being restored; migrating: those of guests that are being migrated.
        paused: VMIDs of VMs that may be paused.
        converted: VMIDs of guests that became templates recently.
    """

    vmids: frozenset[int]
    deleted: frozenset[int]
    places: frozenset[Place] = frozenset()
    statuses: Mapping[int, str | None] = field(default_factory=dict)
    restoring: frozenset[int] = frozenset()
    migrating: frozenset[int] = frozenset()
    paused: frozenset[int] = frozenset()
    converted: frozenset[int] = frozenset()


def settle(
    reader: Reader,
    snapshot: Snapshot,
    *,
    known: Mapping[int, KnownGuest] = MappingProxyType({}),
    auditor: bool | None = None,
    patience: float = SETTLING,
    sleep: Callable[[float], None] = time.sleep,
) -> Snapshot:
    """Return snapshot with every guest that may be outdated replaced by what its node reports now.

    Takes one call (C(/cluster/tasks)) when nothing changed recently, else one more for each node concerned. Guests that
    no longer exist are dropped; those that are on another node now are shown there. If a guest's config is still being
    written, the function waits up to C(patience) seconds in total; after that the guest's name stays None. Guests on
    nodes that are offline or do not answer are not changed.

    Args:
        known: guests whose name and sizes the caller knows already, by VMID. The function does not wait for those
            that are whole, and reads one again only if its row or a task contradicts what is known. The status of
            those that are proven is corrected.
        auditor: whether the user has Sys.Audit and so sees all tasks. None: determined if it matters. Without it,
            every node with guests is read.
    """
    doubts = _doubts(reader, snapshot, auditor)
    snapshot = dataclasses.replace(snapshot, migrating=doubts.migrating)
    listed = {guest.vmid for guest in snapshot.guests}
    trusted = _trusted_vmids(snapshot, known, doubts) if known else frozenset()
    statuses = {vmid: status for vmid in trusted if known[vmid].proven and (status := doubts.statuses.get(vmid))}
    if statuses:
        snapshot = _with_statuses(snapshot, statuses)
    doubtful = (doubts.vmids | listed & known.keys()) - trusted
    if not (doubtful or doubts.places):
        # Nothing has changed recently.
        return _with_paused(snapshot, doubts.paused) if doubts.paused else snapshot
    awaited = doubtful - {vmid for vmid, guest in known.items() if not guest.whole}
    online = frozenset(node.name for node in snapshot.nodes if node.online)
    places = {(guest.node, guest.kind) for guest in snapshot.guests if guest.vmid in doubtful} | doubts.places
    lists = _read_lists(reader, [place for place in sorted(places) if place[0] in online])
    settled = _merge(snapshot, lists, doubtful, doubts.restoring)
    left = patience

    def wait() -> bool:
        nonlocal left
        if left <= 0:
            return False
        sleep(_POLL_EVERY)
        left -= _POLL_EVERY
        return True

    while (unfinished := _unfinished_places(settled, lists, awaited)) and wait():
        lists |= _read_lists(reader, unfinished)
        settled = _merge(snapshot, lists, doubtful, doubts.restoring)
    settled = _with_paused(_with_pools(reader, settled, listed, wait), doubts.paused)
    missing = doubtful & listed - {guest.vmid for guest in settled.guests}
    return _with_moved(reader, settled, missing) if missing else settled


def is_moved_by_ha(guest: Guest) -> bool:
    """Whether the HA manager moves a guest at present."""
    return guest.ha_managed and guest.ha_state in HA_MOVING


def read_config(reader: Reader, node: str, vmid: int, snapshot: str | None = None) -> dict[str, t.Any] | None:
    """Return the config of one VM as it will be after its next start, or None when there is no such VM on node.

    With snapshot, the name of a snapshot of the VM, return the config in that snapshot. Raises ApiError when there is
    no such snapshot.
    """
    try:
        # Without current=1, Proxmox shows pending values in place of those that the running VM has.
        config: dict[str, t.Any] = reader.get(f"/nodes/{node}/qemu/{vmid}/config", snapshot=snapshot)
    except ApiError as error:
        if is_missing(error.message):
            return None
        raise
    return config


def _doubts(reader: Reader, snapshot: Snapshot, auditor: bool | None) -> _Doubts:
    """Return what the task list makes doubtful of the cluster's list. Who does not see the tasks of others doubts all
    of it.
    """
    # When the cluster's list was read: between that and the list of tasks, this process may have been stopped.
    listed_at = reader.server_time()
    tasks = _tasks(reader)
    running = [task for task in tasks if "endtime" not in task]
    migrating = _vmids_of(running, MIGRATIONS)
    if auditor is False or not (tasks or auditor or ask_if_auditor(reader)):
        everyone = frozenset(guest.vmid for guest in snapshot.guests)
        return _Doubts(everyone, everyone, migrating=migrating)
    recent = _pick_recent(tasks, listed_at or reader.server_time())
    told = _vmids_of(recent, _TELLING)
    deleted = _vmids_of(recent, _DELETING)
    cloning = any(task["type"] in CLONING for task in recent)
    # A missing name alone is no sign: a VM may have none. Missing sizes are: a clone that was listed before it had its
    # config keeps the sizes of that moment for a while, and no task names it.
    unfinished = {
        guest.vmid
        for guest in snapshot.guests
        if guest.memory <= 0 or guest.cores <= 0 or guest.lock in BEING_MADE or (cloning and guest.name is None)
    }
    listed = {guest.vmid for guest in snapshot.guests}
    places = _places_of_new_guests(recent, listed)
    doubtful = told | unfinished
    statuses = {vmid: _status_after(recent, vmid, cloning=cloning) for vmid in doubtful}
    restoring = _vmids_of(running, {RESTORING})
    paused = frozenset(vmid for vmid in doubtful if _may_be_paused(recent, vmid))
    converted = _vmids_of(recent, _CONVERTING)
    return _Doubts(doubtful, deleted, frozenset(places), statuses, restoring, migrating, paused, converted)


def _vmids_of(tasks: Iterable[Row], types: Set[str]) -> frozenset[int]:
    found = (whole_number(task.get("id")) for task in tasks if task["type"] in types)
    return frozenset(vmid for vmid in found if vmid is not None)


def _status_after(tasks: Sequence[Row], vmid: int, *, cloning: bool) -> str | None:
    """Return the status in which recent tasks left a VM; None when they do not show it.

    A VM without a task of its own counts as a new clone, and so as stopped, if anything was cloned recently: tasks that
    clone do not name the new VM.
    """
    own = [task for task in tasks if task["type"] in _TELLING and whole_number(task.get("id")) == vmid]
    if not own:
        return "stopped" if cloning else None
    if any(task["type"] not in _LEAVING or task.get("status") != "OK" for task in own):
        return None
    newest = max(_began(task) for task in own)
    left = {_LEAVING[task["type"]] for task in own if _began(task) == newest}
    return left.pop() if len(left) == 1 else None


def _began(task: Row) -> tuple[float, bool]:
    """Return a key that sorts tasks by their start, in whole seconds; a create is before others of its second."""
    return float(task.get("starttime") or 0), task["type"] != "qmcreate"


def _with_statuses(snapshot: Snapshot, statuses: Mapping[int, str]) -> Snapshot:
    guests = (
        dataclasses.replace(guest, status=statuses[guest.vmid]) if guest.vmid in statuses else guest
        for guest in snapshot.guests
    )
    return dataclasses.replace(snapshot, guests=tuple(guests))


def _with_paused(snapshot: Snapshot, paused: Set[int]) -> Snapshot:
    """Return snapshot with these VMs paused if they are listed as running: the nodes' lists show paused VMs so.

    One that runs after all does no harm: before a VM is resumed, its own status is read.
    """
    running = {guest.vmid for guest in snapshot.guests if guest.status == "running"}
    return _with_statuses(snapshot, dict.fromkeys(running & paused, "paused"))


def _may_be_paused(tasks: Sequence[Row], vmid: int) -> bool:
    """Whether the latest task that switched a VM may be one that paused it; starts are whole seconds."""
    own = [task for task in tasks if task["type"] in _SWITCHING and whole_number(task.get("id")) == vmid]
    newest = max((_began(task) for task in own), default=None)
    return any(task["type"] == "qmpause" and _began(task) == newest for task in own)


def _trusted_vmids(snapshot: Snapshot, known: Mapping[int, KnownGuest], doubts: _Doubts) -> frozenset[int]:
    """Return the VMIDs of known guests that neither their row nor a task contradicts."""
    rows = {guest.vmid: guest for guest in snapshot.guests}
    return frozenset(
        vmid
        for vmid, of in known.items()
        if not (of.whole and vmid in doubts.deleted) and not (vmid in rows and _contradicts(rows[vmid], of, doubts))
    )


def _contradicts(row: Guest, known: KnownGuest, doubts: _Doubts) -> bool:
    """Whether a row of the cluster's list contradicts what is known of a guest, and so is not used."""
    # A row with another name is outdated, or belongs to a new guest with this VMID. A row with a lock of a creation
    # contradicts a guest whose creation was complete.
    if row.name not in (None, known.name) or (known.whole and row.lock in BEING_MADE):
        return True
    if row.vmid in doubts.converted and not row.template:
        return True
    # A row whose status differs from that of the tasks is outdated, or the guest was stopped from within.
    told = doubts.statuses.get(row.vmid)
    late = known.proven if told is None else known.whole and row.status not in ("unknown", told)
    return late and row.vmid in doubts.vmids


def _places_of_new_guests(tasks: Sequence[Row], listed: Set[int]) -> Iterator[Place]:
    """Yield the places where tasks make or have made guests that are not listed, or that the tasks do not name."""
    for task in tasks:
        succeeding = "endtime" not in task or str(task.get("status")).startswith(("OK", "WARNINGS"))
        unlisted = task["type"] in _CREATING and whole_number(task.get("id")) not in listed
        if succeeding and (unlisted or task["type"] in CLONING):
            yield task["node"], "lxc" if task["type"].startswith("vz") else "qemu"


def _tasks(reader: Reader) -> list[Row]:
    try:
        tasks: list[Row] = reader.get("/cluster/tasks")
    except (PermissionDenied, NotRecorded):
        return []
    return [task for task in tasks if task.get("type") and task.get("node")]


def ask_if_auditor(reader: Reader) -> bool:
    """Whether the user has Sys.Audit on C(/). Without it, an empty list of tasks proves nothing."""
    try:
        return is_unfiltered(reader.get("/cluster/options"))
    except (PermissionDenied, NotRecorded):
        return False


def _pick_recent(tasks: Sequence[Row], now: float | None) -> list[Row]:
    """Return the tasks that run or ended recently. If now is None, the time of the newest task stands for it."""
    if now is None:
        now = max((float(task.get("endtime") or task.get("starttime") or 0) for task in tasks), default=0.0)
    return [task for task in tasks if "endtime" not in task or now - float(task["endtime"]) <= _LATE_FOR]


def _read_lists(reader: Reader, places: Iterable[Place]) -> dict[Place, list[Guest]]:
    lists = in_parallel(lambda place: _read_list(reader, *place), places)
    return {place: guests for place, guests in lists.items() if guests is not None}


def _read_list(reader: Reader, node: str, kind: str) -> list[Guest] | None:
    rows = read_rows(reader, f"/nodes/{node}/{kind}")
    return None if rows is None else [guest_of_row({**row, "node": node, "type": kind}) for row in rows]


def _merge(
    snapshot: Snapshot,
    lists: Mapping[Place, Sequence[Guest]],
    doubtful: Set[int],
    restoring: Set[int] = frozenset(),
) -> Snapshot:
    """Replace the doubtful guests of the snapshot by those of the nodes' own lists."""
    # Proxmox sets no lock on a VM that it restores: show it as one that is being created.
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
            merged.append(_in_cluster(now, guest))
        elif guest.vmid not in doubtful or (guest.node, guest.kind) not in lists:
            merged.append(guest)
    return dataclasses.replace(snapshot, guests=(*merged, *fresh.values()))


def _in_cluster(guest: Guest, row: Guest) -> Guest:
    """Return a guest of a node's list with the pool and HA state of the cluster's: the node's list has neither."""
    return dataclasses.replace(guest, pool=row.pool, ha_managed=row.ha_managed, ha_state=row.ha_state)


def _with_pools(reader: Reader, settled: Snapshot, listed: Set[int], wait: Callable[[], bool]) -> Snapshot:
    """Return the snapshot with the pool and HA of the guests that only their nodes have listed.

    Else a guest could be taken for one in no pool, and so for the requested one of its name. wait is called while the
    rows of the cluster, which may be seconds old, lack one of them; it returns whether to read them again.
    """
    unlisted = {guest.vmid for guest in settled.guests} - listed
    rows: dict[int, Guest] = {}
    while unlisted - rows.keys():
        read = read_rows(reader, "/cluster/resources", type="vm") or ()
        rows = {guest.vmid: guest for guest in _guests_among(read, unlisted)}
        if unlisted <= rows.keys() or not wait():
            break
    guests = tuple(_in_cluster(guest, rows.get(guest.vmid, guest)) for guest in settled.guests)
    return dataclasses.replace(settled, guests=guests)


def _guests_among(rows: Iterable[Row], vmids: Set[int]) -> list[Guest]:
    """Return the guests with these VMIDs among rows of C(/cluster/resources)."""
    return [guest_of_row(row) for row in rows if row.get("type") in GUEST_KINDS and row.get("vmid") in vmids]


def _with_moved(reader: Reader, settled: Snapshot, missing: Set[int]) -> Snapshot:
    """Return the snapshot with those of the missing guests that are now on another node.

    A clone for another node is made on the node of its template and moved at the end.
    """
    rows = read_rows(reader, "/cluster/resources", type="vm")
    if rows is None:
        return settled
    moved = _guests_among(rows, missing)
    lists = _read_lists(reader, {(guest.node, guest.kind) for guest in moved})
    found = _merge(dataclasses.replace(settled, guests=tuple(moved)), lists, missing).guests
    return dataclasses.replace(settled, guests=(*settled.guests, *(each for each in found if each.vmid in missing)))


def _unfinished_places(snapshot: Snapshot, lists: Mapping[Place, object], doubtful: Set[int]) -> set[Place]:
    """Return the nodes, with the kind of guest, where a nameless guest is being created."""
    return {
        (guest.node, guest.kind)
        for guest in snapshot.guests
        if guest.vmid in doubtful
        and guest.name is None
        and guest.lock in BEING_MADE
        and (guest.node, guest.kind) in lists
    }
