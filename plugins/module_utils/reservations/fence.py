# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proof, right before a write, that a reservation still belongs to its holder.

A process may be paused between any two of its steps: stopped by a signal, or suspended with its machine. When it
continues, its reservation may have expired, and another process may have reserved the resources or the name. Proxmox VE
has no conditional write, so the writer checks its reservation right before each write, and decides again if it is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .holder import Holder
from .ledger import Ledger, ReservationLost

PROOF_SECONDS = 1.0
"""How long a proof is valid. Normally a request follows its proof within milliseconds; after a longer pause the ledger
is asked again, which takes one transaction and no request to Proxmox. The clock of a virtual machine stops while the
machine is paused, so a longer period would not be safe.
"""

Clocks = Callable[[], tuple[float, ...]]


def local_clocks() -> tuple[float, ...]:
    """Return the time of a clock that also runs while the machine is suspended, and of the wall clock, which a ledger
    in SQLite uses.
    """
    # Only Linux has CLOCK_BOOTTIME; where it is missing, the monotonic clock runs during a suspension as well.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), time.time()


class Fence:
    """Checks one reservation before each write. Not safe for several threads."""

    def __init__(
        self, ledger: Ledger, cluster: str, vmid: int, holder: Holder, *, clocks: Clocks = local_clocks
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._vmid = vmid
        self._holder = holder
        self._clocks = clocks
        self._proven: tuple[float, ...] = ()

    def mark_binding(self) -> None:
        """Record that the VM is about to be created; raises as Ledger.mark_binding does."""
        asked = self._clocks()
        self._ledger.mark_binding(self._cluster, [self._vmid], self._holder)
        self._proven = asked

    def check(self) -> None:
        """Raise ReservationLost unless the reservation is still the holder's. Raises LedgerUnavailable if unknown."""
        asked = self._clocks()
        if self._proven and all(0 <= now - then < PROOF_SECONDS for now, then in zip(asked, self._proven, strict=True)):
            return
        if self._vmid not in self._ledger.renew(self._cluster, [self._vmid], self._holder):
            raise ReservationLost.of(self._cluster, [self._vmid])
        self._proven = asked
