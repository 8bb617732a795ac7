# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks about several clusters, all of which call their nodes pve1, pve2 and pve3."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer, Result
from support.waiting import until

Start = Callable[..., SimulatedCluster]
Pair = tuple[SimulatedCluster, SimulatedCluster]
VM: dict[str, Any] = {"memory": 512, "cores": 1, "scsi": {"scsi0": {"size": 1}}}
DOWN: dict[str, Any] = {
    "name": "c",
    "api_host": "127.0.0.1",
    "api_port": 1,
    "api_user": "u@pve",
    "api_token_id": "t",
    "api_token_secret": "5ecret-of-c",
}


APART = [{"type": "anti-affinity", "required": False, "topology_key": "cluster", "name": "here"}]


def options(name: str, cluster: SimulatedCluster) -> dict[str, Any]:
    """The entry of clusters for a simulated one."""
    return {"name": name, **cluster.options()}


TWO_NODES: dict[str, Any] = {
    "nodes": [{"name": f"pve{n}", "cores": 8, "memory": 2048} for n in (1, 2)],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 1000}],
}


@pytest.fixture
def pair(start: Start) -> Pair:
    """Two clusters of the same description, a and b. Their time is short, as nothing here depends on it."""
    return start(TWO_NODES, time_scale=0.01), start(TWO_NODES, time_scale=0.01)


@pytest.fixture
def controller(modules: ModuleServer, tmp_path: Path) -> Controller:
    """A controller that knows of no cluster but those of its tasks."""
    return Controller(modules, tmp_path / "controller", {})


def names(cluster: SimulatedCluster) -> list[str]:
    guests = cluster.state()["guests"]
    return sorted(guest["name"] for guest in (guests.values() if isinstance(guests, dict) else guests))


def on(result: Result) -> dict[str, str | None]:
    return {vm["name"]: vm.get("cluster") for vm in result["vms"]}


def test_vms__are_spread_over_clusters_and_found_again(pair: Pair, controller: Controller) -> None:
    a, b = pair
    wanted: dict[str, Any] = {
        "clusters": [options("b", b), options("a", a)],
        "tags": ["web"],
        "topology_spread": [{"topology_key": "cluster", "tags": ["web"]}],
        "vms": [{"name": f"web-{n}"} for n in range(4)],
    }
    planned = controller.schedule(**wanted, **VM, check=True, diff=True)
    assert names(a) == names(b) == []
    made = controller.schedule(**wanted, **VM)
    assert on(made) == on(planned)
    assert Counter(on(made).values()) == {"a": 2, "b": 2}
    assert sorted(vm["vmid"] for vm in made["vms"]) == [100, 100, 101, 101], "VMIDs are per cluster"
    assert sorted(names(a) + names(b)) == ["web-0", "web-1", "web-2", "web-3"]
    nodes = [f"{node['cluster']}/{node['node']}" for node in made["nodes"]]
    assert nodes == ["a/pve1", "a/pve2", "b/pve1", "b/pve2"]
    assert made["vms"][0]["decision"]["clusters"] == planned["vms"][0]["decision"]["clusters"]
    assert planned["diff"][0]["after_header"] == 'VM "web-0" (100) on cluster a'
    again = controller.schedule(**wanted, **VM)
    assert (again["changed"], on(again)) == (False, on(made))
    gone = controller.schedule(clusters=wanted["clusters"], state="absent", vms=wanted["vms"])
    assert on(gone) == on(made)
    assert names(a) == names(b) == []
    nothing = controller.schedule(clusters=wanted["clusters"], state="absent", vms=wanted["vms"])
    assert (nothing["changed"], set(on(nothing).values())) == (False, {None})


def test_cluster_that_is_down__is_a_reason(pair: Pair, controller: Controller) -> None:
    a, b = pair
    clusters = [options("a", a), options("b", b), DOWN]
    pinned = controller.schedule(clusters=clusters, vms=[{"name": "here", "cluster": "a"}], **VM)
    assert on(pinned) == {"here": "a"}
    assert any("cluster 'c' cannot be reached and takes no part" in text for text in pinned["warnings"])
    wanted = [{"name": "here"}, {"name": "new", "memory": 512}]
    refused = controller.fail("ClusterUnreachable", clusters=clusters, vms=wanted, **VM)
    assert "may be on clusters that cannot be reached: c: 127.0.0.1:1: cannot connect" in refused["msg"]
    assert on(refused) == {"here": "a", "new": None}
    assert names(a) + names(b) == ["here"]
    made = controller.schedule(clusters=clusters, vms=wanted, when_unreachable="skip", **VM)
    assert on(made) == {"here": "a", "new": "b"}
    b.set_quorum(False)
    moved_on = controller.schedule(clusters=clusters[:2], name="small", affinity=APART, **{**VM, "memory": 16})
    assert on(moved_on) == {"small": "a"}
    reason = moved_on["vms"][0]["decision"]["clusters"][1]["reason"]
    assert reason == "the cluster has no quorum: no VM can be created"
    wrong = [{key: value for key, value in clusters[0].items() if key != "ca_path"}, clusters[1]]
    refused = controller.fail("ConnectionFailed", clusters=wrong, name="small", when_unreachable="skip", **VM)
    assert refused["msg"].startswith("cluster 'a': 127.0.0.1:")
    assert "set ca_path to the file of its CA" in refused["msg"], "it is no outage"
    everywhere = [{**DOWN, "name": name} for name in ("a", "b")]
    controller.fail("ConnectionFailed", clusters=everywhere, vms=wanted, **VM)


def test_vm_on_two_clusters__is_a_doubt(pair: Pair, controller: Controller) -> None:
    a, b = pair
    clusters = [options("a", a), options("b", b)]
    controller.schedule(clusters=clusters, name="dns", cluster="a", **VM)
    twin = controller.schedule(clusters=clusters, name="dns", cluster="b", **VM)
    assert on(twin) == {"dns": "b"}
    assert 'VM "dns": exists on cluster a as well, which its entry does not name' in twin["warnings"]
    doubt = controller.fail("AmbiguousName", clusters=clusters, name="dns", **VM)
    assert 'VM "dns": exists on clusters a and b; set cluster' in doubt["msg"]
    same = controller.fail("InvalidRequest", clusters=[options("a", a), options("b", a)], name="dns", **VM)
    assert "clusters: 'a' and 'b' are the same cluster (ca:" in same["msg"]


def test_tasks_that_name_the_same_clusters_differently__take_turns(
    pair: Pair, modules: ModuleServer, tmp_path: Path, empty_postgres: str
) -> None:
    """Two controllers, one ledger: neither waits for the other for ever, and together they fill both clusters."""
    a, b = pair
    running = []
    for number, (first, second) in enumerate(((a, b), (b, a))):
        there = Controller(modules, tmp_path / str(number), {})
        wanted = {"clusters": [options("x", first), options("y", second)], "reservations": empty_postgres}
        vms = [{"name": f"vm-{number}-{n}", "memory": 2048} for n in range(2)]
        running.append(there.start("qemu_schedule", **wanted, vms=vms, state="started"))
    results = [each.result() for each in running]
    assert not any(result.get("failed") for result in results), results
    assert len(names(a)) == len(names(b)) == 2


def test_interrupted_task__ends_on_all_clusters(pair: Pair, controller: Controller) -> None:
    a, b = pair
    for cluster in (a, b):
        cluster.fault(method="POST", path="/qemu$", task_seconds=100_000)
    vms = [{"name": f"vm-{number}"} for number in range(4)]
    wanted = {"clusters": [options("a", a), options("b", b)], "vms": vms, "parallel_creates": 1, **VM}
    running = controller.start("qemu_schedule", **wanted)
    until(lambda: all(any(r["method"] == "POST" for r in cluster.requests()) for cluster in (a, b)))
    running.interrupt(signal.SIGINT)
    result = running.result()
    assert result["error_code"] == "Interrupted"
    assert Counter(len(vm["actions"]) for vm in result["vms"]) == {0: 2, 1: 2}, "one is under way on each cluster"
    assert all(vm["error"]["code"] == "Interrupted" for vm in result["vms"])
    assert sum(r["method"] == "POST" for cluster in (a, b) for r in cluster.requests()) == 2


def test_one_vm_that_fails__holds_back_all_clusters_and_waits_for_room_on_any(
    pair: Pair, controller: Controller
) -> None:
    a, b = pair
    clusters = [options("a", a), options("b", b)]
    big: dict[str, Any] = {"clusters": clusters, **VM, "memory": 2032, "state": "started"}
    wanted: dict[str, Any] = {**big, "vms": [{"name": f"big-{n}"} for n in range(5)]}
    none = controller.fail("NoNodesAvailable", **wanted)
    assert '0/2 clusters are available for VM "big-4": a: 0/2 nodes' in none["msg"]
    assert none["msg"].endswith("nothing was written")
    assert names(a) + names(b) == []
    four = controller.fail("NoNodesAvailable", **wanted, all_or_nothing=False)
    assert len(names(a)) == len(names(b)) == 2
    assert [vm["name"] for vm in four["vms"] if "error" in vm] == ["big-4"]
    # What the VM on one cluster is to become is impossible: the other one is held back although nothing is wrong there.
    there = on(four)
    drifted = [{"name": "big-0", "scsi": {"scsi0": {"size": 9, "storage": "other"}}}, {"name": "new", "memory": 16}]
    for check in (True, False):
        held = controller.run("qemu_schedule", **{**big, "state": "present"}, vms=drifted, update=True, check=check)
        assert [vm["not_done"] for vm in held["vms"]][1] == ["create"], held["msg"]
        assert held["changed"] is False
    assert len(names(a)) == len(names(b)) == 2
    waiting = controller.start("qemu_schedule", **big, name="big-4", wait_for_capacity=600)
    controller.schedule(clusters=clusters, name="big-0", state="absent", force=True)
    result = waiting.result()
    assert on(result) == {"big-4": there["big-0"]}


def test_wait__notices_room_on_a_cluster_while_another_one_is_down(pair: Pair, controller: Controller) -> None:
    a, b = pair
    clusters = [options("a", a), options("b", b)]
    full: dict[str, Any] = {"clusters": clusters, **VM, "memory": 2032, "state": "started"}
    there = on(controller.schedule(**full, vms=[{"name": f"big-{n}"} for n in range(4)]))
    waiting = controller.start("qemu_schedule", **full, name="late", cluster=["b"], wait_for_capacity=600)
    until(lambda: sum(r["path"] == "/cluster/resources" for r in a.requests(reset=True)) > 0)
    until(lambda: sum(r["path"] == "/cluster/resources" for r in a.requests(reset=True)) > 0)
    a.fault(drop="before")
    gone = next(name for name, cluster in there.items() if cluster == "b")
    controller.schedule(clusters=clusters[1:], name=gone, state="absent", force=True)

    result = waiting.result()

    assert on(result) == {"late": "b"}, result["msg"]
    assert result["vms"][0]["waited"] < 600


@pytest.mark.parametrize("state", ["present", "absent"])
def test_vm_that_may_be_on_a_dead_node_of_a_cluster__waits_for_the_node(
    start: Start, controller: Controller, state: str
) -> None:
    a, b = start(TWO_NODES), start(TWO_NODES)
    clusters = [options("a", a), options("b", b)]
    controller.schedule(clusters=clusters, name="here", cluster=["b"], node="pve2", reservations="none", **VM)
    b.set_node("pve2", online=False)
    b.advance(400)
    b.fault(method="GET", path="/cluster/backup", status=403, message="Permission check failed")
    asked = {"clusters": clusters, "name": "here", "state": state, **VM}
    controller.fail("VMNotKnown", **asked, wait_for_capacity=60, check=True)
    running = controller.start("qemu_schedule", **asked, wait_for_capacity=600)
    a.requests(reset=True)
    until(lambda: sum(r["path"] == "/cluster/resources" for r in a.requests()) > 2)
    assert names(a) == []
    b.set_node("pve2", online=True)
    b.advance(60)

    result = running.result()

    assert not result.get("failed"), result["msg"]
    assert result["changed"] is (state == "absent")
    assert names(a) + names(b) == (["here"] if state == "present" else [])


def test_wait_that_is_refused__leaves_what_was_made_told(pair: Pair, controller: Controller) -> None:
    a, b = pair
    wanted = [{"name": "web"}, {"name": "late", "context": {"delay": "300"}}]
    common: dict[str, Any] = {"clusters": [options("a", a), options("b", b)], "vms": wanted, **VM}
    running = controller.start("qemu_schedule", **common, all_or_nothing=False, wait_for_capacity=600)
    until(lambda: names(a) + names(b))
    for cluster in pair:
        cluster.fault(method="GET", path="/cluster/resources$", status=403, message="no reading today")

    result = running.result()

    assert (result["error_code"], result["changed"]) == ("PermissionDenied", True)
    assert [vm["changed"] for vm in result["vms"]] == [True, False]


def test_cluster_that_loses_its_room__hands_its_vm_over(pair: Pair, controller: Controller) -> None:
    """Somebody whose VMs this user does not see takes the only VMID that the VM may have on the first cluster."""
    a, b = pair
    a.fault(method="POST", path="/qemu$", status=500, message="unable to create VM 100: config file already exists")
    made = controller.schedule(clusters=[options("a", a), options("b", b)], name="web", vmid_range="100-100", **VM)
    assert (on(made), made["vmid"], made["vms"][0]["attempts"]) == ({"web": "b"}, 100, 3)
    assert (names(a), names(b)) == ([], ["web"])


def test_list__is_compared_with_all_clusters(pair: Pair, controller: Controller) -> None:
    a, b = pair
    clusters = [options("a", a), options("b", b)]
    controller.schedule(clusters=clusters, vms=[{"name": "web", "cluster": "a"}, {"name": "db", "cluster": "b"}], **VM)
    a.add_guest(vmid=101, name="old", node="pve1")
    b.add_guest(vmid=101, name="web", node="pve2")
    for cluster in pair:
        cluster.advance(60)
        cluster.reset_requests()
    wanted = [{"name": "web", "cluster": "a"}, {"name": "db", "cores": 2}, {"name": "new"}]
    found = controller.run("fleet_info", clusters=clusters, vms=wanted, unmanaged=True, **VM)
    seen = [(vm["name"], vm["state"], vm.get("cluster"), vm["node"] is None) for vm in found["vms"]]
    assert seen == [("web", "ok", "a", False), ("db", "drifted", "b", False), ("new", "missing", None, True)]
    unmanaged = [(vm["name"], vm["cluster"], vm["vmid"]) for vm in found["unmanaged"]]
    assert unmanaged == [("old", "a", 101), ("web", "b", 101)]
    with_c = {"clusters": [*clusters, DOWN], "vms": wanted, **VM}
    doubtful = controller.run("fleet_info", **with_c)
    assert [vm["state"] for vm in doubtful["vms"]] == ["ok", "drifted", "failed"]
    assert doubtful["vms"][2]["error"]["code"] == "ClusterUnreachable"
    assert doubtful["doubts"][0].startswith("cluster 'c' cannot be reached and takes no part")
    skipped = controller.run("fleet_info", **with_c, when_unreachable="skip")
    assert [vm["state"] for vm in skipped["vms"]] == ["ok", "drifted", "missing"]
    assert [r for cluster in pair for r in cluster.requests() if r["method"] != "GET"] == []


def test_count_over_clusters__is_compared_and_shrinks(pair: Pair, controller: Controller) -> None:
    a, b = pair
    clusters = [options("a", a), options("b", b)]
    rule = {"topology_spread": [{"topology_key": "cluster", "name": "web-.*"}]}
    series: dict[str, Any] = {"name": "web-{n}", "count": 4, "surplus": "absent", "tags": ["web"], **rule}
    controller.schedule(clusters=clusters, vms=[series], **VM)
    fewer = [{**series, "count": 2}]
    found = controller.run("fleet_info", clusters=clusters, vms=fewer, **VM)
    assert [vm["state"] for vm in found["vms"]] == ["ok", "ok", "unwanted", "unwanted"]
    controller.schedule(clusters=clusters, vms=fewer, **VM)
    assert sorted(names(a) + names(b)) == ["web-1", "web-2"]
    for cluster in pair:
        cluster.advance(120)
        cluster.requests(reset=True)
    unchanged = controller.schedule(clusters=clusters, vms=fewer, **VM)
    assert unchanged["changed"] is False
    calls = Counter(call["path"] for cluster in pair for call in cluster.requests())
    assert (calls["/cluster/resources"], calls["/cluster/tasks"]) == (2, 2), "each cluster is read once"
    assert controller.run("fleet_info", clusters=clusters, vms=fewer, unmanaged=True, **VM)["clean"] is True
    controller.schedule(clusters=clusters, vms=[{**series, "count": 0}], **VM)
    assert names(a) + names(b) == []
