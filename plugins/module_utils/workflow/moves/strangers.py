# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests that have taken the VMIDs of those of a plan since it was made."""

from __future__ import annotations

from ...errors import ApiError, NotTheSameGuest
from ...proxmox.api.reader import Reader, in_parallel
from ...proxmox.identity import prove
from .premises import Premises


def strangers(reader: Reader, premises: Premises) -> list[str]:
    """Return which guests are not those that a plan assumes, as sentence parts. One request for each guest."""

    def difference(vmid: int) -> str | None:
        guest = premises.guests[vmid]
        try:
            prove(reader, guest.node, vmid, guest.identity)
        except NotTheSameGuest as error:
            return error.message
        except ApiError as error:
            return f"guest {vmid} ({guest.name}) cannot be read on {guest.node}: {error.message}"
        return None

    return [text for text in in_parallel(difference, premises.guests).values() if text is not None]
