# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that schedule as fast as they can. Run with a fleet's arguments as JSON, or with C(loop) and a ledger."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import signal
import sys
import time
import typing as t

import psycopg  # noqa: F401  (before the forks, which would each take a while to import it)

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    Holder,
    Ledger,
    Reservation,
    open_ledger,
)

from .dying import end_with_parent

# This program has no other threads and has imported everything, so its forks start quickly, like those of Ansible.
_fork = multiprocessing.get_context("fork")


def reserve_one(ledger: Ledger, cluster: str, holder: Holder, think: float) -> tuple[float, float, int]:
    """Reserve the lowest free VMID, and return when the cycle began and ended."""
    with ledger.scheduling_cycle(cluster, holder=holder, wait=600) as cycle:
        begun = time.monotonic()
        taken = {reservation.vmid for reservation in cycle.reservations()}
        vmid = next(vmid for vmid in itertools.count(100) if vmid not in taken)
        time.sleep(think)
        cycle.reserve([Reservation(cluster, vmid, f"vm{vmid}", "pve1")])
        ended = time.monotonic()
    return begun, ended, vmid


def member(index: int, together: t.Any, results: t.Any, where: str, cluster: str, cycles: int, think: float) -> None:
    end_with_parent()
    records: list[dict[str, t.Any]] = []
    try:
        together.wait()
        with open_ledger(where) as ledger:
            holder = Holder.new()
            for _ in range(cycles):
                arrived = time.monotonic()
                begun, ended, vmid = reserve_one(ledger, cluster, holder, think)
                records.append({"process": index, "arrived": arrived, "begun": begun, "ended": ended, "vmid": vmid})
        # Wait for the others: reservations for which nothing was sent to Proxmox end with their process.
        together.wait()
    except BaseException:
        together.abort()
        raise
    finally:
        results.put(records)


def fleet(where: str, cluster: str, size: int, cycles: int, think: float) -> list[dict[str, t.Any]]:
    together, results = _fork.Barrier(size, timeout=600), _fork.SimpleQueue()
    members = [
        _fork.Process(target=member, args=(index, together, results, where, cluster, cycles, think), daemon=True)
        for index in range(size)
    ]
    for process in members:
        process.start()
    records = [record for _ in members for record in results.get()]
    for process in members:
        process.join()
    if any(process.exitcode for process in members):
        raise SystemExit(1)
    return records


def loop(where: str, cluster: str) -> None:
    with open_ledger(where) as ledger:
        holder = Holder.new()
        while True:
            _begun, _ended, vmid = reserve_one(ledger, cluster, holder, think=0)
            ledger.mark_binding(cluster, [vmid], holder)
            print(vmid, flush=True)
            # Whoever reserves without a pause leaves other processes no gap to write in, as SQLite has no queue.
            time.sleep(0.002)


if __name__ == "__main__":
    end_with_parent()
    # Ctrl-C comes to all processes: one that ended in an orderly way would wait at the barrier for the others.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1] == "loop":
        loop(*sys.argv[2:])
    else:
        print(json.dumps(fleet(**json.loads(sys.argv[1]))))
