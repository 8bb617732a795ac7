#!/usr/bin/python
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets and clears a flag of Ceph on a Proxmox VE cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_flag
short_description: Set and clear flags of Ceph on a Proxmox VE cluster
version_added: 1.0.0
description:
  - Sets or clears a flag of the Ceph cluster that Proxmox VE manages, for example C(noout) while a node is rebooted.
  - Does nothing if the node that answers does not have Ceph.
  - Requires C(Sys.Audit) and, to change a flag, C(Sys.Modify) on C(/).
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  name:
    description: The flag of the Ceph cluster.
    type: str
    required: true
    choices: [nobackfill, nodeep-scrub, nodown, noin, noout, norebalance, norecover, noscrub, notieragent, noup, pause]
  state:
    description: Whether the flag is set (V(present)) or cleared (V(absent)).
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: qemu_scheduler.proxmox.node_drain
extends_documentation_fragment:
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.actiongroup_proxmox
  - qemu_scheduler.proxmox.attributes
"""

EXAMPLES = r"""
- name: Keep Ceph from moving data while a node is down
  qemu_scheduler.proxmox.ceph_flag:
    name: noout

- name: Let it do so again
  qemu_scheduler.proxmox.ceph_flag:
    name: noout
    state: absent
"""

RETURN = r"""
ceph:
  description: Whether the node that answered has Ceph.
  returned: success
  type: bool
error_code:
  description: Stable code of the error.
  returned: on failure
  type: str
  sample: PermissionDenied
"""

import typing as t
from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.entry_point import answer, secret_hiding_class
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import connection_argument_spec
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.ceph import FLAGS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.node_checks import (
    ABSENT,
    PRESENT,
    ceph_flag,
)


def argument_spec() -> dict[str, dict[str, t.Any]]:
    """Return the options of the module."""
    return {
        **connection_argument_spec(),
        "name": {"type": "str", "required": True, "choices": list(FLAGS)},
        "state": {"type": "str", "choices": [PRESENT, ABSENT], "default": PRESENT},
    }


def main(module_class: type[AnsibleModule] = AnsibleModule) -> None:
    """Run the module."""
    module = secret_hiding_class(module_class)(argument_spec=argument_spec(), supports_check_mode=True)
    answer(module, partial(ceph_flag, module.params, check_mode=module.check_mode))


if __name__ == "__main__":
    main()
