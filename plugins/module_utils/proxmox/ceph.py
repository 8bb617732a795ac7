# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and sets the flags of Ceph, and recognizes a cluster without Ceph."""

from __future__ import annotations

from ..errors import ApiError
from .api.session import Session

FLAGS = (
    "nobackfill", "nodeep-scrub", "nodown", "noin", "noout", "norebalance", "norecover", "noscrub", "notieragent",
    "noup", "pause",
)  # fmt: skip
"""The flags that the API of Proxmox VE can set."""

_NO_CEPH = ("binary not installed", "not initialized", "ceph not", "no such file")


def lacks_ceph(error: ApiError) -> bool:
    """Whether the node that answers does not have Ceph."""
    return any(text in error.message.lower() for text in _NO_CEPH)


def is_set(session: Session, flag: str) -> bool | None:
    """Whether the flag is set; None without Ceph."""
    try:
        return bool(session.get(f"/cluster/ceph/flags/{flag}"))
    except ApiError as error:
        if lacks_ceph(error):
            return None
        raise


def set_flag(session: Session, flag: str, value: bool) -> None:
    """Set the flag, or clear it."""
    session.put(f"/cluster/ceph/flags/{flag}", {"value": int(value)})
