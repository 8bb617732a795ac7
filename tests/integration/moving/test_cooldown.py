# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that were moved a moment ago, by anybody, stay where they are unless they break a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.moves.recent import recently_moved
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import Access

from .conftest import container, on, writes

BALANCE = {"goals": ["repair", "balance"], "threshold": 0.0, "margin": 0.0}
MOVED = {101, 102, 103, 104}


@pytest.fixture
def moved(cluster: SimulatedCluster, access: Access) -> set[int]:
    """Guests that a person has moved to pve3, which makes it the fullest node."""
    for vmid in MOVED:
        access.writer().post(f"/nodes/pve1/qemu/{vmid}/migrate", target="pve3", online=1)
    until(lambda: on(cluster, "pve3") >= MOVED)
    until(lambda: not any(guest["config"].get("lock") for guest in cluster.state()["guests"].values()))
    cluster.advance(30)
    cluster.reset_requests()
    return MOVED


def rebalance(controller: Controller, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = controller.run("cluster_rebalance", **{**BALANCE, **options})
    assert not result.get("failed"), result["msg"]
    return result


@both_versions
def test_balance__lets_guests_rest_that_were_moved(
    cluster: SimulatedCluster, controller: Controller, moved: set[int]
) -> None:
    result = rebalance(controller)

    assert on(cluster, "pve3") >= moved
    assert (result["changed"], writes(cluster)) == (False, [])
    told = "it was moved within the cooldown (cure: wait, or lower cooldown)"
    assert any(told in text for text in result["warnings"])


@pytest.mark.parametrize("how", ["short", "later"])
def test_balance__moves_guests_that_have_rested(
    cluster: SimulatedCluster, controller: Controller, moved: set[int], how: str
) -> None:
    if how == "later":
        cluster.advance(3700)
    result = rebalance(controller, **({"cooldown": 0} if how == "short" else {}))

    assert result["changed"]
    assert not on(cluster, "pve3") >= moved


def test_repair__moves_a_guest_that_was_moved(
    cluster: SimulatedCluster, controller: Controller, moved: set[int]
) -> None:
    result = rebalance(controller, rules=[{"type": "anti-affinity", "name": "vm10[12]"}])

    assert len(on(cluster, "pve3") & {101, 102}) == 1
    assert on(cluster, "pve3") >= moved - {101, 102}
    assert len({move["vmid"] for move in result["moves"]} & moved) == 1


def test_consolidate__lets_guests_rest_that_were_moved(
    cluster: SimulatedCluster, controller: Controller, moved: set[int]
) -> None:
    result = rebalance(controller, goals=["consolidate"])

    assert not moved & {move["vmid"] for move in result["moves"]}
    assert on(cluster, "pve3") >= moved


@both_versions
def test_drain__moves_guests_and_containers_that_were_moved(
    cluster: SimulatedCluster, controller: Controller, moved: set[int]
) -> None:
    cluster.add_guest(**{**container(), "node": "pve3"})

    result = controller.run("node_drain", name=["pve3"], containers="restart")

    assert not result.get("failed"), result["msg"]
    assert not on(cluster, "pve3")
    assert moved


def test_moves__of_vms_and_containers_are_seen(cluster: SimulatedCluster, access: Access) -> None:
    cluster.add_guest(**container())
    access.writer().post("/nodes/pve1/lxc/110/migrate", target="pve2", restart=1)
    access.writer().post("/nodes/pve1/qemu/101/migrate", target="pve2", online=1)
    until(lambda: on(cluster, "pve2") >= {101, 110})
    until(lambda: recently_moved(access.reader, access.read(), 3600) == {101, 110})


@both_versions
def test_second_run_of_another_controller__moves_nothing(
    cluster: SimulatedCluster, control: Callable[[], Controller]
) -> None:
    assert rebalance(control())["changed"]
    cluster.advance(30)
    cluster.reset_requests()

    again = rebalance(control())

    assert (again["changed"], again["plan"]["moves"], writes(cluster)) == (False, [], [])


def test_cluster_in_balance__is_not_asked_for_tasks_of_nodes(cluster: SimulatedCluster, controller: Controller) -> None:
    rebalance(controller, threshold=1.0)

    assert not [r for r in cluster.requests() if r["path"].startswith("/nodes/") and r["path"].endswith("/tasks")]
