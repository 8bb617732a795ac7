# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests use counts where a plugin asks for it: when VMs are created, counted, make room, or are packed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

from .conftest import on

LIMIT = {"filters": {"UsedLimit": {"enable": True}}}
HISTORY = {"scores": {"Utilization": {"config": {"history": True}}, "LeastAllocated": {"enable": False}}}
BUSY, IDLE = {"cpu": [0.9], "memory": [0.5]}, {"cpu": [0.05], "memory": [0.5]}


def description() -> dict[str, Any]:
    """Each node has 8 cores. pve1 runs two busy web servers of 3 cores, pve2 an idle one, pve3 a busy database."""
    guests = [("web-1", 101, "pve1", BUSY), ("web-2", 102, "pve1", BUSY), ("job-1", 201, "pve2", IDLE),
              ("db-1", 301, "pve3", BUSY)]  # fmt: skip
    return {
        "nodes": [
            {"name": name, "cores": 8, "memory": 65536, "load": {"cpu": [0.02], "memory": [0.1]}}
            for name in ("pve1", "pve2", "pve3")
        ],
        "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 2000}],
        "guests": [
            {
                "vmid": vmid,
                "name": name,
                "node": node,
                "cores": 3,
                "memory": 4096,
                "status": "running",
                "disks": {"scsi0": "shared:8"},
                "load": load,
            }
            for name, vmid, node, load in guests
        ],
    }


@pytest.fixture
def cluster(version: str) -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start(description(), version=version, time_scale=0.02) as running:
        # Guests that were just started are read, too.
        running.advance(7200)
        yield running


def read(cluster: SimulatedCluster) -> list[str]:
    """What statistics were read of."""
    return sorted(r["path"].split("/")[-2] for r in cluster.requests() if r["path"].endswith("/rrddata"))


@both_versions
def test_new_vm__counts_with_what_its_like_use(cluster: SimulatedCluster, controller: Controller) -> None:
    vms = [{"name": "web-7", "node_regex": "pve[13]"}, {"name": "job-7", "node_regex": "pve1"}]
    result = controller.run("qemu_schedule", vms=vms, cores=3, memory=512, plugin_config=LIMIT, state="started")

    # web-7 counts as 2.7 cores, and fits beside db-1 only; job-7 as little as job-1.
    assert not result.get("failed"), result["msg"]
    assert [vm["node"] for vm in result["vms"]] == ["pve3", "pve1"]
    assert set(read(cluster)) == {"101", "102", "201", "pve1", "pve2", "pve3"}

    refused = controller.run("qemu_schedule", name="web-8", cores=3, memory=512, plugin_config=LIMIT, node="pve1")
    assert "would use more than 85% of its CPU" in refused["msg"]

    stated = controller.run(
        "qemu_schedule", name="web-8", cores=3, memory=512, plugin_config=LIMIT, node="pve1",
        demand={"cpu": 0.1, "memory": 100}, check=True,
    )  # fmt: skip
    assert stated["vms"][0]["node"] == "pve1", stated


def test_plain_creation__reads_nothing_of_it(cluster: SimulatedCluster, controller: Controller) -> None:
    controller.run("qemu_schedule", name="web-9", cores=1, memory=512, check=True)

    assert read(cluster) == []


@both_versions
def test_score__is_by_the_day_and_not_by_the_moment(cluster: SimulatedCluster, controller: Controller) -> None:
    for vmid in (201, 301):
        cluster.set_guest(vmid, load={"cpu": [0.9] * 23 + [0.0], "memory": [0.5]})
    cluster.set_guest(101, load={"cpu": [0.3]})
    cluster.set_guest(102, status="stopped")

    result = controller.run("qemu_schedule", name="new", cores=1, memory=512, plugin_config=HISTORY, check=True)

    assert result["vms"][0]["node"] == "pve1"


@both_versions
def test_consolidation__leaves_no_node_too_busy(cluster: SimulatedCluster, controller: Controller) -> None:
    packed = {"goals": ["consolidate"], "check": True}
    assert len(controller.run("cluster_rebalance", **packed)["plan"]["moves"]) == 2

    result = controller.run("cluster_rebalance", goals=["consolidate"], plugin_config=LIMIT)

    assert not result.get("failed"), result["msg"]
    assert [(move["vmid"], move["to"]) for move in result["moves"]] == [(201, "pve1")]
    assert on(cluster, "pve3") == {301}


@both_versions
def test_guest_that_has_just_come__counts_in_the_next_run(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_guest(101, load=IDLE)
    cluster.set_guest(201, load=BUSY)
    options = {"goals": ["consolidate"], "plugin_config": LIMIT, "max_moves": 1, "cooldown": 0}

    first = controller.run("cluster_rebalance", **options)
    cluster.advance(60)
    second = controller.run("cluster_rebalance", **options)

    # A third busy guest would take pve1 to more than 100 %, of which its statistics show 38 %.
    assert [move["to"] for move in first["moves"]] == ["pve1"]
    assert second["moves"] == []
    assert len(on(cluster, "pve1")) == 3


@both_versions
def test_room__is_made_on_nodes_that_are_not_too_busy(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_node("pve2", load={"cpu": [0.7], "memory": [0.1]})
    asked = {"name": "big", "cores": 1, "memory": 60000, "node": "pve1", "demand": {"cpu": 0.1, "memory": 1000}}
    room = {"make_room": {"max_moves": 4}, "check": True}
    assert [move["to"] for move in controller.run("qemu_schedule", **asked, **room)["plan"]["moves"]] == ["pve2"]

    result = controller.run("qemu_schedule", **asked, **room, plugin_config=LIMIT)

    assert not result.get("failed"), result["msg"]
    assert [move["to"] for move in result["plan"]["moves"]] == ["pve3"]


@both_versions
def test_capacity__is_what_fits_as_it_is_used(cluster: SimulatedCluster, controller: Controller) -> None:
    shape = {"name": "web-1", "cores": 3, "memory": 512}

    allocated = controller.run("capacity_info", **shape)
    used = controller.run("capacity_info", **shape, plugin_config=LIMIT)

    assert allocated["total"] > used["total"] == 3
    assert {each["node"]: each["fit"] for each in used["nodes"]} == {"pve1": 0, "pve2": 2, "pve3": 1}
    assert used["limited_by"] == "UsedLimit"
    recorded = controller.run("cluster_snapshot_info")["snapshot"]
    assert controller.run("capacity_info", **shape, snapshot=recorded, advice=True)["as_used"] is None


@both_versions
def test_drain__takes_no_node_that_would_be_too_busy(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_node("pve2", load={"cpu": [0.7], "memory": [0.1]})

    result = controller.run("node_drain", node="pve3", plugin_config=LIMIT, check=True)

    assert (result["failed"], result["error_code"]) == (True, "GoalsNotReached")
    assert "2 node(s) would use more than 85% of its CPU" in result["stuck"][0]["why"]
    assert result["stuck"][0]["cure"] == "relieve other nodes, or raise most of UsedLimit"
    assert read(cluster) == ["301", "pve1", "pve2", "pve3"]
    tour = controller.run("maintenance_tour", name=["pve3"], plugin_config=LIMIT, check=True)
    assert "would use more than 85% of its CPU" in str(tour)


@both_versions
def test_kept_plan__moves_nothing_to_a_node_that_is_busy_by_now(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    drain = {"node": "pve3", "plugin_config": LIMIT}
    kept = str(tmp_path / "plan.json")
    plan = controller.run("node_drain", **drain, plan_file=kept, check=True)["plan"]
    assert [move["to"] for move in plan["moves"]] == ["pve2"]
    cluster.set_node("pve2", load={"cpu": [0.9], "memory": [0.1]})

    result = controller.run("node_drain", **drain, apply=kept)

    assert "pve2 would use more than 85% of its CPU" in str(result["moves"])
    assert on(cluster, "pve3") == {301}


@both_versions
def test_metrics_of_the_site__count_wherever_use_does(cluster: SimulatedCluster, controller: Controller) -> None:
    used = {"pve1": 0.1, "pve2": 0.95, "pve3": 0.3}
    options = {
        "plugin_config": LIMIT,
        "check": True,
        "metrics": {
            "nodes": {name: {"cpu": cpu, "memory": 8000} for name, cpu in used.items()},
            "guests": {
                **{guest: {"cpu": [None, 0.1], "memory": 500} for guest in ("web-1", "102", "201", "db-1")},
                "nobody": {"cpu": 1},
            },
        },
    }
    new = {"name": "web-9", "cores": 3, "memory": 512, **options}

    assert controller.run("qemu_schedule", **new, node="pve1")["vms"][0]["node"] == "pve1"
    refused = controller.run("qemu_schedule", **new, node="pve2")
    assert "99% with the VM, which counts as like" in refused["msg"]
    room = {"name": "big", "cores": 1, "memory": 60000, "node": "pve1", "demand": {"cpu": 0.1, "memory": 1000}}
    made = controller.run("qemu_schedule", **room, make_room={"max_moves": 4}, **options)
    assert {move["to"] for move in made["plan"]["moves"]} == {"pve3"}
    packed = controller.run("cluster_rebalance", goals=["consolidate"], **options)
    drained = controller.run("node_drain", node="pve3", **options)
    tour = controller.run("maintenance_tour", name=["pve3"], **options)
    assert {move["to"] for result in (packed, drained) for move in result["plan"]["moves"]} == {"pve1"}
    assert {move["to"] for step in tour["tour"]["steps"] for move in step["moves"]} == {"pve1"}
    counted = controller.run("capacity_info", **new, advice=True)
    assert {each["node"] for each in counted["nodes"] if not each["fit"]} == {"pve2"}
    assert {(each["vmid"], each["resource"]) for each in counted["right_sizes"]} >= {(101, "cpu"), (301, "cpu")}
    assert read(cluster) == []


@both_versions
def test_new_clone__counts_with_what_clones_of_its_template_use(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.add_guest(vmid=900, name="small", node="pve1", cores=3, memory=512, template=True, tags=["tiny"],
                      disks={"scsi0": "shared:8"})  # fmt: skip
    options = {"cores": 3, "memory": 512, "plugin_config": LIMIT, "check": True}
    clone = {"name": "other", "clone": "small", "node": "pve1"}

    refused = controller.run("qemu_schedule", vms=[{"name": "job-1"}, clone], **options)
    # The task says that job-1, which is idle, is a clone of it, too.
    placed = controller.run("qemu_schedule", vms=[{"name": "job-1", "clone": "small"}, clone], **options)
    cluster.set_guest(201, config={"tags": "tiny"})
    cluster.advance(30)
    by_tags = controller.run("qemu_schedule", vms=[clone], **options)

    assert "which counts as configured" in refused["msg"]
    assert [result["vms"][-1]["node"] for result in (placed, by_tags)] == ["pve1", "pve1"]
