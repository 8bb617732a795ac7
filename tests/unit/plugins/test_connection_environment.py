# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plugins read the connection from the same environment variables as modules."""

from __future__ import annotations

import yaml

from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.proxmox import ModuleDocFragment
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import connection_argument_spec


def test_environment__is_that_of_the_modules() -> None:
    plugins = yaml.safe_load(ModuleDocFragment.ENVIRONMENT)["options"]
    modules = {name: [{"name": spec["fallback"][1][0]}] for name, spec in connection_argument_spec().items()}
    assert {name: option["env"] for name, option in plugins.items()} == modules
