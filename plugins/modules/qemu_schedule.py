#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places VMs on the nodes of a Proxmox VE cluster, explains each decision, and creates them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: qemu_schedule
short_description: Place and create VMs in a Proxmox VE cluster, and explain each decision
version_added: 1.0.0
description:
  - Chooses the node, the VMID, the storage of each disk and the passthrough devices for each VM, and creates the VM.
  - Finds an existing VM by O(vmid) or else by O(name). The VM keeps its node and its VMID. A second run changes
    nothing.
  - Decides about all VMs of a task together before it writes anything. Each decision takes the previous ones into
    account.
  - The options of a VM are named as in M(community.proxmox.proxmox_kvm). Omit O(node).
  - With O(clusters), chooses among several clusters as well. O(make_room), O(plan_file) and O(apply) are for tasks
    about one cluster.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  vms:
    description:
      - Several VMs, at most 5000 in total. The VM options at the top level are defaults for each of them. An option in
        an entry replaces the default as a whole.
      - Without O(vms), the options at the top level describe one VM.
    type: list
    elements: dict
  all_or_nothing:
    description:
      - Whether to write nothing if any VM cannot be placed or conflicts with an existing guest.
      - With V(false) the other VMs are created, and the task then fails.
    type: bool
    default: true
  decision_nodes:
    description:
      - Maximum number of nodes of a cluster for which each decision reports every node. On a larger cluster it reports
        the five best nodes, and the rejected nodes by reason.
    type: int
    default: 50
  force:
    description:
      - Whether O(state=stopped) force-stops a VM that has not shut down within the shutdown timeout of Proxmox VE,
        which is 60 seconds or C(down) of its O(startup), or within O(shutdown_timeout). O(timeout) must be longer than
        that. Otherwise the VM fails and is not changed.
    type: bool
    default: false
  make_room:
    description:
      - Moves other guests to make room for VMs that fit nowhere. An empty mapping permits this with the defaults.
        Without this option, no guest is moved, and the error names moves that may help, if there are any.
      - Guests move only if all VMs of the task fit afterwards. VMs that no change of the cluster can make fit, such as
        one that is larger than every node, do not count.
      - In check mode, RV(plan) contains the moves. With O(snapshot), no moves are planned.
    type: dict
    suboptions:
      containers:
        description:
          - Whether running containers are moved. With V(restart), a container is shut down, moved and started again.
        type: str
        choices: [skip, restart]
        default: skip
      vms_not_live:
        description:
          - Whether running VMs are moved that cannot move live. With V(restart), such a VM is shut down, moved and
            started again.
        type: str
        choices: [skip, restart]
        default: skip
      offline:
        description: Whether guests that are stopped are moved.
        type: bool
        default: true
      local_disks:
        description: Whether guests with disks on local storages are moved. Their disks are copied to the target.
        type: bool
        default: true
      max_moves:
        description: Maximum number of moves. Unlimited by default.
        type: int
      max_transfer:
        description:
          - Maximum amount of data that the moves send, memory and disks, in GiB. Unlimited by default.
        type: float
      parallel:
        description: Maximum number of moves at the same time.
        type: dict
        suboptions:
          cluster:
            description: Maximum number of moves in the whole cluster.
            type: int
            default: 4
          per_node_in:
            description: Maximum number of moves to the same node.
            type: int
            default: 2
          per_node_out:
            description: Maximum number of moves from the same node.
            type: int
            default: 2
          per_link:
            description: Maximum number of moves between any two nodes, both directions counted together.
            type: int
            default: 2
      bwlimit:
        description:
          - Bandwidth limit of each migration, in KiB/s. Defaults to the limit of the datacenter. The HA manager
            ignores it.
        type: int
      timeout:
        description: Timeout of one move, in seconds. After the timeout the migration continues.
        type: int
        default: 3600
  node_guests:
    description:
      - Whether RV(nodes) lists the guests of each node. A large cluster then has a large result.
    type: bool
    default: false
  parallel_creates:
    description:
      - Maximum number of VMs to create or change at the same time.
    type: int
    default: 4
  shutdown_timeout:
    description:
      - Seconds that a running VM has to shut down when it is stopped or restarted. Without this option, Proxmox VE
        decides.
      - With V(0) and O(force=true), the VM is stopped at once, as by a power failure.
    type: int
  timeout:
    description:
      - Timeout of one Proxmox VE task, in seconds. After the timeout the task continues. The error names its UPID.
    type: int
    default: 600
  wait_for_capacity:
    description:
      - Maximum time to wait if a VM cannot be placed, in seconds. The scheduler retries the VM after each event in the
        cluster that may make it fit.
      - A VM that no event can make fit, such as one that is larger than every node, fails at once.
      - A VM that may be one of those on an offline node, whose names are not known, waits for the node as well.
      - With O(all_or_nothing), no VM is created until all of them can be placed.
      - The module does not wait in check mode or with O(snapshot).
    type: int
    default: 0
  plan_file:
    description:
      - File to write the plan to, as JSON, also in check mode. It is written before anything changes in the cluster,
        and is not written if a VM fails.
      - The plan contains the actions for each VM, the decision about each new VM, and the moves of O(make_room). It
        contains no secrets.
    type: path
  apply:
    description:
      - A plan to carry out exactly. Either the path of a file that was written with O(plan_file), or RV(vm_plan) of
        another task, also as JSON text. The VMs and their options must be those of the plan. Secrets are taken from the
        task.
      - The task fails with C(PlanStale) before anything is written if the cluster is no longer as the plan assumes. The
        message states what changed. O(all_or_nothing) is always in force.
      - A plan that moves guests requires O(make_room), whose C(parallel), C(bwlimit) and C(timeout) apply. Exactly
        these moves are made, before anything else. If one fails, no VM is created.
      - An interrupted plan is completed. Applying a completed plan again changes nothing. A VM that the plan creates
        and that exists already is finished or started only if the ledger proves that a run has created it.
    type: raw
  progress_file:
    description:
      - File on the host that runs the module. The module appends a line of JSON when a VM is done, for other programs
        to read. Its keys are C(done), C(total), C(name), C(vmid), C(node), C(actions), C(seconds) and C(error) (a code,
        or null).
      - While the run waits for capacity, it occasionally appends a line with C(waiting) (the names of the VMs),
        C(rejected_by) (the plugins that reject them), C(waited) and C(patience) (the timeout). Both times are in
        seconds.
      - When a move of O(make_room) has ended, it appends a line as M(qemu_scheduler.proxmox.node_drain) does.
      - If the module runs on the controller, the task output shows a line for each VM in any case.
    type: path
attributes:
  check_mode:
    support: full
    details:
      - Returns the complete decision. Writes nothing to the cluster and reserves nothing in the ledger.
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
  - qemu_scheduler.proxmox.hosts
  - qemu_scheduler.proxmox.hosts.pools
  - qemu_scheduler.proxmox.vms
  - qemu_scheduler.proxmox.scheduling
  - qemu_scheduler.proxmox.scheduling.recording
  - qemu_scheduler.proxmox.scheduling.requests
  - qemu_scheduler.proxmox.scheduling.search
  - qemu_scheduler.proxmox.clusters
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
"""

EXAMPLES = r"""
- name: Show where a VM would be placed, and why
  qemu_scheduler.proxmox.qemu_schedule:
    name: web-1
    cores: 2
    memory: 4096
    scsi: {scsi0: {size: 32}}
  check_mode: true
  register: plan

- name: Print the decision in one sentence
  ansible.builtin.debug:
    msg: "{{ plan.vms[0].decision.message }}"

- name: Create and start one VM on the best node
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

- name: Restore the latest backup of VM 240 to the best node
  qemu_scheduler.proxmox.qemu_schedule:
    name: wiki
    archive: 240
    memory: 8192
    state: started

- name: Move a disk to another storage
  qemu_scheduler.proxmox.qemu_schedule:
    name: wiki
    scsi: {scsi0: "ceph-vm:32"}
    update: true

- name: Write a plan to a file, to be approved
  qemu_scheduler.proxmox.qemu_schedule:
    plan_file: /srv/plans/shop.json
    vms: "{{ shop_vms }}"
  check_mode: true

- name: Carry out exactly this plan
  qemu_scheduler.proxmox.qemu_schedule:
    apply: /srv/plans/shop.json
    vms: "{{ shop_vms }}"

- name: Take the VMID from a range
  qemu_scheduler.proxmox.qemu_schedule:
    name: ci-runner
    memory: 2048
    vmid_range: 5000-5999

- name: Let up to three other guests move if the VM fits nowhere
  qemu_scheduler.proxmox.qemu_schedule:
    name: warehouse
    memory: 131072
    make_room:
      max_moves: 3

- name: Use the options of proxmox_kvm, without the node
  qemu_scheduler.proxmox.qemu_schedule:
    name: spare
    cores: 4
    memory: 8192
    virtio: {virtio0: "local-lvm:32,format=raw"}
    net: {net0: "virtio,bridge=vmbr1,rate=200"}
    onboot: true

- name: Choose among two clusters, and spread the VMs over them
  qemu_scheduler.proxmox.qemu_schedule:
    api_user: automation@pve
    api_token_id: ansible
    clusters:
      - {name: north, api_host: north-1.example.com, api_token_secret: "{{ north_secret }}", labels: {region: eu}}
      - {name: south, api_host: south-1.example.com, api_token_secret: "{{ south_secret }}", labels: {region: eu}}
    memory: 4096
    tags: [web]
    topology_spread: [{topology_key: cluster, tags: [web]}]
    vms: [{name: "web-{n}", count: 4}]

- name: Decide offline, with a recorded cluster
  qemu_scheduler.proxmox.qemu_schedule:
    snapshot: recorded-cluster.json
    name: web-1
    memory: 4096
"""

RETURN = r"""
vms:
  description: One entry per VM, in the order of the task. Also returned on failure.
  returned: when the cluster was read
  type: list
  elements: dict
  contains:
    cluster:
      description: Name of the cluster of the VM, in check mode the one that it would be placed on.
      returned: with O(clusters), unless there is no VM
      type: str
    name:
      description: Name of the VM.
      type: str
      sample: web-1
    vmid:
      description: VMID of the VM, in check mode the one that it would get. Null if there is no VM.
      type: int
      sample: 104
    node:
      description: Node of the VM, in check mode the one that it would be placed on. Null if there is no VM.
      type: str
      sample: pve2
    status:
      description:
        - Status of the VM after the task. V(absent) if there is no VM.
        - Null if it is unknown, for example if the VM failed and could not be read, or if its creation still runs.
      type: str
      sample: running
    changed:
      description: Whether this VM was changed, or in check mode would be changed.
      type: bool
    action:
      description: The first entry of C(actions), or V(none).
      type: str
      sample: create
    actions:
      description:
        - The performed actions, in order. Any of V(create), V(clone), V(restore), V(finish), V(update), V(start),
          V(stop), V(reboot), V(restart), V(pause), V(resume), V(suspend), V(delete). V(reboot) shuts the VM down and
          starts it, see O(apply_pending).
        - V(finish) completes a VM that an earlier run created only in part. It does not depend on O(update).
      type: list
      elements: str
      sample: [create, start]
    not_done:
      description:
        - Planned actions that were not performed because this VM failed, or because O(all_or_nothing) held the task
          back.
        - An update that failed after a part of it was applied is listed in C(actions).
      type: list
      elements: str
      sample: []
    tags:
      description: The requested tags.
      type: list
      elements: str
      sample: [db, web]
    host:
      description:
        - The VM as a host of an inventory. C(name) is its name in the task, null if the task names only its VMID.
          C(groups) contains O(host_groups). C(vars) contains O(host_vars), C(ansible_user) from O(ciuser), and
          C(ansible_host) from the first static address in O(ipconfig). For an existing VM they are what it has now,
          which without O(update), and until the guest boots, may be something else than the task requests.
      type: dict
      sample: {name: shop-1, groups: [shop], vars: {ansible_user: admin, ansible_host: 192.0.2.10}}
    storages:
      description: The storage of each drive of a new VM.
      type: dict
      sample: {scsi0: local-zfs}
    drift:
      description: Each parameter in which an existing VM has drifted from the request, with C(old) and C(new).
      type: dict
      sample: {cores: {old: 2, new: 4}}
    pending:
      description:
        - Each pending change of a running VM. C(old) is in effect. C(new) takes effect after the VM is stopped and
          started.
      type: dict
      sample: {memory: {old: 2048, new: 4096}}
    attempts:
      description: Number of scheduling attempts.
      type: int
      sample: 1
    waited:
      description: Seconds spent waiting for capacity.
      type: float
      sample: 0.0
    waited_for:
      description: The plugins that rejected nodes while the VM was waiting.
      type: list
      elements: str
      sample: [MemoryOvercommit]
    why:
      description: The reason in the plan that was applied. The run itself could only decide as planned.
      returned: with O(apply), for a VM that it creates
      type: str
      sample: VM "web-1" goes to pve2 as 104 with score 88.4, 3.1 ahead of pve3
    limit_broken:
      description:
        - The exceeded limit of the node, if another scheduler chose the same node at the same time.
        - Checked only without a shared ledger, see O(reservations).
      type: str
    error:
      description: Why this VM failed. Contains C(code), C(message) and further details.
      returned: when it failed
      type: dict
    decision:
      description: The decision about a new VM, with its reasons. Null for an existing VM.
      type: dict
      contains:
        node:
          description: The chosen node. Null if no node was feasible.
          type: str
        vmid:
          description: The chosen VMID.
          type: int
        score:
          description: Score of that node, the weighted mean of the plugins' scores, 0 to 100.
          type: float
        storages:
          description: The storage of each drive.
          type: dict
        devices:
          description: The passthrough devices allocated to the VM's claims.
          type: list
          elements: dict
        clusters:
          description:
            - For each cluster its C(cluster) (name), best C(node) and C(score) (0 to 100), or the C(reason) against it,
              and its C(preference) (0 to 100) by preferred rules between clusters.
          returned: with O(clusters)
          type: list
          elements: dict
        runner_up:
          description: The second-best feasible node, and how far behind it is. Null if there is none.
          type: dict
          contains:
            node:
              description: Name of the node.
              type: str
            distance:
              description:
                - Difference to the score of the chosen node. Negative if the node was chosen so that all VMs of the
                  task fit.
              type: float
        turn:
          description:
            - The position, from 1, at which the VM was decided among the new VMs of the task. VMs with a higher
              priority are decided first, then larger VMs.
            - Null if the VM has no node, if all VMs of the task were placed together, and with O(clusters).
          type: int
        message:
          description: The decision in one sentence.
          type: str
          sample: VM "web-1" goes to pve2 as 104 with score 88.4, 3.1 ahead of pve4
        findings:
          description:
            - Findings about a VM that could not be placed, by plugin.
            - C(summary) of a plugin states in one sentence what would make the VM fit. The error message ends with it,
              unless the cause is a name that does not exist.
          type: dict
        rejections:
          description: The rejected nodes by plugin and reason, those that concern the most nodes first.
          type: list
          elements: dict
          contains:
            rejected_by:
              description: The filter that rejected them.
              type: str
            reason:
              description: Why they were rejected, without the details that differ between nodes.
              type: str
              sample: would exceed the memory overcommit ratio 1.0
            count:
              description: The number of nodes.
              type: int
            nodes:
              description: Names of the first five of them.
              type: list
              elements: str
        nodes:
          description:
            - The nodes, with the total score and the score per plugin, or with the plugin that rejected the node.
            - Every node of a cluster of up to O(decision_nodes) nodes, the five best nodes of a larger one.
            - If more than 20 VMs fit nowhere for the same reasons, this list and C(findings) are empty for the others.
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
              description: The weighted mean of its scores, 0 to 100. Null if the node was rejected.
              type: float
            scores:
              description: C(raw), C(normalized) (0 to 100) and C(weight) of each score plugin.
              type: dict
            rejected_by:
              description: The filter that rejected it.
              type: str
            reason:
              description: Why the node was rejected.
              type: str
              sample: would exceed the memory overcommit ratio 1.0 (70.0 GiB against a limit of 64.0 GiB)
nodes:
  description:
    - Allocated resources of each node before and after the task, also in check mode. Running guests count with their
      configured resources.
    - Not returned if the task fails before it reads the nodes, for example because of an invalid option.
  returned: when the nodes were read, or nothing failed
  type: list
  elements: dict
  contains:
    cluster:
      description: Name of the cluster.
      returned: with O(clusters)
      type: str
    node:
      description: Name of the node.
      type: str
    online:
      description: Whether the node is online.
      type: bool
    maintenance:
      description: Whether the node is in maintenance mode.
      type: bool
    cores:
      description: Number of logical CPUs.
      type: int
    cores_limit:
      description: Allocatable vCPUs, by the profile of the task. Null if there is no limit.
      type: float
    cores_before:
      description: Allocated vCPUs before the task.
      type: float
    cores_after:
      description: Allocated vCPUs after the task.
      type: float
    memory:
      description: Memory of the node, in MiB.
      type: int
    memory_limit:
      description: Allocatable memory, in MiB. Null if there is no limit.
      type: int
    memory_before:
      description: Allocated memory before the task, in MiB.
      type: int
    memory_after:
      description: Allocated memory after the task, in MiB.
      type: int
    storages:
      description: Storages for disks, with C(storage), C(shared), and C(total), C(before) and C(after) in GiB.
      type: list
      elements: dict
    guests:
      description:
        - The guests that were on the node before the task, without templates, with C(vmid), C(name), C(type),
          C(status), C(cores) and C(memory) in MiB.
      returned: with O(node_guests)
      type: list
      elements: dict
plan:
  description: The plan of moves of O(make_room). The page on the plan document of this collection describes its keys.
  returned: when guests were or would be moved
  type: dict
moves:
  description:
    - The result of each move of O(make_room), as M(qemu_scheduler.proxmox.node_drain) returns it. Empty in check mode.
  returned: when guests were or would be moved
  type: list
  elements: dict
loads:
  description:
    - What is allocated on each node before, at the peak of and after these moves, as in the plan. After a failure, it
      counts only the moves that were made.
  returned: when guests were or would be moved
  type: dict
vm_plan:
  description:
    - The plan that O(plan_file) writes and O(apply) carries out, with the actions for each VM and the moves of other
      guests.
    - The page on the plan document of this collection describes its keys.
  returned: in check mode, with O(plan_file) and with O(apply), if no VM failed
  type: dict
check_mode:
  description: Whether the task ran in check mode, so that nothing was written.
  returned: success, and on failure after the VMs were looked at
  type: bool
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
  description: Stable code of the error. If several VMs failed, that of the first one.
  returned: on failure
  type: str
  sample: NoNodesAvailable
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import (
    CLUSTER_OPTIONS,
    CLUSTERS_OPTIONS,
    MOVES_OPTIONS,
    ONE_VM_OPTIONS,
    RUN_OPTIONS,
    SEARCH_OPTIONS,
    Spec,
    vms_argument_spec,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.schedule import schedule


def argument_spec() -> Spec:
    """Return the options of the module."""
    return {
        **CLUSTER_OPTIONS,
        **CLUSTERS_OPTIONS,
        **RUN_OPTIONS,
        **SEARCH_OPTIONS,
        **vms_argument_spec(),
        "all_or_nothing": {"type": "bool", "default": True},
        "decision_nodes": {"type": "int", "default": 50},
        "force": {"type": "bool", "default": False},
        "make_room": {"type": "dict", "options": MOVES_OPTIONS},
        "node_guests": {"type": "bool", "default": False},
        "parallel_creates": {"type": "int", "default": 4},
        "shutdown_timeout": {"type": "int"},
        "timeout": {"type": "int", "default": 600},
        "wait_for_capacity": {"type": "int", "default": 0},
        "plan_file": {"type": "path"},
        "apply": {"type": "raw"},
        "progress_file": {"type": "path"},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(
        argument_spec=argument_spec(), mutually_exclusive=[("apply", "plan_file")], supports_check_mode=True
    )
    answer(
        module,
        partial(schedule, module.params, ONE_VM_OPTIONS, check_mode=module.check_mode, warn=module.warn),
    )


if __name__ == "__main__":
    main()
