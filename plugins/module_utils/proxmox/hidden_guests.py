# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests that access control lists hide from a user.

Proxmox VE leaves guests out of all its lists if the user lacks VM.Audit on their own path. VM.Audit on C(/vms) is
inherited, so that it can be lost only by an entry on the path of the guest, or by the role NoAccess on its pool, which
prevails over C(/vms). A user with Sys.Audit on C(/access) sees all entries.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Collection, Mapping

from ..errors import ApiError
from .api.reader import Reader
from .api.session import ROOT
from .inventory.rows import Row

GUESTS, ACCESS = "/vms", "/access"
AUDIT = "VM.Audit"

_OF_A_GUEST = re.compile(r"/vms/(\d{3,9})")
_ABOVE_POOLS = re.compile(r"/|/pool(?:/.+)?")

Held = Mapping[str, Mapping[str, t.Any]]
"""Privileges by path, as C(/access/permissions) reports them. A value tells whether the privilege is inherited."""


def sees_all_entries(held: Held) -> bool:
    """Whether a user with these privileges sees all access control lists."""
    on_access = held.get(ACCESS) or {}
    return bool({"Sys.Audit", "Permissions.Modify"} & on_access.keys())


def sees_guests(held: Held) -> bool:
    """Whether a user with these privileges sees all guests that no entry of their own or of their pool hides."""
    return bool((held.get(GUESTS) or {}).get(AUDIT))


def hidden_guests(reader: Reader, held: Held, user: str) -> tuple[list[str], list[str]]:
    """Return what entries hide from a user that sees all entries: VMs and containers, and pools that may have some.

    One request, and one for each guest whose entry takes VM.Audit away.
    """
    entries: list[Row] = reader.get("/access/acl")
    paths = {str(entry.get("path")) for entry in entries}
    guests = {int(match[1]) for path in paths if (match := _OF_A_GUEST.fullmatch(path)) and not _audits(held, path)}
    pools = {str(e["path"]) for e in entries if _hides_pool(e, held, user)}
    return [f"guest {vmid}" for vmid in sorted(guests) if _ask_if_taken(reader, vmid)], sorted(pools)


def _audits(held: Held, path: str) -> bool:
    return AUDIT in (held.get(path) or {})


def _hides_pool(entry: Row, held: Held, user: str) -> bool:
    """Whether an entry may close pools to this user. It is unknown which groups a user is in."""
    if entry.get("roleid") != "NoAccess" or not _ABOVE_POOLS.fullmatch(str(entry.get("path"))):
        return False
    ours = {user, user.partition("!")[0]}
    return (
        user != ROOT
        and (entry.get("type") == "group" or entry.get("ugid") in ours)
        and not held.get(str(entry["path"]))
    )


def _ask_if_taken(reader: Reader, vmid: int) -> bool:
    """Whether a VMID is taken, also by a guest that the user does not see."""
    try:
        reader.get("/cluster/nextid", vmid=vmid)
    except ApiError:
        return True
    return False


def describe_hidden(guests: Collection[str], pools: Collection[str]) -> str:
    """Return what is hidden, as the object of a sentence."""
    return ", ".join([*guests, *(f"the guests of {path}" for path in pools)])
