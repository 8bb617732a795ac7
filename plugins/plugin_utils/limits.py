# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tables and pages call the rules that reject nodes: users know options, and not plugins."""

from __future__ import annotations

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.findings import OPTIONS

LIMITS = {
    **OPTIONS,
    "CPUOvercommit": "CPU",
    "FailoverHeadroom": "n_plus_one",
    "GuestLimit": "number of guests",
    "MemoryOvercommit": "memory",
    "NodeReady": "node state",
    "UsedLimit": "measured use",
    "VCPULimit": "vCPUs",
    "VolumeBinding": "storage",
}


def limit_of(plugin: str) -> str:
    """Return what a user knows a built-in plugin's rule by; other names stay as they are."""
    return LIMITS.get(plugin, plugin)
