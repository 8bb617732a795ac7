#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports the IP addresses of VMs, as returned by their guest agents."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_address_info
short_description: Report the IP addresses of VMs, as returned by their guest agents
version_added: 1.0.0
description:
  - Queries the QEMU guest agent of each VM for its addresses, and optionally waits until it responds.
  - The agent must be enabled in the VM's configuration (C(agent)) and installed in the guest.
  - Requires the privilege C(VM.GuestAgent.Audit) on the VMs, or C(VM.Monitor) before Proxmox VE 9.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  vmids:
    description:
      - VMIDs of the VMs to query.
    type: list
    elements: int
    required: true
  wait:
    description:
      - Maximum time to wait until every VM has an address, in seconds. V(0) queries once.
      - A timeout is not an error. The C(address) of such a VM is null, and C(reason) explains why.
      - The module does not wait for a VM whose guest agent is not enabled.
      - If the cluster does not answer, or answers with an error, the module tries again until the time is over. It
        fails only if no try succeeded.
    type: int
    default: 0
  networks:
    description:
      - Return only addresses in these networks, for example V(192.0.2.0/24). By default, all addresses are returned.
      - Loopback, link-local, multicast and unspecified addresses are never returned.
    type: list
    elements: str
    default: []
seealso:
  - module: qemu_scheduler.proxmox.qemu_schedule
extends_documentation_fragment:
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
  - qemu_scheduler.proxmox.attributes.info_module
"""

EXAMPLES = r"""
- name: Create VMs
  qemu_scheduler.proxmox.qemu_schedule:
    clone: debian-13
    agent: enabled=1
    state: started
    vms: [{name: web-1}, {name: web-2}]
  register: created

- name: Wait for their addresses
  qemu_scheduler.proxmox.vm_address_info:
    vmids: "{{ created.vms | map(attribute='vmid') }}"
    wait: 300
    networks: [192.0.2.0/24]
  register: addresses
"""

RETURN = r"""
vms:
  description: One entry per VM, in the order of the option.
  returned: success
  type: list
  elements: dict
  contains:
    vmid:
      description: VMID of the VM.
      type: int
      sample: 104
    name:
      description: Name of the VM. Null if there is no such VM.
      type: str
      sample: web-1
    node:
      description: Node of the VM. Null if there is no such VM.
      type: str
      sample: pve2
    address:
      description: The first of C(addresses). Null if there is none.
      type: str
      sample: 192.0.2.106
    addresses:
      description: The addresses of the VM in O(networks), IPv4 before IPv6.
      type: list
      elements: str
      sample: [192.0.2.106, "2001:db8::6a"]
    reason:
      description: Why there is no address. Null if there is one.
      type: str
      sample: its guest agent is not enabled
error_code:
  description: Stable code of the error.
  returned: on failure
  type: str
  sample: PermissionDenied
"""

import typing as t
from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import connection_argument_spec
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import address_info


def argument_spec() -> dict[str, dict[str, t.Any]]:
    """Return the options of the module."""
    return {
        **connection_argument_spec(),
        "vmids": {"type": "list", "elements": "int", "required": True},
        "wait": {"type": "int", "default": 0},
        "networks": {"type": "list", "elements": "str", "default": []},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(address_info, module.params))


if __name__ == "__main__":
    main()
