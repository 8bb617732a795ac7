# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users read options, not the names of plugins."""

from __future__ import annotations

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import FilterPlugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import BUILTIN
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.limits import LIMITS


def test_limits__have_a_name_for_each_plugin_that_rejects_nodes() -> None:
    assert {plugin.name for plugin in BUILTIN if issubclass(plugin, FilterPlugin)} == LIMITS.keys()
