#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports how many more VMs fit into a Proxmox VE cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: capacity_info
short_description: Report how many more VMs fit into a Proxmox VE cluster
version_added: 1.0.0
description:
  - Counts how many more VMs of a shape fit, per node and in total, and reports which resource runs out first.
  - Uses the rules and options of M(qemu_scheduler.proxmox.qemu_schedule). VMs are placed in memory, one after another,
    until the next one does not fit.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  shapes:
    description:
      - Several shapes. One VM of each is placed in turn, until the next one does not fit. After these, RV(shapes) also
        tells how many more of each shape fit.
      - The VM options at the top level are defaults for each shape. Without O(shapes), they describe the only shape.
    type: list
    elements: dict
  n_plus_one:
    description:
      - Whether the cluster must still be able to run all guests after any single node fails.
    type: bool
    default: false
  advice:
    description:
      - Whether to return advice from the statistics that Proxmox VE keeps of the last week, RV(right_sizes),
        RV(overcommit) and RV(full_in_days), and how many more fit as they are used, RV(as_used). Makes two requests for
        each node and one for each running VM. What was read of VMs is used again for up to an hour. Requires
        C(Sys.Audit) on the nodes and C(VM.Audit) on the VMs. Says nothing of those that cannot be read, or of which
        less than half a week is known.
    type: bool
    default: false
seealso:
  - module: qemu_scheduler.proxmox.qemu_schedule
  - module: qemu_scheduler.proxmox.cluster_snapshot_info
extends_documentation_fragment:
  - qemu_scheduler.proxmox.identity
  - qemu_scheduler.proxmox.vm_options
  - qemu_scheduler.proxmox.placement
  - qemu_scheduler.proxmox.devices
  - qemu_scheduler.proxmox.hosts
  - qemu_scheduler.proxmox.hosts.pools
  - qemu_scheduler.proxmox.vms.shapes
  - qemu_scheduler.proxmox.scheduling
  - qemu_scheduler.proxmox.scheduling.recording
  - qemu_scheduler.proxmox.scheduling.requests
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
  - qemu_scheduler.proxmox.attributes.info_module
"""

EXAMPLES = r"""
- name: Count the VMs with 4 vCPUs and 8 GiB that still fit
  qemu_scheduler.proxmox.capacity_info:
    cores: 4
    memory: 8192
    scsi: {scsi0: {size: 32}}
  register: capacity

- name: Print the result
  ansible.builtin.debug:
    msg: "{{ capacity.total }} more, then {{ capacity.limited_by }} runs out"

- name: Find VMs with the wrong size, and nodes that will be full
  qemu_scheduler.proxmox.capacity_info:
    memory: 4096
    advice: true

- name: Count pairs of an application and its database that fit with N+1
  qemu_scheduler.proxmox.capacity_info:
    n_plus_one: true
    shapes:
      - {name: app, cores: 2, memory: 4096}
      - {name: db, cores: 4, memory: 16384}
"""

RETURN = r"""
total:
  description: Number of VMs that fit, for all shapes together.
  returned: success
  type: int
  sample: 37
limited_by:
  description:
    - Why most nodes reject the next VM. V(cpu), V(memory), V(storage), the name of another plugin, or an error code.
      Null if counting stopped at 10000 VMs.
  returned: success
  type: str
  sample: memory
reason:
  description: Why the next VM does not fit.
  returned: success
  type: str
n_plus_one_counts:
  description: With O(n_plus_one), what counts for whether the guests of a lost node find another one; null without it.
  returned: success
  type: str
  sample: >-
    CPU, memory, taints, and the rules that bind guests to nodes or keep them apart (strict HA rules, tags, rules of the
    task), not for other rules, local disks and devices
shapes:
  description:
    - For each shape, the number of VMs that fit (C(fit)), how many more of this shape alone fit after those of all
      shapes (C(more)), and why no more of it fit (C(limited_by), C(reason), null if counting stopped).
  returned: success
  type: list
  elements: dict
  sample:
    - {name: app, fit: 19, more: 3, limited_by: cpu, reason: "0 of 3 nodes are available: 3 would exceed the CPU
      overcommit ratio 4.0"}
    - {name: db, fit: 18, more: 0, limited_by: memory, reason: "0 of 3 nodes are available: 3 would exceed the memory
      overcommit ratio 1.0"}
nodes:
  description: For each node, the number of VMs placed there (C(fit)) and why no more fit (C(limited_by), C(reason)).
  returned: success
  type: list
  elements: dict
  sample: [{node: pve1, fit: 12, limited_by: memory, reason: would exceed the memory overcommit ratio 1.0}]
right_sizes:
  description:
    - Running VMs that have much more CPU or memory than they use, or too little. C(used) is exceeded during 5 % of the
      time. C(options) are those of M(qemu_scheduler.proxmox.qemu_schedule) that would give the VM the suggested size,
      together with O(qemu_scheduler.proxmox.qemu_schedule#module:update). CPU is in vCPUs, memory in MiB.
    - Memory counts as the host sees it, with the cache of the VM. A VM whose tasks wait for memory has too little.
  returned: success, with O(advice)
  type: list
  elements: dict
  sample: [{vmid: 101, name: web-1, node: pve1, resource: cpu, configured: 8, used: 1.2, suggested: 2,
    why: used 1.2 of 8 vCPU(s) (p95), options: {vmid: 101, cores: 2, sockets: 1}}]
as_used:
  description:
    - How many VMs fit if no node may use more than 85 % of its CPU or memory, whatever is allocated. Has C(total),
      C(limited_by), C(reason), C(shapes) and C(nodes) as above. All other rules hold, except for O(n_plus_one).
    - A VM counts with its C(demand), else with what running VMs like it used, else with its size. The filter UsedLimit
      documents how that is measured. Nodes of which it is not known are left out; null if it is known of none.
  returned: success, with O(advice)
  type: dict
  sample: {total: 61, limited_by: UsedLimit, reason: "3 node(s) would use more than 85% of its CPU",
    shapes: [{name: app, fit: 61, more: 0, limited_by: UsedLimit}], nodes: []}
overcommit:
  description:
    - For each node and resource, C(allocated) and C(used) as fractions of the node, and the overcommit ratio at which
      70 % would be used if more guests use as much of their size (C(suggested), at most 16 for CPU and 1.5 for memory).
      Left out where less than a quarter is allocated. C(used) is exceeded during 5 % of the time.
    - The options C(nodes) and C(plugin_config) set ratios.
  returned: success, with O(advice)
  type: list
  elements: dict
  sample: [{node: pve1, resource: cpu, allocated: 2.4, used: 0.31, suggested: 5.4}]
full_in_days:
  description:
    - Nodes whose use grows so that 95 % of their CPU or memory will be used within half a year, the soonest first.
      C(used) is the fraction used now, C(daily) what a day adds, by a line through the days of the last week.
  returned: success, with O(advice)
  type: list
  elements: dict
  sample: [{node: pve1, resource: memory, used: 0.81, daily: 0.012, days: 12}]
error_code:
  description: Stable code of the error.
  returned: on failure
  type: str
  sample: InvalidRequest
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.capacity import count_capacity
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import (
    CLUSTER_OPTIONS,
    ONE_VM_OPTIONS,
    RUN_OPTIONS,
    Spec,
    vms_argument_spec,
)


def argument_spec() -> Spec:
    """Return the options of the module."""
    return {
        **CLUSTER_OPTIONS,
        **RUN_OPTIONS,
        **vms_argument_spec("shapes"),
        "n_plus_one": {"type": "bool", "default": False},
        "advice": {"type": "bool", "default": False},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(count_capacity, module.params, ONE_VM_OPTIONS))


if __name__ == "__main__":
    main()
