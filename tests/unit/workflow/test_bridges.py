# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes' bridges are looked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from support.small_cluster import cluster, node, scheduler

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import FilterPlugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.bridges import with_bridges_of_eligible
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import ONE_VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.entries import build_entries
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.task import expand

FILTERED: Counter[str] = Counter()


class Counting(FilterPlugin):
    """Counts the requests that it filters."""

    name = "Counting"

    def filter(self, state: Any, request: Any, node: Any) -> None:
        FILTERED[request.name] += 1


def test_eligible_nodes__are_found_once_for_all_vms_of_a_count() -> None:
    net = {"net0": "virtio,bridge=vmbr0"}
    vms = expand([{"name": "web-{n}", "count": 9, "net": net}, {"name": "db", "net": net, "cores": 2}], {}).vms
    requests = [entry.request for entry in build_entries({"vms": vms}, ONE_VM_OPTIONS, 0.0)]
    nodes = tuple(node(f"pve{number}") for number in range(3))
    bridges = SimpleNamespace(
        read_for=lambda nodes, wanted: {each.name: wanted for each in nodes},
        add_to=lambda nodes, _wanted, of_all: tuple(replace(each, bridges=frozenset({"vmbr0"})) for each in nodes),
    )
    access = cast(Any, SimpleNamespace(bridges=bridges))
    with_bridges_of_eligible(access, scheduler(cluster(nodes), own=[Counting]), requests)
    assert FILTERED == {"web-1": 3, "db": 3}
