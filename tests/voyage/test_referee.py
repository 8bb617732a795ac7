# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The referee of voyages sees what must never happen."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from simulated_cluster.build import build
from simulated_cluster.cluster import Cluster
from simulated_cluster.model import Guest

from .actors import Process
from .referee import Broken, Referee
from .wishes import NAMES, requests
from .wishes import cluster as description


@pytest.fixture
def cluster() -> Cluster:
    return build(description(roomy=False))


@pytest.fixture
def referee(cluster: Cluster) -> Referee:
    return Referee(cluster, requests())


def add(cluster: Cluster, vmid: int, name: str, node: str, *, running: bool = False) -> Guest:
    guest = Guest(vmid, node, config={"name": name, "memory": "2048"})
    guest.status = "running" if running else "stopped"
    cluster.add_guest(guest)
    return guest


def test_referee__accepts_one_web_server_on_each_node(cluster: Cluster, referee: Referee) -> None:
    for number in range(1, 5):
        add(cluster, 100 + number, f"web-{number}", f"pve{number}")
    referee.check()


@pytest.mark.parametrize(
    ("names", "nodes", "reason"),
    [
        (("web-1", "web-1"), ("pve1", "pve2"), "several VMs of one name"),
        (("web-1", "web-2"), ("pve1", "pve1"), "memory of pve1"),
        (("db-1", "db-2"), ("pve1", "pve1"), "not apart"),
    ],
)
def test_referee__sees_what_breaks_the_law(
    cluster: Cluster, referee: Referee, names: tuple[str, str], nodes: tuple[str, str], reason: str
) -> None:
    for number, (name, node) in enumerate(zip(names, nodes, strict=True)):
        add(cluster, 101 + number, name, node)
    with pytest.raises(Broken, match=reason):
        referee.check()


def test_referee__asks_the_law_again_when_what_it_reads_has_changed(cluster: Cluster, referee: Referee) -> None:
    web = add(cluster, 101, "web-1", "pve2")
    referee.check()
    web.status = "running"
    referee.check()
    web.status, cluster.guests[100].config["memory"] = "stopped", "4096"
    with pytest.raises(Broken, match="memory of pve2"):
        referee.check()


def test_referee__sees_a_vm_that_is_lost_unless_a_human_removed_it(cluster: Cluster, referee: Referee) -> None:
    guest = add(cluster, 101, "web-1", "pve1", running=True)
    referee.check()
    cluster.remove_guest(guest)
    with pytest.raises(Broken, match=r"VM 101 \(web-1\) is lost"):
        referee.check()
    referee.removed.add(101)
    add(cluster, 102, "web-2", "pve1")
    referee.check()


class Response:
    """What the API answers to a request that begins a move."""

    status = 200
    body = b'{"data": "UPID:pve1:1:1:1:hamigrate:101:x:"}'


def ask_for_move(cluster: Cluster, referee: Referee, guest: Guest, target: str) -> None:
    cluster.ha.add(f"vm:{guest.vmid}", {"state": "started"})
    cluster.ha.manager.service(f"vm:{guest.vmid}").request = ("migrate", target)
    path = f"/api2/json/nodes/{guest.node}/qemu/{guest.vmid}/migrate"
    referee.moves.note("POST", path, {"target": target}, Response(), Process(1, "run 1", "a"))


def test_referee__sees_a_move_to_where_there_is_no_room_or_another_one_is_going(
    cluster: Cluster, referee: Referee
) -> None:
    first, second = add(cluster, 101, "web-1", "pve1"), add(cluster, 102, "web-2", "pve2")
    ask_for_move(cluster, referee, first, "pve3")
    referee.check()
    ask_for_move(cluster, referee, second, "pve3")
    with pytest.raises(Broken, match=r"run 1 must not move 102: .*memory of pve3"):
        referee.check()


def test_referee__counts_a_guest_on_both_nodes_while_a_controller_moves_it(cluster: Cluster, referee: Referee) -> None:
    ask_for_move(cluster, referee, add(cluster, 101, "db-1", "pve1"), "pve3")
    referee.check()
    add(cluster, 102, "db-2", "pve3")
    with pytest.raises(Broken, match="not apart"):
        referee.check()


def test_referee__counts_a_move_once_that_is_asked_for_again(cluster: Cluster, referee: Referee) -> None:
    guest = add(cluster, 101, "web-1", "pve1")
    add(cluster, 102, "db-1", "pve3")
    ask_for_move(cluster, referee, guest, "pve3")
    ask_for_move(cluster, referee, guest, "pve3")
    referee.check()


def test_referee__does_not_blame_controllers_for_what_a_human_moves(cluster: Cluster, referee: Referee) -> None:
    first = add(cluster, 101, "db-1", "pve1")
    add(cluster, 102, "db-2", "pve2")
    referee.check()
    first.node = "pve2"
    referee.check()
    add(cluster, 103, "web-1", "pve2")
    add(cluster, 104, "web-2", "pve2")
    with pytest.raises(Broken, match="memory of pve2"):
        referee.check()


@pytest.mark.parametrize(("target", "is_planned"), [("pve3", True), ("pve4", False)])
def test_referee__holds_a_run_to_the_plan_that_it_applies(
    cluster: Cluster, referee: Referee, target: str, is_planned: bool
) -> None:
    referee.hold(1, {"moves": [{"vmid": 101, "to": "pve3"}]})
    ask_for_move(cluster, referee, add(cluster, 101, "web-1", "pve1"), target)
    with nullcontext() if is_planned else pytest.raises(Broken, match="brings 101 to pve4"):
        referee.check()


@pytest.mark.parametrize(("node", "is_planned"), [("pve3", True), ("pve4", False)])
def test_referee__holds_creations_to_the_plan_that_is_applied(referee: Referee, node: str, is_planned: bool) -> None:
    referee.hold(1, {"vms": [{"vmid": 101, "node": "pve3"}, {"vmid": 102, "node": "pve3"}]})
    run, clone = Process(1, "run 1", "a"), "/api2/json/nodes/pve1/qemu/9000/clone"
    referee.note("POST", f"/api2/json/nodes/{node}/qemu", {"vmid": 101}, Response(), run)
    referee.note("POST", clone, {"newid": 102, "target": node}, Response(), run)
    with nullcontext() if is_planned else pytest.raises(Broken, match="brings 101 to pve4"):
        referee.check()


def test_referee__sees_a_vm_that_is_not_apart_as_its_ha_rule_says() -> None:
    cluster = build(description(roomy=True, ruled=True))
    referee = Referee(cluster, requests(roomy=True, ruled=True))
    add(cluster, 101, "db-1", "pve2")
    with pytest.raises(Broken, match="not apart from the VMs of HA rule apart"):
        referee.check()


def test_referee__sees_a_goal_that_is_missed(cluster: Cluster, referee: Referee) -> None:
    add(cluster, 101, "web-1", "pve1", running=True)
    with pytest.raises(Broken, match="only web-1 run"):
        referee.check_goal(NAMES)
