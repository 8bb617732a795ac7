# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guards against removals: VMs without certain tags, or outside a pool, are never removed, whatever a list says."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import CollectionError
from ..model import Guest


class RemovalRefused(CollectionError):
    """A VM is to be removed, and C(only_tags) or C(only_pool) protects it.

    Cure: check that the VM is the one that you mean. To remove it, correct C(only_tags) or C(only_pool), or remove the
    VM from the list.
    """

    code = "RemovalRefused"


@dataclass(frozen=True, slots=True)
class Guard:
    """What a VM must have to be removed: all of these tags, and this pool if it is given."""

    tags: frozenset[str] = frozenset()
    pool: str | None = None

    @classmethod
    def of(cls, body: Mapping[str, t.Any]) -> Guard:
        """Return the guard that the options define."""
        # Proxmox VE stores tags in lower case.
        return cls(frozenset(str(tag).lower() for tag in body.get("only_tags") or ()), body.get("only_pool") or None)

    def allows(self, guest: Guest) -> bool:
        """Tell whether the guest has what the guard requires."""
        return not self._missing(guest) and self.pool in (None, guest.pool)

    def check(self, label: str, guest: Guest) -> None:
        """Raise RemovalRefused unless the guest may be removed. label is how the VM is called in messages."""
        where = f"{label} ({guest.vmid} on {guest.node}) is not removed"
        missing = self._missing(guest)
        if missing:
            has = ", ".join(sorted(guest.tags)) or "none"
            raise RemovalRefused(f"{where}: only_tags requires the tag {missing[0]}, and its tags are: {has}")
        if self.pool is not None and guest.pool != self.pool:
            has = f"is in pool {guest.pool}" if guest.pool else "is in no pool that this user can see"
            raise RemovalRefused(f"{where}: only_pool requires pool {self.pool}, and it {has}")

    def _missing(self, guest: Guest) -> list[str]:
        """The tags that the guest lacks."""
        return sorted(self.tags - {tag.lower() for tag in guest.tags})


def guard_argument_spec() -> dict[str, dict[str, t.Any]]:
    """Return the options of a guard."""
    return {"only_tags": {"type": "list", "elements": "str"}, "only_pool": {"type": "str"}}
