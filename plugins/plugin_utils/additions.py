# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a source adds to an inventory. It is composed apart, and then added so that nothing else changes.

Ansible has one set of names for hosts and groups, in which a group takes precedence: a variable for a host that is
named like a group becomes one of all hosts of the group.
"""

from __future__ import annotations

import typing as t
import weakref
from collections.abc import Iterator, Mapping

from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.inventory.host import Host

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.host_names import GROUPS

Guest = tuple[str, int]
"""A guest of any cluster: the key of the cluster, and its VMID."""

OF_ANSIBLE = frozenset({"inventory_file", "inventory_dir"})
"""Variables that Ansible sets when a host is added."""

_guests: weakref.WeakKeyDictionary[Host, Guest] = weakref.WeakKeyDictionary()
"""The guest that each host is which a source of this collection added: sources may have guests in common."""


class Additions(InventoryData):
    """An inventory of one source alone, in which a host takes precedence over a group of its name.

    Attributes:
        children: pairs of a group and a group that shall be a child of it. They are not related here, as a name that a
            guest's owner chose may close a circle, which Ansible answers with an error.
    """

    def __init__(self, source: str | None) -> None:
        self.children: dict[tuple[str, str], None] = {}
        super().__init__()
        self.current_source = source

    def set_variable(self, entity: str, varname: str, value: t.Any) -> None:
        host = self.hosts.get(entity)
        if host is None:
            super().set_variable(entity, varname, value)
        else:
            host.set_variable(varname, value)

    def add_child(self, group: str, child: str) -> bool:
        host = self.hosts.get(child)
        if host is not None:
            return bool(self.groups[group].add_host(host))
        self.children[group, child] = None
        return True

    def own_groups(self) -> list[str]:
        """Return the names of the groups, without those of every inventory."""
        return [name for name in self.groups if name not in GROUPS]


def is_other(inventory: InventoryData, name: str, guest: Guest) -> bool:
    """Whether the name is that of a group, or of a host that is not this guest."""
    host = inventory.hosts.get(name)
    return name in inventory.groups or (host is not None and _guests.get(host) != guest)


def add(additions: Additions, guests: Mapping[str, Guest], inventory: InventoryData) -> Iterator[str]:
    """Add hosts, their variables and their groups to the inventory, and yield a warning for each group that cannot be.

    guests: the guest that each host is. None of their names is_other. Nothing that is in the inventory changes, except
    that its groups get new members.
    """
    for name, guest in guests.items():
        inventory.add_host(name)
        host = inventory.hosts[name]
        _guests[host] = guest
        for key, value in additions.hosts[name].vars.items():
            if key not in OF_ANSIBLE:
                host.set_variable(key, value)
    for name in additions.own_groups():
        if name in inventory.hosts:
            yield f"there is no group {name}, because a host has this name"
            continue
        inventory.add_group(name)
        for member in additions.groups[name].hosts:
            inventory.add_host(member.name, name)
    for group, child in additions.children:
        # All groups are children of one of GROUPS, and the other has only hosts.
        if not GROUPS & {group, child} and group in inventory.groups and child in inventory.groups:
            yield from _relate(inventory, group, child)


def _relate(inventory: InventoryData, group: str, child: str) -> Iterator[str]:
    """Make child a child of group, unless hosts of other sources would get the variables of group by that."""
    inner = inventory.groups[child]
    if inventory.groups[group] in inner.get_ancestors():
        return
    if any(host not in _guests for host in inner.get_hosts()):
        yield f"the group {child} is not made a child of {group}, because it has hosts of other sources"
        return
    try:
        if group == child:
            raise AnsibleError("it is the same group")
        inventory.add_child(group, child)
    except AnsibleError as error:
        yield f"the group {child} cannot be a child of {group}: {error}"
