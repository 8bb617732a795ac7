#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves guests so that rules hold and nodes are evenly full, or empty."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_rebalance
short_description: Move guests of a Proxmox VE cluster to repair rules, to balance nodes, or to empty nodes
version_added: 1.0.0
description:
  - Moves guests by a plan that reaches the O(goals) with as few moves as possible. Does not change a cluster that meets
    them.
  - Uses the placement rules and limits of M(qemu_scheduler.proxmox.qemu_schedule). The plan respects them at every
    moment. Guests that are being migrated count on both nodes.
  - Moves no guest to a node that M(qemu_scheduler.proxmox.node_drain) keeps free of guests.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  goals:
    description:
      - V(repair) moves guests that break a rule (HA rules, O(rules), rules in tags) or a limit of their node.
      - V(balance) evens out the load of the nodes if it differs by more than O(threshold). The load of a node is the
        fraction of its allocatable CPU or memory that is allocated, whichever is larger. O(balance) can base the load
        on what the nodes use instead.
      - V(consolidate) empties as many nodes as possible. It cannot be combined with V(balance).
    type: list
    elements: str
    choices: [repair, balance, consolidate]
    default: [repair]
  threshold:
    description:
      - For V(balance), the acceptable difference between the highest and the lowest load. Defaults to V(0.15).
    type: float
  margin:
    description:
      - With V(balance), the amount by which a move must at least reduce the load of the busier of its two nodes.
        Defaults to V(0.02).
    type: float
  cooldown:
    description:
      - Guests that were moved within this many seconds are not moved again for V(balance) and V(consolidate), also
        if another user or process moved them. V(repair) moves them if they break a rule or a limit.
      - The tasks of the nodes show when guests were moved. Without the privilege C(Sys.Audit) on the nodes, only the
        moves of the same user are seen.
      - Defaults to V(3600).
    type: int
  balance:
    description:
      - How nodes are balanced. Setting this option adds V(balance) to O(goals).
      - O(balance.by) sets what the load of a node is. In any case, no node gets more guests than its limits of
        allocation permit.
    type: dict
    suboptions:
      by:
        description:
          - V(allocated) is the fraction of CPU or memory that is allocated, whichever is larger.
          - V(used) is the fraction of CPU or memory that was used, whichever is larger. It is a percentile of the
            statistics that Proxmox VE keeps, so that short peaks do not count. Memory that the node uses as a cache
            does not count, and neither does the cache of ZFS where Proxmox VE reports it (since 9.0).
          - V(pressure) is the fraction of time in which tasks on the node waited for CPU, disk or memory, whichever is
            the largest. Proxmox VE reports it since 9.0. The guests that use most of that resource leave.
          - V(used) and V(pressure) make one request for each node, one for each node and kind of guests, and one for
            each running guest of the nodes to relieve, at most once an hour. They require C(Sys.Audit) on the nodes and
            C(VM.Audit) on the guests. A node of which less than half of the window is known takes no part.
          - What a node used is calculated as if its present guests had been there during the whole window. So
            guests that were moved do not move again because of the time before.
        type: str
        choices: [allocated, used, pressure]
        default: allocated
      threshold:
        description: The same as O(threshold). Only one of the two may be set. Defaults to V(0.1) for V(used).
        type: float
      margin:
        description:
          - The same as O(margin). Defaults to V(0.05) for V(used) and V(pressure). A live move that
            takes about ten minutes, according to the size of the guest or to its last move within the window, has to
            gain twice as much. A move with downtime, or back to a node that the guest left within the window, has to
            gain three times as much. For a node with a load above 80 %, a third of O(balance.threshold) and of
            O(balance.margin) is enough.
        type: float
      cooldown:
        description: The same as O(cooldown).
        type: int
      percentile:
        description:
          - The percentile of the values in the window that counts as the load of a node. With V(95), it is the value
            that was exceeded during 5 % of the window. Defaults to V(95).
        type: float
      window:
        description:
          - Length of the window of past statistics, in seconds, at most a week. Defaults to V(86400). Up to one hour,
            the statistics have a value for each minute; for longer windows, for each half hour, or for each three hours
            if the window is longer than a day and the cluster runs Proxmox VE 8.
        type: int
      hold:
        description:
          - Seconds for which an imbalance must have lasted. The mean load during that time must differ by O(threshold),
            too. Defaults to V(3600), or to the window if that is shorter.
        type: int
      above:
        description:
          - Nodes with a lower load are not relieved. Defaults to V(0.5) for V(used) and to V(0.1) for V(pressure).
        type: float
      metrics:
        description: The same as O(metrics). Only one of the two may be set.
        type: dict
        suboptions:
          nodes:
            description: The same as O(metrics.nodes).
            type: dict
          guests:
            description: The same as O(metrics.guests).
            type: dict
seealso:
  - module: qemu_scheduler.proxmox.node_drain
  - module: qemu_scheduler.proxmox.qemu_schedule
extends_documentation_fragment:
  - qemu_scheduler.proxmox.moves
  - qemu_scheduler.proxmox.scheduling
  - qemu_scheduler.proxmox.scheduling.search
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
"""

EXAMPLES = r"""
- name: Move guests that break a rule or a limit
  qemu_scheduler.proxmox.cluster_rebalance:

- name: Balance the nodes, with ten moves at most
  qemu_scheduler.proxmox.cluster_rebalance:
    goals: [repair, balance]
    max_moves: 10

- name: Relieve nodes that were busy during the last day
  qemu_scheduler.proxmox.cluster_rebalance:
    goals: [balance]
    balance:
      by: used
      threshold: 0.2
    max_moves: 5

- name: Show which nodes could be switched off at night
  qemu_scheduler.proxmox.cluster_rebalance:
    goals: [consolidate]
  check_mode: true
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
  sample: [{id: 1, vmid: 101, name: web-1, from: pve3, to: pve1, why: balances pve3 and pve1, outcome: moved,
    node: pve1, seconds: 11.2}]
loads:
  description:
    - What is allocated on each node before, at the peak of and after the moves, as in the plan. After a failure, it
      counts only the moves that were made.
  returned: success, and on failure after the plan was made
  type: dict
usage:
  description:
    - What the nodes use, if they are balanced by that. Empty otherwise.
    - C(nodes) has the resources of each node (C(cpu), C(memory), or C(cpu_pressure), C(io_pressure) and
      C(memory_pressure)), as fractions of the node. C(before), C(peak) and C(after) are the percentile before, at the
      peak of and after the moves of the plan. C(curve) is what was used before in each part of the window, the oldest
      first; null where it is not known.
    - C(waits) has a sentence for each node that used more than others and is not relieved now, although nothing is
      wrong. The difference has not lasted for O(balance.hold), or is over, or no move is worth its cost.
  returned: success, and on failure after the plan was made
  type: dict
  sample: {by: used, percentile: 95.0, window: 86400.0, nodes: {pve1: {cpu: {before: 0.91, peak: 0.91, after: 0.74,
    curve: [0.89, 0.91]}}}, waits: []}
stuck:
  description:
    - The guests that stay although a goal requires them to move, each with the reason (C(why)) and what would cure it
      (C(cure)).
  returned: success, and on failure after the plan was made
  type: list
  elements: dict
  sample: []
check_mode:
  description: Whether the task ran in check mode, so that nothing was written.
  returned: success, and on failure after the plan was made
  type: bool
error_code:
  description: Stable code of the error, such as V(GoalsNotReached) when a rule stays broken.
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
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.balancing import balance_spec
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.move_options import (
    MOVING_OPTIONS,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.moves.rebalancing import (
    BALANCE,
    CONSOLIDATE,
    REPAIR,
    rebalance,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import Spec


def argument_spec() -> Spec:
    """Return the options of the module."""
    choices = [REPAIR, BALANCE, CONSOLIDATE]
    return {
        **MOVING_OPTIONS,
        "goals": {"type": "list", "elements": "str", "choices": choices, "default": [REPAIR]},
        "threshold": {"type": "float"},
        "margin": {"type": "float"},
        "cooldown": {"type": "int"},
        "balance": {"type": "dict", "options": balance_spec()},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(
        argument_spec=argument_spec(), mutually_exclusive=[("apply", "plan_file")], supports_check_mode=True
    )
    answer(module, partial(rebalance, module.params, check_mode=module.check_mode, warn=module.warn))


if __name__ == "__main__":
    main()
