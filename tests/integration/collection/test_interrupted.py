# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ctrl-C and cancelled jobs: nothing more is sent, and the answer says how far it came."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.playbook import environment
from support.waiting import until

NAMES = [f"web-{number}" for number in range(5)]
FIVE: dict[str, Any] = {"vms": [{"name": name} for name in NAMES], "memory": 512, "parallel_creates": 1}
ENDLESS = 100_000
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)


def sent(cluster: SimulatedCluster, method: str) -> list[str]:
    return [request["path"] for request in cluster.requests() if request["method"] == method]


def is_alive(marker: str) -> bool:
    """Whether there is a process that was started with this text somewhere in its environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


def leaves_signals_alone(thread: Path) -> bool:
    """Whether a thread, by its folder in /proc, has those signals blocked that ask a process to end."""
    (blocked,) = (line for line in (thread / "status").read_text().splitlines() if line.startswith("SigBlk:"))
    return all(int(blocked.split()[1], 16) >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM))


# --- the module ---


def test_signals__reach_the_thread_that_acts_on_them(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="POST", path="/qemu$", task_seconds=ENDLESS)
    running = controller.start("qemu_schedule", **FIVE)
    until(lambda: sent(cluster, "POST"))
    threads = list(Path(f"/proc/{running.pid}/task").iterdir())
    deaf = {thread.name for thread in threads if leaves_signals_alone(thread)}
    running.kill()
    assert deaf == {thread.name for thread in threads} - {str(running.pid)}
    assert len(deaf) == 3, "one creates, one renews reservations, one looks at the parent processes"


@BOTH
def test_module_that_is_interrupted__begins_nothing_more_and_says_how_far_it_came(
    controller: Controller, cluster: SimulatedCluster, number: signal.Signals
) -> None:
    cluster.fault(method="POST", path="/qemu$", task_seconds=ENDLESS)
    running = controller.start("qemu_schedule", **FIVE)
    until(lambda: sent(cluster, "POST"))
    running.interrupt(number)
    running.interrupt(number)
    result = running.result()
    assert "Traceback" not in running.output
    assert len(sent(cluster, "POST")) == 1
    begun, *others = result["vms"]
    assert (result["failed"], result["error_code"], result["changed"]) == (True, "Interrupted", True)
    assert result["msg"].startswith(f'interrupted; under way: VM "web-0" ({begun["error"]["message"]})')
    assert result["msg"].endswith('; not begun: VM "web-1", VM "web-2", VM "web-3", VM "web-4"')
    assert begun["error"]["upid"] in result["msg"]
    assert (begun["actions"], begun["status"], begun["vmid"]) == (["create"], None, 103)
    assert [(vm["status"], vm["vmid"], vm["actions"], vm["not_done"]) for vm in others] == [
        ("absent", None, [], ["create"])
    ] * 4
    # What was not begun is reserved for nobody.
    assert controller.run("vmid_pick")["vmid"] == 104


def test_vms_that_were_to_be_removed__are_kept(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(**{**FIVE, "parallel_creates": 4})
    cluster.fault(method="DELETE", path="/qemu/", task_seconds=ENDLESS)
    running = controller.start("qemu_schedule", state="absent", **FIVE)
    until(lambda: sent(cluster, "DELETE"))
    running.interrupt(signal.SIGINT)
    result = running.result()
    assert len(sent(cluster, "DELETE")) == 1
    assert result["error_code"] == "Interrupted"
    kept = result["vms"][1:]
    assert [(vm["status"], vm["actions"], vm["not_done"]) for vm in kept] == [("stopped", [], ["delete"])] * 4
    guests = cluster.state()["guests"]
    assert [guests[vm["vmid"]]["name"] for vm in kept] == NAMES[1:]


def test_step_that_is_done__is_not_followed_by_the_next(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.fault(method="GET", path="/tasks/UPID[^/]+/status$", status=596)
    running = controller.start("qemu_schedule", name="web-1", clone="debian-13", cores=4, state="started")
    until(lambda: any("lock" not in g["config"] for g in cluster.state()["guests"].values() if g["name"] == "web-1"))
    running.interrupt(signal.SIGTERM)
    cluster.clear_faults()
    result = running.result()
    assert [path.rpartition("/")[2] for path in sent(cluster, "POST") + sent(cluster, "PUT")] == ["clone"]
    (vm,) = result["vms"]
    assert (vm["error"]["code"], vm["actions"], vm["status"]) == ("Interrupted", ["clone"], "stopped")
    again = controller.schedule(name="web-1", clone="debian-13", cores=4, state="started")
    assert again["vmid"] == vm["vmid"]
    assert cluster.state()["guests"][vm["vmid"]]["status"] == "running"


def test_wait_for_capacity__is_interrupted_at_once(controller: Controller, cluster: SimulatedCluster) -> None:
    vms = [{"name": "small", "memory": 512}, {"name": "large", "memory": 60000, "node": "pve1"}]
    running = controller.start("qemu_schedule", vms=vms, wait_for_capacity=10_000)
    until(lambda: sent(cluster, "GET").count("/cluster/resources") >= 2)
    running.interrupt(signal.SIGINT)
    result = running.result()
    assert result["error_code"] == "Interrupted"
    assert [vm["error"]["code"] for vm in result["vms"]] == ["Interrupted", "NoNodesAvailable"]
    assert result["msg"].startswith('interrupted; not begun: VM "small"; 0/3 nodes')
    assert sent(cluster, "POST") == []


# --- a whole ansible-playbook ---


@pytest.mark.parametrize("execution", ["direct", "module"])
@BOTH
def test_playbook_that_is_interrupted__leaves_nothing_that_goes_on(
    cluster: SimulatedCluster, tmp_path: Path, number: signal.Signals, execution: str
) -> None:
    cluster.fault(method="POST", path="/qemu$", task_seconds=ENDLESS)
    task = {"name": "five", "qemu_scheduler.proxmox.qemu_schedule": FIVE}
    playbook = tmp_path / "playbook.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / "ansible-playbook"), str(playbook)],
        env=environment(tmp_path, {**cluster.environment(), "QEMU_SCHEDULER_EXECUTION": execution}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: sent(cluster, "POST"))
    # As a terminal does with Ctrl-C, and whoever cancels a job with all that it has started.
    os.killpg(process.pid, number)
    assert process.wait() != 0
    until(lambda: not is_alive(str(tmp_path / "state")))
    assert len(sent(cluster, "POST")) == 1
