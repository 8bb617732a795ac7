# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that maintains nodes one by one, as a user runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.build import AUTOMATION_ROLE
from simulated_cluster.client import SimulatedCluster

from .conftest import Play

NODES = ("pve1", "pve2", "pve3")


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    """Three equal nodes with two running guests each."""
    guests = [
        {"vmid": 100 + n, "name": f"web-{n}", "node": NODES[n % 3], "memory": 512, "status": "running",
         "disks": {"scsi0": "shared:2"}}
        for n in range(6)
    ]  # fmt: skip
    description = {
        "nodes": [{"name": name, "cores": 8, "memory": 8192} for name in NODES],
        "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 100}],
        "guests": guests,
        "ceph": {"status": "HEALTH_OK", "checks": {}},
        "roles": {"Automation": [*AUTOMATION_ROLE, "Sys.Modify"]},
    }
    with SimulatedCluster.start(description, time_scale=0.02) as running:
        yield running


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """Variables of the role, with tasks that write down the node."""
    tasks = [
        {
            "name": "Write the node down",
            "ansible.builtin.lineinfile": {
                "path": str(tmp_path / "maintained"), "create": True, "mode": "0600",
                "line": "{{ rolling_maintenance_node }}",
            },
        }
    ]  # fmt: skip
    (tmp_path / "tasks.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")
    return {
        "rolling_maintenance_nodes": list(NODES),
        "rolling_maintenance_tasks": str(tmp_path / "tasks.yml"),
        "rolling_maintenance_wait": 2,
        "rolling_maintenance_progress_file": str(tmp_path / "progress.json"),
    }


def homes(cluster: SimulatedCluster) -> dict[int, str]:
    return {vmid: guest["node"] for vmid, guest in cluster.state()["guests"].items()}


def noout(cluster: SimulatedCluster) -> tuple[int, list[str]]:
    """How often the flag was changed, and the flags that are set."""
    sent = [r for r in cluster.requests() if r["method"] == "PUT" and r["path"].endswith("/flags/noout")]
    return len(sent), cluster.state()["ceph_flags"]


def maintained(tmp_path: Path) -> list[str]:
    return (tmp_path / "maintained").read_text(encoding="utf-8").split()


def test_every_node__is_emptied_maintained_and_gets_its_guests_back(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    before = homes(cluster)

    pages = {"rolling_maintenance_pages": str(tmp_path)}
    run = play("rolling_maintenance", {**options, **pages, "rolling_maintenance_nodes": "pve1, pve2,pve3"})

    assert run.code == 0, run.output
    assert maintained(tmp_path) == list(NODES)
    assert homes(cluster) == before, run.output
    assert noout(cluster) == (6, [])
    assert not (tmp_path / "progress.json").exists()
    assert "<h1>Drain pve2</h1>" in (tmp_path / "pve2-drained.html").read_text(encoding="utf-8")
    assert "<h1>Bring guests back to pve2</h1>" in (tmp_path / "pve2-active.html").read_text(encoding="utf-8")


def test_flag__that_an_administrator_has_set_stays(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any]
) -> None:
    flag = {"qemu_scheduler.proxmox.ceph_flag": {"name": "noout"}}
    before = play([{"hosts": "localhost", "gather_facts": False, "tasks": [flag]}])
    assert before.code == 0, before.output

    run = play("rolling_maintenance", {**options, "rolling_maintenance_nodes": ["pve1"]})

    assert run.code == 0, run.output
    assert noout(cluster) == (1, ["noout"])


def test_node_that_does_not_come_back__ends_the_run_and_the_next_one_goes_on_with_it(
    cluster: SimulatedCluster,
    play: Play,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = homes(cluster)
    monkeypatch.setenv("PWD", str(tmp_path))
    options["rolling_maintenance_progress_file"] = "progress.json"
    cluster.set_node("pve2", dead_services=["pvestatd"])

    failed = play("rolling_maintenance", options)

    assert failed.code == 2
    assert "pve2 stays drained: service pvestatd is dead" in failed.output
    assert maintained(tmp_path) == ["pve1", "pve2"]
    assert noout(cluster) == (4, [])
    assert "pve2" not in homes(cluster).values()
    assert json.loads((tmp_path / "progress.json").read_text(encoding="utf-8")) == ["pve1"]

    cluster.set_node("pve2", dead_services=[])
    (tmp_path / "maintained").unlink()
    run = play("rolling_maintenance", options)

    assert run.code == 0, run.output
    assert maintained(tmp_path) == ["pve2", "pve3"]
    assert homes(cluster) == before
    assert not (tmp_path / "progress.json").exists()


def test_n_plus_one__refuses_a_drain_that_would_leave_no_room_for_another_loss(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    cluster.add_guest(vmid=200, name="large", node="pve2", memory=7000, status="running", disks={"scsi0": "shared:2"})

    run = play("rolling_maintenance", {**options, "rolling_maintenance_n_plus_one": True})

    assert run.code == 2
    assert "GoalsNotReached" in run.output
    assert not (tmp_path / "maintained").exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rolling_maintenance_tasks": "none.yml"}, "rolling_maintenance_tasks: there is no file none.yml"),
        (
            {"rolling_maintenance_progress_file": "/no/such/progress.json"},
            "Destination directory /no/such does not exist",
        ),
        ({"rolling_maintenance_nodes": ["pve1", "pve9"]}, "name[1]: 'pve9' is not a node of the cluster"),
    ],
)
def test_mistake__is_found_before_guests_move(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], wrong: dict[str, Any], told: str
) -> None:
    run = play("rolling_maintenance", {**options, **wrong})

    assert run.code == 2
    assert told in run.output
    assert [r for r in cluster.requests() if r["method"] != "GET"] == []


def test_play_for_several_hosts__is_refused_before_guests_move(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any]
) -> None:
    hosts = {"name": "{{ item }}", "groups": "pve", "ansible_connection": "local"}
    add = {"ansible.builtin.add_host": hosts, "loop": list(NODES)}
    role = {"ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.rolling_maintenance"}}

    run = play(
        [
            {"hosts": "localhost", "gather_facts": False, "tasks": [add]},
            {"hosts": "pve", "gather_facts": False, "tasks": [role]},
        ],
        options,
    )

    assert run.code == 2
    assert run.last["msg"].startswith("The play is for 3 hosts, and each of them would maintain every node.")
    assert "hosts: localhost" in run.last["msg"]
    assert [r for r in cluster.requests() if r["method"] != "GET"] == []


def test_check_mode__shows_the_plans_and_changes_nothing(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    before = homes(cluster)

    run = play("rolling_maintenance", options, "--check")

    assert run.code == 0, run.output
    assert "drain pve3: 2 move(s)" in run.output
    assert homes(cluster) == before
    assert not (tmp_path / "maintained").exists()
