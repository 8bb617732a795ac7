# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that make hosts of VMs, and many VMs of one entry."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragment C(hosts); COUNT is what only an entry of C(vms) may have."""

    DOCUMENTATION = r"""
options:
  host_groups:
    description:
      - Inventory groups of the VM. They are returned as C(host.groups), and the role
        P(qemu_scheduler.proxmox.provision#role) adds the VM to them.
    type: list
    elements: str
    version_added: 1.1.0
  host_vars:
    description:
      - Inventory variables of the VM. They are returned as C(host.vars), and the role
        P(qemu_scheduler.proxmox.provision#role) sets them. They are part of the result, so do not put secrets here.
    type: dict
    version_added: 1.1.0
"""

    COUNT = r"""
options:
  count:
    description:
      - Number of VMs that the entry stands for, 0 to 1000. Their names are O(name) with C({n}) replaced by a number.
        C({n:02}) pads the number with zeros to two digits.
      - A larger number creates more VMs. A smaller number removes none, unless O(surplus=absent).
    type: int
    version_added: 1.1.0
  count_start:
    description:
      - Number of the first VM of O(count). V(1) is meant when this is not given.
    type: int
    version_added: 1.1.0
  surplus:
    description:
      - What to do with existing VMs whose name fits O(name) with a number that no entry of the task has, as they remain
        when O(count) is decreased. V(keep) is the default.
      - With V(keep) a warning names them.
      - With V(absent) they are removed with their disks, as with O(state=absent).
      - Only VMs with all O(tags) and in the O(pool) of the entry are considered, if it sets them.
    type: str
    choices: [keep, absent]
    version_added: 1.1.0
"""
