# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real signals to a real ansible-playbook: what each row of the table in docs/concurrency.md says."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.endings import ENDINGS, GOES_ON, Playbook, playbook, rows_of

PAGE = Path(__file__).parents[3] / "docs" / "concurrency.md"
STOPS, CONTINUES = "nothing more begins", "goes on"
NAMES = [f"web-{number}" for number in range(5)]
FIVE: dict[str, Any] = {"vms": [{"name": name} for name in NAMES], "memory": 512, "parallel_creates": 1}
ENDLESS = 100_000
WAYS = ("direct", "module")


def creations(cluster: SimulatedCluster) -> int:
    return sum(each["method"] == "POST" and each["path"].endswith("/qemu") for each in cluster.requests())


def reserved(running: Playbook) -> list[int]:
    """The VMIDs in the ledger. Raises sqlite3.Error if somebody still holds the ledger, or a lease in it."""
    ledger = running.folder / "state" / "qemu_scheduler" / "reservations.db"
    with contextlib.closing(sqlite3.connect(ledger, timeout=0)) as database, database:
        database.execute("BEGIN EXCLUSIVE")
        assert database.execute("SELECT holder FROM qemu_scheduler_leases").fetchall() == [(None,)]
        assert database.execute("SELECT * FROM qemu_scheduler_queue").fetchall() == []
        return [vmid for (vmid,) in database.execute("SELECT vmid FROM qemu_scheduler_reservations")]


def test_table__has_every_ending_that_is_tried() -> None:
    expected = {name: CONTINUES if name == GOES_ON else STOPS for name in ENDINGS}
    assert rows_of(PAGE) == [[name, *[outcome] * len(WAYS)] for name, outcome in expected.items()]


@pytest.mark.parametrize("execution", WAYS)
@pytest.mark.parametrize("row", rows_of(PAGE), ids=lambda row: row[0])
def test_ending__does_to_a_task_what_the_table_says(cluster: SimulatedCluster, row: list[str], execution: str) -> None:
    name, outcome = row[0], row[1 + WAYS.index(execution)]
    task = {"qemu_scheduler.proxmox.qemu_schedule": FIVE}
    stops = outcome == STOPS
    cluster.fault(method="POST", path="/qemu$", task_seconds=ENDLESS if stops else 20)
    with playbook(name, task, cluster.environment(), execution) as running:
        running.wait_for(lambda: creations(cluster))
        ENDINGS[name](running)
        running.wait()
        assert creations(cluster) == (1 if stops else len(NAMES))
        assert running.files_left() == []
        if stops and name != "`SIGKILL` to the worker":
            # Proxmox goes on with this one.
            assert reserved(running) == [103]
    made = [guest["name"] for guest in cluster.state()["guests"].values() if guest["name"] in NAMES]
    assert stops or sorted(made) == NAMES
