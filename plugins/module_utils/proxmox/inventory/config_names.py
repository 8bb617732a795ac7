# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the names of VMs on nodes that are offline.

C(/cluster/resources) has them from each node's statistics daemon, and forgets them five minutes after it has gone.
Every node has the configs of all guests, though, and the lists of what is backed up and what is not take the names from
these. Both require Sys.Audit on C(/).
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable

from ..api.failures import UNREADABLE
from ..api.reader import Reader
from .rows import Row, read_rows


def read_config_names(reader: Reader, vmids: Collection[int]) -> dict[int, str]:
    """Return the names of these VMs by VMID, as far as they can be read. Takes one call, and two or more if backup jobs
    cover some of the VMs. A VM whose config has no name yet may still get one.
    """
    found = _names(read_rows(reader, "/cluster/backup-info/not-backed-up"), "vmid")
    if found.keys() >= set(vmids):
        return {vmid: found[vmid] for vmid in vmids}
    for job in read_rows(reader, "/cluster/backup") or ():
        found |= _names(_read_included(reader, str(job.get("id"))), "id")
    return {vmid: found[vmid] for vmid in vmids if vmid in found}


def _read_included(reader: Reader, job: str) -> Iterable[Row] | None:
    try:
        tree: t.Any = reader.get(f"/cluster/backup/{job}/included_volumes")
    except UNREADABLE:
        return None
    return tree.get("children") if isinstance(tree, dict) else None


def _names(rows: Iterable[Row] | None, key: str) -> dict[int, str]:
    return {int(row[key]): str(row["name"]) for row in rows or () if row.get("name")}
