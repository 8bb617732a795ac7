# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMIDs that are used again while guests are moved: what was planned for one guest is not done to another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.identities import use_again
from support.versions import both_versions
from support.waiting import until

from .conftest import container, on, writes

ONE_BY_ONE = {"parallel": {"cluster": 1}}
SLOW = 60
"""Seconds of the cluster that the first migration takes."""


def posts(cluster: SimulatedCluster) -> list[str]:
    return [call for call in writes(cluster) if call.endswith("/migrate")]


def while_the_first_moves(cluster: SimulatedCluster, controller: Controller, meanwhile: Callable[[int], None],
                          module: str = "node_drain", **options: Any) -> dict[str, Any]:  # fmt: skip
    """Run a module, and do something with the guest that it would move second while the first move is under way."""
    cluster.fault(method="POST", path="/migrate$", task_seconds=SLOW, count=1)
    running = controller.start(module, **options, **ONE_BY_ONE)
    until(lambda: posts(cluster))
    first = int(posts(cluster)[0].split("/")[4])
    meanwhile(next(vmid for vmid in (101, 102) if vmid != first))
    result: dict[str, Any] = running.result()
    return result


@both_versions
def test_drain__never_moves_a_guest_as_the_one_that_had_its_vmid(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    taken: list[int] = []

    def meanwhile(vmid: int) -> None:
        taken.append(vmid)
        use_again(cluster, vmid)

    result = while_the_first_moves(cluster, controller, meanwhile, name=["pve1"])

    assert not result.get("failed"), result["msg"]
    stale, moved = [move for move in result["moves"] if move["vmid"] == taken[0]]
    assert (stale["outcome"], stale["error_code"], stale["name"]) == ("stale", "NotTheSameGuest", f"vm{taken[0]}")
    assert f'VM "vm{taken[0]}" on pve1' in stale["msg"]
    assert 'VM "payroll" on pve1' in stale["msg"]
    # It is on the node that is drained, and leaves it by a plan that is about it.
    assert (moved["outcome"], moved["name"]) == ("moved", "payroll")
    assert on(cluster, "pve1") == set()

    back = controller.run("node_drain", name=["pve1"], state="active")

    assert not back.get("warnings"), back["warnings"]
    assert taken[0] in on(cluster, "pve1"), "the guest that had taken the VMID was there, too"


@both_versions
def test_drain__that_is_not_to_plan_again_fails_and_names_both(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    options = {"name": ["pve1"], "on_failure": "stop"}
    result = while_the_first_moves(cluster, controller, lambda vmid: use_again(cluster, vmid), **options)

    assert result["error_code"] == "NotTheSameGuest"
    assert 'planned VM "vm10' in result["msg"]
    assert 'found VM "payroll" on pve1' in result["msg"]
    (payroll,) = [guest for guest in cluster.state()["guests"].values() if guest["name"] == "payroll"]
    assert payroll["node"] == "pve1"


@both_versions
def test_kept_plan__is_refused_when_a_vmid_was_used_again(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    """The other guest has the name, the sizes and the node of the one that was planned for."""
    file = str(tmp_path / "plan.json")
    controller.run("node_drain", check=True, name=["pve1"], plan_file=file)
    use_again(cluster, 103, name="vm103", memory=3072)
    cluster.advance(30)

    result = controller.run("node_drain", name=["pve1"], apply=file)

    assert result["error_code"] == "PlanStale"
    assert "VMID 103: it belongs to another guest now" in result["msg"]
    assert (writes(cluster), cluster.state()["guests"][103]["node"]) == ([], "pve1")


@both_versions
def test_kept_plan__moves_no_guest_that_takes_a_vmid_while_it_is_carried_out(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    file = str(tmp_path / "plan.json")
    controller.run("node_drain", check=True, name=["pve1"], plan_file=file)
    options = {"name": ["pve1"], "apply": file}
    result = while_the_first_moves(cluster, controller, lambda vmid: use_again(cluster, vmid), **options)

    assert result["error_code"] == "NotTheSameGuest"
    (payroll,) = [guest for guest in cluster.state()["guests"].values() if guest["name"] == "payroll"]
    assert payroll["node"] == "pve1"


def test_kept_plan__of_a_container_is_refused_when_its_config_has_changed(
    cluster: SimulatedCluster, controller: Controller, tmp_path: Path
) -> None:
    """Its config shows no mark of its creation, so that it may be another one."""
    cluster.add_guest(**container())
    file = str(tmp_path / "plan.json")
    controller.run("node_drain", check=True, name=["pve1"], containers="restart", plan_file=file)
    cluster.set_guest(110, config={"cores": 2})
    cluster.set_guest(110, config={"cores": 1, "description": "somebody else's"})
    cluster.advance(30)

    result = controller.run("node_drain", name=["pve1"], containers="restart", apply=file)

    assert result["error_code"] == "PlanStale"
    assert "VMID 110: its config has changed since" in result["msg"]
    assert writes(cluster) == []


@pytest.mark.parametrize("module", ["cluster_rebalance"])
def test_rebalance__moves_no_guest_as_the_one_that_had_its_vmid(
    cluster: SimulatedCluster, controller: Controller, module: str
) -> None:
    options = {"goals": ["balance"], "threshold": 0.0, "margin": 0.0, "on_failure": "stop"}
    moved: list[int] = []

    def meanwhile(_vmid: int) -> None:
        first = int(posts(cluster)[0].split("/")[4])
        moved.append(first)
        for vmid in {101, 102, 103, 104} - {first}:
            use_again(cluster, vmid)

    result = while_the_first_moves(cluster, controller, meanwhile, module, **options)

    assert result["error_code"] == "NotTheSameGuest", result
    assert all(g["node"] == "pve1" for g in cluster.state()["guests"].values() if g["name"] == "payroll")


def test_progress__names_the_guest_itself(cluster: SimulatedCluster, controller: Controller, tmp_path: Path) -> None:
    file = tmp_path / "progress"
    uuids = {vmid: guest["config"].get("smbios1", "") for vmid, guest in cluster.state()["guests"].items()}
    controller.run("node_drain", name=["pve1"], progress_file=str(file))

    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert lines
    assert all(uuids[line["vmid"]] == f"uuid={line['identity']['uuid']}" for line in lines)
