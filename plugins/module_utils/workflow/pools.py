# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool of a VM, as far as this user may see pools."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import ApiError, PermissionDenied
from ..proxmox.failures import NotRecorded
from ..proxmox.reader import Reader


def is_elsewhere(wanted: str, current: str | None, visible: Collection[str]) -> bool:
    """Tell whether a VM is known to be outside of the requested pool.

    current is the pool that Proxmox shows. A VM that shows none may be in one that this user cannot see, and visible
    are those that can be seen.
    """
    return wanted != current and (current is not None or wanted in visible)


def missing_pool(reader: Reader, pool: str) -> str | None:
    """Say that a pool does not exist; None when it does, or when this user cannot see whether it does."""
    try:
        reader.get(f"/pools/{pool}")
    except (PermissionDenied, NotRecorded):
        return None
    except ApiError as error:
        if "does not exist" not in error.message:
            raise
        return f"pool {pool!r} does not exist"
    return None
