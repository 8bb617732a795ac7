# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Much more than usual: 200 forks, 2,000 VMs in one task, and 50 controllers that share one ledger for a while."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterable

from support.postgres import postgres_server

from . import shapes
from .forks import hosts
from .playbooks import Run, Task, controller
from .report import Section, Table

NODES = 50
FORKS, VMS, CONTROLLERS = 200, 2000, 50
QUICK = (5, 20, 5)
SECONDS = 60.0
MIB = 1024


def measure(quick: bool, seconds: float = SECONDS) -> Section:
    """Let the controllers work for so many seconds. Raises AssertionError when anything is lost or given out twice."""
    forks, vms, controllers = QUICK if quick else (FORKS, VMS, CONTROLLERS)
    tasks = Table(
        f"Under load, {NODES} nodes",
        ["", "VMs", "created", "wall time [s]", "CPU [s]", "requests", "memory of the largest process [MiB]"],
        notes=["Every VM exists once, under the name and the VMID that the result has."],
    )
    one = shapes.ours(name="{{ inventory_hostname }}")
    tasks.rows.append([f"{forks} forks", *_run({**one, "delegate_to": "localhost"}, hosts(forks))])
    tasks.rows.append([f"one task with {vms} VMs", *_run(shapes.ours_many(hosts(vms), parallel_creates=16), None)])
    return Section("load", [tasks, _controllers(controllers, 5.0 if quick else seconds)])


def _run(task: Task, names: list[str] | None) -> list[int | float]:
    with controller(NODES) as ansible:
        run = ansible.run(task, hosts=names or ("localhost",))
        there = {guest["name"]: vmid for vmid, guest in ansible.cluster.state()["guests"].items()}
    told = _told(run)
    assert len(told) == len(set(told.values())), "a VMID was reported twice"
    assert all(there.get(name) == vmid for name, vmid in told.items()), "a VM is not what was reported"
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / MIB
    return [len(told), sum(name in there for name in told), run.seconds, run.cpu_seconds, len(run.requests), largest]


def _told(run: Run) -> dict[str, int]:
    """The VMIDs that results name, by the names of the VMs."""
    every: Iterable[dict[str, object]] = (vm for result in run.results for vm in result["vms"])
    return {str(vm["name"]): int(str(vm["vmid"])) for vm in every}


def _controllers(size: int, seconds: float) -> Table:
    with postgres_server() as url:
        done = subprocess.run(
            [sys.executable, "-m", "bench.controllers", url, str(size), str(seconds)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            check=True,
        )
    found = json.loads(done.stdout)
    waits = sorted(wait for each in found for wait in each["waits"])
    assert all(each["kept"] for each in found), "a reservation was lost"
    table = Table(
        f"{size} controllers on one PostgreSQL for {seconds:.0f} s, all at once and about one cluster",
        ["reservations", "a second", "wait: median [s]", "99 of 100 [s]", "longest [s]", "memory of each [MiB]"],
        notes=["A wait is from asking for the scheduling cycle to its beginning. No reservation was lost."],
    )
    slowest = waits[int(len(waits) * 0.99) - 1]
    memory = max(each["memory"] for each in found)
    table.rows.append(
        [len(waits), len(waits) / seconds, statistics.median(waits), slowest, waits[-1], memory / MIB]
    )
    return table
