# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests were moved, when and from where, by anybody: the tasks of the nodes show it to every controller."""

from __future__ import annotations

from collections.abc import Iterator

from ...demand import Departure
from ...engine.texts import whole_number
from ...model import Snapshot
from ..api.reader import Reader, in_parallel
from ..inventory.rows import read_rows

MOVING_TASKS = {"qemu": "qmigrate", "lxc": "vzmigrate"}
"""The tasks that move guests, by their kind. The HA manager starts the same ones on the guest's node."""

LONGEST = 86_400
"""Seconds that a migration may have taken: lists of tasks are limited by their start."""

_MOST = 1000


def recently_moved(reader: Reader, snapshot: Snapshot, within: float) -> frozenset[int]:
    """Return the guests whose migration ended well within this many seconds. One request for each node that is online
    and each kind of guests; tasks that cannot be read are none.
    """
    now = reader.server_time()
    return frozenset() if now is None else frozenset(each.vmid for each in departures(reader, snapshot, now - within))


def departures(reader: Reader, snapshot: Snapshot, since: float) -> list[Departure]:
    """Return the migrations that ended well since that time, with the nodes that the guests left. The same requests."""
    kinds = sorted({guest.kind for guest in snapshot.guests})
    places = [(node.name, MOVING_TASKS[kind]) for node in snapshot.nodes if node.online for kind in kinds]

    def read(place: tuple[str, str]) -> list[Departure]:
        return list(_departures(reader, *place, since))

    return sorted(each for found in in_parallel(read, places).values() for each in found)


def _departures(reader: Reader, node: str, task: str, since: float) -> Iterator[Departure]:
    """Yield the moves away from a node that ended well since a time."""
    begun = max(int(since) - LONGEST, 0)
    for row in read_rows(reader, f"/nodes/{node}/tasks", typefilter=task, since=begun, limit=_MOST) or ():
        well = str(row.get("status")).startswith(("OK", "WARNINGS"))
        vmid, ended = whole_number(row.get("id")), float(row.get("endtime") or 0)
        if well and vmid is not None and ended >= since:
            yield Departure(ended, vmid, node, max(ended - float(row.get("starttime") or ended), 0.0))
