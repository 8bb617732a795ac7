# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole histories keep the law, lose no VM, and end where the controllers want to be.

In processes of their own, as time and threads are replaced there for good.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOUND = (
    276, 578091972, 101152, 501965, 503818, 508088, 810291, 910009, 960653, 967725, 1105710, 1108874, 1200850, 1207532,
    600733, 802866, 852828, 901860, 1102789, 1104955, 525866830, 1602775,
)  # fmt: skip
"""Seeds that found a move without a reservation, a move that ended between two looks, a VM that was placed where a
guest of its HA rule was going, a process that was interrupted twice, although modules ignore the second signal,
drains under an HA rule for which a guest larger than the drained one has to move, a request to the HA manager that
outlived the node of its guest, a VM of a human that got the VMID of one that was being made an HA resource, a guest
that the HA manager started late, a request to the HA manager that outlived the controller that made it, one that
outlived its guest, a VM that joined HA in place of one that had its VMID before, a VM that joined an HA rule
between the plan and its move, a guest that joined HA on its way to a node that its rule forbids, a VM that was moved
and destroyed between its creation and its start, a VMID that a run had decided on and another one took, a guest
that moved before the list had its name, to where another one came that its rule keeps apart, a VM of a tenant
that had the VMID and name of a clone of which only the task was known, a reservation that its holder, who had been
paused, renewed while another run that had read it as expired was deciding, and a new VM that was moved away, restored
and moved back while the tasks of all nodes were read.
"""

CHECKOUT = Path(__file__).resolve().parents[2]


def voyage(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.voyage", *map(str, arguments)]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("first", "count", "more"), [(0, 20, FOUND), (50, 0, ())])
def test_voyage__every_history_keeps_the_law_and_reaches_the_goal(
    first: int, count: int, more: tuple[int, ...]
) -> None:
    done = voyage("--first", first, "--count", count, "--new", 50, "--more", *more)
    assert done.returncode == 0, done.stdout + done.stderr


def test_voyage__is_the_same_for_a_seed_each_time() -> None:
    first, second = voyage("--seed", 7), voyage("--seed", 7)
    assert first.stdout == second.stdout
    assert "run 1" in first.stdout
    assert "the faults are over" in first.stdout
