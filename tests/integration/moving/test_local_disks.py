# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests with local disks: where copies of them are, and to which storages they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.versions import both_versions

from .conftest import NODES, TIME_SCALE, container, on, writes

Start = Callable[..., AbstractContextManager[tuple[SimulatedCluster, Controller]]]


def vm(vmid: int, node: str, disks: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"vmid": vmid, "node": node, "name": f"vm{vmid}", "cores": 1, "memory": 1024, "status": "running",
            "disks": disks, **more}  # fmt: skip


@pytest.fixture
def start(modules: ModuleServer, tmp_path: Path) -> Start:
    @contextmanager
    def run(
        storages: list[dict[str, Any]], *guests: dict[str, Any], **more: Any
    ) -> Iterator[tuple[SimulatedCluster, Controller]]:
        nodes = [{"name": name, "cores": 16, "memory": 16384} for name in NODES]
        version = more.pop("version", "9.2")
        whole = {"cluster": "local", "nodes": nodes, "storages": storages, "guests": [*guests], **more}
        with SimulatedCluster.start(whole, version=version, time_scale=TIME_SCALE) as cluster:
            yield cluster, Controller(modules, tmp_path, cluster.environment())

    return run


def disks_of(cluster: SimulatedCluster, vmid: int) -> dict[str, str]:
    """The storages of a guest's disks."""
    config = cluster.state()["guests"][vmid]["config"]
    return {key: str(value).partition(":")[0] for key, value in config.items() if key.startswith("scsi") and key[4:]}


def storage(name: str, size: float, *nodes: str, kind: str = "zfspool") -> dict[str, Any]:
    limited = {"nodes": list(nodes)} if nodes else {}
    return {"name": name, "type": kind, "content": ["images", "rootdir"], "size": size, **limited}


# --- replication ---

REPLICATED = [{"guest": vmid, "target": "pve3"} for vmid in (101, 102, 110)]
SNAPSHOTS = {"before": {"scsi0": "zfs:vm-101-disk-0,size=20G"}}
FULLER = vm(300, "pve3", {"scsi0": "zfs:4"}, memory=8192)


@pytest.mark.parametrize("more", [{}, {"status": "stopped"}, {"ha": True}])
def test_drain__moves_a_guest_to_where_its_disks_are_replicated(start: Start, more: dict[str, Any]) -> None:
    managed = {"ha": {"resources": [{"sid": "vm:101", "state": "started"}]}} if more.pop("ha", False) else {}
    guest = vm(101, "pve1", {"scsi0": "zfs:20"}, **more)
    with start([storage("zfs", 400)], guest, FULLER, replication=REPLICATED, **managed) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert 101 in on(cluster, "pve3")
        assert [(move["to"], move["copied"]) for move in result["plan"]["moves"]] == [("pve3", 0)]


def test_drain__moves_a_container_to_where_its_disks_are_replicated(start: Start) -> None:
    guest = {**container(110), "status": "stopped", "config": {"rootfs": "zfs:subvol-110-disk-0,size=20G"}}
    with start([storage("zfs", 400)], guest, FULLER, replication=REPLICATED) as (cluster, controller):
        controller.run("node_drain", name=["pve1"])
        assert 110 in on(cluster, "pve3")


def test_drain__copies_the_disks_of_a_guest_that_is_off_where_no_replica_can_be_used(start: Start) -> None:
    guest = vm(101, "pve1", {"scsi0": "zfs:20"})
    with start([storage("zfs", 400)], guest, replication=REPLICATED) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1", "pve3"])
        assert "no replication targets" in result["stuck"][0]["why"]

        cluster.set_guest(101, status="stopped")
        controller.run("node_drain", name=["pve1", "pve3"])
        assert 101 in on(cluster, "pve2")


@pytest.mark.parametrize("version", ["9.2", "8.4"])
@pytest.mark.parametrize("managed", [False, True])
def test_drain__moves_a_running_vm_with_snapshots_to_its_replica(start: Start, version: str, managed: bool) -> None:
    ha = {"ha": {"resources": [{"sid": "vm:101", "state": "started"}]}} if managed else {}
    guest = vm(101, "pve1", {"scsi0": "zfs:20"}, snapshots=SNAPSHOTS)
    with start([storage("zfs", 400)], guest, FULLER, replication=REPLICATED, version=version, **ha) as (
        cluster,
        controller,
    ):
        result = controller.run("node_drain", name=["pve1", "pve3"])
        assert "no replication targets" in result["stuck"][0]["why"], result
        controller.run("node_drain", name=["pve3"], state="active")

        result = controller.run("node_drain", name=["pve1"])
        assert not result.get("failed"), result
        assert 101 in on(cluster, "pve3")
        assert cluster.state()["guests"][101]["status"] == "running"


def test_drain__leaves_a_running_vm_whose_snapshots_are_not_replicated(start: Start) -> None:
    guest = vm(101, "pve1", {"scsi0": "zfs:20"}, snapshots=SNAPSHOTS)
    with start([storage("zfs", 400)], guest) as (_cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert "has snapshots: before" in result["stuck"][0]["why"]
        assert result["stuck"][0]["cure"] == "remove the snapshots, or shut it down"


# --- storages ---


@both_versions
def test_drain__uses_another_storage_where_the_one_of_the_same_name_is_full(start: Start, version: str) -> None:
    full = [vm(200 + n, node, {"scsi0": "zfs:90"}, memory=512) for n, node in enumerate(("pve2", "pve3"))]
    storages = [storage("zfs", 100), storage("lvm", 300, kind="lvmthin")]
    with start(storages, vm(101, "pve1", {"scsi0": "zfs:40"}), *full, version=version) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert result["changed"], result
        assert not on(cluster, "pve1")
        assert disks_of(cluster, 101) == {"scsi0": "lvm"}


def test_drain__keeps_the_storage_of_the_same_name_where_it_has_room(start: Start) -> None:
    storages = [storage("zfs", 100), storage("lvm", 300, kind="lvmthin")]
    with start(storages, vm(101, "pve1", {"scsi0": "zfs:40", "scsi1": "lvm:10"})) as (cluster, controller):
        controller.run("node_drain", name=["pve1"])
        assert disks_of(cluster, 101) == {"scsi0": "zfs", "scsi1": "lvm"}


def test_drain__needs_on_each_storage_only_the_room_for_its_own_disks(start: Start) -> None:
    storages = [storage("fast", 35), storage("slow", 35, kind="lvmthin")]
    with start(storages, vm(101, "pve1", {"scsi0": "fast:20", "scsi1": "slow:20"})) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert not result.get("failed"), result
        assert disks_of(cluster, 101) == {"scsi0": "fast", "scsi1": "slow"}
        (move,) = result["plan"]["moves"]
        assert (move["sizes"], move["copied"]) == ({"scsi0": 20 * 1024**3, "scsi1": 20 * 1024**3}, 40 * 1024**3)


@pytest.mark.parametrize(
    "names",
    [("n1_a", "n1_b", "n2_a", "n2_b"), ("ssd", "hdd", "fast", "slow"), ("tank", "pool", "local-zfs", "data")],
    ids=["alike", "unlike", "more unlike"],
)
def test_active__brings_two_disks_back_to_their_two_storages(start: Start, names: tuple[str, ...]) -> None:
    one, two, *others = names
    storages = [storage(name, 100, "pve1") for name in (one, two)] + [storage(name, 100, "pve2") for name in others]
    with start(storages, vm(101, "pve1", {"scsi0": f"{one}:10", "scsi1": f"{two}:20"})) as (cluster, controller):
        controller.run("node_drain", name=["pve1"])
        assert set(disks_of(cluster, 101).values()) == set(others)
        controller.run("node_drain", name=["pve1"], state="active")
        assert disks_of(cluster, 101) == {"scsi0": one, "scsi1": two}


@both_versions
def test_active__brings_disks_back_that_met_on_one_storage(start: Start, version: str) -> None:
    storages = [storage(name, 100, "pve1") for name in ("n1_a", "n1_b")] + [storage("n2_a", 100, "pve2")]
    guests = [
        vm(101, "pve1", {"scsi0": "n1_a:10", "scsi1": "n1_b:20"}),
        vm(102, "pve1", {"scsi0": "n1_b:5"}),
        vm(103, "pve1", {"scsi0": "n1_b:5"}, status="stopped"),
    ]
    with start(storages, *guests, version=version) as (cluster, controller):
        controller.run("node_drain", name=["pve1"])
        assert disks_of(cluster, 101) == {"scsi0": "n2_a", "scsi1": "n2_a"}
        result = controller.run("node_drain", name=["pve1"], state="active")
        assert not result.get("failed"), result
        assert not result.get("warnings"), result
        assert disks_of(cluster, 101) == {"scsi0": "n1_a", "scsi1": "n1_b"}
        assert {*disks_of(cluster, 102).values(), *disks_of(cluster, 103).values()} == {"n1_b"}
        # One storage of each guest is right at once: only the smaller disk is copied twice.
        assert [call for call in writes(cluster) if "move_disk" in call] == ["POST /nodes/pve1/qemu/101/move_disk"]
        assert not controller.run("node_drain", name=["pve1"], state="active")["changed"]


def test_active__is_not_kept_by_a_disk_that_cannot_go_home(start: Start, tmp_path: Path) -> None:
    """The same after a drain that applies a plan, which reads nothing of the disks."""
    plan = str(tmp_path / "plan.json")
    storages = [storage(name, 100, "pve1") for name in ("n1_a", "n1_b")] + [storage("n2_a", 100, "pve2")]
    with start(storages, vm(101, "pve1", {"scsi0": "n1_a:20", "scsi1": "n1_b:10"})) as (cluster, controller):
        controller.run("node_drain", name=["pve1"], plan_file=plan, check=True)
        controller.run("node_drain", name=["pve1"], apply=plan)
        cluster.fault(method="POST", path="/move_disk$", task_error="storage 'n1_b' is not online")
        result = controller.run("node_drain", name=["pve1"], state="active")
        assert not result.get("failed"), result
        assert disks_of(cluster, 101) == {"scsi0": "n1_a", "scsi1": "n1_a"}
        (warning,) = result["warnings"]
        assert "scsi1 of VM 101 is on n1_a, and could not be moved back to n1_b" in warning
        assert "drained-node-pve1" not in cluster.state()["pools"]
