# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options for inventory hosts, addresses, protection against removal, and numbered VMs."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragments C(hosts) and C(hosts.pools); COUNT has the options that only entries of C(vms) may have."""

    DOCUMENTATION = r"""
options:
  addresses:
    description:
      - 'Static addresses from C(address_pools), for example V({ipconfig0: lan}), or V({ipconfig0: [lan, lan6]}) for an
        IPv4 and an IPv6 address. Keys are those of O(ipconfig).'
      - A new VM gets the first free address of the pool. The addresses of all guests are read from their
        configurations, one API request each, and reservations of other processes count as well.
      - An existing VM keeps its address. If it has none, it does not get one, and a warning is returned. Prefix,
        gateway and name servers are compared with those of the pool, and applied with O(update).
      - A static address in O(ipconfig) must not belong to another guest. This is checked in the networks of all pools.
    type: dict
  host_groups:
    description:
      - Inventory groups of the VM. They are returned as C(host.groups), and the role
        P(qemu_scheduler.proxmox.provision#role) adds the VM to them.
    type: list
    elements: str
  host_vars:
    description:
      - Inventory variables of the VM. They are returned as C(host.vars), and the role
        P(qemu_scheduler.proxmox.provision#role) sets them. They are part of the result, so do not put secrets here.
    type: dict
  only_tags:
    description:
      - With O(state=absent), remove only VMs that have all of these tags. For a VM without them the task fails, and
        with C(all_or_nothing) removes nothing.
      - Use it if your list of VMs may be outdated. It protects other VMs that have a name or VMID of the list.
      - An empty list and V(null) are refused, as of a variable that was not set. Use C(omit) to give none.
    type: list
    elements: str
  only_pool:
    description:
      - As O(only_tags), for VMs in this pool. Requires C(Pool.Audit) on the pool.
      - An empty text and V(null) are refused.
    type: str
"""

    POOLS = r"""
options:
  address_pools:
    description:
      - Networks from which VMs get static addresses, by name. Used by O(addresses).
      - 'Each pool is a mapping with C(network), for example V(192.0.2.0/24), and optionally C(ranges) and C(exclude)
        (lists of addresses, of ranges such as V(192.0.2.50-192.0.2.99), and of networks), C(gateway), C(nameservers),
        C(searchdomains) and C(ignore_unread).'
      - Without C(ranges), the whole network may be used. The gateway, the network address and the broadcast address are
        never used.
      - C(nameservers) and C(searchdomains) are used for VMs that do not set the option of the same name.
      - If the configuration of a guest cannot be read, for example because its node is offline, its address is unknown
        and the task fails, unless C(ignore_unread) is true.
      - The address of a running VM in one of these networks is changed only if the VM boots with it, by
        C(apply_pending=reboot), C(state=restarted) or C(state=stopped). Proxmox VE shows the address that the guest
        uses until then nowhere, and another VM would get it.
    type: dict
    default: {}
"""

    COUNT = r"""
options:
  count:
    description:
      - Number of VMs that the entry stands for, 0 to 1000. Their names are O(name) with C({n}) replaced by a number.
        C({n:02}) pads the number with zeros to two digits.
      - A larger number creates more VMs. A smaller number removes none, unless O(surplus=absent).
    type: int
  count_start:
    description:
      - Number of the first VM of O(count). Defaults to V(1).
    type: int
  surplus:
    description:
      - What to do with surplus VMs. These are existing VMs whose name is O(name) with a number that no entry of the
        task has, for example after O(count) was decreased.
      - With V(keep), the default, a warning names them.
      - With V(absent) they are removed with their disks, as with O(state=absent).
      - Only VMs with all O(tags) and in the O(pool) of the entry are considered, if it sets them.
    type: str
    choices: [keep, absent]
"""
