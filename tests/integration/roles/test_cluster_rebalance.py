# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that repairs and balances a cluster, as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from simulated_cluster.client import SimulatedCluster
from support.playbook import EMPTY

from .conftest import Play

BALANCE = {"cluster_rebalance_goals": "balance", "cluster_rebalance_options": {"max_moves": 2, "threshold": 0.05}}


def places(cluster: SimulatedCluster) -> dict[int, str]:
    return {vmid: guest["node"] for vmid, guest in cluster.state()["guests"].items()}


def test_rebalance__shows_the_plan_and_then_carries_it_out(
    cluster: SimulatedCluster, play: Play, tmp_path: Path
) -> None:
    before = places(cluster)

    file = tmp_path / "plan.json"
    planned = play("rebalance", {**BALANCE, "cluster_rebalance_plan_file": str(file)}, "--check")
    assert re.search(r"balance.*: 2 move\(s\)", planned.output), planned.output
    assert places(cluster) == before

    page = tmp_path / "rebalance.html"
    stats = planned.of("qemu_scheduler.proxmox.cluster_rebalance : Set the statistics")["ansible_stats"]["data"]
    assert json.loads(file.read_text(encoding="utf-8")) == stats["qemu_scheduler_plan"]
    approved = {"cluster_rebalance_apply": "{{ qemu_scheduler_plan }}", "cluster_rebalance_page": str(page)}
    done = play("rebalance", {**BALANCE, **stats, **approved})
    assert done.code == 0, done.output
    assert page.read_text(encoding="utf-8").count(">moved</span>") == 2
    assert "changed=1 " in done.output
    moved = {vmid: node for vmid, node in places(cluster).items() if before[vmid] != node}
    assert moved == {move["vmid"]: move["to"] for move in stats["qemu_scheduler_plan"]["moves"]}
    assert len(moved) == 2


def test_rebalance__changes_nothing_where_nothing_is_broken(cluster: SimulatedCluster, play: Play) -> None:
    run = play("rebalance", {"cluster_rebalance_page": EMPTY})
    assert run.code == 0, run.output
    assert "changed=0 " in run.output
