# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests move off a node and back, and to where their rules hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.controller import Controller, ModuleServer
from support.place import Cluster, Corner


def nodes_of(corner: Corner) -> dict[str, str]:
    return {row["name"].removeprefix(f"{corner.label}-"): row["node"] for row in corner.vms().values()}


def done(controller: Controller, module: str, **options: Any) -> dict[str, Any]:
    result = controller.run(module, **options)
    assert not result.get("failed"), result["msg"]
    return result


def test_drain__moves_all_guests_once_and_brings_them_back(
    controller: Controller, corner: Corner, cluster: Cluster, free_node: str
) -> None:
    pair = {"tags": [f"plb_affinity_{corner.label}"]}
    controller.schedule(node=free_node, vms=[
        corner.small("off"),
        corner.small("one", state="started", **pair),
        corner.small("two", state="started", **pair),
        corner.small("ha", state="started", ha={"state": "started"}),
    ])
    drain: dict[str, Any] = {"name": [free_node], "parallel": {"per_node_in": 4, "per_node_out": 4, "per_link": 4}}
    try:
        planned = done(controller, "node_drain", check=True, **drain)
        assert set(nodes_of(corner).values()) == {free_node}
        moved = done(controller, "node_drain", **drain)
        assert {move["vmid"] for move in moved["moves"]} == {move["vmid"] for move in planned["plan"]["moves"]}
        assert [move for move in moved["moves"] if move["outcome"] != "moved"] == []
        now = nodes_of(corner)
        assert free_node not in now.values()
        assert now["one"] == now["two"]
        assert not done(controller, "node_drain", **drain)["changed"]
        refused = controller.fail("NoNodesAvailable", **corner.small("new", node=free_node))
        assert f"({free_node})" in refused["msg"]
        assert "drained" in refused["msg"]
    finally:
        controller.run("node_drain", state="active", **drain)
    assert set(nodes_of(corner).values()) == {free_node}
    assert not done(controller, "node_drain", state="active", **drain)["changed"]


def test_drains__of_one_node_by_controllers_without_a_common_ledger_both_end_well(
    modules: ModuleServer, cluster: Cluster, corner: Corner, free_node: str, tmp_path: Path
) -> None:
    first, second = (Controller(modules, tmp_path / name, cluster.environment) for name in ("first", "second"))
    first.schedule(node=free_node, vms=[corner.small(name, state="started") for name in ("one", "two", "three")])
    drain: dict[str, Any] = {"name": [free_node], "parallel": {"cluster": 1}}
    try:
        results = [each.result() for each in [each.start("node_drain", **drain) for each in (first, second)]]
        assert [result.get("msg") for result in results] == [None, None]
        assert [result["stuck"] for result in results] == [[], []]
        assert free_node not in nodes_of(corner).values()
    finally:
        first.run("node_drain", state="active", **drain)


def test_rebalance__moves_what_breaks_a_rule(controller: Controller, corner: Corner, free_node: str) -> None:
    controller.schedule(node=free_node, vms=[corner.small(name, state="started") for name in ("a", "b")])
    rules = [{"type": "anti-affinity", "name": f"{corner.label}-.*"}]
    own = {"tag_rules": False, "rules": rules, "max_moves": 1}
    plan = done(controller, "cluster_rebalance", check=True, **own)["plan"]
    assert [corner.owns(move["vmid"]) for move in plan["moves"]] == [True]
    assert done(controller, "cluster_rebalance", **own)["changed"]
    assert len(set(nodes_of(corner).values())) == 2
    assert not done(controller, "cluster_rebalance", **own)["changed"]
