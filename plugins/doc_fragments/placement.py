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
      - The node that the VM must go to. Without it the node is chosen.
      - A VM that exists elsewhere is not moved; the difference is told.
    type: str
    aliases: [target]
  node_regex:
    description:
      - Regular expression that the whole name of the node must match, for example V(pve[1-3]).
      - Every pattern of names, here and in other options, may use literals, classes, groups, alternatives, repeats and
        anchors. V((?i\)) at the beginning ignores case. Backreferences, look-around and V(\b) are errors, so that no
        pattern takes long to match.
    type: str
  vmid_range:
    description:
      - The VMIDs to choose from, both ends included, for example V(100-150). The lowest free one is taken.
    type: str
  vmid_regex:
    description:
      - Regular expression that the whole VMID must match, for example V((12[0-9]|130\)). The lowest free one is taken.
      - With O(vmid_range) as well, both must hold.
      - The same syntax as in O(node_regex).
    type: str
  context:
    description:
      - The same wishes by the keys of qemu-scheduler, C(node.qemu-scheduler/regex), C(vmid.qemu-scheduler/range) and
        C(vmid.qemu-scheduler/regex), and further keys that plugins read.
      - Another key of qemu-scheduler is an error. A key that contradicts the option of the same meaning is an error.
    type: dict
  affinity:
    description:
      - Other VMs that the VM is to be with, or apart from.
      - VMs are selected by name, tags, pool or group; where several are given, all must hold. VMs and containers count
        whether they run or not, templates do not.
      - A VM of this task, new or not, or one that another run is creating, keeps away those that it must be apart from.
        Proxmox VE does not store these rules, so VMs of other tasks do not; for a rule that lasts, see O(ha).
    type: list
    elements: dict
    suboptions:
      type:
        description: Whether to be in one domain with the selected VMs, or in another one.
        type: str
        choices: [with, apart]
        required: true
      name:
        description: Regular expression that matches the whole name of the VMs.
        type: str
      tags:
        description: Tags that the VMs bear, all of them. Case does not matter.
        type: list
        elements: str
      pool:
        description: The pool that the VMs are in.
        type: str
      group:
        description: The O(group) of this run that the VMs belong to.
        type: str
      required:
        description:
          - Whether the VM is rather not placed than placed against the rule. V(true) when this is not given.
          - A VM that must be with others of which none is there yet may be the first if it is one of them itself.
        type: bool
      weight:
        description: How much the wish counts, from 1 to 100, when it is not required. V(1) when this is not given.
        type: int
      topology_key:
        description:
          - The node label whose values are the domains, for example V(rack).
          - V(node), which is meant when this is not given, makes each node a domain.
        type: str
  topology_spread:
    description:
      - Spreads the selected VMs evenly over domains. VMs are selected as in O(affinity).
      - Only nodes that O(node), O(node_regex) and O(node_affinity) allow, and that have the label, make up domains.
    type: list
    elements: dict
    suboptions:
      topology_key:
        description: The node label whose values are the domains; V(node) makes each node a domain.
        type: str
        required: true
      max_skew:
        description:
          - How many VMs more than the emptiest domain any other may hold. V(1) when this is not given.
        type: int
      when_unsatisfiable:
        description:
          - V(do_not_schedule) refuses nodes where the VM would break the rule, and is meant when this is not given.
          - V(schedule_anyway) prefers the emptier domains.
        type: str
        choices: [do_not_schedule, schedule_anyway]
      name:
        description: Regular expression that matches the whole name of the VMs.
        type: str
      tags:
        description: Tags that the VMs bear, all of them. Case does not matter.
        type: list
        elements: str
      pool:
        description: The pool that the VMs are in.
        type: str
      group:
        description: The O(group) of this run that the VMs belong to.
        type: str
  node_affinity:
    description:
      - What the labels of the node must be, or should be. The label V(node) is the node's name.
    type: dict
    suboptions:
      required:
        description: Expressions that must all hold.
        type: list
        elements: dict
        suboptions:
          key:
            description: The label.
            type: str
            required: true
          operator:
            description:
              - V(In) and V(NotIn) compare with O(node_affinity.required[].values). V(NotIn) holds without the label,
                too.
              - V(Exists) and V(DoesNotExist) ask for the label only.
              - V(Gt) and V(Lt) compare whole numbers.
            type: str
            choices: [In, NotIn, Exists, DoesNotExist, Gt, Lt]
            required: true
          values:
            description: One value or more for V(In) and V(NotIn), exactly one for V(Gt) and V(Lt).
            type: list
            elements: str
      preferred:
        description: Expressions that are better held.
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
            description: How much it counts, from 1 to 100. V(1) when this is not given.
            type: int
  tolerations:
    description:
      - Taints of nodes that do not keep this VM away.
    type: list
    elements: dict
    suboptions:
      key:
        description: The taint's key. Without it, with operator V(Exists), every taint is tolerated.
        type: str
      operator:
        description:
          - V(Equal) compares the value as well, V(Exists) does not. V(Equal) when this is not given.
        type: str
        choices: [Equal, Exists]
      value:
        description: The taint's value.
        type: str
      effect:
        description: Only taints of this effect. Taints of both when this is not given.
        type: str
        choices: [NoSchedule, PreferNoSchedule]
  ha:
    description:
      - Makes the VM one that the HA manager keeps. It goes where the HA manager would leave it.
      - A rule that does not exist, or that Proxmox VE would refuse with this VM in it, fails the VM before anything is
        written.
      - Of a VM that exists, what is given here is compared, and applied with O(update). A VM is never taken out of HA
        or a rule.
    type: dict
    suboptions:
      rule:
        description: The HA rule that the VM joins (Proxmox VE 9 and later).
        type: str
      group:
        description: The HA group that the VM joins (before Proxmox VE 9).
        type: str
      state:
        description:
          - What the HA manager is to do with the VM. When this is not given, V(stopped) for a template and with
            O(state=stopped), else V(started).
          - What contradicts O(state) or O(template) is an error.
        type: str
        choices: [started, stopped, disabled, ignored]
  group:
    description:
      - VMs of this run that are placed together or not at all.
    type: dict
    suboptions:
      name:
        description: What the group is called.
        type: str
        required: true
      min_available:
        description: How many of its VMs must find a place, the same for all of them. Without it, all of them must.
        type: int
  priority:
    description:
      - VMs of higher priority are placed first, VMs of the same priority in the order in which they are written.
      - A whole number, or the name of a priority class. V(0) when this is not given.
    type: str
  scheduling_gates:
    description:
      - Names of what has to happen before the VM may be placed. A VM with any of them is not placed.
    type: list
    elements: str
  profile:
    description:
      - The profile by which the VM is placed, V(balanced), V(pack), V(spread), V(proxmox) or one of your own.
    type: str
"""
