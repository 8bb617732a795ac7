# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of guests, as the inventory plugin has read them on this host within the last hour.

Some minutes after a node has gone offline, Proxmox VE no longer tells the names of its guests. Nobody renames them
meanwhile, so a name that is kept stays known for as long as the plugin finds its node offline, at least once an hour.
A file that is missing, damaged or about another cluster is no error: nothing is known then. Clusters behind one
address, as of a tunnel, may have nodes of the same names: most guests that still show their names must have those of
the file.
"""

from __future__ import annotations

import hashlib
import time
import typing as t
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ...files import MIB, keep_json, recall_json
from ...model import Guest, Snapshot

LASTS = 3600.0
LARGEST = 64 * MIB


class KeptNames:
    """The names of the guests of the cluster behind an address. Keeps nothing if folder is None."""

    def __init__(
        self, folder: Path | None, endpoint: tuple[str, int] | None, clock: Callable[[], float] = time.time
    ) -> None:
        key = hashlib.sha256(repr(endpoint).encode()).hexdigest()
        self._path = None if folder is None or endpoint is None else folder / f"{key[:32]}.json"
        self._clock = clock

    def recall(self, snapshot: Snapshot, vmids: Iterable[int]) -> dict[int, str]:
        """Return the names of these guests by VMID, as far as they are known. On a node that is online, a guest without
        a name is a new one, which may have the VMID of another.
        """
        stored = {} if self._path is None else recall_json(self._path, LARGEST)
        nodes = sorted(node.name for node in snapshot.nodes)
        offline = {node.name for node in snapshot.nodes if not node.online}
        wanted = {guest.vmid for guest in snapshot.guests if guest.node in offline}.intersection(vmids)
        rows = stored.get("guests") if stored.get("nodes") == nodes else None
        if not isinstance(rows, dict) or not _is_about(rows, snapshot):
            return {}
        now = self._clock()
        names = ((guest.vmid, _name_in(rows.get(str(guest.vmid)), guest, now)) for guest in snapshot.guests)
        return {vmid: name for vmid, name in names if vmid in wanted and name is not None}

    def keep(self, snapshot: Snapshot) -> None:
        """Store the names of the guests."""
        if self._path is None:
            return
        now = self._clock()
        guests = {str(g.vmid): {"name": g.name, "node": g.node, "at": now} for g in snapshot.guests if g.name}
        content = {"nodes": sorted(node.name for node in snapshot.nodes), "guests": guests}
        keep_json(self._path, content)


def _is_about(rows: Mapping[str, t.Any], snapshot: Snapshot) -> bool:
    """Whether more than half of the guests that were stored, and whose nodes still answer, have their names still. True
    if there are none.
    """
    online = {node.name for node in snapshot.nodes if node.online}
    shown = {str(guest.vmid): guest.name for guest in snapshot.guests if guest.name}
    stored = [
        (vmid, row.get("name"))
        for vmid, row in rows.items()
        if isinstance(row, dict) and (vmid in shown or row.get("node") in online)
    ]
    same = sum(shown.get(vmid) == name for vmid, name in stored)
    return not stored or 2 * same > len(stored)


def _name_in(row: t.Any, guest: Guest, now: float) -> str | None:
    """Return the name that was stored, if it is one of this guest and not too old."""
    if not isinstance(row, dict) or row.get("node") != guest.node:
        return None
    name, at = row.get("name"), row.get("at")
    fresh = isinstance(at, float) and 0 <= now - at < LASTS
    return name if fresh and isinstance(name, str) else None
