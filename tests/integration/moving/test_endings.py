# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain whose ansible-playbook has ended begins no further move."""

from __future__ import annotations

import pytest
from simulated_cluster.client import SimulatedCluster
from support.endings import ENDINGS, playbook

from .conftest import on, writes

KILLED = ("`SIGKILL` to `ansible-playbook`", "closed terminal: `SIGHUP` to all processes in the foreground")
SLOW = 200


def moves(cluster: SimulatedCluster) -> list[str]:
    return [call for call in writes(cluster) if call.endswith("/migrate")]


@pytest.mark.parametrize("execution", ["direct", "module"])
@pytest.mark.parametrize("name", KILLED)
def test_drain_that_nobody_waits_for__begins_no_further_move(
    cluster: SimulatedCluster, name: str, execution: str
) -> None:
    guests = on(cluster, "pve1")
    cluster.fault(method="POST", path="/migrate$", task_seconds=SLOW)
    task = {"qemu_scheduler.proxmox.node_drain": {"name": "pve1", "parallel": {"cluster": 1}}}
    with playbook(name, task, cluster.environment(), execution) as running:
        running.wait_for(lambda: moves(cluster))
        ENDINGS[name](running)
        running.wait()
        assert len(moves(cluster)) == 1
        assert running.files_left() == []
    cluster.clear_faults()
    assert len(on(cluster, "pve1")) >= len(guests) - 1 > 1
