# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""High load: 200 forks, 2,000 VMs in one task, and 50 controllers that share one ledger."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import typing as t

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
    """Run the controllers for so many seconds. Raises AssertionError if anything is lost or allocated twice."""
    forks, vms, controllers = QUICK if quick else (FORKS, VMS, CONTROLLERS)
    tasks = Table(
        f"Under load, {NODES} nodes",
        ["", "VMs", "created", "refused", "wall time [s]", "CPU [s]", "requests", "largest process [MiB]"],
        notes=["Each created VM exists once, under the name and the VMID that the result has, and no other one does."],
    )
    one = {**shapes.ours(name="{{ inventory_hostname }}"), "delegate_to": "localhost"}
    many = shapes.ours_many(hosts(vms), parallel_creates=16)
    for label, task, count, names in ((f"{forks} forks", one, forks, hosts(forks)), ("one task", many, vms, None)):
        run, cells = _run(task, names)
        tasks.rows.append([label, count, cells[0], count - cells[0], *cells[1:]])
        tasks.notes += [f"{label}, the first that was refused: {text}" for text in run.failures[:1]]
    return Section("load", [tasks, _controllers(controllers, 5.0 if quick else seconds)])


def _run(task: Task, names: list[str] | None) -> tuple[Run, list[t.Any]]:
    with controller(NODES) as ansible:
        run = ansible.run(task, hosts=names or ("localhost",), must_succeed=False)
        found = {guest["name"]: vmid for vmid, guest in ansible.cluster.state()["guests"].items()}
    told = {str(vm["name"]): int(vm["vmid"]) for result in run.results for vm in result.get("vms", ()) if vm["vmid"]}
    made = {name: vmid for name, vmid in found.items() if name.startswith("web-")}
    assert made == told, f"{len(made)} VMs are there, and {len(told)} were told"
    assert len(set(told.values())) == len(told), "a VMID was told twice"
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / MIB
    return run, [len(told), run.seconds, run.cpu_seconds, len(run.requests), largest]


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
        notes=["A wait lasts from the request for a scheduling cycle until that begins. No reservation was lost."],
    )
    slowest = waits[int(len(waits) * 0.99) - 1]
    memory = max(each["memory"] for each in found)
    table.rows.append([len(waits), len(waits) / seconds, statistics.median(waits), slowest, waits[-1], memory / MIB])
    return table
