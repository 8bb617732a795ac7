#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shuts a Proxmox VE cluster down, and starts it again as it was."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_power
short_description: Shut a Proxmox VE cluster down, and start it again as it was
version_added: 1.0.0
description:
  - With O(state=off), shuts all guests down in order, then the nodes. With O(state=on), wakes the nodes and starts the
    guests that ran before.
  - What ran and what was set is in the comment of an empty pool named C(cluster-shutdown), so that any controller can
    start the cluster again. After a failure or an interruption, the task can be repeated. O(state=on) undoes a shutdown
    at any moment, also while all nodes run.
  - In check mode, it shows every step and all reasons for a refusal, and changes nothing.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  state:
    description:
      - V(off) fails, with all reasons, if the cluster could not be started again as it was. Otherwise, it disarms HA,
        shuts down the guests, sets the flags of Ceph that keep its data in place, and shuts down the nodes. The node
        that answers is the last one.
      - V(on) waits until a node answers, wakes the others, waits until all of them are healthy, removes the flags,
        starts the guests, and arms HA again. Without a record, nothing is changed.
      - HA is disarmed only on releases of Proxmox VE that have C(disarm-ha). On others, the HA manager is asked to stop
        its resources, and later to start them again.
    type: str
    choices: ["off", "on"]
    required: true
  nodes:
    description:
      - Whether the nodes are shut down and woken, too. With V(off), flags of Ceph are set only then.
      - A node is woken by a packet from a node that runs, which needs C(wakeonlan) in the options of the node. Start
        the first node, and those that cannot be woken, by hand.
    type: bool
    default: true
  accept:
    description:
      - Names of known problems that are no reason to refuse, as C(name) in RV(refused) has them, such as V(offline),
        V(lock) or V(ceph:POOL_NEARFULL). With O(state=on), names of problems of nodes to ignore, as in
        M(qemu_scheduler.proxmox.node_health_info).
    type: list
    elements: str
    default: []
  parallel:
    description: How many guests are shut down or started at the same time.
    type: int
    default: 8
  wait:
    description:
      - Seconds within which nodes must be off, or answer and be healthy again. While HA is armed, the module does not
        wait until nodes are off.
    type: int
    default: 900
  timeout:
    description: Maximum time for a guest to start, and for HA to be disarmed or armed, in seconds.
    type: int
    default: 600
  allow_hidden:
    description: Whether the cluster is shut down although guests may be hidden from the user.
    type: bool
    default: false
seealso:
  - module: qemu_scheduler.proxmox.node_health_info
extends_documentation_fragment:
  - qemu_scheduler.proxmox.moves.order
  - qemu_scheduler.proxmox.moves.shutdown
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: See what a shutdown would do, and what is in its way
  qemu_scheduler.proxmox.cluster_power:
    state: "off"
    order:
      - {tags: [dns]}
      - {name: "db-.*"}
  check_mode: true

- name: Start everything that ran
  qemu_scheduler.proxmox.cluster_power:
    state: "on"
"""

RETURN = r"""
steps:
  description:
    - The steps in their order, each with C(what) is done, and the C(names) of the guests, nodes or flags that it
      concerns.
  returned: always
  type: list
  elements: dict
  sample: [{what: shut guests down, names: [web (101)]}, {what: shut nodes down, names: [pve2, pve3, pve1]}]
refused:
  description:
    - Why the shutdown is refused. Each reason has the C(node) (empty if it concerns the whole cluster), C(name) (for
      O(accept); empty if it cannot be accepted), C(why) and C(cure).
  returned: state=off
  type: list
  elements: dict
guests:
  description: The VMIDs of the guests that were shut down or started.
  returned: always
  type: list
  elements: int
switched_nodes:
  description: The nodes that were shut down or woken.
  returned: always
  type: list
  elements: str
error_code:
  description: Stable code of the error, such as V(ShutdownRefused).
  returned: on failure
  type: str
  sample: ShutdownRefused
error_details:
  description: Further data about the error.
  returned: on failure
  type: dict
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.cluster_options import (
    cluster_argument_spec,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.maintenance.cluster_power import (
    switch_cluster,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import Spec


def argument_spec() -> Spec:
    """Return the options of the module."""
    return cluster_argument_spec()


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(switch_cluster, module.params, check_mode=module.check_mode, warn=module.warn))


if __name__ == "__main__":
    main()
