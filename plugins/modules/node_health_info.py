#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports whether nodes of a Proxmox VE cluster are healthy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_health_info
short_description: Report whether nodes of a Proxmox VE cluster are healthy
version_added: 1.0.0
description:
  - Checks for each node that it is online, that the cluster has quorum, that the services of Proxmox VE run, that its
    storages are active, that its clock agrees with that of the node that answers, and that its HA manager responds. On
    clusters with Ceph, also checks the health of Ceph. Flags such as C(noout) are not a problem.
  - Optionally waits until all nodes are healthy, for example after a reboot.
  - Requires C(Sys.Audit) on C(/). Storages are checked with C(Datastore.Audit). What cannot be read is reported in
    C(unchecked), and does not make a node unhealthy.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  name:
    description:
      - Names of the nodes to check.
    type: list
    elements: str
    required: true
    aliases: [node]
  accept:
    description:
      - Names of known problems that do not make a node unhealthy, as in RV(nodes[].problem_names).
      - The part before a colon is enough, and stands for all problems of this kind, such as V(storage).
    type: list
    elements: str
    default: []
  wait:
    description:
      - Maximum time to wait until all nodes are healthy, in seconds. V(0) checks once.
      - A timeout is not an error; RV(healthy) is false.
    type: int
    default: 0
seealso:
  - module: qemu_scheduler.proxmox.node_drain
extends_documentation_fragment:
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
  - qemu_scheduler.proxmox.attributes.info_module
"""

EXAMPLES = r"""
- name: Wait until a node is back
  qemu_scheduler.proxmox.node_health_info:
    name: pve3
    wait: 600
  register: health

- name: Stop if it is not
  ansible.builtin.assert:
    that: health.healthy
    fail_msg: "{{ health.nodes | map(attribute='problems') | flatten | join(', ') }}"
"""

RETURN = r"""
healthy:
  description: Whether all nodes are healthy.
  returned: success
  type: bool
nodes:
  description: One entry per node, in the order of the option.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the node.
      type: str
      sample: pve3
    healthy:
      description: Whether no check found a problem.
      type: bool
    problems:
      description: What is wrong.
      type: list
      elements: str
      sample: [service pvestatd is dead, storage nfs-1 is not active]
    problem_names:
      description: The names of these problems, in the same order, for O(accept).
      type: list
      elements: str
      sample: ["service:pvestatd", "storage:nfs-1"]
    accepted:
      description: What is wrong, and was accepted.
      type: list
      elements: str
    unchecked:
      description: Checks that could not be made, each with the reason.
      type: list
      elements: str
    uptime:
      description: Seconds since the node booted. Null if it could not be read.
      type: int
      sample: 86400
    version:
      description: Version of pve-manager. Null if it could not be read.
      type: str
      sample: 9.2.1
error_code:
  description: Stable code of the error.
  returned: on failure
  type: str
  sample: ConnectionFailed
"""

import typing as t
from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import connection_argument_spec
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.node_checks import health_info


def argument_spec() -> dict[str, dict[str, t.Any]]:
    """Return the options of the module."""
    return {
        **connection_argument_spec(),
        "name": {"type": "list", "elements": "str", "required": True, "aliases": ["node"]},
        "accept": {"type": "list", "elements": "str", "default": []},
        "wait": {"type": "int", "default": 0},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(health_info, module.params))


if __name__ == "__main__":
    main()
