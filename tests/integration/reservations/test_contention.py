# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many processes schedule onto one cluster at the same instant: in turn, and nothing is given out twice."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from support.ledgers import CLUSTER, OTHER_CLUSTER, CycleRecord, Fleet, Launch, Loop

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import LedgerUnavailable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import Holder, open_ledger


def overlaps(records: list[CycleRecord]) -> list[tuple[CycleRecord, CycleRecord]]:
    return [(first, second) for first, second in itertools.pairwise(records) if second.begun < first.ended]


def waiting(where: str) -> int:
    """Return how many wait for the lease that somebody holds."""
    with (
        open_ledger(where) as ledger,
        pytest.raises(LedgerUnavailable) as refused,
        ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0),
    ):
        pass
    return int(refused.value.details["waiting"])


def test_fifty_forks__decide_one_after_the_other_and_get_fifty_vmids(where: str) -> None:
    records = Fleet(where, CLUSTER, size=50).records()
    assert not overlaps(records)
    assert sorted(record.vmid for record in records) == list(range(100, 150))


def test_forks_that_wait__are_served_in_turn(where: str) -> None:
    with open_ledger(where) as ledger, ledger.scheduling_cycle(CLUSTER, holder=Holder.new()) as cycle:
        fleet = Fleet(where, CLUSTER, size=8, cycles=3)
        while waiting(where) < 8:
            cycle.reservations()
            time.sleep(0.01)
    records = fleet.records()
    assert not overlaps(records)
    # All of them had queued up when the first was served, and one that comes again queues up behind them.
    assert sorted(record.process for record in records[:8]) == list(range(8))


def test_fleet_on_one_cluster__does_not_delay_a_scheduler_of_another(where: str) -> None:
    fleet = Fleet(where, CLUSTER, size=10, think=0.2)
    with open_ledger(where) as ledger:
        while not ledger.reservations(CLUSTER):
            time.sleep(0.01)
        cycles = 0
        while len(ledger.reservations(CLUSTER)) < 9:
            with ledger.scheduling_cycle(OTHER_CLUSTER, holder=Holder.new(), wait=0):
                cycles += 1
    fleet.records()
    assert cycles > 0


def test_lease_of_one_cluster__does_not_hold_up_another(where: str, launch: Launch) -> None:
    launch(where).call("enter", CLUSTER)
    launch(where).call("enter", OTHER_CLUSTER, wait=0)


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=False)
def test_processes_that_start_at_once__create_one_ledger(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = str(tmp_path / "new/state/ledger.db") if place == "sqlite" else request.getfixturevalue("empty_postgres")
    assert sorted(record.vmid for record in Fleet(where, CLUSTER, size=20).records()) == list(range(100, 120))


def test_processes_killed_at_any_moment__lose_nothing_that_was_acknowledged(where: str, tmp_path: Path) -> None:
    open_ledger(where).close()
    loops = [Loop(where, CLUSTER, tmp_path / f"output{number}") for number in range(4)]
    for number, process in enumerate(loops):
        while len(process.acknowledged()) < 5 * (number + 1):
            time.sleep(0.001)
        process.kill()
    acknowledged = [vmid for process in loops for vmid in process.acknowledged()]
    with open_ledger(where) as ledger, ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=1) as cycle:
        kept = {reservation.vmid for reservation in cycle.reservations()}
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) <= kept
