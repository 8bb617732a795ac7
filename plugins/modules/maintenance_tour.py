#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the maintenance of nodes of a Proxmox VE cluster as a whole, and keeps what it sets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance_tour
short_description: Plan the maintenance of nodes of a Proxmox VE cluster as a whole
version_added: 1.0.0
description:
  - With O(state=planned), plans the maintenance of several nodes, one after the other, before the first guest moves,
    and writes nothing. Guests go straight to nodes that are done, so that most of them move once.
  - The task fails, and returns all reasons in RV(refused), if a node could not be maintained in its turn. Reasons are
    guests that cannot leave their node, room on the other nodes at each step, the quorum while a node is away, the
    health of the nodes and of Ceph, and rights that the user lacks.
  - Options about moves are those of M(qemu_scheduler.proxmox.node_drain), so that both modules can get the same. Those
    that concern only how moves are made have no effect here.
  - The other states are the steps of the role P(qemu_scheduler.proxmox.rolling_maintenance#role). They keep what the
    tour has set in the comment of an empty pool named C(maintenance-tour), so that the next run can go on or undo it.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  name:
    description:
      - The nodes to maintain. With O(state=planned), the default is all nodes of the cluster. V(begun), V(entered),
        V(prepared) and V(left) require exactly one node, V(finished) one or more.
    type: list
    elements: str
    default: []
    aliases: [node]
  state:
    description:
      - V(planned) plans the tour.
      - V(begun) notes that the maintenance of the node begins, and keeps the HA manager from balancing the nodes by
        itself (C(ha-auto-rebalance)) until V(ended).
      - V(entered) waits until the node is in HA maintenance, and V(left) until it no longer is. The Proxmox VE API
        cannot switch HA maintenance on or off. Run C(ha-manager crm-command node-maintenance) on a node for that.
      - V(prepared) sets the flag C(noout) of Ceph, shuts down the guests in O(shut_down), and fails if any guest that
        is not in O(may_run) still runs on the node.
      - V(finished) starts these guests again, removes the flag, and notes that the node is done.
      - V(released) is for a node that did not come back. It removes the flag, lets the HA manager balance the nodes
        again, and starts the guests of O(name) again.
      - V(ended) undoes what is left of the settings that the tour has made, and removes the record. Nodes whose
        maintenance has begun and not ended stay in it, with the guests that were shut down there.
      - V(recorded) reports the record that an earlier run has left.
    type: str
    choices: [planned, begun, entered, prepared, left, finished, released, ended, recorded]
    default: planned
  keep_order:
    description: Whether the nodes are maintained in the given order. Otherwise, the order with the fewest
      moves is chosen.
    type: bool
    default: false
  homes:
    description:
      - Whether the guests of a node return to it after its maintenance. Every guest then moves twice.
    type: bool
    default: false
  only_if:
    description:
      - Only nodes that meet one of these conditions are maintained. The others are not emptied. C(skipped) lists them.
      - V(updates), if packages have updates, as far as the last C(apt update) on the node found them. Requires
        C(Sys.Modify) on the node.
      - V(kernel), if a kernel is installed that is newer than the one that runs. Requires C(Sys.Audit) on the node.
    type: list
    elements: str
    choices: [updates, kernel]
    default: []
  needed:
    description:
      - Nodes that need maintenance for reasons which only the task knows, as a mapping from each node to the reason as
        text, or to V(true). An empty text or V(false) means no reason, like a node that is not named.
      - With this option, only nodes that have a reason, here or by O(only_if), are maintained.
    type: dict
  accept:
    description:
      - Names of known problems that are no reason to refuse the tour, as C(name) in RV(refused) has them, such as
        V(quorum), V(ceph:POOL_NEARFULL), V(service:pvestatd) or V(storage:nfs-1). The part before a colon stands for
        all problems of this kind.
    type: list
    elements: str
    default: []
  ceph_noout:
    description: Whether to set the flag C(noout) of Ceph. A flag that was set before stays set.
    type: bool
    default: true
  ha_maintenance:
    description:
      - Whether each node is in HA maintenance while it is emptied and maintained. The HA manager then moves its
        resources off the node by itself, including those that it would otherwise move back to the node.
      - With O(state=begun), RV(record) names the node as one to put into HA maintenance, unless it is in HA maintenance
        already or the cluster has no HA resources.
    type: bool
    default: false
  agents:
    description:
      - Whether the guest agents that answered with O(state=begun) must answer with O(state=finished), within O(timeout)
        seconds. Needs C(VM.GuestAgent.Audit), or before Proxmox VE 9 C(VM.Monitor), on the guests.
    type: bool
    default: false
  backup_window:
    description:
      - The tour is refused if a backup job begins within this many hours, because guests that are being backed up
        cannot leave their node. Reading the jobs requires C(Sys.Audit) on C(/). With V(0), the jobs are not read.
    type: float
    default: 0.0
  resume:
    description: Hours for which a node that was maintained counts as done if the tour was interrupted.
    type: float
    default: 12.0
  parallel_nodes:
    description:
      - Maximum number of nodes that share a turn of the tour, and are away at once. A step of the tour then has further
        nodes in C(beside).
      - Nodes share a turn only if one plan empties all of them, with room for their guests and within all rules, and if
        the other nodes keep quorum. Otherwise, a turn has fewer nodes. No guest is shut down because nodes share a
        turn. Nodes whose maintenance an earlier run has begun share it only with each other.
      - Of the nodes on which Ceph is installed, at most one is in a turn.
    type: int
    default: 1
  shut_down:
    description: The VMIDs of the guests to shut down, for O(state=prepared).
    type: list
    elements: int
    default: []
  may_run:
    description: The VMIDs of guests that may run on the node, for O(state=prepared).
    type: list
    elements: int
    default: []
  move_pinned:
    description: Whether guests are moved although a tag keeps them in place or pins them to a node that is maintained.
    type: bool
    default: false
  allow_hidden:
    description: Whether the tour is planned although guests may be hidden from the user.
    type: bool
    default: false
  apply:
    description:
      - A tour that was planned before, as the path of the file that was written with O(plan_file), or as RV(tour) of
        another task. The task fails with C(PlanStale) if the tour that it plans now differs from that one in more than
        nodes that are done and moves that were made already.
      - With O(state=prepared), this is the tour whose steps name the guests in O(shut_down) and O(may_run). If a VMID
        of one of them belongs to another guest by now, that guest is not shut down. If it runs, the task fails.
    type: raw
seealso:
  - module: qemu_scheduler.proxmox.node_drain
extends_documentation_fragment:
  - qemu_scheduler.proxmox.moves
  - qemu_scheduler.proxmox.moves.guests
  - qemu_scheduler.proxmox.moves.shutdown
  - qemu_scheduler.proxmox.scheduling
  - qemu_scheduler.proxmox.scheduling.search
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
attributes:
  check_mode:
    support: full
    details:
      - V(planned) and V(recorded) write nothing in any case.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: See whether all nodes can be maintained tonight
  qemu_scheduler.proxmox.maintenance_tour:
    only_if: [updates, kernel]
    guests:
      - {tags: [gpu], action: shut_down}
      - {status: stopped, immovable: true, action: stay}
  register: night

- name: Show the order
  ansible.builtin.debug:
    msg: "{{ night.tour.steps | map(attribute='node') | join(', ') }}: {{ night.total_moves }} moves"
"""

RETURN = r"""
tour:
  description: The plan. The page on the plan document of this collection describes its keys.
  returned: state=planned, also if the tour is refused
  type: dict
refused:
  description:
    - Why the tour is refused. Each reason has the C(node) (empty if it concerns the whole cluster), C(name) (for
      O(accept); empty if it cannot be accepted), C(why) and C(cure).
  returned: state=planned, also if the tour is refused
  type: list
  elements: dict
  sample: [{node: pve3, name: quorum, why: "without it, 1 of 3 votes are left, and 2 are needed", cure: ...}]
total_moves:
  description: How many guests move during the tour. A guest that moves twice counts twice.
  returned: state=planned, also if the tour is refused
  type: int
done:
  description: The nodes that were maintained already.
  returned: state=planned, also if the tour is refused
  type: list
  elements: str
unfinished:
  description: Nodes of O(name) whose maintenance an earlier run has begun and not ended, and that need none any more.
  returned: state=planned, also if the tour is refused
  type: list
  elements: str
names:
  description: The names of the guests that are not moved, by VMID.
  returned: state=planned, also if the tour is refused
  type: dict
record:
  description: What the tour has begun and set.
  returned: other states
  type: dict
  sample: {begun: [pve2], done: {pve1: 1795650000}, set: [noout], "off": {pve2: [104]}, ha_maintenance: [pve2]}
started:
  description: The VMIDs of the guests that were started again.
  returned: other states
  type: list
  elements: int
nodes:
  description: The nodes that are online.
  returned: other states
  type: list
  elements: str
"off":
  description: The VMIDs of the guests that were shut down.
  returned: other states
  type: list
  elements: int
error_code:
  description: Stable code of the error, such as V(TourRefused).
  returned: on failure
  type: str
  sample: TourRefused
error_details:
  description: Further data about the error.
  returned: on failure
  type: dict
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.carried_out import carry_out
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.tour_options import (
    PLANNED,
    tour_argument_spec,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.tour_planning import (
    plan_maintenance,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import Spec


def argument_spec() -> Spec:
    """Return the options of the module."""
    return tour_argument_spec()


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(
        argument_spec=argument_spec(), mutually_exclusive=[("apply", "plan_file")], supports_check_mode=True
    )
    run = plan_maintenance if module.params["state"] == PLANNED else carry_out
    answer(module, partial(run, module.params, check_mode=module.check_mode, warn=module.warn))


if __name__ == "__main__":
    main()
