#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks a connection, and what the user may do with it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: connection_info
short_description: Check the connection to a cluster, and what the user may do there
version_added: 1.0.0
description:
  - Checks step by step the connection, the certificate, the versions, the privileges of the user, what the user can use
    (storages, bridges, templates), and the ledger of reservations. Writes nothing.
  - Returns for each missing privilege the path where it is needed, and the C(pveum) commands that grant all of them.
  - A step that fails is a result and not an error. The module fails only for invalid options about VMs.
  - Does not check the options C(clusters) and C(snapshot), which this module does not have.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  purposes:
    description:
      - What the user must be able to do. The default is V(provision), V(teardown) and V(addresses). With O(vms), it is
        V(provision).
      - V(connect) alone checks only the connection, and reads the name of the cluster, by one request.
      - What the VMs in O(vms) need, such as V(clone) and V(ha), is checked as well.
    type: list
    elements: str
    choices:
      [connect, plan, provision, clone, restore, update, teardown, addresses, drain, rebalance, ha, devices, ceph]
  vms:
    description:
      - VMs as in M(qemu_scheduler.proxmox.qemu_schedule). With this list, the module checks exactly the privileges
        for these VMs, and whether the templates, bridges, storages and pools that they name exist.
    type: list
    elements: dict
seealso:
  - module: qemu_scheduler.proxmox.qemu_schedule
  - plugin: qemu_scheduler.proxmox.connection_table
    plugin_type: filter
extends_documentation_fragment:
  - qemu_scheduler.proxmox.identity
  - qemu_scheduler.proxmox.vm_options
  - qemu_scheduler.proxmox.placement
  - qemu_scheduler.proxmox.devices
  - qemu_scheduler.proxmox.hosts
  - qemu_scheduler.proxmox.hosts.pools
  - qemu_scheduler.proxmox.vms
  - qemu_scheduler.proxmox.scheduling
  - qemu_scheduler.proxmox.scheduling.requests
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
  - qemu_scheduler.proxmox.attributes.info_module
"""

EXAMPLES = r"""
- name: Check whether this user can drain nodes
  qemu_scheduler.proxmox.connection_info:
    purposes: [drain]
  register: connection

- name: Show the steps, and the commands that grant what is missing
  ansible.builtin.debug:
    msg: "{{ connection | qemu_scheduler.proxmox.connection_table }}"
"""

RETURN = r"""
ok:
  description: Whether no step failed.
  returned: success
  type: bool
checks:
  description: The steps in their order. If the first one fails, the others are missing.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description:
        - V(connection), V(certificate), V(versions), V(nodes), V(rights), V(storages), V(bridges), V(templates),
          V(list) or V(ledger).
      type: str
      sample: rights
    status:
      description: V(ok), V(warning) or V(failed).
      type: str
      sample: failed
    message:
      description: What was found, in one sentence.
      type: str
      sample: verified with the authorities of this system
purposes:
  description: What was checked.
  returned: success
  type: list
  elements: str
  sample: [provision, teardown, addresses, clone]
cluster:
  description:
    - The name of the cluster, or of the node if that is in no cluster.
    - Null without a connection, or without C(Sys.Audit) on C(/).
  returned: success
  type: str
  sample: production
user:
  description: The user or the token. Null without a connection.
  returned: success
  type: str
  sample: scheduler@pve!ci
versions:
  description:
    - Versions of Proxmox VE, ansible-core, Python, proxmoxer and requests.
    - Empty without a connection, and if V(connect) is the only purpose.
  returned: success
  type: dict
  sample: {proxmox_ve: "9.2", ansible_core: 2.19.4, python: 3.12.3, proxmoxer: 2.2.0, requests: 2.32.3}
missing:
  description: Each missing privilege, with the path on which to grant it and its purpose.
  returned: success
  type: list
  elements: dict
  sample: [{privilege: VM.Clone, path: /vms, purpose: clone}]
commands:
  description:
    - Commands for a shell on a node that grant what is missing, and take nothing away. For a token also to its user, as
      a token with privilege separation has only what both have. A token that lacks C(Sys.Audit) on C(/access) does not
      see what its user has. If that is more than the token has, leave out the commands with C(--users).
  returned: success
  type: list
  elements: str
  sample:
    - pveum role add Scheduler-vms --privs VM.Clone
    - pveum acl modify /vms --users scheduler@pve --roles Scheduler-vms
storages:
  description: The storages that the user sees, and whether new disks can be placed on them (C(usable)).
  returned: success
  type: list
  elements: dict
  sample:
    - {name: ceph-vm, type: rbd, shared: true, nodes: [pve1, pve2], content: [images], free_gib: 812.4, usable: true}
bridges:
  description: The bridges and VNets that the user sees, with their nodes, and whether network cards can use them.
  returned: success
  type: list
  elements: dict
  sample: [{name: vmbr0, nodes: [pve1, pve2], usable: true}]
templates:
  description: The templates that the user sees, and whether they can be cloned.
  returned: success
  type: list
  elements: dict
  sample: [{name: debian-13, vmid: 9000, node: pve1, usable: true}]
error_code:
  description: Stable code of the error.
  returned: on failure
  type: str
  sample: InvalidRequest
"""

import time
from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.rights import PURPOSES
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.connection import check_connection
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import (
    LIVE_OPTIONS,
    ONE_VM_OPTIONS,
    RUN_OPTIONS,
    Spec,
    vms_argument_spec,
)


def argument_spec() -> Spec:
    """Return the options of the module."""
    return {
        **LIVE_OPTIONS,
        **RUN_OPTIONS,
        **vms_argument_spec(),
        "purposes": {"type": "list", "elements": "str", "choices": list(PURPOSES)},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(check_connection, module.params, ONE_VM_OPTIONS, time.time()))


if __name__ == "__main__":
    main()
