# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a cluster that was shut down: which guests ran, and what was set meanwhile.

It is the comment of an empty pool, as the record of a tour is: it has to survive while every node is off.
"""

from __future__ import annotations

import json
import math
import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..api.session import Session
from ..ceph import SHUTDOWN_FLAGS
from .drain_marks import FINGERPRINT
from .own_pools import read_record, remove_pool, write_record

POOL = "cluster-shutdown"

_COMMENT = "qemu_scheduler.proxmox shut the cluster down: "
_RAN = re.compile(rf"({FINGERPRINT}):(\d{{1,4}}):(\d{{0,9}})")


@dataclass(frozen=True, slots=True)
class Ran:
    """A guest that ran. mark: its fingerprint. rank: when it starts, guests with a lower one come first."""

    mark: str
    rank: tuple[int, float]


@dataclass(frozen=True, slots=True)
class ShutdownRecord:
    """What a shutdown has done.

    Attributes:
        ran: the guests that ran, by VMID.
        flags: the flags of Ceph that it has set.
        disarmed: whether it has disarmed HA.
    """

    ran: Mapping[int, Ran] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    disarmed: bool = False


def read_shutdown(session: Session) -> ShutdownRecord | None:
    """Read the record; None if there is none. What is not understood of it is left out. One request."""
    data = read_record(session, POOL, _COMMENT)
    return None if data is None else shutdown_of(data)


def shutdown_of(data: Mapping[str, t.Any]) -> ShutdownRecord:
    """Return the record that a comment holds, without what no record has."""
    ran: dict[int, Ran] = {}
    guests = data.get("ran")
    for vmid, text in (guests if isinstance(guests, dict) else {}).items():
        found = _RAN.fullmatch(text) if isinstance(text, str) and re.fullmatch(r"\d{1,9}", vmid) else None
        if found:
            ran[int(vmid)] = Ran(found[1], (int(found[2]), float(found[3] or math.inf)))
    flags = data.get("flags")
    set_by_us = frozenset(flag for flag in (flags if isinstance(flags, list) else ()) if flag in SHUTDOWN_FLAGS)
    return ShutdownRecord(ran, set_by_us, data.get("disarmed") is True)


def write_shutdown(session: Session, record: ShutdownRecord, *, there: bool) -> None:
    """Write the record. there: whether the pool was there when it was read."""
    ran = {
        str(vmid): f"{each.mark}:{each.rank[0]}:{'' if math.isinf(each.rank[1]) else int(each.rank[1])}"
        for vmid, each in record.ran.items()
    }
    data = {"ran": ran, "flags": sorted(record.flags), "disarmed": record.disarmed}
    comment = _COMMENT + json.dumps(data, sort_keys=True, separators=(",", ":"))
    write_record(session, POOL, comment, there=there)


def remove_shutdown(session: Session) -> None:
    """Remove the record, if there is one."""
    remove_pool(session, POOL)
