# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts rows of the API's lists to the model. Unknown rows and keys are ignored."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ...model import Guest, Node, Storage

Row = Mapping[str, t.Any]

GUEST_KINDS = frozenset({"qemu", "lxc"})

RUNNING = {"postmigrate": "running"}
"""Statuses of running VMs: Proxmox reports this one until some seconds after a live migration."""


def node_of_row(row: Row) -> Node:
    """Return the node of a row of C(/cluster/resources). Figures are 0 if it is offline or the user lacks rights."""
    return Node(
        name=row["node"],
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
    status = row.get("status") or "unknown"
    return Guest(
        vmid=vmid,
        # Proxmox shows this name for a VM whose config is not written yet; no real name contains a space.
        name=None if name == f"VM {vmid}" else name,
        node=row["node"],
        kind=row["type"],
        status=RUNNING.get(status, status),
        template=bool(int(row.get("template") or 0)),
        cores=float(row.get("maxcpu") or row.get("cpus") or 0),
        memory=int(row.get("maxmem") or 0),
        tags=frozenset(filter(None, re.split(r"[;,\s]+", row.get("tags") or ""))),
        pool=row.get("pool"),
        lock=row.get("lock"),
        ha_managed=bool(row.get("hastate")),
        ha_state=row.get("hastate") or "",
    )


def storage_of_row(row: Row) -> Storage:
    """Return the storage of a row of C(/cluster/resources)."""
    return Storage(
        name=row["storage"],
        node=row["node"],
        type=row.get("plugintype") or "",
        shared=bool(int(row.get("shared") or 0)),
        content=frozenset(filter(None, (row.get("content") or "").split(","))),
        active=row.get("status") == "available",
        total=int(row.get("maxdisk") or 0),
        used=int(row.get("disk") or 0),
    )
