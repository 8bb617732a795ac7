# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repairing, balancing and consolidating a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.playbook import run_tasks
from support.versions import both_versions
from support.waiting import until

from .conftest import NODES, VMS, on, writes

APART = [{"type": "anti-affinity", "name": "vm10[12]"}]


def rebalance(controller: Controller, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = controller.run("cluster_rebalance", **options)
    return result


def test_cluster_that_meets_the_goals__costs_no_request_per_guest(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    result = rebalance(controller)

    assert not result.get("failed"), result["msg"]
    assert (result["changed"], result["moves"], result["plan"]["moves"]) == (False, [], [])
    assert not writes(cluster)
    assert not [r for r in cluster.requests() if r["path"].endswith(("/config", "/migrate"))]


@both_versions
def test_repair__separates_guests_that_a_rule_keeps_apart(cluster: SimulatedCluster, tmp_path: Path) -> None:
    task = {"name": "repair", "qemu_scheduler.proxmox.cluster_rebalance": {"rules": APART}}

    run = run_tasks(tmp_path, [task, task], cluster.environment())
    assert run.code == 0, run.output
    first, again = (each.result for each in run.tasks)

    assert len(first["moves"]) == 1
    assert len({101, 102} & on(cluster, "pve1")) == 1
    assert (first["changed"], again["changed"]) == (True, False)
    assert "moves: 1/1 vm10" in run.output


def test_repair__waits_for_a_drain_that_moves_the_guest(
    cluster: SimulatedCluster, control: Callable[[], Controller], tmp_path: Path
) -> None:
    ledger = str(tmp_path / "ledger.db")
    for vmid in (*VMS[2:], 105, 106):
        cluster.remove_guest(vmid)
    cluster.fault(method="POST", path="/10[12]/migrate$", task_seconds=200, count=2)
    draining = control().start("node_drain", name=["pve1"], reservations=ledger)
    until(lambda: len([call for call in writes(cluster) if call.endswith("/migrate")]) == 2)
    result = rebalance(control(), rules=APART, reservations=ledger)

    assert not result.get("failed"), result["msg"]
    assert not draining.result().get("failed")
    assert not any({101, 102} <= on(cluster, node) for node in NODES)


def test_repair__that_is_not_possible_is_named(cluster: SimulatedCluster, controller: Controller) -> None:
    for node in ("pve2", "pve3"):
        cluster.set_node(node, maintenance=True)
    cluster.advance(60)

    result = rebalance(controller, rules=APART)

    assert result["error_code"] == "GoalsNotReached"
    assert {each["vmid"] for each in result["stuck"]} <= {101, 102}
    assert not writes(cluster)


def test_balance__evens_out_the_nodes_and_then_rests(cluster: SimulatedCluster, controller: Controller) -> None:
    planned = rebalance(controller, goals=["balance"], check=True)
    assert not writes(cluster)

    result = rebalance(controller, goals=["balance"])

    assert not result.get("failed"), result["msg"]
    assert result["changed"]
    assert [m["vmid"] for m in result["moves"]] == [m["vmid"] for m in planned["plan"]["moves"]]
    assert len(on(cluster, "pve1")) < 6
    assert not rebalance(controller, goals=["balance"])["changed"]


def test_balance__moves_no_more_than_it_may(cluster: SimulatedCluster, controller: Controller) -> None:
    assert len(rebalance(controller, goals=["balance"], max_moves=1)["moves"]) == 1


def test_consolidate__empties_nodes(cluster: SimulatedCluster, controller: Controller) -> None:
    result = rebalance(controller, goals=["consolidate"])

    assert not result.get("failed"), result["msg"]
    assert [node for node in NODES if on(cluster, node)] == ["pve1"] or sum(not on(cluster, n) for n in NODES) >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goals": []}, "goals: is empty"),
        ({"goals": ["balance", "consolidate"]}, "goals: balance and consolidate contradict each other"),
        ({"goals": ["balance"], "threshold": 1.5}, "threshold: 1.5 is not possible, expected 0 to 1"),
        ({"goals": ["balance"], "margin": -0.5}, "margin: -0.5 is not possible"),
    ],
)
def test_rebalance__with_options_that_make_no_sense(
    cluster: SimulatedCluster, controller: Controller, options: dict[str, Any], message: str
) -> None:
    result = rebalance(controller, **options)

    assert (result["error_code"], result["msg"][: len(message)]) == ("InvalidRequest", message)
