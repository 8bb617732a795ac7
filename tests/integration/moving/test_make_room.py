# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that fit nowhere until other guests have moved."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import moves_table

from .conftest import TIME_SCALE, description, on, writes

SIZES = {"pve1": {101: 5, 102: 4}, "pve2": {201: 6, 202: 4}, "pve3": {301: 10}}
"""GiB of memory of the running VMs, on nodes of 16 GiB: 7, 6 and 6 GiB are left."""

BIG = {"name": "big", "memory": 8192, "scsi": {"scsi0": "shared:8"}, "state": "started"}
ROOM: dict[str, Any] = {"make_room": {}}


def lab(**changes: dict[str, Any]) -> dict[str, Any]:
    """The cluster; changes are to the config of guests, by vmVMID."""
    guests = [
        {"vmid": vmid, "node": node, "name": f"vm{vmid}", "cores": 1, "memory": gib * 1024, "status": "running",
         "disks": {"scsi0": "shared:8"}, **changes.get(f"vm{vmid}", {})}
        for node, sizes in SIZES.items() for vmid, gib in sizes.items()
    ]  # fmt: skip
    return {**description(), "guests": guests}


@pytest.fixture
def cluster(version: str) -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start(lab(), version=version, time_scale=TIME_SCALE) as running:
        yield running


def posts(cluster: SimulatedCluster) -> list[str]:
    """What was begun, in order: migrations and creations."""
    return [call.rpartition("/nodes/")[2] for call in writes(cluster) if call.startswith("POST")]


@both_versions
def test_make_room__moves_guests_and_then_creates_the_vm(cluster: SimulatedCluster, controller: Controller) -> None:
    refused = controller.run("qemu_schedule", **BIG)
    planned = controller.run("qemu_schedule", check=True, **BIG, **ROOM)
    assert not writes(cluster)
    made = controller.run("qemu_schedule", **BIG, **ROOM)
    again = controller.run("qemu_schedule", **BIG, **ROOM)

    way = 'it fits after 1 move(s), which make_room permits: VM "vm102" (102) from pve1 to '
    assert (refused["error_code"], way in refused["msg"]) == ("NoNodesAvailable", True), refused["msg"]
    assert not planned.get("failed"), planned["msg"]
    (move,) = planned["plan"]["moves"]
    assert (move["vmid"], move["from"], move["why"]) == (102, "pve1", "makes room on pve1 for big")
    assert (planned["vms"][0]["node"], planned["moves"], planned["changed"]) == ("pve1", [], True)
    assert moves_table(planned)[0] == "place 1 VM(s): 1 move(s), 4.0 GiB"
    assert not made.get("failed"), made["msg"]
    assert [(m["vmid"], m["outcome"]) for m in made["moves"]] == [(102, "moved")]
    assert (made["vms"][0]["node"], made["vms"][0]["vmid"]) == ("pve1", planned["vms"][0]["vmid"])
    assert made["diff"][0]["before"] == {"102 vm102": "pve1"}
    assert posts(cluster)[:2] == ["pve1/qemu/102/migrate", "pve1/qemu"]
    assert (again["changed"], "moves" in again) == (False, False)


def test_make_room__moves_nothing_where_that_does_not_help(cluster: SimulatedCluster, controller: Controller) -> None:
    large = {"name": "large", "memory": 20480}
    too_many = {"vms": [{**BIG, "memory": 16384}, {"name": "small", "memory": 4096}]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({**too_many, **ROOM}, "make_room: no moves make it fit"),
        ({**BIG, "make_room": {"max_moves": 0}}, "make_room: no moves make it fit within max_moves and max_transfer"),
        ({**BIG, "make_room": {"max_transfer": 3.9}}, "within max_moves and max_transfer"),
        ({"vms": [BIG, large], **ROOM}, "large"),
        ({**BIG, "make_room": {"max_moves": -1}}, "make_room.max_moves: -1 is not possible, expected at least 0"),
        (too_many, "3 node(s) would exceed the memory overcommit ratio 1.0"),
    ]
    for options, message in cases:
        result = controller.run("qemu_schedule", **options)
        assert result.get("failed"), options
        assert message in result["msg"], result["msg"]
        assert "it fits after" not in result["msg"]
        assert not result.get("moves")
    assert not writes(cluster)


def test_make_room__serves_the_others_where_not_all_are_needed(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    vms = [{**BIG, "name": "large", "memory": 20480}, BIG, {"name": "small", "memory": 4096}]
    result = controller.run("qemu_schedule", vms=vms, all_or_nothing=False, **ROOM)

    assert [vm["action"] for vm in result["vms"]] == ["none", "create", "create"], result["msg"]
    assert [move["outcome"] for move in result["moves"]] == ["moved"]
    assert result["error_code"] == "NoNodesAvailable"


def test_make_room__keeps_the_room_from_others_and_is_completed_by_the_next_run(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    cluster.fault(method="POST", path="/migrate$", task_seconds=450, count=1)
    running = controller.start("qemu_schedule", **BIG, **ROOM)
    until(lambda: posts(cluster))
    others = controller.run("qemu_schedule", name="other", memory=2048, node="pve1")
    running.interrupt(signal.SIGINT)
    result = running.result()

    assert "would exceed the memory overcommit ratio" in others["msg"]
    assert result["error_code"] == "Interrupted"
    assert [move["vmid"] for move in result["moves"]] == [102]
    assert len(posts(cluster)) == 1
    until(lambda: 102 not in on(cluster, "pve1"))
    cluster.advance(30)
    assert controller.schedule(**BIG, **ROOM)["vms"][0]["action"] == "create"


def test_make_room__says_which_move_failed(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.fault(method="POST", path="/migrate$", task_error="migration aborted")
    result = controller.run("qemu_schedule", **BIG, **ROOM)

    assert result["error_code"] == "NoNodesAvailable"
    assert "make_room: VM " in result["msg"]
    assert "could not be moved from" in result["msg"]
    assert not [call for call in posts(cluster) if call.endswith("/qemu")]
