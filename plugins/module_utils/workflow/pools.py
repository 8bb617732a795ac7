# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool of a VM, as far as this user may see pools."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import ApiError, PermissionDenied
from ..proxmox.api.failures import NotRecorded
from ..proxmox.api.reader import Reader


def is_elsewhere(wanted: str, current: str | None, visible: Collection[str]) -> bool:
    """Tell whether a VM is known to be outside of the requested pool.

    current is the pool that Proxmox shows; if it shows none, the VM may be in a pool that this user cannot see. visible
    are the pools that this user can see.
    """
    return wanted != current and (current is not None or wanted in visible)


def missing_pool(reader: Reader, pool: str) -> str | None:
    """Return the error text if a pool does not exist; None if it exists, or if this user cannot tell."""
    try:
        reader.get(f"/pools/{pool}")
    except (PermissionDenied, NotRecorded):
        return None
    except ApiError as error:
        if "does not exist" not in error.message:
            raise
        return f"pool {pool!r} does not exist"
    return None
