#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records the API responses of a Proxmox VE cluster, to reproduce decisions offline."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_snapshot_info
short_description: Record a Proxmox VE cluster for offline decisions
version_added: 1.0.0
description:
  - Reads everything that a placement decision may depend on, and returns the API responses by path.
  - M(qemu_scheduler.proxmox.qemu_schedule), M(qemu_scheduler.proxmox.capacity_info),
    M(qemu_scheduler.proxmox.fleet_info) and M(qemu_scheduler.proxmox.vmid_pick) accept the recording as C(snapshot).
    Use it to reproduce a decision without the cluster, or attach it to a bug report.
  - The recording contains the names of nodes, guests, storages and pools. It contains no passwords, SSH keys or tokens.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  dest:
    description:
      - File to write the recording to, as JSON. It is written only if its content differs.
      - The task never reports a change, even if it writes this file, because recording does not change the cluster.
    type: path
  configs:
    description:
      - The VMs whose configurations to record. Decisions about clones need those of templates. To detect drift of
        existing VMs, record V(all). Each configuration costs one API request.
    type: str
    choices: [templates, all]
    default: templates
attributes:
  check_mode:
    support: full
    details:
      - Reads the cluster but does not write O(dest).
  diff_mode:
    support: none
    details:
      - Recordings are large, and no two are the same.
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

- name: Decide with the recording
  qemu_scheduler.proxmox.qemu_schedule:
    snapshot: cluster.json
    name: web-1
    memory: 4096
"""

RETURN = r"""
snapshot:
  description: API responses by path.
  returned: success
  type: dict
  sample: {/cluster/resources: []}
dest:
  description: Path of the file.
  returned: with O(dest)
  type: str
error_code:
  description: Stable code of the error.
  returned: on failure
  type: str
  sample: AuthenticationFailed
"""

import typing as t
from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import connection_argument_spec
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.recording import record_cluster


def argument_spec() -> dict[str, dict[str, t.Any]]:
    """Return the options of the module."""
    return {
        **connection_argument_spec(),
        "dest": {"type": "path"},
        "configs": {"type": "str", "choices": ["templates", "all"], "default": "templates"},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(record_cluster, module.params, write=not module.check_mode))


if __name__ == "__main__":
    main()
