# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that fit only if all of them are placed together, through the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller

Control = Callable[..., Controller]

TWO_NODES: dict[str, Any] = {
    "nodes": [{"name": name, "cores": 32, "memory": 10240} for name in ("pve1", "pve2")],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 100}],
}


@pytest.fixture
def controller(start: Callable[..., SimulatedCluster], control: Callable[..., Controller]) -> Controller:
    return control(start(TWO_NODES, time_scale=0.01))


def batch(*sizes: int) -> list[dict[str, Any]]:
    """Running VMs of these sizes, in GiB."""
    return [{"name": f"vm-{n}", "memory": 1024 * size, "state": "started"} for n, size in enumerate(sizes)]


def test_tight_batch__is_placed_whole_and_stays(controller: Controller) -> None:
    made = controller.schedule(vms=batch(3, 3, 4, 4, 3, 3))
    assert [vm["vmid"] for vm in made["vms"]] == [100, 101, 102, 103, 104, 105]
    assert sorted(vm["node"] for vm in made["vms"]) == ["pve1"] * 3 + ["pve2"] * 3
    assert not controller.schedule(vms=batch(3, 3, 4, 4, 3, 3))["changed"]


def test_batch_that_cannot_fit__says_so_for_the_vm_without_a_place(controller: Controller) -> None:
    failed = controller.fail("NoNodesAvailable", vms=batch(6, 6, 6), all_or_nothing=False)
    assert [bool(vm.get("error")) for vm in failed["vms"]] == [False, False, True]


def test_worse_node__is_explained_by_the_batch(start: Callable[..., SimulatedCluster], control: Control) -> None:
    nodes = [{"name": f"pve{n}", "cores": 64, "memory": 8192 + 2048 * n} for n in (1, 2, 3)]
    made = control(start({**TWO_NODES, "nodes": nodes})).schedule(vms=batch(6, 6, 7, 7, 2, 6), check=True)
    behind = [vm["decision"] for vm in made["vms"] if (vm["decision"]["runner_up"] or {}).get("distance", 0) < 0]
    assert behind
    for decision in behind:
        assert decision["message"].endswith("so that all VMs fit")
