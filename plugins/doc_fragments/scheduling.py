# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that several modules share: how the cluster is read and how decisions are made."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragment C(scheduling)."""

    DOCUMENTATION = r"""
options:
  snapshot:
    description:
      - 'Recorded answers of the API by path, C({"/cluster/resources": [...], ...}), or the path of a JSON file with
        them.'
      - The decision is then made from these instead of a cluster. Nothing is connected to and nothing is written.
      - M(qemu_scheduler.proxmox.cluster_snapshot_info) records one.
    type: raw
  reservations:
    description:
      - Where decisions are shared with other processes until Proxmox VE shows their VMs.
      - V(default) is a file in the user's state directory, which all forks and jobs of one user on one controller
        share.
      - C(/path/to/file) or C(sqlite:///path) is another such file. It must not lie on a network file system.
      - C(postgresql://user@host/database) is for several controllers. It needs the Python package psycopg.
      - V(none) shares with nobody.
    type: str
    default: default
  plugin_config:
    description:
      - Which plugins run, with which weight and config, as a mapping or as the path of a YAML file.
      - The sections C(filters), C(scores) and C(vmids) are those of qemu-scheduler.
    type: raw
  plugin_paths:
    description:
      - Python files, or directories of them, with plugins of your own.
    type: list
    elements: path
    default: []
  nodes:
    description:
      - What Proxmox VE does not know about the nodes. Each key is a node's name or a pattern that matches names in
        full, each value a mapping with C(labels), C(taints), C(reserved) and C(overcommit).
    type: dict
    default: {}
  storage_classes:
    description:
      - Named sets of storages that a disk may ask for by C(storage_class).
      - Each value is a mapping with C(storages) (patterns), C(types), C(shared), C(overcommit) and C(reserved)
        (C(10%), or GiB).
    type: dict
    default: {}
  priority_classes:
    description:
      - Named priorities for C(priority), each a whole number.
    type: dict
    default: {}
  open_gates:
    description:
      - Names of the C(scheduling_gates) that are open, so that VMs which name no others may be placed.
    type: list
    elements: str
    default: []
"""
