# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold of every state, written from the documentation of the rules and apart from the plugins that keep them.

The law sees a state and no order: a reason is given only where no order of the decisions could have kept the rule. It
keeps silent about what was broken before, about rules that are not in force, and about FailoverHeadroom, CPUModel and
NetworkBridge.
"""

from __future__ import annotations

from .amounts import overfull
from .others import affinity, ha, spread
from .places import hardware, identity, node, volumes
from .state import State

RULES = (overfull, identity, node, volumes, hardware, affinity, spread, ha)


def broken(state: State) -> list[str]:
    """The reasons why the state is unlawful, as sentences; empty if it is lawful."""
    return sorted({reason for rule in RULES for reason in rule(state)})
