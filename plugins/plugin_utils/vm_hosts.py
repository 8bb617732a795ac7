# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes hosts of VMs, for add_host. Names, groups and variables are composed here, as Ansible compiles each template
again for each host.
"""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

VM = Mapping[str, t.Any]

_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_NOT_IN_HOST_NAMES = re.compile(r"[^A-Za-z0-9.-]")
_NOT_IN_GROUP_NAMES = re.compile(r"^(?=[0-9])|[^A-Za-z0-9_]")


def vm_hosts(
    vms: Sequence[VM],
    hostvars: Mapping[str, t.Any],
    inventory_groups: Container[str],
    groups: Iterable[str] = (),
    *,
    tags_to_groups: bool = True,
) -> list[dict[str, t.Any]]:
    """Return the C(name), C(groups), C(vars), C(args) and C(label) of the host of each VM.

    vms are those that vm_facts returns, groups those of all hosts. hostvars and inventory_groups are what the inventory
    has: the owner of a VM that the task names by its VMID alone may have called it like any other host or group.
    """
    names = Counter(vm.get("name") for vm in vms)

    def is_free(name: str, vmid: int) -> bool:
        if not _HOST_NAME.fullmatch(name) or names[name] > 1 or name in inventory_groups:
            return False
        return name not in hostvars or hostvars[name].get("proxmox_vmid") == vmid

    hosts = []
    for vm in vms:
        host, vmid, name = vm["host"], vm["vmid"], str(vm.get("name") or "")
        long_name = f"{_NOT_IN_HOST_NAMES.sub('_', name or 'vm')}_{vmid}"
        known = {**host["vars"], "proxmox_vmid": vmid, "proxmox_node": vm["node"]}
        if vm.get("address") and not host["vars"].get("ansible_host"):
            known["ansible_host"] = vm["address"]
        of_tags = (vm.get("tags") or ()) if tags_to_groups else ()
        # A text that is made here has no character of a template: Ansible before 2.19 would evaluate one.
        place = {
            "name": host["name"] or (name if is_free(name, vmid) else long_name),
            "groups": [_NOT_IN_GROUP_NAMES.sub("_", each) for each in (*groups, *host["groups"], *of_tags)],
        }
        hosts.append({**place, "vars": known, "args": {**known, **place}, "label": host["name"] or vmid})
    return hosts
