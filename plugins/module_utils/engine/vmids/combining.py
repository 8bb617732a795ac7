# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two ways of choosing a VMID that must both allow it."""

from __future__ import annotations

from .choice import InvalidVMIDChoice, VMIDChoice
from .intersection import Intersection
from .ranges import VMIDRange


def intersection(first: VMIDChoice, second: VMIDChoice) -> VMIDChoice:
    """What both allow; one of them must be a range. Raises InvalidVMIDChoice when nothing is left."""
    if isinstance(second, VMIDRange):
        return Intersection(first, second)
    if isinstance(first, VMIDRange):
        return Intersection(second, first)
    raise InvalidVMIDChoice(f"{first.describe()} and {second.describe()} cannot be asked for together")
