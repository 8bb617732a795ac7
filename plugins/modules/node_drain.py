#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Empties nodes of a Proxmox VE cluster and keeps new guests off them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_drain
short_description: Empty nodes of a Proxmox VE cluster, and keep new guests off them
version_added: 1.0.0
description:
  - Moves all guests of the nodes to other nodes, by a plan that needs as few moves as possible. Where the other nodes
    are too full, other guests are moved first to make room.
  - Uses the placement rules and limits of M(qemu_scheduler.proxmox.qemu_schedule). The plan respects them at every
    moment. Guests that are being migrated count on both nodes.
  - The HA manager moves HA resources, and the task waits until they have arrived.
  - Marks the nodes before anything moves. As long as a node is marked, the modules of this collection place no new VM
    there. The mark is an empty pool named C(drained-node-NODE).
  - A guest that cannot be moved stays. It is reported in RV(stuck) with the reason and a cure, and the task fails.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  name:
    description:
      - The nodes to drain, or to make active again.
    type: list
    elements: str
    required: true
    aliases: [node]
  state:
    description:
      - V(drained) empties the nodes and keeps new guests off them.
      - V(active) moves the drained guests back to the nodes, and then removes the marks. If a guest cannot move back,
        the mark of its node stays, and the task fails with C(GoalsNotReached). The next V(active) tries again.
      - With V(active), the task fails before it writes anything while a node that guests would return to is offline or
        in HA maintenance.
      - A guest returns only if it is the one that was on the node. One that was created with the same VMID since is
        named in a warning.
      - Local disks return to the storages that they left. Disks of a VM that shared one storage on the other node
        return to one, and those that were elsewhere are moved on from there. One that cannot is named in a warning.
    type: str
    choices: [drained, active]
    default: drained
  bring_back:
    description:
      - Whether O(state=active) moves the drained guests back. With V(false), the nodes are active at once, nothing is
        moved, and the module forgets which guests were on them.
    type: bool
    default: true
  prefer:
    description:
      - Nodes to which guests of drained nodes go first, as far as they have room and no rule forbids it. Among these
        nodes, and among all others, the scores of the profile choose.
      - For example, the nodes that have been maintained already, so that these guests need not move again.
    type: list
    elements: str
    default: []
  move_pinned:
    description:
      - Whether guests of the nodes are moved although a tag keeps them in place (C(plb_ignore)), or pins them to nodes
        that are all drained (C(plb_pin_NODE)). Set it with O(state=active) as well, to bring them back.
      - Guests of other nodes are not moved against such a tag. Other rules in tags stay in force.
    type: bool
    default: false
  allow_hidden:
    description:
      - Whether O(state=drained) may succeed although guests may be hidden from the user, by access control lists on
        their own paths or on their pools. Such guests stay on the node, which then only looks empty.
      - With V(false), the task fails before it writes anything if a guest is hidden, or if the user cannot see the
        access control lists. This requires the privilege C(Sys.Audit) on C(/access).
    type: bool
    default: false
  prove:
    description:
      - Whether a solver compares the plan with the optimum. In the plan, C(optimal) then states whether it is proved
        that no plan has fewer moves. No plan has fewer moves than C(moves_lower_bound). C(impossible) states whether no
        plan reaches the goal.
      - Requires the Python package highspy. The solver runs for up to ten seconds.
    type: bool
    default: false
seealso:
  - module: qemu_scheduler.proxmox.qemu_schedule
extends_documentation_fragment:
  - qemu_scheduler.proxmox.moves
  - qemu_scheduler.proxmox.moves.stays
  - qemu_scheduler.proxmox.scheduling
  - qemu_scheduler.proxmox.scheduling.search
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
"""

EXAMPLES = r"""
- name: Empty a node for maintenance
  qemu_scheduler.proxmox.node_drain:
    name: pve3

- name: Bring its guests back
  qemu_scheduler.proxmox.node_drain:
    name: pve3
    state: active

- name: Write the plan to a file for review
  qemu_scheduler.proxmox.node_drain:
    name: pve3
    plan_file: drain-pve3.json
  check_mode: true

- name: Carry out exactly this plan
  qemu_scheduler.proxmox.node_drain:
    name: pve3
    apply: drain-pve3.json

- name: Empty two nodes slowly, containers included
  qemu_scheduler.proxmox.node_drain:
    name: [pve3, pve4]
    containers: restart
    parallel: {cluster: 1}
    bwlimit: 102400
"""

RETURN = r"""
plan:
  description: The plan. The page on the plan document of this collection describes its keys.
  returned: success, and on failure after the plan was made
  type: dict
moves:
  description:
    - The result of each move. The outcome is V(moved), V(failed), V(stale) (the cluster was not as planned, and the
      move was not begun) or V(unknown) (it may still be under way).
    - Contains the moves of all plans of the run. The moves of a plan that was made after a failure have higher numbers
      (C(id)) than those before. Besides the result, a move has the keys of the plan.
    - Empty in check mode.
  returned: success, and on failure after the plan was made
  type: list
  elements: dict
  sample: [{id: 1, vmid: 101, name: web-1, from: pve3, to: pve1, why: drains pve3, outcome: moved, node: pve1,
    seconds: 11.2}]
loads:
  description:
    - What is allocated on each node before, at the peak of and after the moves, as in the plan. After a failure, it
      counts only the moves that were made.
  returned: success, and on failure after the plan was made
  type: dict
stuck:
  description: The guests that stay, each with the reason (C(why)) and what would cure it (C(cure)).
  returned: success, and on failure after the plan was made
  type: list
  elements: dict
  sample: [{vmid: 103, name: old, node: pve3, why: it is locked (backup), cure: ...}]
stays:
  description: The guests of the nodes that O(stays) lets stay.
  returned: success, and on failure after the plan was made
  type: list
  elements: dict
  sample: [{vmid: 130, name: archive, node: pve3}]
check_mode:
  description: Whether the task ran in check mode, so that nothing was written.
  returned: success, and on failure after the plan was made
  type: bool
error_code:
  description: Stable code of the error, such as V(GoalsNotReached) when guests stay.
  returned: on failure
  type: str
  sample: GoalsNotReached
error_details:
  description: Further data about the error.
  returned: on failure
  type: dict
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.draining import (
    ACTIVE,
    DRAINED,
    drain_nodes,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.move_options import (
    MOVING_OPTIONS,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.staying import STAYS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import Spec


def argument_spec() -> Spec:
    """Return the options of the module."""
    return {
        **MOVING_OPTIONS,
        "name": {"type": "list", "elements": "str", "required": True, "aliases": ["node"]},
        "state": {"type": "str", "choices": [DRAINED, ACTIVE], "default": DRAINED},
        "bring_back": {"type": "bool", "default": True},
        "stays": {"type": "list", "elements": "dict", "options": STAYS, "default": []},
        "prefer": {"type": "list", "elements": "str", "default": []},
        "move_pinned": {"type": "bool", "default": False},
        "allow_hidden": {"type": "bool", "default": False},
        "prove": {"type": "bool", "default": False},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(
        argument_spec=argument_spec(), mutually_exclusive=[("apply", "plan_file")], supports_check_mode=True
    )
    answer(module, partial(drain_nodes, module.params, check_mode=module.check_mode, warn=module.warn))


if __name__ == "__main__":
    main()
