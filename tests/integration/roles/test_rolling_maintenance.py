# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that maintains nodes one by one, as a user runs it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster.build import AUTOMATION_ROLE
from simulated_cluster.client import SimulatedCluster
from support.playbook import EMPTY

from .conftest import Play

NODES = ("pve1", "pve2", "pve3")
CRS = {"ha": "static", "ha-auto-rebalance": 1}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[SimulatedCluster]:
    """Three equal nodes with two running guests each, and what the test adds to that."""
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
        "options": {"crs": CRS},
        "roles": {"Automation": [*AUTOMATION_ROLE, "Sys.Modify"]},
        **getattr(request, "param", {}),
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
    }


def homes(cluster: SimulatedCluster) -> dict[int, str]:
    return {vmid: guest["node"] for vmid, guest in cluster.state()["guests"].items()}


def noout(cluster: SimulatedCluster) -> tuple[int, list[str]]:
    """How often the flag was changed, and the flags that are set."""
    sent = [r for r in cluster.requests() if r["method"] == "PUT" and r["path"].endswith("/flags/noout")]
    return len(sent), cluster.state()["ceph_flags"]


def maintained(tmp_path: Path) -> list[str]:
    return (tmp_path / "maintained").read_text(encoding="utf-8").split()


def test_tour__maintains_every_node_with_few_moves_and_leaves_nothing_behind(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    run = play("rolling_maintenance", {**options, "rolling_maintenance_pages": str(tmp_path)})

    assert run.code == 0, run.output
    assert sorted(maintained(tmp_path)) == list(NODES)
    moves = [r for r in cluster.requests() if r["method"] == "POST" and r["path"].endswith("/migrate")]
    # Draining and returning node by node takes twelve.
    assert len(moves) <= 9
    assert all(guest["status"] == "running" for guest in cluster.state()["guests"].values())
    assert (noout(cluster), cluster.state()["pools"]) == ((6, []), {})
    assert "maintain pve1, pve2 and pve3" in run.output
    assert (
        f"node 3 of 3 ({maintained(tmp_path)[-1]}) is done; {len(moves)} guests moved so far; nothing is left"
        in run.output
    )
    assert "<b>3</b> of 3 nodes done" in (tmp_path / "tour.html").read_text(encoding="utf-8")
    assert "<h1>Drain pve2</h1>" in (tmp_path / "pve2-drained.html").read_text(encoding="utf-8")


def test_homes__are_where_the_guests_return_and_a_flag_of_an_administrator_stays(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    before = homes(cluster)
    flag = {"qemu_scheduler.proxmox.ceph_flag": {"name": "noout"}}
    assert play([{"hosts": "localhost", "gather_facts": False, "tasks": [flag]}]).code == 0
    more = {
        "rolling_maintenance_homes": True,
        "rolling_maintenance_nodes": "pve2, pve1",
        "rolling_maintenance_keep_order": True,
        "rolling_maintenance_pages": str(tmp_path),
    }

    run = play("rolling_maintenance", {**options, **more})

    assert run.code == 0, run.output
    assert maintained(tmp_path) == ["pve2", "pve1"]
    assert homes(cluster) == before
    assert noout(cluster) == (1, ["noout"])
    assert "<h1>Bring guests back to pve2</h1>" in (tmp_path / "pve2-active.html").read_text(encoding="utf-8")


def test_node_that_does_not_come_back__ends_the_run_and_the_next_one_goes_on_with_it(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    tasks = yaml.safe_load((tmp_path / "tasks.yml").read_text(encoding="utf-8"))
    # The tasks for pve2 break a service there, as a bad update does.
    cluster.set_guest(101, config={"hostpci0": "0000:01:00.0"})
    options["rolling_maintenance_guests"] = [{"immovable": True, "action": "shut_down"}]
    options["rolling_maintenance_shutdown"] = {"force": True}
    options["rolling_maintenance_keep_order"] = True
    order = {"rolling_maintenance_accept": ["service:pvestatd"]}
    broken = {
        "name": "Break it",
        "ansible.builtin.fail": {"msg": "no space"},
        "when": "rolling_maintenance_node == 'pve2'",
    }
    (tmp_path / "tasks.yml").write_text(yaml.safe_dump([*tasks, broken]), encoding="utf-8")

    failed = play("rolling_maintenance", options)

    assert failed.code == 2
    assert "pve2 stays drained: no space. Run again to go on with it" in failed.output
    assert maintained(tmp_path) == ["pve1", "pve2"]
    assert noout(cluster) == (4, [])
    state = cluster.state()
    assert {vmid for vmid, guest in state["guests"].items() if guest["node"] == "pve2"} == {101}
    assert state["guests"][101]["status"] == "stopped"
    assert set(state["pools"]) == {"drained-node-pve2", "maintenance-tour"}

    (tmp_path / "tasks.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")
    (tmp_path / "maintained").unlink()
    empty = dict.fromkeys(
        ["rolling_maintenance_pages", "rolling_maintenance_check_tasks", "rolling_maintenance_need_tasks"], EMPTY
    )
    run = play("rolling_maintenance", {**options, **order, **empty})

    assert run.code == 0, run.output
    assert maintained(tmp_path) == ["pve2", "pve3"]
    state = cluster.state()
    assert (state["pools"], state["ceph_flags"]) == ({}, [])
    assert (state["guests"][101]["node"], state["guests"][101]["status"]) == ("pve2", "running")


def test_unreachable_node__leaves_no_setting_of_the_cluster_and_the_rest_is_taken_back_with_state_active(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    before = homes(cluster)
    # Ansible runs nothing more on the host of the tasks after UNREACHABLE.
    lost = {"name": "Reach it", "ansible.builtin.ping": {}, "delegate_to": "nowhere"}
    host = {"ansible.builtin.add_host": {"name": "nowhere", "ansible_host": "192.0.2.1", "ansible_ssh_timeout": 1}}
    (tmp_path / "tasks.yml").write_text(yaml.safe_dump([host, lost]), encoding="utf-8")
    options |= {"rolling_maintenance_homes": True, "rolling_maintenance_nodes": ["pve1"]}

    killed = play("rolling_maintenance", options)

    assert killed.code == 4, killed.output
    state = cluster.state()
    # The node is not known to be fit: it stays drained.
    assert (state["ceph_flags"], state["options"]["crs"]) == ([], CRS)
    assert (noout(cluster)[0], set(state["pools"])) == (2, {"drained-node-pve1", "maintenance-tour"})

    run = play("rolling_maintenance", {"rolling_maintenance_state": "active", "rolling_maintenance_homes": True})

    assert run.code == 0, run.output
    state = cluster.state()
    assert (state["ceph_flags"], state["pools"], homes(cluster)) == ([], {}, before)


def test_refusal__comes_before_the_first_move_with_all_reasons(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    cluster.set_node("pve3", online=False)
    cluster.set_node("pve2", dead_services=["pvestatd"])
    cluster.set_guest(100, config={"hostpci0": "0000:01:00.0"})
    cluster.advance(60)

    run = play("rolling_maintenance", options)

    assert run.code == 2
    for text in ("pve1: without it, 1 of 3 votes are left", "pve2: service pvestatd is dead", "pve3: it is offline",
                 "pve1: web-0 (100): it uses devices of its node: hostpci0"):  # fmt: skip
        assert text in run.output, text
    assert not (tmp_path / "maintained").exists()
    assert [r for r in cluster.requests() if r["method"] != "GET"] == []


HA_MANAGER = """#!{python}
import json, ssl, sys, time, urllib.request
_, _, _, command, node = sys.argv
def ask(method, path, body=None):
    request = urllib.request.Request("{url}/sim" + path, json.dumps(body).encode() if body else None, method=method)
    return json.load(urllib.request.urlopen(request, context=ssl._create_unverified_context()))["data"]
def is_done():
    state = ask("GET", "/state")
    away = state["guests"]["100"]["node"] != node
    return away == (command == "enable") and state["ha"]["states"]["vm:100"] == "started"
ask("PUT", "/nodes/" + node, {{"maintenance": command == "enable"}})
while not is_done():
    time.sleep(0.1)
"""
"""It ends when the HA manager has moved the guest: what the next task sees does not depend on which one is faster."""


HOME = {"rule": "home", "type": "node-affinity", "resources": "vm:100", "nodes": "pve1:2,pve2:1"}
RESOURCE = {"resources": [{"sid": "vm:100", "state": "started"}], "rules": [HOME]}


@pytest.mark.parametrize("cluster", [{"ha": RESOURCE}], indirect=True)
def test_ha_maintenance__is_on_during_the_turn_of_a_node_and_off_afterwards(
    play: Play, cluster: SimulatedCluster, options: dict[str, Any], tmp_path: Path
) -> None:
    command = tmp_path / "bin" / "ha-manager"
    command.parent.mkdir()
    command.write_text(HA_MANAGER.format(python=sys.executable, url=cluster.url), encoding="utf-8")
    command.chmod(0o755)
    host = {"name": "pve1", "ansible_connection": "local", "ansible_become": False,
            "ansible_python_interpreter": sys.executable}  # fmt: skip
    role = {"ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.rolling_maintenance"}}
    plays = [
        {"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.add_host": host}]},
        {"hosts": "localhost", "gather_facts": False, "tasks": [role],
         "environment": {"PATH": f"{command.parent}:{os.environ['PATH']}"}},
    ]  # fmt: skip
    options |= {"rolling_maintenance_nodes": ["pve1"], "rolling_maintenance_ha_maintenance": True}

    run = play(plays, options)

    assert run.code == 0, run.output
    assert maintained(tmp_path) == ["pve1"]
    state = cluster.state()
    assert (state["pools"], state["nodes"]["pve1"]["maintenance"]) == ({}, False)
    assert state["guests"][100]["status"] == "running"


FOUR = {
    "nodes": [{"name": f"pve{number}", "cores": 8, "memory": 8192} for number in range(1, 5)],
    "guests": [
        {"vmid": 100 + n, "name": f"web-{n}", "node": f"pve{n % 4 + 1}", "memory": 512, "status": "running",
         "disks": {"scsi0": "shared:2"}}
        for n in range(8)
    ],
    "qdevice": {"State": "Connected", "Algorithm": "Fifty-Fifty split"},
    "ceph": None,
}  # fmt: skip

REBOOT = """
import json, ssl, sys, urllib.request
url, node, log = sys.argv[1:]
def ask(method, path, body=None):
    request = urllib.request.Request(url + path, json.dumps(body).encode() if body else None, method=method)
    return urllib.request.urlopen(request, context=ssl._create_unverified_context()).read()
ask("PUT", "/sim/nodes/" + node, {"online": False})
with open(log, "a", encoding="utf-8") as file:
    print(json.dumps([node, json.loads(ask("GET", "/sim/state"))["data"]]), file=file)
ask("PUT", "/sim/nodes/" + node, {"online": True})
"""


@pytest.mark.parametrize("cluster", [FOUR], indirect=True)
def test_two_nodes_at_a_time__are_both_empty_at_their_tasks_and_all_guests_are_back(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    before = homes(cluster)
    argv = [sys.executable, "-c", REBOOT, cluster.url, "{{ rolling_maintenance_node }}", str(tmp_path / "log")]
    fails = {"name": "Fail once", "ansible.builtin.file": {"path": str(tmp_path / "once"), "state": "file"}}
    reboot = {"name": "Reboot it", "ansible.builtin.command": {"argv": argv}}
    (tmp_path / "tasks.yml").write_text(
        yaml.safe_dump([{**fails, "when": "rolling_maintenance_node == 'pve2'"}, reboot]), encoding="utf-8"
    )
    del options["rolling_maintenance_nodes"]
    options |= {"rolling_maintenance_parallel_nodes": 2, "rolling_maintenance_homes": True,
                "rolling_maintenance_keep_order": True, "rolling_maintenance_pages": str(tmp_path)}  # fmt: skip

    failed = play("rolling_maintenance", options)

    assert failed.code == 2
    assert "pve1 and pve2 stay drained" in " ".join(failed.output.split())
    assert set(cluster.state()["pools"]) == {"drained-node-pve1", "drained-node-pve2", "maintenance-tour"}

    (tmp_path / "once").touch()
    run = play("rolling_maintenance", options)

    assert run.code == 0, run.output
    log = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    # The tasks for pve1 had run already when those for pve2 failed.
    assert [node for node, _state in log] == ["pve1", "pve1", "pve2", "pve3", "pve4"]
    for node, state in log:
        turn = {"pve1", "pve2"} if node in ("pve1", "pve2") else {"pve3", "pve4"}
        assert {name for name in turn if f"drained-node-{name}" in state["pools"]} == turn
        assert {guest["node"] for guest in state["guests"].values()} & turn == set()
        assert {guest["status"] for guest in state["guests"].values()} == {"running"}
        assert sum(each["online"] for each in state["nodes"].values()) + 1 >= 3
    assert (homes(cluster), cluster.state()["pools"]) == (before, {})
    assert "nodes up to 4 of 4 (pve3 and pve4) are done" in " ".join(run.output.split())
    page = (tmp_path / "tour.html").read_text(encoding="utf-8")
    assert "<b>4</b> of 4 nodes done" in page
    assert "pve3 and pve4" in page


def test_nodes_without_need__are_not_touched(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    cluster.set_node("pve2", updates=["pve-manager"])
    need = {"name": "Ask", "ansible.builtin.set_fact": {"asked": "{{ rolling_maintenance_node }}"}}
    (tmp_path / "need.yml").write_text(yaml.safe_dump([need]), encoding="utf-8")
    options |= {
        "rolling_maintenance_need_tasks": str(tmp_path / "need.yml"),
        "rolling_maintenance_need": "{{ 'it is old' if asked == 'pve3' else '' }}",
    }
    check = [{"name": "Look", "ansible.builtin.debug": {"msg": "look at {{ rolling_maintenance_node }}"}}]
    (tmp_path / "check.yml").write_text(yaml.safe_dump(check), encoding="utf-8")
    more = {"rolling_maintenance_only_if": ["updates"], "rolling_maintenance_check_tasks": str(tmp_path / "check.yml")}
    del options["rolling_maintenance_nodes"]

    run = play("rolling_maintenance", {**options, **more})

    assert run.code == 0, run.output
    assert sorted(maintained(tmp_path)) == ["pve2", "pve3"]
    assert "it is old" in run.output
    assert "pve1 is not maintained: it needs no maintenance" in run.output
    assert "look at pve2" in run.output


def test_node_that_the_tasks_about_needs_cannot_reach__ends_the_run_before_guests_move(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    before = cluster.state()
    lost = {"name": "Reach it", "ansible.builtin.ping": {}, "delegate_to": "nowhere"}
    host = {"ansible.builtin.add_host": {"name": "nowhere", "ansible_host": "192.0.2.1", "ansible_ssh_timeout": 1}}
    (tmp_path / "need.yml").write_text(yaml.safe_dump([host, lost]), encoding="utf-8")
    options |= {
        "rolling_maintenance_need_tasks": str(tmp_path / "need.yml"),
        "rolling_maintenance_need": "it is old",
    }

    run = play("rolling_maintenance", options)

    assert run.code == 4, run.output
    state = cluster.state()
    assert (state["guests"], state["pools"]) == (before["guests"], before["pools"])
    assert not (tmp_path / "maintained").exists()


def test_n_plus_one__refuses_a_drain_that_would_leave_no_room_for_another_loss(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    cluster.add_guest(vmid=200, name="large", node="pve2", memory=7000, status="running", disks={"scsi0": "shared:2"})

    run = play("rolling_maintenance", {**options, "rolling_maintenance_n_plus_one": True})

    assert run.code == 2
    assert "TourRefused" in run.output
    assert not (tmp_path / "maintained").exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rolling_maintenance_tasks": "none.yml"}, "rolling_maintenance_tasks: there is no file none.yml"),
        ({"rolling_maintenance_tasks": "/tmp"}, "rolling_maintenance_tasks: there is no file /tmp"),
        ({"rolling_maintenance_node": "pve1"}, "rolling_maintenance_node; did you mean rolling_maintenance_nodes?"),
        ({"rolling_maintenance_pages": "/no/such"}, "rolling_maintenance_pages: /no/such/node-drained.html cannot be"),
        ({"rolling_maintenance_nodes": ["pve1", "pve9"]}, "rolling_maintenance_nodes[1]: 'pve9' is not a node"),
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


def test_check_mode__shows_the_tour_and_an_applied_one_is_held_to(
    cluster: SimulatedCluster, play: Play, options: dict[str, Any], tmp_path: Path
) -> None:
    before, plan = homes(cluster), str(tmp_path / "tour.json")

    run = play("rolling_maintenance", {**options, "rolling_maintenance_plan_file": plan}, "--check")

    assert run.code == 0, run.output
    assert "maintain pve1, pve2 and pve3: 8 move(s)" in run.output or "move(s)" in run.output
    assert homes(cluster) == before
    assert not (tmp_path / "maintained").exists()
    assert [r for r in cluster.requests() if r["method"] != "GET"] == []

    cluster.add_guest(vmid=200, name="late", node="pve2", memory=512, status="running", disks={"scsi0": "shared:2"})
    cluster.advance(30)
    stale = play("rolling_maintenance", {**options, "rolling_maintenance_apply": plan})
    assert stale.code == 2
    assert "PlanStale" in stale.output
    assert homes(cluster) == {**before, 200: "pve2"}
