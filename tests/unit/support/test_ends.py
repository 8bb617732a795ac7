# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test run has started ends with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from support.waiting import until

MARK = "STARTED_BY_A_TEST_RUN"

TESTS = """
import time
from pathlib import Path
from threading import Thread

from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.ansible_commands import Ansible
from support.controller import Controller, module_server
from support.ledgers import Fleet, Loop
from support.playbook import environment, run_tasks
from support.postgres import postgres_server
from support.quick_clusters import forked_clusters
from support.waiting import until

TASK = {"name": "web-1", "memory": 512}


def wait(cluster, folder):
    until(lambda: any(request["method"] == "POST" for request in cluster.requests()))
    Path(folder, "ready").touch()
    time.sleep(1000)


def test_module__waits(tmp_path):
    with forked_clusters(), SimulatedCluster.start(CLUSTERS / "three-nodes.yml") as cluster, postgres_server() as url:
        cluster.fault(method="POST", hang=True)
        with module_server() as modules:
            run = Controller(modules, tmp_path, cluster.environment()).start("qemu_schedule", **TASK, reservations=url)
            Fleet(url, "a", size=2, think=1000)
            Loop(url, "b", tmp_path / "output")
            until(lambda: any(request["method"] == "POST" for request in cluster.requests()))
            run.pause()
            wait(cluster, "module")


def test_play__waits(tmp_path):
    with SimulatedCluster.start(CLUSTERS / "three-nodes.yml") as cluster:
        cluster.fault(method="POST", hang=True)
        Thread(target=wait, args=(cluster, "play"), daemon=True).start()
        with Ansible.forked(environment(tmp_path, {})):
            run_tasks(tmp_path, [{"qemu_scheduler.proxmox.qemu_schedule": TASK}], cluster.environment())
"""


def processes(mark: Path) -> dict[int, str]:
    """Return the commands of the processes that have inherited the mark, and have not ended."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # Others end meanwhile, or belong to other users.
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_text(encoding="utf-8").replace("\0", " ")
    return found


@pytest.mark.parametrize(
    ("number", "to_all"), [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGKILL, False)]
)
def test_run_that_is_ended__leaves_no_process(number: signal.Signals, to_all: bool, tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(TESTS, encoding="utf-8")
    ready = [tmp_path / name / "ready" for name in ("module", "play")]
    for file in ready:
        file.parent.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "test_waiting.py"],
        cwd=tmp_path,
        env={**os.environ, MARK: str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=(tmp_path / "output").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    until(lambda: all(file.exists() for file in ready) or run.poll() is not None)
    assert run.poll() is None, (tmp_path / "output").read_text(encoding="utf-8")
    commands = " ".join(processes(tmp_path).values())
    assert all(part in commands for part in ("ansible_server", "postgres", "forkserver", "module_server"))
    (os.killpg if to_all else os.kill)(run.pid, number)
    run.wait()
    until(lambda: not processes(tmp_path))
