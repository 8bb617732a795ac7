# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that say where a VM may go, which VMs it belongs with, and when it is placed."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragments C(placement) and C(placement.classes); the fragment C(vms) repeats the first for its entries."""

    DOCUMENTATION = r"""
options:
  node:
    description:
      - The node to place the VM on. Without it, the scheduler chooses the node.
      - An existing VM on another node is not moved. The difference is reported as drift.
    type: str
    aliases: [target]
  node_regex:
    description:
      - Regular expression that must match the whole name of the node, for example V(pve[1-3]).
      - Patterns for names, here and in other options, may use literals, classes, groups, alternatives, repeats and
        anchors. V((?i\)) at the beginning ignores case. Backreferences, look-around and V(\\b) are rejected, so that no
        pattern takes long to match.
    type: str
  cluster:
    description:
      - For tasks with C(clusters), the names of the clusters that the VM may be on. All clusters when this is not
        given.
      - The VM is searched for, and placed, on these clusters only. Changing the names does not move an existing VM.
    type: list
    elements: str
  vmid_range:
    description:
      - The VMIDs to choose from, both ends included, for example V(100-150) or V(100-150,200). The lowest free one is
        used.
    type: str
  vmid_regex:
    description:
      - Regular expression that must match the whole VMID, for example V((12[0-9]|130\)). The lowest free one is used.
      - If O(vmid_range) is set as well, the VMID must satisfy both.
      - The syntax is that of O(node_regex).
    type: str
  context:
    description:
      - The context keys of qemu-scheduler (C(node.qemu-scheduler/regex), C(vmid.qemu-scheduler/range) and
        C(vmid.qemu-scheduler/regex)), and keys that plugins read, for example C(delay) in seconds.
      - It is an error to set an unknown key of qemu-scheduler, or a key that contradicts the corresponding option.
    type: dict
  affinity:
    description:
      - Affinity and anti-affinity rules. Each rule places the VM in the same domain as the selected VMs, or in another
        domain.
      - A rule selects VMs by name, tags, pool or group. If several are given, a VM must match all of them. VMs and
        containers count whether they run or not. Templates do not count.
      - Anti-affinity works in both directions for the VMs of this task, new and existing, and for VMs that another run
        is creating. Proxmox VE does not store these rules, so the rules of other VMs are not known. For a permanent
        rule, see O(affinity[].lasting) and O(ha).
    type: list
    elements: dict
    suboptions:
      type:
        description:
          - V(affinity) places the VM in the domain of the selected VMs, V(anti-affinity) outside of it.
          - V(with) and V(apart) are older names of V(affinity) and V(anti-affinity).
        type: str
        choices: [affinity, anti-affinity, with, apart]
        required: true
      name:
        description: Regular expression that must match the whole name of a VM.
        type: str
      tags:
        description: Tags, all of which a VM must have. Case is ignored.
        type: list
        elements: str
      pool:
        description: The pool of the VMs.
        type: str
      group:
        description: The O(group) of the VMs in this run.
        type: str
      required:
        description:
          - Whether the rule is mandatory. If false, it only affects the score.
          - If an affinity rule selects no VM yet, it still allows a VM that matches the rule itself.
        type: bool
        default: true
      weight:
        description: Weight of a rule that is not required, from 1 to 100. Defaults to V(1).
        type: int
      topology_key:
        description:
          - The node label whose values define the domains, for example V(rack). V(node) makes each node a domain.
        type: str
        default: node
      lasting:
        description:
          - Whether the rule holds for later runs, too. The VM gets the tag C(plb_affinity_NAME) or
            C(plb_anti_affinity_NAME), see C(tag_rules). C(NAME) consists of the values that the rule selects VMs by,
            for example C(etcd) for the pattern C(etcd-.*).
          - Requires a rule that selects the VM itself, is required, and has the C(topology_key) V(node).
          - Without the option C(tags), an existing VM keeps its other tags.
        type: bool
  topology_spread:
    description:
      - Spreads the selected VMs evenly over domains. VMs are selected as in O(affinity).
      - Only nodes that have the label, and that O(node), O(node_regex) and O(node_affinity) allow, form domains.
    type: list
    elements: dict
    suboptions:
      topology_key:
        description: The node label whose values define the domains. V(node) makes each node a domain.
        type: str
        required: true
      max_skew:
        description:
          - Maximum difference between the number of VMs in any domain and in the emptiest domain.
        type: int
        default: 1
      when_unsatisfiable:
        description:
          - V(do_not_schedule) rejects nodes where the VM would break the rule.
          - V(schedule_anyway) prefers emptier domains, but rejects no node.
        type: str
        choices: [do_not_schedule, schedule_anyway]
        default: do_not_schedule
      name:
        description: Regular expression that must match the whole name of a VM.
        type: str
      tags:
        description: Tags, all of which a VM must have. Case is ignored.
        type: list
        elements: str
      pool:
        description: The pool of the VMs.
        type: str
      group:
        description: The O(group) of the VMs in this run.
        type: str
  node_affinity:
    description:
      - Requirements and preferences for the labels of the node. The label V(node) is the name of the node.
    type: dict
    suboptions:
      required:
        description: Requirements. A node must match all of them.
        type: list
        elements: dict
        suboptions:
          key:
            description: The label.
            type: str
            required: true
          operator:
            description:
              - V(In) and V(NotIn) compare with O(node_affinity.required[].values). V(NotIn) also matches a node without
                the label.
              - V(Exists) and V(DoesNotExist) test only whether the node has the label.
              - V(Gt) and V(Lt) compare whole numbers.
            type: str
            choices: [In, NotIn, Exists, DoesNotExist, Gt, Lt]
            required: true
          values:
            description: At least one value for V(In) and V(NotIn), exactly one for V(Gt) and V(Lt).
            type: list
            elements: str
          lasting:
            description:
              - Whether the requirement holds for later runs, too. The VM gets a tag C(plb_pin_NODE) for each value.
              - Requires the C(key) V(node) and the C(operator) V(In). Only one requirement of a VM can last.
            type: bool
      preferred:
        description: Preferences. Each match adds its weight to the node's score.
        type: list
        elements: dict
        suboptions:
          key:
            description: The label.
            type: str
            required: true
          operator:
            description: As in O(node_affinity.required[].operator).
            type: str
            choices: [In, NotIn, Exists, DoesNotExist, Gt, Lt]
            required: true
          values:
            description: As in O(node_affinity.required[].values).
            type: list
            elements: str
          weight:
            description: Weight of the preference, from 1 to 100.
            type: int
            default: 1
  tolerations:
    description:
      - Node taints that this VM tolerates.
    type: list
    elements: dict
    suboptions:
      key:
        description: The taint's key. Without a key, operator V(Exists) tolerates every taint.
        type: str
      operator:
        description:
          - V(Equal) also compares the value, V(Exists) does not.
        type: str
        choices: [Equal, Exists]
        default: Equal
      value:
        description: The taint's value.
        type: str
      effect:
        description: Tolerate only taints with this effect. By default, taints with either effect.
        type: str
        choices: [NoSchedule, PreferNoSchedule]
  ha:
    description:
      - Adds the VM as an HA resource. An empty mapping adds it in its default state, without a rule.
      - The VM is placed on a node from which the HA manager would not move it.
      - If the rule does not exist and O(ha.create) is not set, or Proxmox VE would refuse the rule with this VM, the VM
        fails before anything is written.
      - If a new VM gets disks on local storages, a warning names them. Without replication, the HA manager cannot
        recover such a VM on another node.
      - For an existing VM, the given settings are compared, and applied with O(update). A VM is never removed from HA
        or from a rule.
    type: dict
    suboptions:
      create:
        description:
          - How to make the O(ha.rule) or O(ha.group) if it does not exist, with the VMs that join it. An existing one
            is not changed. An empty mapping makes a rule that keeps its VMs on different nodes.
          - Proxmox VE refuses a rule between VMs that has one member only. The task must have two VMs that join such a
            new rule, and it is an error otherwise.
        type: dict
        suboptions:
          type:
            description:
              - The type of the rule. V(node-affinity) if O(ha.create.nodes) is given, else V(resource-affinity).
            type: str
            choices: [node-affinity, resource-affinity]
          affinity:
            description:
              - Whether the VMs are kept together or on the nodes (V(positive)), or apart or off them (V(negative)).
              - Defaults to V(negative) for a rule between VMs, and to V(positive) for one about nodes.
            type: str
            choices: [positive, negative]
          nodes:
            description:
              - 'The nodes, as a list, or as a mapping of their priorities, such as V({pve1: 2, pve2: 1}).'
            type: raw
          strict:
            description: Whether the VMs run on no other nodes than O(ha.create.nodes).
            type: bool
      rule:
        description: The HA rule that the VM joins (Proxmox VE 9 and later).
        type: str
      group:
        description: The HA group that the VM joins (before Proxmox VE 9).
        type: str
      state:
        description:
          - The requested state of the HA resource. When this is not given, V(stopped) for a template and with
            O(state=stopped), else V(started).
          - It is an error if this contradicts O(state) or O(template).
        type: str
        choices: [started, stopped, disabled, ignored]
  group:
    description:
      - VMs of this run that are placed together or not at all.
    type: dict
    suboptions:
      name:
        description: Name of the group.
        type: str
        required: true
      min_available:
        description: Minimum number of VMs to place, the same for all VMs of the group. Without it, all must be placed.
        type: int
  demand:
    description:
      - What the VM will usually use, if it is not what is configured. Only the plugins UsedLimit and Utilization use
        it.
      - Without it, running VMs with a similar name in the same pool tell it, or others of that pool.
    type: dict
    suboptions:
      cpu:
        description: Number of vCPUs, such as V(0.5).
        type: float
      memory:
        description: MiB.
        type: int
  priority:
    description:
      - VMs with a higher priority are placed first. VMs with the same priority are placed by size, the largest
        first.
      - A whole number, or the name of a priority class.
    type: str
    default: '0'
  scheduling_gates:
    description:
      - Gates that hold the VM back. The VM is placed only if C(open_gates) lists all of them.
    type: list
    elements: str
  profile:
    description:
      - The profile to place the VM with, V(balanced), V(pack), V(spread), V(proxmox) or one of your own.
    type: str
"""
