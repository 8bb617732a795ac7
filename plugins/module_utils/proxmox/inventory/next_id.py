# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the datacenter's bounds for automatic VMIDs, also for users who cannot see the datacenter's options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ApiError, PermissionDenied
from ...model import VMID_MAX, VMID_MIN
from ..api.failures import NotRecorded
from ..api.reader import Reader

# Proxmox's default, exclusive as in the datacenter's options.
_DEFAULT_UPPER = 1_000_000


@dataclass(frozen=True, slots=True)
class NextId:
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
        return bounds_of(options.get("next-id"))
    return _without_options(reader, auditor=False if options is not None else None)


def is_unfiltered(options: Mapping[str, object]) -> bool:
    """Tell whether an answer of C(/cluster/options) is complete: without Sys.Audit it has only settings of tags."""
    return "mac_prefix" in options or "next-id" in options


def bounds_of(setting: object) -> NextId:
    """Return the bounds of a C(next-id) setting. Its values are strings and its upper bound is exclusive; a lower bound
    below 100 counts as 100.
    """
    bounds = setting if isinstance(setting, Mapping) else {}
    lower = max(VMID_MIN, int(bounds.get("lower") or VMID_MIN))
    upper = min(VMID_MAX, int(bounds.get("upper") or _DEFAULT_UPPER) - 1)
    return NextId(lower, upper, auditor=True)


def _without_options(reader: Reader, auditor: bool | None) -> NextId:
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
