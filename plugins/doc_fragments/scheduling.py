# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that several modules share: how the cluster is read and how decisions are made."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragments C(scheduling), C(scheduling.recording), C(scheduling.requests) and C(scheduling.search): for all
    modules, for those that decide from recordings, for those that decide about requests, and for those that search.
    """

    DOCUMENTATION = r"""
options:
  reservations:
    description:
      - The ledger that shares decisions with other processes until Proxmox VE shows their VMs.
      - V(default) is a file in the user's state directory. All forks and jobs of one user on one controller share it.
      - C(/path/to/file) or C(sqlite:///path) is a file at another path. It must not be on a network file system.
      - C(postgresql://user@host/database) serves several controllers. It requires the Python package psycopg.
      - V(none) does not share decisions.
    type: str
    default: default
  plugin_config:
    description:
      - The plugins to run, with their weights and config. A mapping, or the path of a YAML file.
      - The sections C(filters), C(scores) and C(vmids) have the same names as in qemu-scheduler.
    type: raw
  plugin_paths:
    description:
      - Python files with your own plugins, or directories of such files.
    type: list
    elements: path
    default: []
  nodes:
    description:
      - Properties of nodes that Proxmox VE does not store. Each key is the name of a node, or a pattern that matches
        whole names. Each value is a mapping with C(labels), C(taints), C(reserved) and C(overcommit).
    type: dict
    default: {}
  storage_classes:
    description:
      - Named sets of storages that a disk can refer to by C(storage_class).
      - Each value is a mapping with C(storages) (patterns), C(types), C(shared), C(overcommit) and C(reserved)
        (C(10%), or GiB).
    type: dict
    default: {}
  metrics:
    description:
      - What nodes and guests used, from the monitoring of the site. It counts instead of the statistics of Proxmox VE,
        which are then not read for these nodes and guests. It matters where use matters, which is with the plugin
        UsedLimit, with C(history) of Utilization, for nodes that are balanced by use, and in advice.
      - Each value is a number, or a list of numbers that are spread evenly over the time that counts, the oldest first;
        null and NaN are unknown. That time is the last day, the last week for advice, and for nodes that are balanced
        by use the window. Such a node takes no part if it has a single number and guests were moved from or to it
        within the window, as nobody can tell whether the number includes them. Prefer lists.
      - C(cpu) is the fraction of the CPUs of the node or guest (0 to 1), C(memory) is in MiB, C(cpu_pressure),
        C(io_pressure) and C(memory_pressure) are fractions of time.
      - Entries without a known value, and of nodes and guests that the cluster does not have, are ignored.
    type: dict
    suboptions:
      nodes:
        description: "The values by the name of the node, such as C({pve1: {cpu: 0.9, memory: 200000}})."
        type: dict
      guests:
        description: The values by VMID, or by name if only one guest has that name.
        type: dict
  rules:
    description:
      - Placement rules for all guests that they select, existing and new, whether this task lists them or not.
      - A rule selects guests by name, tags, pool or group. If several are given, a guest must match all of them.
    type: list
    elements: dict
    default: []
    suboptions:
      type:
        description:
          - V(affinity) keeps the selected guests in one domain, V(anti-affinity) in different domains.
          - V(node-affinity) keeps them on O(rules[].nodes).
        type: str
        choices: [affinity, anti-affinity, node-affinity]
        required: true
      nodes:
        description: For V(node-affinity), names of nodes, or patterns that match whole names.
        type: list
        elements: str
      name:
        description: Regular expression that must match the whole name of a guest.
        type: str
      tags:
        description: Tags, all of which a guest must have. Case is ignored.
        type: list
        elements: str
      pool:
        description: The pool of the guests.
        type: str
      group:
        description: The group of the VMs in this run.
        type: str
      required:
        description: Whether the rule is mandatory. If false, it only affects the score. Defaults to V(true).
        type: bool
      weight:
        description: Weight of a rule that is not required, from 1 to 100. Defaults to V(1).
        type: int
      topology_key:
        description:
          - The node label whose values define the domains. V(node), the default, makes each node a domain.
        type: str
  tag_rules:
    description:
      - Whether tags in the convention of ProxLB are read as placement rules, for existing guests and for new VMs.
      - C(plb_affinity_NAME) keeps all guests that have the tag on one node, C(plb_anti_affinity_NAME) keeps them on
        different nodes, and C(plb_pin_NODE) requires the node, or one of several.
    type: bool
    default: true
"""

    RECORDING = r"""
options:
  snapshot:
    description:
      - 'Recorded API responses by path, C({"/cluster/resources": [...], ...}), or the path of a JSON file that contains
        them.'
      - The decision is made from this recording instead of a live cluster. The module does not connect to a cluster and
        writes nothing.
      - M(qemu_scheduler.proxmox.cluster_snapshot_info) makes such a recording.
    type: raw
"""

    REQUESTS = r"""
options:
  priority_classes:
    description:
      - Named priorities for C(priority). Each value is a whole number.
    type: dict
    default: {}
  open_gates:
    description:
      - The C(scheduling_gates) that are open. A VM is placed only if all of its gates are open.
    type: list
    elements: str
    default: []
"""

    SEARCH = r"""
options:
  search_time:
    description:
      - Maximum length of one search for places or for moves, in seconds.
      - 100,000 steps of the search count as a second, however long they take, so that the result does not depend on the
        speed of the machine.
      - New VMs are first placed one after the other. A search follows only if that leaves VMs without a node.
    type: float
    default: 2.0
"""
