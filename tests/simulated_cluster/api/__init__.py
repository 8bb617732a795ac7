# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API paths that are simulated, by subject; everything else answers 501."""

from __future__ import annotations

import importlib

SUBJECTS = (
    "access_control", "cluster_reads", "options", "nodes", "storage", "pools", "task_status", "qemu_read",
    "qemu_create", "qemu_config", "qemu_power", "qemu_clone", "qemu_migrate", "qemu_move_disk", "qemu_delete",
    "qemu_agent", "qemu_rollback", "lxc", "lxc_migrate", "bulk_moves", "backups", "mapping", "high_availability",
    "backup_jobs", "replication", "rrddata", "node_power",
    "high_availability_rules", "high_availability_status", "capabilities", "network", "node_services",
)


def load() -> None:
    """Import every subject, so that its handlers are registered."""
    for subject in SUBJECTS:
        importlib.import_module(f"{__name__}.{subject}")
