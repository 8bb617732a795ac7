#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Picks free VMIDs in a Proxmox VE cluster without creating anything."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vmid_pick
short_description: Pick free VMIDs in a Proxmox VE cluster
version_added: 1.0.0
description:
  - Returns the lowest free VMIDs in a range, matching a pattern, or within the datacenter's bounds.
  - Creates and reserves nothing. VMIDs that other processes have reserved with M(qemu_scheduler.proxmox.qemu_schedule)
    are not picked. Another process may still take a picked VMID before you use it.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  count:
    description:
      - Number of VMIDs to pick.
    type: int
    default: 1
  exclude:
    description:
      - VMIDs to exclude.
    type: list
    elements: int
    default: []
  vmid_range:
    description:
      - The VMIDs to pick from, both ends included, for example V(100-150) or V(100-150,200).
    type: str
  vmid_regex:
    description:
      - Regular expression that must match the whole VMID, for example V((12[0-9]|130\)).
    type: str
  context:
    description:
      - The same settings as context keys of qemu-scheduler, C(vmid.qemu-scheduler/range) and
        C(vmid.qemu-scheduler/regex).
    type: dict
  snapshot:
    description:
      - Recorded API responses by path, or the path of a JSON file that contains them. VMIDs are picked from this
        recording instead of a live cluster.
    type: raw
  reservations:
    description:
      - The ledger in which other processes share their decisions. See M(qemu_scheduler.proxmox.qemu_schedule).
    type: str
    default: default
seealso:
  - module: qemu_scheduler.proxmox.qemu_schedule
extends_documentation_fragment:
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
  - qemu_scheduler.proxmox.attributes.info_module
"""

EXAMPLES = r"""
- name: Pick the next free VMID
  qemu_scheduler.proxmox.vmid_pick:
  register: picked

- name: Pick three VMIDs in a project's range
  qemu_scheduler.proxmox.vmid_pick:
    count: 3
    vmid_range: 5000-5999

- name: Pick a VMID by pattern, except for one
  qemu_scheduler.proxmox.vmid_pick:
    vmid_regex: 12[0-9]
    exclude: [121]
"""

RETURN = r"""
vmid:
  description: The lowest of the picked VMIDs.
  returned: success
  type: int
  sample: 105
vmids:
  description: All picked VMIDs, lowest first.
  returned: success
  type: list
  elements: int
  sample: [105, 107]
error_code:
  description: Stable code of the error.
  returned: on failure
  type: str
  sample: NoVMIDAvailable
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import (
    CLUSTER_OPTIONS,
    Spec,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.pick import pick_vmids


def argument_spec() -> Spec:
    """Return the options of the module."""
    return {
        **CLUSTER_OPTIONS,
        "count": {"type": "int", "default": 1},
        "exclude": {"type": "list", "elements": "int", "default": []},
        "vmid_range": {"type": "str"},
        "vmid_regex": {"type": "str"},
        "context": {"type": "dict"},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(pick_vmids, module.params))


if __name__ == "__main__":
    main()
