# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of the same name, in the worker process where that is possible."""

from __future__ import annotations

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine import diagnosis, unknown_names
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory import ha_state
from ansible_collections.qemu_scheduler.proxmox.plugins.modules import capacity_info
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.direct import DirectAction


class ActionModule(DirectAction):
    """Found by Ansible by this name."""

    module = capacity_info
    imports = (diagnosis, ha_state, unknown_names)
