# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest is moved only to where a new VM with its config could be placed: CPU types, flags, devices, architecture."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.versions import both_versions
from support.waiting import until

from .conftest import NODES, TIME_SCALE, on, writes

AMD = {"model": "AMD EPYC", "vendor": "AuthenticAMD", "models": ["host", "kvm64", "x86-64-v4", "EPYC-Genoa"],
       "flags": ["fpu", "sse2", "aes", "pcid", "avx512f", "avx2"]}  # fmt: skip
INTEL = {"model": "Intel(R) Xeon(R)", "vendor": "GenuineIntel", "models": ["host", "kvm64", "Haswell"],
         "flags": ["fpu", "sse2", "avx2"]}  # fmt: skip
OLD_AMD = {**AMD, "models": ["host", "kvm64"], "flags": ["fpu", "sse2", "avx2"]}
ARM = {**AMD, "machine": "aarch64"}

Start = Callable[..., AbstractContextManager[tuple[SimulatedCluster, Controller]]]


def vm(vmid: int, node: str = "pve1", **more: Any) -> dict[str, Any]:
    return {"vmid": vmid, "node": node, "name": f"vm{vmid}", "cores": 1, "memory": 2048, "status": "running",
            "disks": {"scsi0": "shared:8"}, **more}  # fmt: skip


@pytest.fixture
def start(modules: ModuleServer, tmp_path: Path) -> Start:
    """Start a cluster of nodes with these CPUs, and a controller. pve3 is the fullest."""

    @contextmanager
    def run(
        *guests: dict[str, Any], cpus: tuple[dict[str, Any], ...] = (AMD, AMD, AMD), version: str = "9.2", **more: Any
    ) -> Iterator[tuple[SimulatedCluster, Controller]]:
        nodes = [
            {"name": name, "cores": 16, "memory": 16384, "cpu": cpu, **more.pop(name, {})}
            for name, cpu in zip(NODES, cpus, strict=True)
        ]
        storages = [{"name": "shared", "type": "rbd", "shared": True, "content": ["images"], "size": 2000}]
        whole = {"cluster": "cpus", "nodes": nodes, "storages": storages, **more}
        whole["guests"] = [*guests, vm(300, "pve3", memory=6144)]
        with SimulatedCluster.start(whole, version=version, time_scale=TIME_SCALE) as cluster:
            yield cluster, Controller(modules, tmp_path, cluster.environment())

    return run


def is_running(cluster: SimulatedCluster, vmid: int) -> bool:
    return bool(cluster.state()["guests"][vmid]["status"] == "running")


@pytest.mark.parametrize("version", ["9.2", "8.4"])
@pytest.mark.parametrize(
    "cpu",
    [
        "x86-64-v4",
        "EPYC-Genoa",
        "host",
        "cputype=host,flags=+aes",
        "max",
        {"cpu": "kvm64", "args": "-smbios x -cpu host"},
    ],
)
def test_drain__moves_a_running_vm_to_a_node_that_has_its_cpu(
    start: Start, cpu: str | dict[str, str], version: str
) -> None:
    guest = vm(101, config=cpu if isinstance(cpu, dict) else {"cpu": cpu})
    with start(guest, cpus=(AMD, INTEL, AMD), version=version) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert (result.get("changed"), result.get("failed", False)) == (True, False), result
        assert on(cluster, "pve3") == {101, 300}
        assert is_running(cluster, 101)


def test_drain__uses_the_flags_of_the_nodes(start: Start) -> None:
    guest = vm(101, config={"cpu": "kvm64,flags=+aes;+pcid"})
    with start(guest, cpus=(AMD, OLD_AMD, AMD)) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert (result.get("changed"), result.get("failed", False)) == (True, False), result
        assert on(cluster, "pve3") == {101, 300}


@pytest.mark.parametrize(("other", "told"), [(INTEL, "CPU of Intel"), (OLD_AMD, "aes, avx512f, pcid")])
def test_drain__names_what_keeps_a_vm_that_sees_the_cpu_of_its_node(
    start: Start, other: dict[str, Any], told: str
) -> None:
    with start(vm(101, config={"cpu": "host"}), cpus=(AMD, other, other)) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert result["error_code"] == "GoalsNotReached"
        assert told in result["stuck"][0]["why"]
        assert result["stuck"][0]["cure"].startswith("shut it down")
        assert is_running(cluster, 101)
        assert not [call for call in writes(cluster) if call.endswith("/migrate")]


def test_drain__moves_such_a_vm_while_it_is_off(start: Start) -> None:
    guest = vm(101, config={"cpu": "host"}, status="stopped")
    with start(guest, cpus=(AMD, INTEL, INTEL)) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert (result.get("changed"), result.get("failed", False)) == (True, False), result
        assert not on(cluster, "pve1")


def test_drain__moves_a_vm_to_its_own_architecture(start: Start) -> None:
    with start(vm(101), cpus=(AMD, ARM, AMD)) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert (result.get("changed"), result.get("failed", False)) == (True, False), result
        assert on(cluster, "pve3") == {101, 300}


@pytest.mark.parametrize("status", ["running", "stopped"])
def test_drain__moves_a_vm_to_a_node_that_has_its_machine_version(start: Start, status: str) -> None:
    guest = vm(101, config={"machine": "pc-q35-10.1+pve0,viommu=virtio"}, status=status)
    with start(guest, cpus=(AMD, {**AMD, "machines": ["10.0", "9.2"]}, AMD)) as (cluster, controller):
        controller.run("node_drain", name=["pve1"])
        assert on(cluster, "pve3") == {101, 300}


def test_drain__reads_the_cpus_of_each_node_once(start: Start) -> None:
    with start(vm(101, config={"cpu": "host"}), vm(102)) as (cluster, controller):
        controller.run("node_drain", name=["pve1"])
        paths = [each["path"] for each in cluster.requests()]
        assert [paths.count(f"/nodes/{node}/status") for node in NODES] == [1, 1, 1]


@pytest.mark.parametrize("goal", ["balance", "consolidate", "repair"])
def test_rebalance__moves_no_vm_to_a_node_without_its_cpu(start: Start, goal: str) -> None:
    guests = [vm(vmid, config={"cpu": "x86-64-v4"}, memory=3072) for vmid in range(101, 107)]
    with start(*guests, cpus=(AMD, INTEL, OLD_AMD)) as (cluster, controller):
        controller.run("cluster_rebalance", goals=[goal])
        assert on(cluster, "pve1") == set(range(101, 107))


def test_make_room__moves_no_vm_to_a_node_without_its_cpu(start: Start) -> None:
    guests = [vm(vmid, config={"cpu": "host"}, memory=3072) for vmid in (101, 102, 103, 104)]
    more = [vm(105, config={"cpu": "kvm64"}, memory=3072), vm(301, "pve3", memory=8192)]
    with start(*guests, *more, cpus=(AMD, INTEL, AMD)) as (cluster, controller):
        result = controller.run("qemu_schedule", name="new", memory=3072, cpu={"cputype": "EPYC-Genoa"}, node="pve1",
                                state="started", make_room={"offline": True})  # fmt: skip
        assert not result.get("failed"), result
        assert on(cluster, "pve2").isdisjoint({101, 102, 103, 104})
        assert all(is_running(cluster, vmid) for vmid in (101, 102, 103, 104, 105))


# --- devices ---

GPU = {
    "id": "0000:41:00.0", "vendor": "0x10de", "device": "0x2684", "class": "0x030000", "iommugroup": 20,
    "subsystem_vendor": "0x10de", "subsystem_device": "0x16f1", "vendor_name": "NVIDIA", "device_name": "AD102",
}  # fmt: skip
WHERE = "path=0000:41:00.0,id=10de:2684,subsystem-id=10de:16f1,iommugroup=20"
MAPPING = {"id": "gpu", "map": [f"node={node},{WHERE}" for node in NODES]}


@both_versions
def test_drain__moves_a_stopped_vm_to_where_its_device_is_free(start: Start, version: str) -> None:
    with_gpu = {"config": {"hostpci0": "mapping=gpu"}}
    guests = [vm(101, status="stopped", **with_gpu), vm(102, "pve2", **with_gpu, memory=1024)]
    pci = {name: {"pci": [GPU]} for name in NODES}
    with start(*guests, mappings={"pci": [MAPPING]}, version=version, **pci) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert (result.get("changed"), result.get("failed", False)) == (True, False), result
        assert 101 in on(cluster, "pve3")
        controller.schedule(vmid=101, name="vm101", state="started")
        assert is_running(cluster, 101)


@both_versions
def test_drain__moves_guests_to_where_the_snippets_are_that_they_need(start: Start, version: str) -> None:
    """A hook script is called on the target, and a cloud-init drive is written when a VM starts, not on a live move."""
    custom = {"cicustom": "user=local:snippets/user.yml", "ide2": "shared:vm-102-cloudinit,media=cdrom"}
    guests = [
        vm(101, config={"hookscript": "local:snippets/hook.sh"}),
        vm(102, config=custom),
        vm(103, config=custom, status="stopped"),
    ]
    storages = [
        {"name": "shared", "type": "rbd", "shared": True, "content": ["images"], "size": 2000},
        {"name": "local", "type": "dir", "content": ["snippets"], "size": 60},
    ]
    files = {"local": {"hook.sh": {"pve1": 0.001, "pve3": 0.001}, "user.yml": {"pve1": 0.001}}}
    lister = {"Lister": ["Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.Audit"]}
    entry = {"path": "/storage/local", "user": "automation@pve", "role": "Lister"}
    rights = {"roles": lister, "acl": [entry]}
    with start(*guests, storages=storages, snippets=files, version=version, **rights) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert 101 in on(cluster, "pve3")
        assert on(cluster, "pve1") == {103}
        assert [(stuck["vmid"], stuck["why"]) for stuck in result["stuck"]] == [
            (103, "no node takes it: 2 node(s) didn't have snippet 'local:snippets/user.yml'")
        ]


def test_drain__keeps_a_vm_whose_device_is_free_nowhere(start: Start) -> None:
    with_gpu = {"config": {"hostpci0": "mapping=gpu"}}
    guests = [vm(101, status="stopped", **with_gpu), vm(102, "pve2", **with_gpu), vm(103, "pve3", **with_gpu)]
    pci = {name: {"pci": [GPU]} for name in NODES}
    with start(*guests, mappings={"pci": [MAPPING]}, **pci) as (cluster, controller):
        result = controller.run("node_drain", name=["pve1"])
        assert "stuck" in result, result
        assert "device claim 'hostpci0 (gpu)'" in result["stuck"][0]["why"]
        assert result["stuck"][0]["cure"] == "free a device of that kind on another node"
        assert on(cluster, "pve1") == {101}


# --- VMs that are restarted because they cannot move live ---

HOST = {"config": {"cpu": "host"}}
RESTART = {"name": ["pve1"], "vms_not_live": "restart"}


def steps(cluster: SimulatedCluster, vmid: int) -> list[str]:
    """What was sent about a guest, by node."""
    sent = [call.partition("/nodes/")[2] for call in writes(cluster) if f"/qemu/{vmid}/" in call]
    return [f"{call.split('/')[0]} {call.rpartition('/')[2]}" for call in sent]


@pytest.mark.parametrize("version", ["9.2", "8.4"])
def test_drain__restarts_a_vm_that_can_move_live_nowhere_where_the_task_permits_it(start: Start, version: str) -> None:
    with start(vm(101, **HOST), vm(102), cpus=(AMD, INTEL, INTEL), version=version) as (cluster, controller):
        result = controller.run("node_drain", **RESTART)
        assert not result.get("failed"), result
        assert {move["vmid"]: move["how"] for move in result["moves"]} == {101: "restart", 102: "live"}
        assert not on(cluster, "pve1")
        assert is_running(cluster, 101)
        assert steps(cluster, 101) == ["pve1 shutdown", "pve1 migrate", f"{result['moves'][0]['to']} start"]
        assert steps(cluster, 102) == ["pve1 migrate"]


def test_drain__moves_a_vm_live_where_that_is_possible_although_others_have_more_room(start: Start) -> None:
    with start(vm(101, **HOST), cpus=(AMD, INTEL, AMD)) as (cluster, controller):
        result = controller.run("node_drain", **RESTART)
        assert [(move["to"], move["how"]) for move in result["moves"]] == [("pve3", "live")]
        assert steps(cluster, 101) == ["pve1 migrate"]


def test_drain__restarts_a_vm_where_the_nodes_to_which_it_can_move_live_have_no_room(start: Start) -> None:
    full = vm(301, "pve3", memory=9 * 1024)
    with start(vm(101, **HOST), full, cpus=(AMD, INTEL, AMD)) as (cluster, controller):
        result = controller.run("node_drain", **RESTART)
        assert [(move["to"], move["how"]) for move in result["moves"]] == [("pve2", "restart")]
        assert is_running(cluster, 101)


@pytest.mark.parametrize("version", ["9.2", "8.4"])
def test_drain__restarts_a_vm_that_runs_with_something_that_keeps_it_from_moving_live(
    start: Start, version: str
) -> None:
    config = {"vga": "std,clipboard=vnc", "machine": "pc-q35-9.0"}
    with start(vm(101, config=config), version=version) as (cluster, controller):
        skipped = controller.run("node_drain", name=["pve1"], check=True)
        assert skipped["stuck"][0]["why"] == "it runs with the VNC clipboard"

        result = controller.run("node_drain", **RESTART)
        assert not result.get("failed"), result
        assert not on(cluster, "pve1")
        assert is_running(cluster, 101)


def test_drain__restarts_a_vm_with_a_device_that_cannot_move_live(start: Start) -> None:
    with_gpu = {"config": {"hostpci0": "mapping=gpu"}}
    pci = {name: {"pci": [GPU]} for name in NODES}
    guests = [vm(101, **with_gpu), vm(102, "pve2", **with_gpu, memory=1024)]
    with start(*guests, mappings={"pci": [MAPPING]}, **pci) as (cluster, controller):
        result = controller.run("node_drain", **RESTART)
        assert not result.get("failed"), result
        assert 101 in on(cluster, "pve3")
        assert is_running(cluster, 101)


@pytest.mark.parametrize(
    ("fault", "locked"),
    [({"status": 500, "message": "not today"}, False), ({"task_error": "migration aborted"}, True)],
    ids=["refused", "left locked"],
)
def test_drain__starts_a_vm_again_where_it_was_if_its_move_fails(
    start: Start, fault: dict[str, Any], locked: bool
) -> None:
    with start(vm(101, **HOST), cpus=(AMD, INTEL, INTEL)) as (cluster, controller):
        cluster.fault(method="POST", path="/101/migrate$", **fault)
        result = controller.run("node_drain", **RESTART, on_failure="stop")
        assert result["error_code"] == "MoveFailed"
        assert on(cluster, "pve1") == {101}
        assert is_running(cluster, 101) is not locked
        assert ("could not be started again: task qmstart" in result["msg"]) is locked


def test_drain__leaves_a_vm_running_that_does_not_shut_down(start: Start) -> None:
    with start(vm(101, **HOST, acpi=False), cpus=(AMD, INTEL, INTEL)) as (cluster, controller):
        result = controller.run("node_drain", **RESTART, on_failure="stop")
        assert "it was not shut down" in result["msg"], result
        assert on(cluster, "pve1") == {101}
        assert is_running(cluster, 101)
        assert steps(cluster, 101) == ["pve1 shutdown"]


def test_drain__leaves_a_vm_off_in_no_interrupted_run(start: Start) -> None:
    with start(vm(101, **HOST), cpus=(AMD, INTEL, INTEL)) as (cluster, controller):
        cluster.fault(method="POST", path="/101/migrate$", task_held=True)
        running = controller.start("node_drain", **RESTART)
        until(lambda: "pve1 migrate" in steps(cluster, 101))
        running.interrupt(signal.SIGINT)
        cluster.release()
        assert running.result()["error_code"] == "Interrupted"
        assert not on(cluster, "pve1")
        assert is_running(cluster, 101)


def test_drain__restarts_no_vm_that_the_ha_manager_manages(start: Start) -> None:
    ha = {"resources": [{"sid": "vm:101", "state": "started"}]}
    with start(vm(101, **HOST), cpus=(AMD, INTEL, INTEL), ha=ha) as (cluster, controller):
        result = controller.run("node_drain", **RESTART)
        assert result["stuck"][0]["cure"].startswith("shut it down")
        assert is_running(cluster, 101)


# --- right before the request ---


@pytest.mark.parametrize("version", ["9.2", "8.4"])
def test_move__is_not_begun_where_its_device_was_taken_after_the_plan_was_made(start: Start, version: str) -> None:
    with_gpu = {"config": {"hostpci0": "mapping=gpu"}, "memory": 1024}
    guests = [vm(101), vm(102, status="stopped", **with_gpu)]
    pci = {name: {"pci": [GPU]} for name in NODES}
    with start(*guests, mappings={"pci": [MAPPING]}, version=version, **pci) as (cluster, controller):
        plan = controller.run("node_drain", name=["pve1"], check=True)["plan"]
        planned = {move["vmid"]: move["to"] for move in plan["moves"]}[102]
        cluster.fault(method="POST", path="/101/migrate$", task_held=True)
        running = controller.start("node_drain", name=["pve1"], parallel={"cluster": 1})
        until(lambda: any(call.endswith("/101/migrate") for call in writes(cluster)))
        cluster.add_guest(**vm(400, planned, status="stopped", **with_gpu))
        cluster.clear_faults()

        result = running.result()

        assert not result.get("failed"), result
        assert 102 not in on(cluster, "pve1") | on(cluster, planned)
        assert [call for call in writes(cluster) if call.endswith("/102/migrate")] == [
            "POST /nodes/pve1/qemu/102/migrate"
        ]


def test_move__is_not_begun_where_its_vm_got_a_cpu_that_the_target_lacks(start: Start) -> None:
    with start(vm(101), vm(102, memory=1024), cpus=(AMD, INTEL, AMD)) as (cluster, controller):
        cluster.fault(method="POST", path="/101/migrate$", task_held=True)
        running = controller.start("node_drain", name=["pve1"], parallel={"cluster": 1})
        until(lambda: any(call.endswith("/101/migrate") for call in writes(cluster)))
        cluster.set_guest(102, config={"cpu": "EPYC-Genoa"})
        cluster.clear_faults()

        result = running.result()

        assert not result.get("failed"), result
        assert 102 in on(cluster, "pve3")
        assert is_running(cluster, 102)
        assert "failed" not in {move["outcome"] for move in result["moves"]}
