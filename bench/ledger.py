# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of sharing a decision with other processes, and of the decision itself."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from support.postgres import postgres_server

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    Device,
    DeviceClaim,
    Disk,
    Request,
    Snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    Holder,
    Ledger,
    Reservation,
    open_ledger,
)

from .engine import scheduler, snapshot
from .report import Section, Table

CLUSTER = "bench"
NODES = 50
GPUS_PER_NODE = 4
PROCESSES = (50, 200)
GOAL = 60.0
HAND_OVER = (
    "Each decision reads the reservations of all processes, and nothing confirms them here: {half:,} on average. "
    "Those who wait look at the queue at least once a second, and share the cores with the one that decides."
)

DISKS = (Disk("scsi0", 32 * GIB), Disk("scsi1", 100 * GIB, "local"), Disk("scsi2", 8 * GIB, "ceph"))
GPU = (DeviceClaim("gpu", mapping="gpu", constraints=("device.vendor == '10de'", "device.memory >= 24")),)


def measure(quick: bool) -> Section:
    """Time some hundred decisions; quick: some twenty."""
    hand_over = _hand_over(2, 1) if quick else _hand_over(10, 3)
    return Section("ledger", [_ledgers(20 if quick else 300), hand_over, _decisions(5 if quick else 50)])


def _ledgers(times: int) -> Table:
    table = Table(
        "The ledger, milliseconds per VM (median)",
        ["reservations", "decide: lease, read, reserve", "bind: mark, created", "sum"],
        notes=["none: kept in memory, shared with nobody."],
    )
    for name, where in _places():
        with open_ledger(where) as ledger:
            decide, bind = _cycles(ledger, times)
        table.rows.append([name, decide, bind, decide + bind])
    return table


def _hand_over(cycles: int, repeats: int) -> Table:
    """How fast the lease goes from one to the next of many that wait for it."""
    table = Table(
        "VMs per second, reserved by processes that all decide about one cluster at the same time",
        ["reservations", "processes", "VMs per second", "goal: at least"],
        notes=[f"The median of {repeats}."],
    )
    for size in PROCESSES:
        for name, where in _places():
            if where != "none":
                reserved = statistics.median(_fleet(where, size, cycles) for _ in range(repeats))
                table.rows.append([name, size, reserved, GOAL])
                if reserved < GOAL:
                    table.explain(f"{name}, {size} processes", HAND_OVER.format(half=size * cycles // 2))
    return table


def _places() -> Iterator[tuple[str, str]]:
    yield "none", "none"
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield "SQLite", str(Path(folder, "reservations.db"))
    with postgres_server() as url:
        yield "PostgreSQL (on a local socket)", url


def _cycles(ledger: Ledger, times: int) -> tuple[float, float]:
    """The medians of both cycles. Each run confirms the VM of the run before, as a real one does."""
    holder = Holder.new()
    deciding: list[float] = []
    binding: list[float] = []
    for vmid in range(100, 100 + times):
        with _timed(deciding), ledger.scheduling_cycle(CLUSTER, holder=holder) as cycle:
            cycle.confirm(cycle.reservations())
            cycle.reserve([Reservation(CLUSTER, vmid, f"vm{vmid}", "n1", cores=1, memory=GIB)])
        with _timed(binding):
            ledger.mark_binding(CLUSTER, [vmid], holder)
            ledger.mark_created(CLUSTER, [vmid], holder)
    return statistics.median(deciding), statistics.median(binding)


def _fleet(where: str, size: int, cycles: int) -> float:
    """How many VMs per second processes reserve that all try at the same time."""
    arguments = {"where": where, "cluster": "fleet", "size": size, "cycles": cycles, "think": 0}
    done = subprocess.run(
        [sys.executable, "-m", "support.fleet", json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        check=True,
    )
    records = json.loads(done.stdout)
    seconds: float = max(r["ended"] for r in records) - min(r["arrived"] for r in records)
    return len(records) / seconds


def _decisions(times: int) -> Table:
    table = Table(
        f"One decision on {NODES} nodes with 10 guests and {GPUS_PER_NODE} GPUs each, milliseconds (median)",
        ["", "count the snapshot", "first VM", "next VM of its kind"],
        notes=["The first VM is compared with every node, the next only with what has changed."],
    )
    plain = snapshot(NODES)
    data = replace(plain, devices=tuple(_gpus(plain)))
    kinds = {
        "one core, 1 GiB": _request((), ()),
        "with three disks": _request(DISKS, ()),
        "with three disks and a GPU": _request(DISKS, GPU),
    }
    for title, request in kinds.items():
        counting: list[float] = []
        first: list[float] = []
        following: list[float] = []
        for _ in range(times):
            gc.collect()
            with _timed(counting):
                ClusterState(data)
            cluster = scheduler(data)
            for number, sample in enumerate((first, *[following] * 10)):
                with _timed(sample):
                    outcome = cluster.schedule(request(number))
                if outcome.error is not None:
                    raise outcome.error
        table.rows.append([title, *map(statistics.median, (counting, first, following))])
    return table


def _request(disks: tuple[Disk, ...], devices: tuple[DeviceClaim, ...]) -> Callable[[int], Request]:
    return lambda number: Request(f"web-{number}", cores=1, memory=GIB, disks=disks, devices=devices)


def _gpus(cluster: Snapshot) -> Iterator[Device]:
    for node in cluster.nodes:
        for slot in range(GPUS_PER_NODE):
            attributes = {"vendor": "10de", "device": "20b0", "memory": 16 if slot == 0 else 80, "numa_node": slot % 2}
            yield Device("pci", "gpu", node.name, f"0000:0{slot + 1}:00.0", attributes=attributes)


@contextmanager
def _timed(sample: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    sample.append(1000 * (time.perf_counter() - began))
