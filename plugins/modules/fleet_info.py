#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a list of VMs with the cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_info
short_description: Compare a list of VMs with the cluster
version_added: 1.0.0
description:
  - Reports for each VM of a list whether it exists and is as requested, and which VMs of the cluster are in no list.
  - Takes the options of M(qemu_scheduler.proxmox.qemu_schedule), so that one file of VMs serves both. Writes nothing.
  - With O(clusters), compares the list with several clusters.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  vms:
    description:
      - The VMs. The VM options at the top level are defaults for each of them.
    type: list
    elements: dict
    required: true
  unmanaged:
    description:
      - Whether to also report VMs that are in the cluster but not in O(vms). Templates and containers are not reported.
      - With O(only_tags) and O(only_pool), only VMs with these tags and in this pool are reported.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details:
      - The differences are returned as C(drift).
seealso:
  - module: qemu_scheduler.proxmox.qemu_schedule
  - plugin: qemu_scheduler.proxmox.fleet_table
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
  - qemu_scheduler.proxmox.scheduling.recording
  - qemu_scheduler.proxmox.scheduling.requests
  - qemu_scheduler.proxmox.clusters
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
  - qemu_scheduler.proxmox.attributes.info_module
"""

EXAMPLES = r"""
- name: Compare the list with the cluster
  qemu_scheduler.proxmox.fleet_info:
    vms: "{{ qemu_vms }}"
    unmanaged: true
    only_pool: shop
  register: fleet

- name: Show it
  ansible.builtin.debug:
    msg: "{{ fleet | qemu_scheduler.proxmox.fleet_table }}"
"""

RETURN = r"""
clean:
  description: Whether every VM is V(ok) and no VM is unmanaged.
  returned: success
  type: bool
summary:
  description: Number of VMs by state, and C(unmanaged).
  returned: success
  type: dict
  sample: {failed: 0, missing: 1, unwanted: 0, unfinished: 0, drifted: 2, broken: 0, pending: 0, ok: 12, unmanaged: 1}
vms:
  description: One entry per VM, in the order of the task.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the VM.
      type: str
      sample: web-1
    cluster:
      description: Name of its cluster.
      returned: with O(clusters), unless there is no VM
      type: str
      sample: berlin
    vmid:
      description: VMID of the VM. Null if there is no VM.
      type: int
      sample: 104
    node:
      description: Node of the VM. Null if there is no VM.
      type: str
      sample: pve2
    status:
      description: Status of the VM. Null if there is no VM.
      type: str
      sample: running
    state:
      description:
        - The state of the VM. If several apply, the first of these.
        - V(failed), it could not be compared. C(error) states why.
        - V(missing), it does not exist. C(error) is set if it could not be placed now.
        - V(unwanted), it exists, but the list or C(surplus) wants it absent.
        - V(unfinished), a run began to create it and did not finish it.
        - V(drifted), its configuration, pool, HA settings or power state differ from the request, see C(drift).
        - V(broken), it exceeds a limit or breaks a placement rule on its node, see C(broken).
        - V(pending), changes are pending until it is stopped and started, see C(pending).
        - V(ok), none of these.
      type: str
      sample: drifted
    drift:
      description: Each parameter that differs, with C(old) and C(new). The power state is C(status).
      type: dict
      sample: {cores: {old: 2, new: 4}}
    pending:
      description: Each pending change, with C(old) and C(new).
      type: dict
    broken:
      description: Exceeded limits, broken placement rules and other problems, in sentences.
      type: list
      elements: str
    error:
      description: C(code) and C(message) of the error, or null.
      type: dict
    actions:
      description: What M(qemu_scheduler.proxmox.qemu_schedule) would do with the VM, without O(update).
      type: list
      elements: str
      sample: [create, start]
unmanaged:
  description:
    - VMs of the cluster that are not in O(vms), with C(name), C(vmid), C(node), C(status), C(pool) and C(tags), and
      with O(clusters) also C(cluster). Empty without O(unmanaged).
  returned: success
  type: list
  elements: dict
  sample: [{name: old-crm, vmid: 129, node: pve5, status: stopped, pool: null, tags: []}]
doubts:
  description:
    - What could not be compared with certainty, in sentences. Also a pool of O(only_pool) and tags of O(only_tags) that
      no guest has, as they may be misspelt.
  returned: success
  type: list
  elements: str
  sample: []
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
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.fleet import fleet_info
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import (
    CLUSTER_OPTIONS,
    CLUSTERS_OPTIONS,
    ONE_VM_OPTIONS,
    RUN_OPTIONS,
    Spec,
    vms_argument_spec,
)


def argument_spec() -> Spec:
    """Return the options of the module."""
    return {
        **CLUSTER_OPTIONS,
        **CLUSTERS_OPTIONS,
        **RUN_OPTIONS,
        **vms_argument_spec(required=True),
        "unmanaged": {"type": "bool", "default": False},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(fleet_info, module.params, ONE_VM_OPTIONS, time.time()))


if __name__ == "__main__":
    main()
