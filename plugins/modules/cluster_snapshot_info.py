#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records what a Proxmox VE cluster answers, so that decisions can be made again offline."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_snapshot_info
short_description: Record a Proxmox VE cluster, to make decisions about it offline
version_added: 1.0.0
description:
  - Reads everything that a placement decision may depend on and returns the answers of the API by path.
  - Every module of this collection takes it as O(qemu_scheduler.proxmox.qemu_schedule#module:snapshot), so that a
    decision can be made again without the cluster, and attached to a bug report.
  - Passwords, SSH keys and tokens are left out. Names of nodes, guests, storages and pools are in it.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  dest:
    description:
      - File to write it to, as JSON. It is only written when it differs.
      - Recording changes nothing on the cluster, so the task never reports a change, also when it writes this file.
    type: path
  configs:
    description:
      - Which VMs' configs to record. Those of templates are needed to decide about clones, those of all VMs to compare
        existing VMs with what is asked for. Each costs a call.
    type: str
    choices: [templates, all]
    default: templates
attributes:
  check_mode:
    support: full
    details:
      - Reads the cluster, and does not write O(dest).
  diff_mode:
    support: none
    details:
      - A recording is large, and no two are the same.
seealso:
  - module: qemu_scheduler.proxmox.qemu_schedule
  - module: qemu_scheduler.proxmox.capacity_info
extends_documentation_fragment:
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
"""

EXAMPLES = r"""
- name: Record the cluster
  qemu_scheduler.proxmox.cluster_snapshot_info:
    dest: cluster.json

- name: Decide from the recording
  qemu_scheduler.proxmox.qemu_schedule:
    snapshot: cluster.json
    name: web-1
    memory: 4096
"""

RETURN = r"""
snapshot:
  description: Answers of the API by path.
  returned: success
  type: dict
  sample: {/cluster/resources: []}
dest:
  description: The file.
  returned: with O(dest)
  type: str
error_code:
  description: Stable name of the kind of error.
  returned: on failure
  type: str
  sample: AuthenticationFailed
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.login import connection_argument_spec
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.recording import record_cluster


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = module_class(
        argument_spec={
            **connection_argument_spec(),
            "dest": {"type": "path"},
            "configs": {"type": "str", "choices": ["templates", "all"], "default": "templates"},
        },
        supports_check_mode=True,
    )
    answer(module, lambda: record_cluster(module.params, write=not module.check_mode))


if __name__ == "__main__":
    main()
