# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that are paused for longer than their reservations last write nothing on the strength of these."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, RunningModule
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.ledger import PROOF_SECONDS

EXPIRE = "UPDATE qemu_scheduler_reservations SET expires = {}"

WAITING_PLUGIN = """
import pathlib
import time

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plugin_api import FilterPlugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.ledger import Fence

FOLDER = pathlib.Path(__file__).parent
mark_binding = Fence.mark_binding


def mark_and_wait(fence):
    mark_binding(fence)
    (FOLDER / "arrived").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.02)


Fence.mark_binding = mark_and_wait


class Waiting(FilterPlugin):
    '''Its file holds a VM back between the mark in the ledger and its creation.'''

    name = "Waiting"

    def filter(self, state, request, node):
        return None
"""

SLOW_PLUGIN = """
import pathlib
import time

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.plugin_api import FilterPlugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.ledger import LeasedCycle

FOLDER = pathlib.Path(__file__).parent
confirm = LeasedCycle.confirm


def wait_and_confirm(cycle, reservations):
    (FOLDER / "read").touch()
    while not (FOLDER / "decide").exists():
        time.sleep(0.02)
    return confirm(cycle, reservations)


LeasedCycle.confirm = wait_and_confirm


class Slow(FilterPlugin):
    '''Its file holds a run back when it has read the ledger and the cluster.'''

    name = "Slow"

    def filter(self, state, request, node):
        return None
"""

ONE_NODE: dict[str, Any] = {
    "nodes": [{"name": "pve1", "cores": 16, "memory": 4096}],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 1000}],
    "guests": [
        {"vmid": 9000, "name": "base", "node": "pve1", "memory": 3072, "template": True, "disks": {"scsi0": "shared:1"}}
    ],
}
"""Room for one VM of 3 GiB."""

VM: dict[str, Any] = {"memory": 3072, "state": "started"}


@pytest.fixture
def one_node(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    return start(ONE_NODE)


@pytest.fixture(params=["default", "postgresql"])
def ledger(request: pytest.FixtureRequest) -> str:
    return "default" if request.param == "default" else str(request.getfixturevalue("empty_postgres"))


class Runs:
    """Runs that are paused for longer than a reservation lasts."""

    def __init__(self, ledger: str, folder: Path) -> None:
        self._ledger = ledger
        self._folder = folder
        self._paused: list[RunningModule] = []

    def paused_before_creating(self, controller: Controller, **options: Any) -> RunningModule:
        plugin = self._folder / "waiting.py"
        plugin.write_text(WAITING_PLUGIN, encoding="utf-8")
        module = controller.start("qemu_schedule", reservations=self._ledger, plugin_paths=[str(plugin)], **options)
        until((self._folder / "arrived").exists)
        self.pause(module)
        (self._folder / "go").touch()
        self.expire(controller)
        return module

    def pause(self, module: RunningModule) -> None:
        self._paused.append(module)
        module.pause()
        until(lambda: "State:\tT" in Path(f"/proc/{module.pid}/status").read_text())

    def expire(self, controller: Controller) -> None:
        """Let the one reservation end now, as a long pause would."""
        expire = EXPIRE.format(time.time() - 1)
        if self._ledger == "default":
            path = controller.folder / "state/qemu_scheduler/reservations.db"
            with contextlib.closing(sqlite3.connect(path, timeout=30)) as file, file:
                assert file.execute(expire).rowcount == 1
            return
        with psycopg.connect(self._ledger, autocommit=True) as database:
            assert database.execute(expire.encode()).rowcount == 1

    def end(self) -> None:
        for module in self._paused:
            if module.is_running:
                module.kill()


@pytest.fixture
def runs(ledger: str, tmp_path: Path) -> Iterator[Runs]:
    made = Runs(ledger, tmp_path)
    yield made
    made.end()


def resumed(module: RunningModule) -> dict[str, Any]:
    # A real pause lasts for at least as long as a reservation.
    time.sleep(PROOF_SECONDS)
    module.go_on()
    return module.result()


def names(cluster: SimulatedCluster) -> list[str]:
    return sorted(guest["name"] for guest in cluster.state()["guests"].values() if not guest["template"])


def test_a_paused_run__does_not_take_a_place_that_was_given_to_another(
    control: Callable[..., Controller], one_node: SimulatedCluster, ledger: str, runs: Runs
) -> None:
    controller = control(one_node)
    late = runs.paused_before_creating(controller, name="late", **VM)
    controller.schedule(name="prompt", reservations=ledger, **VM)
    result = resumed(late)
    assert result["error_code"] == "NoNodesAvailable", result
    assert names(one_node) == ["prompt"]
    assert one_node.count_requests("POST", "/qemu") == 1


@pytest.mark.parametrize("ledger", ["default"], indirect=True)
def test_a_paused_run_that_goes_on_while_another_decides__keeps_its_place(
    control: Callable[..., Controller], one_node: SimulatedCluster, runs: Runs, tmp_path: Path
) -> None:
    controller, plugin = control(one_node), tmp_path / "slow.py"
    plugin.write_text(SLOW_PLUGIN, encoding="utf-8")
    late = runs.paused_before_creating(controller, name="late", **VM)
    # With another VMID, so that Proxmox VE would create both.
    prompt = controller.start("qemu_schedule", name="prompt", vmid=500, plugin_paths=[str(plugin)], **VM)
    until((tmp_path / "read").exists)
    assert resumed(late)["changed"] is True
    (tmp_path / "decide").touch()
    assert prompt.result()["error_code"] == "NoNodesAvailable"
    assert names(one_node) == ["late"]


def test_a_paused_run__finds_the_vm_that_another_made_of_its_name(
    control: Callable[..., Controller], one_node: SimulatedCluster, ledger: str, runs: Runs
) -> None:
    controller = control(one_node)
    late = runs.paused_before_creating(controller, name="web-1", **VM)
    made = controller.schedule(name="web-1", reservations=ledger, **VM)
    result = resumed(late)
    assert (result.get("failed", False), result["changed"], result["vmid"]) == (False, False, made["vmid"]), result
    assert names(one_node) == ["web-1"]


@pytest.mark.parametrize("vmid", [None, 500])
def test_a_paused_run__decides_anew_and_creates_where_there_is_room(
    controller: Controller, cluster: SimulatedCluster, ledger: str, runs: Runs, vmid: int | None
) -> None:
    late = runs.paused_before_creating(controller, name="late", vmid=vmid, **VM)
    prompt = controller.schedule(name="prompt", reservations=ledger, **VM)
    result = resumed(late)
    assert not result.get("failed"), result["msg"]
    assert result["vmid"] != prompt["vmid"]
    assert vmid in (None, result["vmid"])
    assert {"late", "prompt"} <= set(names(cluster))


def test_a_paused_run__creates_as_decided_while_nobody_has_decided_since(
    control: Callable[..., Controller], one_node: SimulatedCluster, runs: Runs
) -> None:
    late = runs.paused_before_creating(control(one_node), name="late", **VM)
    looked = one_node.count_requests("GET", "/cluster/resources")
    assert resumed(late)["changed"] is True
    assert one_node.count_requests("GET", "/cluster/resources") == looked


def test_a_paused_run__does_not_start_what_it_made_in_a_place_that_was_given_to_another(
    control: Callable[..., Controller], one_node: SimulatedCluster, ledger: str, runs: Runs
) -> None:
    controller = control(one_node)
    one_node.fault(method="POST", path="/clone$", task_held=True)
    late = controller.start("qemu_schedule", name="late", clone="base", reservations=ledger, state="started")
    until(lambda: one_node.count_requests("POST", "/clone"))
    # By then, the ledger knows the task: a process that is paused while it writes would keep the ledger locked.
    until(lambda: one_node.count_requests("GET", "/status"))
    runs.pause(late)
    one_node.clear_faults()
    until(lambda: "late" in names(one_node) and not one_node.state()["guests"][100]["config"].get("lock"))
    runs.expire(controller)
    controller.schedule(name="prompt", reservations=ledger, **VM)
    result = resumed(late)
    assert result["error_code"] == "ReservationLost", result
    guests = {guest["name"]: guest["status"] for guest in one_node.state()["guests"].values()}
    assert (guests["late"], guests["prompt"]) == ("stopped", "running")
    (vm,) = result["vms"]
    assert (vm["vmid"], vm["status"], result["changed"]) == (100, "stopped", True)
