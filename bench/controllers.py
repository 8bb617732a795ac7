# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that reserve, bind and confirm one VM after the other: python -m bench.controllers LEDGER SIZE SECONDS."""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
import typing as t

import psycopg  # noqa: F401  (before the forks, which would each take a while to import it)

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import GIB
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    Durations,
    Holder,
    Reservation,
    open_ledger,
)

CLUSTER = "load"
WAIT = 300.0
LONG = Durations(reservation=3600.0, created=3600.0)
"""So that no reservation expires while its process waits for its next turn."""

_fork = multiprocessing.get_context("fork")


def work(index: int, together: t.Any, results: t.Any, where: str, seconds: float) -> None:
    """Reserve one VM after the other for so many seconds, each in place of the one before. Put into results the waits
    in seconds, and whether each reservation still existed when the next cycle began.
    """
    waits: list[float] = []
    kept = True
    together.wait()
    end = time.monotonic() + seconds
    with open_ledger(where, durations=LONG) as ledger:
        holder, vmid = Holder.new(), 100 + index
        while time.monotonic() < end:
            asked = time.monotonic()
            with ledger.scheduling_cycle(CLUSTER, holder=holder, wait=WAIT) as cycle:
                waits.append(time.monotonic() - asked)
                mine = [found for found in cycle.reservations() if found.vmid == vmid]
                kept = kept and len(mine) == (len(waits) > 1)
                cycle.confirm(mine)
                cycle.reserve([Reservation(CLUSTER, vmid, f"vm{vmid}", "pve1", cores=1, memory=GIB)])
            ledger.mark_binding(CLUSTER, [vmid], holder)
            ledger.mark_created(CLUSTER, [vmid], holder)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results.put({"waits": waits, "kept": kept, "memory": memory})


def main(where: str, size: str, seconds: str) -> None:
    """Print the results of each process."""
    together, results = _fork.Barrier(int(size), timeout=60), _fork.SimpleQueue()
    members = [
        _fork.Process(target=work, args=(index, together, results, where, float(seconds)), daemon=True)
        for index in range(int(size))
    ]
    for process in members:
        process.start()
    print(json.dumps([results.get() for _ in members]))
    for process in members:
        process.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
