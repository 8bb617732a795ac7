#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places VMs on the nodes of a Proxmox VE cluster, says why, and creates them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: qemu_schedule
short_description: Place and create VMs on a Proxmox VE cluster
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.doors import answer
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options import (
    cluster_argument_spec,
    one_vm_argument_spec,
    rules_of_the_run_argument_spec,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.schedule import schedule


def main() -> None:
    """Run the module."""
    one_vm = one_vm_argument_spec()
    module = AnsibleModule(
        argument_spec={
            **cluster_argument_spec(),
            **rules_of_the_run_argument_spec(),
            **one_vm,
            "vms": {"type": "list", "elements": "dict", "options": one_vm},
            "all_or_nothing": {"type": "bool", "default": True},
            "force": {"type": "bool", "default": False},
            "parallel_creates": {"type": "int", "default": 4},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    answer(module, lambda: schedule(module.params, one_vm, check_mode=module.check_mode, warn=module.warn))


if __name__ == "__main__":
    main()
