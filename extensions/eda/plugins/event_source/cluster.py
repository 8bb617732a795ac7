# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An event source for ansible-rulebook: what changes in a Proxmox VE cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
short_description: Receive events when nodes, capacity, rules or VMs of a Proxmox VE cluster change
version_added: 1.0.0
description:
  - Reads the cluster once per interval and compares it with the previous reading.
  - An event is sent when a problem begins, and again after O(repeat_interval) if it still exists, but not each time
    that it is seen. The first reading sends an event for each problem that exists at that time.
  - Each event has a C(type). The page events in the documentation lists the types and the keys of each.
  - If capacity, rules or O(vms) cannot be checked, an event of the type C(check_failed) states why. The other checks
    continue.
  - A reading is one request, and one to three more if rules are watched on a cluster that uses HA. Comparing O(vms)
    costs about one request per VM. If capacity or rules seem to have changed, the nodes where guests changed
    recently are read as well.
options:
  interval:
    description: Time between two readings, in seconds.
    type: float
    default: 30
  events:
    description:
      - The types of events to send. Events about a cluster that cannot be reached, and about a check that fails, are
        always sent.
    type: list
    elements: str
    choices: [node_offline, node_back, capacity_below, rule_broken, drift]
    default: [node_offline, node_back, capacity_below, rule_broken, drift]
  capacity:
    description: The capacity that the cluster must have. Without this option, C(capacity_below) is never sent.
    type: dict
    suboptions:
      shape:
        description:
          - The options of a VM, as in M(qemu_scheduler.proxmox.capacity_info).
          - It is counted in the same way, but without reservations and without the bounds for VMIDs. Templates, images,
            devices and disks on file systems cost further requests per reading.
        type: dict
        required: true
      at_least:
        description: How many such VMs must fit.
        type: int
        default: 1
  vms:
    description:
      - The VMs to compare with the cluster, as in M(qemu_scheduler.proxmox.fleet_info). Without this option, C(drift)
        is never sent.
    type: list
    elements: dict
  drift_interval:
    description: Time between two comparisons of O(vms) with the cluster, in seconds.
    type: float
    default: 900
  repeat_interval:
    description:
      - Time after which the event of a problem that still exists is sent again, in seconds. Such an event has the key
        C(repeated). V(0) sends none again.
    type: float
    default: 3600
  api_host:
    description:
      - The cluster. This option and the others of the connection, the rules and the nodes are those of
        M(qemu_scheduler.proxmox.fleet_info). The environment variables are the same, too.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Keep a Proxmox VE cluster
  hosts: localhost
  sources:
    - qemu_scheduler.proxmox.cluster:
        interval: 30
        capacity: {shape: {cores: 4, memory: 16384}, at_least: 3}
  rules:
    - name: Repair rules when a node is back
      condition: event.type == "node_back"
      throttle: {once_after: 5 minutes, group_by_attributes: [event.type]}
      action:
        run_playbook:
          name: qemu_scheduler.proxmox.rebalance
"""

import asyncio
import logging
import typing as t

LOGGER = logging.getLogger(__name__)


async def main(queue: asyncio.Queue[dict[str, t.Any]], args: dict[str, t.Any]) -> None:
    """Put events on the queue until the task is cancelled. args are the options.

    Raises InvalidRequest when an option is wrong, and MissingLibrary when proxmoxer or requests is not installed.
    """
    watch = _watch_class()(args)
    try:
        while True:
            parts = watch.parts()
            while (events := await asyncio.to_thread(next, parts, None)) is not None:
                for event in events:
                    LOGGER.info("%s", event)
                    await queue.put(event)
            await asyncio.sleep(watch.interval)
    finally:
        watch.close()


def _watch_class() -> t.Any:
    """Return the class that compares readings. Collections can be imported only after Ansible's loader is set up."""
    try:
        from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.watching import Watch
    except ImportError:
        from ansible.plugins.loader import init_plugin_loader

        init_plugin_loader()
        from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.watching import Watch
    return Watch
