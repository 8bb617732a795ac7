# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AAP counts as managed: the guests that a task worked on, each as the same guest for every module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.event_query import QUERIES, counted
from support.pages import CHECKOUT

NEW = {"name": "new", "memory": 512}


def test_guests__are_counted_once_and_as_the_same_by_every_module(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    def facts(module: str, **options: Any) -> set[tuple[int, str]]:
        result = controller.run(module, **options)
        assert not result.get("failed"), result["msg"]
        rows = counted(module, result)
        assert {row["name"] for row in rows} == {row["canonical_facts"]["name"] for row in rows}
        return {(row["canonical_facts"]["vmid"], row["canonical_facts"]["name"]) for row in rows}

    request = {"vms": [NEW, {"vmid": 101}, {"name": "not-there", "state": "absent"}]}
    assert facts("qemu_schedule", **request, check=True) == set()
    made = facts("qemu_schedule", **request)
    assert {name for _vmid, name in made} == {"new", "vm101"}
    assert facts("fleet_info", **request) == made
    assert made < facts("vm_list_info")
    assert facts("node_drain", name=["pve2"], check=True) == set()
    cluster.fault(method="POST", path="/201/migrate$", task_error="migration aborted")
    failed = controller.run("node_drain", name=["pve2"])
    assert "failed" in {move["outcome"] for move in failed["moves"] if move["vmid"] == 201}
    assert 201 not in {row["canonical_facts"]["vmid"] for row in counted("node_drain", failed)}
    cluster.clear_faults()
    assert (201, "vm201") in facts("node_drain", name=["pve2"])
    assert facts("cluster_rebalance", goals=["repair"]) == set()


def test_queries__are_about_modules_of_the_collection() -> None:
    modules = {f"qemu_scheduler.proxmox.{path.stem}" for path in Path(CHECKOUT, "plugins", "modules").glob("*.py")}
    assert QUERIES.keys() <= modules
