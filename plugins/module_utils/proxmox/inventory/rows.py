# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the API as the model has them: rows of lists, and the bounds for automatic VMIDs.

Unknown rows and keys are ignored.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ...errors import ApiError, PermissionDenied
from ...foreign_text import visible
from ...model import VMID_MAX, VMID_MIN, Guest, Node, Storage
from ..api.failures import UNREADABLE, NotRecorded
from ..api.reader import Reader
from ..options.conversions import tags_of

Row = Mapping[str, t.Any]

GUEST_KINDS = frozenset({"qemu", "lxc"})

MARK = "drained-node-"
"""What the names of the pools begin with that mark nodes as drained."""

RUNNING = {"postmigrate": "running"}
"""Statuses of running VMs: Proxmox reports this one until some seconds after a live migration."""


def read_rows(reader: Reader, path: str, /, **params: t.Any) -> list[Row] | None:
    """Return the rows of a list; None if it cannot be read."""
    try:
        rows: list[Row] = reader.get(path, **params)
    except UNREADABLE:
        return None
    return rows


def node_of_row(row: Row) -> Node:
    """Return the node of a row of C(/cluster/resources). Figures are 0 if it is offline or the user lacks rights."""
    return Node(
        name=row["node"],
        # A node in HA maintenance is online, and Proxmox creates guests there: only hastate tells it.
        online=row.get("status") == "online",
        maintenance=row.get("hastate") == "maintenance",
        ha_managed=bool(row.get("hastate")),
        cores=int(row.get("maxcpu") or 0),
        memory=int(row.get("maxmem") or 0),
        cpu_used=float(row.get("cpu") or 0),
        memory_used=int(row.get("mem") or 0),
    )


def guest_of_row(row: Row) -> Guest:
    """Return the guest of a row of C(/cluster/resources), or of a node's own list with node and type added to it."""
    vmid = int(row["vmid"])
    name = row.get("name")
    # That of QEMU, not only running or stopped: a VM that has just been moved is "postmigrate" for some seconds.
    status = row.get("status") or "unknown"
    return Guest(
        vmid=vmid,
        # Proxmox shows this name for a VM whose config is not written yet; no real name contains a space.
        # Names with control characters, which Proxmox takes nowhere today, must not come into documents.
        name=None if name is None or name == f"VM {vmid}" else visible(name),
        node=row["node"],
        kind=row["type"],
        status=RUNNING.get(status, status),
        template=bool(int(row.get("template") or 0)),
        # The list of the cluster says maxcpu, the one of a node says cpus.
        cores=float(row.get("maxcpu") or row.get("cpus") or 0),
        memory=int(row.get("maxmem") or 0),
        tags=tags_of(row.get("tags")),
        pool=row.get("pool"),
        lock=row.get("lock"),
        ha_managed=bool(row.get("hastate")),
        ha_state=row.get("hastate") or "",
        uptime=row.get("uptime"),
    )


def mark_of(node: str) -> str:
    """Return the name of the pool that marks a node as drained."""
    return f"{MARK}{node}"


def storage_of_row(row: Row) -> Storage:
    """Return the storage of a row of C(/cluster/resources)."""
    return Storage(
        name=row["storage"],
        node=row["node"],
        type=row.get("plugintype") or "",
        shared=bool(int(row.get("shared") or 0)),
        content=frozenset(filter(None, (row.get("content") or "").split(","))),
        # The storages of a node that has just died stay "available": ask whether the node is online as well.
        active=row.get("status") == "available",
        total=int(row.get("maxdisk") or 0),
        used=int(row.get("disk") or 0),
    )


# Proxmox's default, exclusive as in the datacenter's options.
_DEFAULT_UPPER = 1_000_000


class NextId(t.NamedTuple):
    """The bounds for automatic VMIDs, both inclusive. unseen are VMIDs that are taken, perhaps by guests that this user
    cannot see.

    auditor tells whether the user has Sys.Audit on C(/), and so sees the tasks of all users; None if unknown.
    """

    lower: int = VMID_MIN
    upper: int = _DEFAULT_UPPER - 1
    unseen: frozenset[int] = frozenset()
    auditor: bool | None = None


def read_next_id(reader: Reader) -> NextId:
    """Read the bounds, in one call for a user who may read them, else in two."""
    try:
        options = reader.get("/cluster/options")
    except (PermissionDenied, NotRecorded):
        options = None
    if isinstance(options, Mapping) and is_unfiltered(options):
        setting = options.get("next-id")
        # Its values are strings and its upper bound is exclusive; a lower bound below 100 counts as 100.
        bounds = setting if isinstance(setting, Mapping) else {}
        lower = max(VMID_MIN, int(bounds.get("lower") or VMID_MIN))
        upper = min(VMID_MAX, int(bounds.get("upper") or _DEFAULT_UPPER) - 1)
        return NextId(lower, upper, auditor=True)
    return _without_options(reader, auditor=False if options is not None else None)


def is_unfiltered(options: Mapping[str, object]) -> bool:
    """Whether an answer of C(/cluster/options) is complete: without Sys.Audit it has only settings of tags."""
    return "mac_prefix" in options or "next-id" in options


def _without_options(reader: Reader, auditor: bool | None) -> NextId:
    """Return the bounds of VMIDs for a user who cannot read the options of the datacenter."""
    # Proxmox answers with the lowest VMID within the bounds that is free, also of guests that this user cannot see. So
    # no lower VMID is available. The upper bound is only in the error when all VMIDs are taken.
    try:
        return NextId(lower=int(reader.get("/cluster/nextid")), auditor=auditor)
    except NotRecorded:
        return NextId(auditor=auditor)
    except ApiError as error:
        full = re.search(r"range \[(\d{1,9}), (\d{1,9})\]", error.message)
        if full is None:
            raise
        lower, upper = int(full[1]), int(full[2])
        if upper - lower > _DEFAULT_UPPER:
            raise
        return NextId(lower, upper, frozenset(range(lower, upper + 1)), auditor=auditor)
