#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes existing VMs as entries of a list of VMs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_list_info
short_description: Describe existing VMs as the entries of a list
version_added: 1.0.0
description:
  - Returns VMs of the cluster as entries of C(vms) in M(qemu_scheduler.proxmox.qemu_schedule), to adopt them into a
    list. A task with this list finds them unchanged. Writes nothing.
  - Templates and containers are not described, nor HA resources, snapshots and unused disks of VMs.
  - Disks are described by storage and size, so that the same list also creates a VM like the one described.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  name:
    description:
      - Only VMs whose whole name matches this regular expression.
    type: str
  only_pool:
    description:
      - Only VMs in this pool. A pool that does not exist, or that the user cannot see, is an error.
      - An empty text and V(null) are refused, as of a variable that was not set. Without this option, VMs of all pools
        are described.
    type: str
  only_tags:
    description:
      - Only VMs with all of these tags. An empty list and V(null) are refused.
    type: list
    elements: str
seealso:
  - module: qemu_scheduler.proxmox.fleet_info
  - plugin: qemu_scheduler.proxmox.vms_yaml
    plugin_type: filter
extends_documentation_fragment:
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
  - qemu_scheduler.proxmox.attributes.info_module
"""

EXAMPLES = r"""
- name: Describe the VMs of a pool
  qemu_scheduler.proxmox.vm_list_info:
    only_pool: shop
  register: existing

- name: Write the list
  ansible.builtin.copy:
    content: "{{ existing | qemu_scheduler.proxmox.vms_yaml }}"
    dest: "{{ playbook_dir }}/shop.yml"
    mode: "0600"
"""

RETURN = r"""
vms:
  description: The VMs, ordered by VMID.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: web-1, vmid: 104, pool: shop, state: started, cores: 2, memory: 2048, scsi: {scsi0: "ceph-vm:32"}}
left_out:
  description:
    - What is not described. C(parameter) of the config, with the C(reason), C(name) and C(vmid) of its VM. Null if the
      whole VM is left out. Passwords are always left out.
  returned: success
  type: list
  elements: dict
  sample: [{name: web-1, vmid: 104, parameter: cipassword, reason: it is secret}]
error_code:
  description: Stable code of the error.
  returned: on failure
  type: str
  sample: PermissionDenied
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import connection_argument_spec
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.listing import list_vms
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import Spec
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import GUARD_OPTIONS


def argument_spec() -> Spec:
    """Return the options of the module."""
    return {**connection_argument_spec(), **GUARD_OPTIONS, "name": {"type": "str"}}


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(list_vms, module.params))


if __name__ == "__main__":
    main()
