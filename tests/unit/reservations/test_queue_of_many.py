# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many processes that wait for the lease leave its holder the CPU."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.effort import lines_run
from support.ledgers import CLUSTER, dead_holder, reservation

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import LedgerUnavailable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    AlreadyReserved,
    Holder,
    open_ledger,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.records import holder_to_text


@pytest.fixture
def ledger_file(tmp_path: Path) -> Path:
    file = tmp_path / "reservations.db"
    open_ledger(str(file)).close()
    return file


def queue_up(file: Path, holders: Iterable[Holder]) -> None:
    """Put a ticket of each holder into the queue, in order."""
    with sqlite3.connect(file) as database:
        database.executemany(
            "INSERT INTO qemu_scheduler_queue (cluster, ticket, holder, since, expires) VALUES (?, ?, ?, ?, ?)",
            [(CLUSTER, f"{n}", holder_to_text(each), float(n), time.time() + 60) for n, each in enumerate(holders)],
        )


def arrive(file: Path, waiting: int) -> int:
    """Return how many lines it takes to find so many others waiting."""
    with open_ledger(str(file)) as ledger:
        refused: list[LedgerUnavailable] = []

        def ask() -> None:
            try:
                ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0).__enter__()
            except LedgerUnavailable as exc:
                refused.append(exc)

        lines = lines_run(ask, at_most=100_000)
        assert [error.details["waiting"] for error in refused] == [waiting]
        return lines


def test_look_at_a_long_queue__costs_little_more_than_at_a_short_one(ledger_file: Path) -> None:
    queue_up(ledger_file, [Holder.new()])
    alone = arrive(ledger_file, 1)
    with sqlite3.connect(ledger_file) as database:
        database.execute("DELETE FROM qemu_scheduler_queue")
    queue_up(ledger_file, [Holder.new() for _ in range(200)])
    # To see whether each of them lives takes 8,000 more.
    assert arrive(ledger_file, 200) < alone + 500


def test_dead_processes_at_the_head_of_the_queue__are_not_waited_for(ledger_file: Path) -> None:
    dead = dead_holder()
    queue_up(ledger_file, [dead, dead, Holder.new(), dead])
    arrive(ledger_file, 2)


def test_queue_of_dead_processes__is_free(ledger_file: Path) -> None:
    queue_up(ledger_file, [dead_holder()] * 3)
    with (
        open_ledger(str(ledger_file)) as ledger,
        ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle,
    ):
        assert cycle.reservations() == []


def test_queue_that_was_slow__is_not_slept_through_when_it_gets_on(
    ledger_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_up(ledger_file, [Holder.new() for _ in range(10)])
    slept: list[float] = []
    late = 0.0

    def sleep(seconds: float) -> None:
        nonlocal late
        slept.append(seconds)
        late += 10
        with sqlite3.connect(ledger_file) as database:
            first = "(SELECT min(since) FROM qemu_scheduler_queue)"
            database.execute(f"DELETE FROM qemu_scheduler_queue WHERE since = {first}")

    monkeypatch.setattr(time, "sleep", sleep)
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + late)
    with open_ledger(str(ledger_file)) as ledger, ledger.scheduling_cycle(CLUSTER, holder=Holder.new()):
        pass
    # Each of the others has taken ten seconds; the next ones may take some milliseconds.
    assert slept == pytest.approx([0.1, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01])


def test_to_reserve_beside_many__reads_only_the_reservations_of_the_same_vmid_or_name(ledger_file: Path) -> None:
    with (
        open_ledger(str(ledger_file)) as ledger,
        ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle,
    ):
        alone = lines_run(lambda: cycle.reserve([reservation(100)]), at_most=100_000)
        cycle.reserve([reservation(vmid) for vmid in range(200, 500)])
        # To read each of them takes 20,000 more.
        assert lines_run(lambda: cycle.reserve([reservation(101)]), at_most=100_000) < alone + 1000
        with pytest.raises(AlreadyReserved, match="VMID 300"):
            cycle.reserve([reservation(300)])


def test_names_of_very_many__are_reserved_once(ledger_file: Path) -> None:
    with (
        open_ledger(str(ledger_file)) as ledger,
        ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle,
    ):
        cycle.reserve([reservation(100, "taken")])
        # SQLite before 3.32 takes no statement with so many parameters.
        with pytest.raises(AlreadyReserved, match="the name 'taken'"):
            cycle.reserve([*(reservation(vmid) for vmid in range(1000, 2000)), reservation(3000, "taken")])


def test_next_cycle__reads_only_what_has_changed(ledger_file: Path) -> None:
    with (
        open_ledger(str(ledger_file)) as ledger,
        ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle,
    ):
        cycle.reserve([reservation(vmid) for vmid in range(100, 400)])
        first = lines_run(cycle.reservations, at_most=100_000)
        assert lines_run(cycle.reservations, at_most=100_000) < first / 2
        ledger.mark_binding(CLUSTER, [200], cycle.holder)
        assert [each.vmid for each in cycle.reservations() if each.phase == "binding"] == [200]
