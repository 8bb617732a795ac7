# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that may stay on a node that is drained, and guests that only maintenance may move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.playbook import run_tasks
from support.versions import both_versions

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.moves import moves_table

from .conftest import container, on, writes


def drain(controller: Controller, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = controller.run("node_drain", **{"name": ["pve1"], **options})
    return result


@both_versions
@pytest.mark.parametrize(
    ("stays", "staying"),
    [
        ([{"status": "stopped"}], {105}),
        ([{"name": "vm10[12]"}], {101, 102}),
        ([{"tag": ["Keep"]}], {103}),
        ([{"type": "lxc"}, {"name": "vm104", "status": "stopped"}], {110}),
        ([{"vmid": 104}], {104}),
        ([{"name": "vm.*", "tags": ["keep"], "type": "qemu"}, {"type": "lxc", "status": "running"}], {103, 110}),
    ],
    ids=["status", "name", "tag", "type", "vmid", "several"],
)
def test_drain__lets_named_guests_stay(
    cluster: SimulatedCluster, controller: Controller, stays: list[dict[str, Any]], staying: set[int]
) -> None:
    cluster.add_guest(**container())
    cluster.set_guest(103, config={"tags": "keep"})
    cluster.advance(30)

    result = drain(controller, stays=stays, containers="restart")

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == staying
    assert ({guest["vmid"] for guest in result["stays"]}, result["stuck"]) == (staying, [])
    table = " ".join(moves_table(result, 200))
    assert all(f"({vmid}) stays on pve1, as the task says" in table for vmid in staying)
    cluster.reset_requests()
    again = drain(controller, stays=stays, containers="restart")
    assert (again["changed"], writes(cluster)) == (False, [])
    assert drain(controller, state="active", containers="restart").get("failed") is not True


def test_guests__go_to_the_preferred_node_first(cluster: SimulatedCluster, controller: Controller) -> None:
    # By the scores, the emptiest node is first.
    assert not drain(controller, prefer=["pve2"]).get("failed")

    # Only the last 3 GiB find no room there.
    assert {106, 105} <= on(cluster, "pve2")
    assert len(on(cluster, "pve2")) > len(on(cluster, "pve3"))
    refused = drain(controller, prefer=["pve9"])
    assert refused["msg"].startswith("prefer: 'pve9' is not a node; the cluster's nodes: pve1, pve2, pve3")


def test_drain__moves_a_guest_that_no_longer_may_stay(cluster: SimulatedCluster, controller: Controller) -> None:
    stays = [{"status": "stopped"}]
    assert not drain(controller, stays=stays).get("failed")
    cluster.set_guest(105, status="running")
    cluster.advance(30)

    assert not drain(controller, stays=stays).get("failed")
    assert on(cluster, "pve1") == set()


@pytest.mark.parametrize(
    ("stays", "message"),
    [
        (
            [{}],
            "stays[0]: is empty and would concern all guests, expected one or more of vmid, name, tags, status, type",
        ),
        ([{"tags": []}], "stays[0]: is empty and would concern all guests"),
        ([{"type": "lxc"}, {"name": "("}], "stays[1].name: invalid regular expression '('"),
    ],
)
def test_drain__with_exceptions_that_make_no_sense(
    cluster: SimulatedCluster, controller: Controller, stays: list[dict[str, Any]], message: str
) -> None:
    result = drain(controller, stays=stays)

    assert (result["error_code"], result["msg"][: len(message)]) == ("InvalidRequest", message)
    assert not writes(cluster)


@both_versions
def test_drain__moves_guests_that_are_kept_from_being_balanced(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    before = on(cluster, "pve1")
    cluster.set_guest(101, config={"tags": "plb_ignore"})
    cluster.set_guest(102, config={"tags": "plb_pin_pve1"})
    cluster.set_guest(103, config={"tags": "plb_anti_affinity_x"})
    cluster.set_guest(104, config={"tags": "plb_anti_affinity_x"})
    cluster.advance(30)

    kept = drain(controller)
    assert (kept["error_code"], on(cluster, "pve1")) == ("GoalsNotReached", {101, 102, 103, 104} & on(cluster, "pve1"))
    assert {101, 102} <= on(cluster, "pve1")
    result = drain(controller, move_pinned=True)

    assert not result.get("failed"), result["msg"]
    assert on(cluster, "pve1") == set()
    nodes = cluster.state()["guests"]
    assert nodes[103]["node"] != nodes[104]["node"]
    drain(controller, state="active", move_pinned=True, rules=[])
    assert on(cluster, "pve1") >= before - {103, 104}


def test_drain__keeps_a_pin_that_another_node_meets(cluster: SimulatedCluster, controller: Controller) -> None:
    cluster.set_guest(102, config={"tags": "plb_pin_pve1;plb_pin_pve3"})
    cluster.set_guest(201, config={"tags": "plb_ignore"})
    cluster.advance(30)

    result = drain(controller, move_pinned=True)

    assert not result.get("failed"), result["msg"]
    guests = cluster.state()["guests"]
    assert (guests[102]["node"], guests[201]["node"]) == ("pve3", "pve2")


def test_rolling_maintenance__reboots_beside_guests_that_may_stay(cluster: SimulatedCluster, tmp_path: Path) -> None:
    reboot = tmp_path / "reboot.yml"
    reboot.write_text(
        f"- ansible.builtin.file: {{path: {tmp_path / 'rebooted'}, state: touch, mode: '600'}}\n", encoding="utf-8"
    )
    before = on(cluster, "pve1")
    role = {
        "ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.rolling_maintenance"},
        "vars": {
            "rolling_maintenance_nodes": ["pve1"],
            "rolling_maintenance_tasks": str(reboot),
            "rolling_maintenance_options": {"stays": [{"status": "stopped"}]},
            "rolling_maintenance_homes": True,
        },
    }

    run = run_tasks(tmp_path, [role], cluster.environment())

    assert run.code == 0, run.output
    assert (tmp_path / "rebooted").exists()
    assert on(cluster, "pve1") == before
    assert not [call for call in writes(cluster) if call.endswith("/105/migrate")]
