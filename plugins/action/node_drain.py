# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of the same name, and shows each move as soon as it has ended."""

from __future__ import annotations

from ansible_collections.qemu_scheduler.proxmox.plugins.modules import node_drain
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.moves import move_line, table_of
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.progress import ProgressAction


class ActionModule(ProgressAction):
    """Found by Ansible by this name."""

    module = node_drain
    line_of = staticmethod(move_line)
    table_of = staticmethod(table_of)
