# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger: decisions that Proxmox does not show yet, shared by all processes that schedule onto a cluster."""

from __future__ import annotations

from .lease import LeaseLost
from .ledger import AlreadyReserved, LeasedCycle, Ledger, ReservationLost
from .opening import open_ledger
from .records import Durations, Holder, Reservation

__all__ = [
    "AlreadyReserved",
    "Durations",
    "Holder",
    "LeaseLost",
    "LeasedCycle",
    "Ledger",
    "Reservation",
    "ReservationLost",
    "open_ledger",
]
