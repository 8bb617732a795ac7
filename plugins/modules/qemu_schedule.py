#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places VMs on the nodes of a Proxmox VE cluster, says why, and creates them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: qemu_schedule
short_description: Place VMs on the nodes of a Proxmox VE cluster, say why, and create them
version_added: 1.0.0
description:
  - Decides for each VM its node, its VMID, its disks' storages and its passthrough devices, and creates it.
  - A VM that exists, by O(vmid) or else by O(name), keeps its node and its VMID. Run again, the task changes nothing.
  - All VMs of a task are decided together, each decision counting for the next, before anything is written.
  - The options of a VM are those of M(community.proxmox.proxmox_kvm). Leave C(node) out.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  vms:
    description:
      - Several VMs. The options of a VM at the top level are defaults for each of them; where an entry sets an option,
        it replaces the default as a whole.
      - Without it the options at the top level describe one VM.
    type: list
    elements: dict
  all_or_nothing:
    description:
      - Whether nothing is written when one of the VMs cannot be placed, or is in conflict with what exists.
      - With V(false) the others are created, and the task fails afterwards.
    type: bool
    default: true
  force:
    description:
      - Whether O(state=stopped) stops a VM the hard way when it does not shut down in the time that Proxmox VE grants,
        60 seconds or C(down) of its O(startup). O(timeout) has to be longer.
    type: bool
    default: false
  parallel_creates:
    description:
      - How many VMs are created or changed at a time.
    type: int
    default: 4
  timeout:
    description:
      - How long one task of Proxmox VE may take, in seconds. A task that outlasts it goes on; the error names its UPID.
    type: int
    default: 600
  wait_for_capacity:
    description:
      - How long to keep trying when a VM cannot be placed, in seconds. It is tried again when something happened in the
        cluster that may help it.
      - What no event can help fails at once, such as a VM that is too large for every node even when it is empty.
      - With O(all_or_nothing) nothing is created before all VMs can be.
      - In check mode and with O(snapshot) there is no waiting.
    type: int
    default: 0
  progress_file:
    description:
      - File on the host that runs the module. A line of JSON is appended for every VM as soon as it is done, for others
        to read. Its keys are C(done), C(total), C(name), C(vmid), C(node), C(actions), C(seconds) and C(error) (a code,
        or null).
      - While it is waited for capacity, a line now and then has C(waiting) (the names of the VMs), C(rejected_by) (the
        plugins that have to change their mind), C(waited) and C(patience) (both in seconds).
      - When the module runs on the controller itself, progress is shown there anyway, a line for each VM.
    type: path
attributes:
  check_mode:
    support: full
    details:
      - Returns the whole decision, writes nothing to the cluster and reserves nothing in the ledger.
  diff_mode:
    support: full
seealso:
  - module: qemu_scheduler.proxmox.vmid_pick
  - module: qemu_scheduler.proxmox.capacity_info
  - module: qemu_scheduler.proxmox.cluster_snapshot_info
  - module: community.proxmox.proxmox_kvm
extends_documentation_fragment:
  - qemu_scheduler.proxmox.identity
  - qemu_scheduler.proxmox.vm_options
  - qemu_scheduler.proxmox.placement
  - qemu_scheduler.proxmox.devices
  - qemu_scheduler.proxmox.vms
  - qemu_scheduler.proxmox.scheduling
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
"""

EXAMPLES = r"""
- name: Show where a VM would go, and why
  qemu_scheduler.proxmox.qemu_schedule:
    name: web-1
    cores: 2
    memory: 4096
    scsi: {scsi0: {size: 32}}
  check_mode: true
  register: plan

- name: Print the sentence behind the decision
  ansible.builtin.debug:
    msg: "{{ plan.vms[0].decision.message }}"

- name: Create and start one VM wherever it fits best
  qemu_scheduler.proxmox.qemu_schedule:
    api_host: pve1.example.com
    api_user: automation@pve
    api_token_id: ansible
    api_token_secret: "{{ proxmox_token_secret }}"
    name: web-1
    cores: 2
    memory: 4096
    scsi: {scsi0: {size: 32, ssd: true}}
    net: {net0: "virtio,bridge=vmbr0"}
    state: started

- name: Create many VMs from a cloud-init template
  qemu_scheduler.proxmox.qemu_schedule:
    clone: debian-13
    cores: 2
    memory: 4096
    ciuser: admin
    sshkeys: "{{ lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub') }}"
    ipconfig: {ipconfig0: ip=dhcp}
    tags: [web]
    state: started
    vms:
      - name: web-1
      - name: web-2
      - name: db-1
        memory: 16384
        scsi: {scsi0: {size: 64}}
        node_regex: pve[12]

- name: Take VMIDs from a range
  qemu_scheduler.proxmox.qemu_schedule:
    name: ci-runner
    memory: 2048
    vmid_range: 5000-5999

- name: Beside proxmox_kvm, the same options without the node
  qemu_scheduler.proxmox.qemu_schedule:
    name: spare
    cores: 4
    memory: 8192
    virtio: {virtio0: "local-lvm:32,format=raw"}
    net: {net0: "virtio,bridge=vmbr1,rate=200"}
    onboot: true

- name: Decide from a recorded cluster, offline
  qemu_scheduler.proxmox.qemu_schedule:
    snapshot: recorded-cluster.json
    name: web-1
    memory: 4096
"""

RETURN = r"""
vms:
  description: One entry per VM, in the order of the task. On failure too, with what was decided, done and not done.
  returned: when the cluster was read
  type: list
  elements: dict
  contains:
    name:
      description: Name of the VM.
      type: str
      sample: web-1
    vmid:
      description: VMID that the VM has, or would get in check mode. Null where there is no VM.
      type: int
      sample: 104
    node:
      description: Node that the VM is on, or would be on in check mode. Null where there is no VM.
      type: str
      sample: pve2
    status:
      description:
        - Status of the VM after the task, V(absent) where there is none.
        - Null where it is not known, as of a VM that failed and cannot be looked at, or that is still being made.
      type: str
      sample: running
    changed:
      description: Whether this VM was changed, or would be in check mode.
      type: bool
    action:
      description: The first of C(actions), or V(none).
      type: str
      sample: create
    actions:
      description:
        - What was done, in order; any of V(create), V(clone), V(finish), V(update), V(start), V(stop), V(reboot),
          V(delete). V(reboot) shuts the VM down and starts it, see O(apply_pending).
        - V(finish) is done to a VM that an earlier run began to make and did not finish, whatever O(update) says.
      type: list
      elements: str
      sample: [create, start]
    not_done:
      description:
        - What was to be done and was not, as this VM failed, or another one without which nothing is done.
        - An update that failed when a part of it was in force is in C(actions).
      type: list
      elements: str
      sample: []
    tags:
      description: The tags that were asked for.
      type: list
      elements: str
      sample: [db, web]
    storages:
      description: For each drive of a new VM the storage it is on.
      type: dict
      sample: {scsi0: local-zfs}
    drift:
      description: For each parameter in which an existing VM differs from what was asked for, C(old) and C(new).
      type: dict
      sample: {cores: {old: 2, new: 4}}
    pending:
      description:
        - For each parameter of a running VM whose change is pending C(old), which is in effect, and C(new), which takes
          effect after the VM is stopped and started.
      type: dict
      sample: {memory: {old: "2048", new: "4096"}}
    attempts:
      description: How often it was tried to place the VM.
      type: int
      sample: 1
    waited:
      description: For how many seconds it was waited for capacity.
      type: float
      sample: 0.0
    waited_for:
      description: The plugins that had rejected the nodes while it was waited.
      type: list
      elements: str
      sample: [MemoryOvercommit]
    limit_broken:
      description:
        - The limit of its node that the VM breaks, as another scheduler chose the same node at the same moment.
        - Only looked for without a shared ledger, see O(reservations).
      type: str
    error:
      description: Why this VM failed. C(code) and C(message), and what else is known about it.
      returned: when it failed
      type: dict
    decision:
      description: The decision about a VM that did not exist, with its reasons. Null for others.
      type: dict
      contains:
        node:
          description: Node that was decided on. Null when none was found.
          type: str
        vmid:
          description: VMID that was decided on.
          type: int
        score:
          description: Score of that node, the weighted mean of the plugins' scores, 0 to 100.
          type: float
        storages:
          description: For each drive the storage.
          type: dict
        devices:
          description: The passthrough devices that were given to the VM's claims.
          type: list
          elements: dict
        runner_up:
          description: The best of the other nodes that passed, and how far it is behind. Null when there is none.
          type: dict
          contains:
            node:
              description: Name of the node.
              type: str
            distance:
              description: By how much its score is lower.
              type: float
        message:
          description: The decision in one sentence.
          type: str
          sample: VM "web-1" goes to pve2 as 104 with score 88.4, 3.1 ahead of pve4
        findings:
          description:
            - What plugins found out about a VM that could not be placed, by plugin.
            - C(summary) of a plugin says in one sentence what would have to change. The error message ends with it,
              unless the cause is a name that does not exist.
          type: dict
        nodes:
          description: Every node with its score and the score of each plugin, or with the plugin that rejected it.
          type: list
          elements: dict
          contains:
            node:
              description: Name of the node.
              type: str
            feasible:
              description: Whether it passed every filter.
              type: bool
            score:
              description: The weighted mean of its scores, 0 to 100. Null when it was rejected.
              type: float
            scores:
              description: For each score plugin C(raw), C(normalized) (0 to 100) and C(weight).
              type: dict
            rejected_by:
              description: The filter that rejected it.
              type: str
            reason:
              description: Why.
              type: str
              sample: would exceed the memory overcommit ratio 1.0 (70.0 GiB against a limit of 64.0 GiB)
nodes:
  description:
    - How full the nodes are before and after the task, in check mode too, as the scheduler counts it, by what running
      guests are configured to use.
    - A task that fails for what was asked for, before any node was looked at, does not return it.
  returned: when nodes were looked at, or nothing failed
  type: list
  elements: dict
  contains:
    node:
      description: Name of the node.
      type: str
    online:
      description: Whether it is online.
      type: bool
    maintenance:
      description: Whether it is in maintenance.
      type: bool
    cores:
      description: Its logical CPUs.
      type: int
    cores_limit:
      description: How many vCPUs it may give out, by the profile of the task. Null where there is no limit.
      type: float
    cores_before:
      description: How many vCPUs it gave out before the task. C(cores_after) is how many after it.
      type: float
    cores_after:
      description: See C(cores_before).
      type: float
    memory:
      description: Its memory, in MiB.
      type: int
    memory_limit:
      description: How much memory it may give out, in MiB. Null where there is no limit.
      type: int
    memory_before:
      description: How much memory it gave out before the task, in MiB. C(memory_after) is how much after it.
      type: int
    memory_after:
      description: See C(memory_before).
      type: int
    storages:
      description: Its storages for disks, with C(storage), C(shared), and C(total), C(before) and C(after) in GiB.
      type: list
      elements: dict
name:
  description: Name of the VM.
  returned: without O(vms)
  type: str
vmid:
  description: VMID of the VM.
  returned: without O(vms)
  type: int
node:
  description: Node of the VM.
  returned: without O(vms)
  type: str
error_code:
  description: Stable name of the kind of error. Where several VMs failed, that of the first.
  returned: on failure
  type: str
  sample: NoNodesAvailable
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options import (
    cluster_argument_spec,
    one_vm_argument_spec,
    run_argument_spec,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.schedule import schedule


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    one_vm = one_vm_argument_spec()
    module = module_class(
        argument_spec={
            **cluster_argument_spec(),
            **run_argument_spec(),
            **one_vm,
            "vms": {"type": "list", "elements": "dict", "options": one_vm},
            "all_or_nothing": {"type": "bool", "default": True},
            "force": {"type": "bool", "default": False},
            "parallel_creates": {"type": "int", "default": 4},
            "timeout": {"type": "int", "default": 600},
            "wait_for_capacity": {"type": "int", "default": 0},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    answer(module, lambda: schedule(module.params, one_vm, check_mode=module.check_mode, warn=module.warn))


if __name__ == "__main__":
    main()
