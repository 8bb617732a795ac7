# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting, gates, delays, groups, priority, profiles, rules and plugins of one's own, through the module."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

ONE_NODE: dict[str, Any] = {
    "nodes": [{"name": "pve1", "cores": 8, "memory": 8192}],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 100}],
    "guests": [{"vmid": 100, "name": "old", "node": "pve1", "memory": 6144, "status": "running"}],
}
UNLIKE_NODES: dict[str, Any] = {
    "nodes": [{"name": "pve1", "cores": 64, "memory": 65536}, {"name": "pve2", "cores": 8, "memory": 8192}],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 100}],
}
OWN_PLUGIN = """
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import Setting
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import FilterPlugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import unschedulable


class OddNodes(FilterPlugin):
    '''Keeps nodes whose name ends in an odd digit.'''

    name = "OddNodes"
    settings = {"even": Setting("bool", False, "the other way round")}

    def filter(self, state, request, node):
        odd = int(node.name[-1]) % 2 == 1
        return None if odd is not self.config["even"] else unschedulable("had the wrong digit")
"""


def until_rejected(cluster: SimulatedCluster) -> None:
    """Wait until the running task has looked at the cluster once and looks again."""
    until(lambda: sum(r["path"] == "/cluster/resources" for r in cluster.requests()) >= 2)


def nodes_of(result: dict[str, Any]) -> list[str]:
    return [vm["node"] for vm in result["vms"]]


# --- live figures ---


@both_versions
def test_utilization__avoids_a_node_on_which_everything_waits(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], version: str
) -> None:
    cluster = start(
        {
            "nodes": [
                {"name": "pve1", "cores": 8, "memory": 8192, "cpu_use": 0.1, "pressure": {"io": 80}},
                {"name": "pve2", "cores": 8, "memory": 8192, "cpu_use": 0.3, "pressure": {"cpu": 5}},
            ],
            "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 100}],
        }
    )
    chosen = {}
    for weight in (1, 0):
        utilization = {"enable": True, "config": {"pressure_weight": weight}}
        scores = {"Utilization": utilization, "LeastAllocated": {"enable": False}}
        cluster.reset_requests()
        result = control(cluster).run(
            "qemu_schedule", name="new", memory=512, plugin_config={"scores": scores}, check=True
        )
        asked = [r["path"] for r in cluster.requests() if r["path"].endswith("/rrddata")]
        chosen[weight] = nodes_of(result), len(asked)
    # Before 9.0 Proxmox tells no pressure: the node that is less used by CPU has it, as with no weight.
    assert chosen == {1: (["pve2"] if version == "9.2" else ["pve1"], 2), 0: (["pve1"], 0)}


# --- waiting ---


@pytest.mark.parametrize(("change", "version"), [("removed", "9.2"), ("stopped", "8.4")])
def test_vm__is_placed_as_soon_as_somebody_makes_room(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], change: str
) -> None:
    cluster = start(ONE_NODE)
    waiting = control(cluster).start("qemu_schedule", name="new", memory=4096, wait_for_capacity=600)
    until_rejected(cluster)
    if change == "removed":
        cluster.remove_guest(100)
    else:
        cluster.set_guest(100, status="stopped")
    cluster.advance(30)
    result = waiting.result()
    vm = result["vms"][0]
    assert (result["changed"], vm["node"]) == (True, "pve1")
    assert vm["attempts"] >= 2
    assert 0 < vm["waited"] < 600
    assert vm["waited_for"] == ["MemoryOvercommit"]


def test_all_of_a_task__wait_for_the_last_one_unless_each_is_for_itself(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    for together in (True, False):
        cluster = start(ONE_NODE)
        vms = [{"name": "small", "memory": 512}, {"name": "large", "memory": 7000}]
        waiting = control(cluster).start("qemu_schedule", vms=vms, wait_for_capacity=600, all_or_nothing=together)
        until_rejected(cluster)
        names = {guest["name"] for guest in cluster.state()["guests"].values()}
        assert ("small" in names) is not together
        cluster.remove_guest(100)
        cluster.advance(30)
        result = waiting.result()
        assert [vm["changed"] for vm in result["vms"]] == [True, True]
        assert {"small", "large"} <= {guest["name"] for guest in cluster.state()["guests"].values()}


def test_wait__ends_and_says_how_long_it_was_how_often_it_tried_and_what_it_waited_for(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], tmp_path: Path
) -> None:
    progress = tmp_path / "progress"
    failed = control(start(ONE_NODE)).fail(
        "NoNodesAvailable", name="new", memory=4096, wait_for_capacity=2, progress_file=str(progress)
    )
    vm = failed["vms"][0]
    assert vm["waited"] >= 2
    assert vm["waited_for"] == ["MemoryOvercommit"]
    assert vm["attempts"] >= 1
    assert failed["msg"].endswith(f"; gave up after {vm['waited']:.0f} s")
    assert vm["error"]["message"] == failed["msg"]
    first = json.loads(progress.read_text(encoding="utf-8").splitlines()[0])
    assert 0 <= first.pop("waited") <= vm["waited"]
    assert first == {"waiting": ["new"], "rejected_by": ["MemoryOvercommit"], "patience": 2}


@pytest.mark.parametrize(
    "hopeless",
    [{"node": "pve9"}, {"scsi": {"scsi0": "nope:4"}}, {"memory": 10**6}, {"cores": 128, "sockets": 4}],
    ids=lambda asked: "-".join(asked),
)
@pytest.mark.parametrize("among_others", [False, True])
def test_what_no_change_can_help__is_not_waited_for(
    start: Callable[..., SimulatedCluster],
    control: Callable[..., Controller],
    hopeless: dict[str, Any],
    among_others: bool,
) -> None:
    cluster = start(ONE_NODE)
    vms = [{"name": "lost", **hopeless}] + [{"name": "new", "memory": 4096}] * among_others
    failed = control(cluster).run("qemu_schedule", vms=vms, wait_for_capacity=600)
    assert failed["failed"]
    assert failed["vms"][0]["error"]["message"].endswith("; not retried, as no cluster change can make it fit")
    assert failed["vms"][0]["waited"] < 60
    assert sum(r["path"] == "/cluster/resources" for r in cluster.requests()) <= 2


@pytest.mark.parametrize(
    ("wrong", "code"),
    [({"name": "other", "vmid": 100}, "VMIDConflict"), ({"name": "other", "clone": "nope"}, "TemplateNotFound")],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_nothing__is_waited_for_where_another_vm_has_a_mistake(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], wrong: dict[str, Any], code: str
) -> None:
    vms = [wrong, {"name": "new", "memory": 4096}]
    failed = control(start(ONE_NODE)).run("qemu_schedule", vms=vms, wait_for_capacity=600)
    assert [vm["error"]["code"] for vm in failed["vms"]] == [code, "NoNodesAvailable"]
    assert failed["vms"][1]["attempts"] == 1


def test_check_mode__does_not_wait(controller: Controller) -> None:
    failed = controller.fail("NoNodesAvailable", name="huge", memory=10**6, wait_for_capacity=600, check=True)
    assert failed["vms"][0]["attempts"] == 1


# --- gates, delays, groups, priority ---


def test_gates__hold_a_vm_back_until_they_are_opened(controller: Controller) -> None:
    gated = {"name": "web-1", "scheduling_gates": ["dns", "quota"]}
    assert "dns" in controller.fail("SchedulingGated", **gated)["msg"]
    assert "quota" in controller.fail("SchedulingGated", open_gates=["dns"], **gated)["msg"]
    assert controller.schedule(open_gates=["dns", "quota"], **gated)["changed"] is True
    assert controller.schedule(**gated)["changed"] is False, "a VM that exists is not scheduled"


def test_delay__holds_a_vm_back_until_its_time_has_come(controller: Controller) -> None:
    failed = controller.fail("NoNodesAvailable", name="late", context={"delay": "60"})
    assert "the delay of 60 s" in failed["msg"]
    for delay in (5, 20, 80):
        # A busy machine may need more than a short delay until it decides.
        name = f"late-{delay}"
        (vm,) = controller.schedule(name=name, context={"delay": str(delay)}, wait_for_capacity=600)["vms"]
        if vm["attempts"] > 1:
            break
    assert vm["attempts"] == 2
    assert vm["waited"] > 0


def test_group__is_placed_whole_or_not_at_all(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start({**ONE_NODE, "guests": []})
    controller = control(cluster)
    trio = {"memory": 3072, "vms": [{"name": f"m-{number}"} for number in range(3)], "all_or_nothing": False}
    failed = controller.fail("NoNodesAvailable", group={"name": "trio"}, **trio)
    assert [vm["changed"] for vm in failed["vms"]] == [False] * 3
    assert cluster.state()["guests"] == {}
    failed = controller.fail("NoNodesAvailable", group={"name": "trio", "min_available": 2}, **trio)
    assert [vm["changed"] for vm in failed["vms"]] == [True, True, False]


def test_one_more_of_a_group_that_is_large_enough__is_placed_when_there_is_room(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start(ONE_NODE)
    vms = [{"name": f"m-{number}", "memory": 1024} for number in range(2)] + [{"name": "m-2", "memory": 4096}]
    waiting = control(cluster).start(
        "qemu_schedule",
        vms=vms,
        group={"name": "trio", "min_available": 2},
        wait_for_capacity=600,
        all_or_nothing=False,
    )
    until_rejected(cluster)
    cluster.remove_guest(100)
    cluster.advance(30)
    assert [vm["changed"] for vm in waiting.result()["vms"]] == [True, True, True]


def test_higher_priority__is_placed_first_in_whatever_order_it_is_written(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    controller = control(start({**ONE_NODE, "guests": []}))
    failed = controller.fail(
        "NoNodesAvailable",
        memory=6144,
        all_or_nothing=False,
        priority_classes={"critical": 1000},
        vms=[{"name": "low"}, {"name": "high", "priority": "critical"}, {"name": "middle", "priority": "10"}],
    )
    assert [vm["changed"] for vm in failed["vms"]] == [False, True, False]


# --- rules, profiles, plugins ---


def test_replicas__are_kept_apart_and_spread_over_racks(controller: Controller) -> None:
    racks = {"pve[12]": {"labels": {"rack": "a"}}, "pve3": {"labels": {"rack": "b"}}}
    vms = [{"name": f"web-{number}"} for number in range(3)]
    apart = controller.schedule(vms=vms, check=True, affinity=[{"type": "apart", "name": "web-.*"}])
    assert sorted(nodes_of(apart)) == ["pve1", "pve2", "pve3"]
    spread = [{"topology_key": "rack", "max_skew": 1, "name": "web-.*"}]
    placed = controller.schedule(vms=vms[:2], check=True, topology_spread=spread, nodes=racks)
    assert "pve3" in nodes_of(placed)
    failed = controller.fail(
        "NoNodesAvailable", vms=[*vms, {"name": "web-3"}], affinity=[{"type": "apart", "name": "web-.*"}]
    )
    assert 'VM "web-3"' in failed["msg"]


def test_vm__keeps_away_those_of_its_task_that_are_placed_later(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    controller = control(start(UNLIKE_NODES))
    web = {"name": "web-1", "group": {"name": "web"}, "affinity": [{"type": "apart", "name": "db-.*"}]}
    late = {"name": "db-1", "context": {"delay": "5"}}
    waited = controller.schedule(vms=[web, late], memory=512, wait_for_capacity=600, all_or_nothing=False)
    assert nodes_of(waited) == ["pve1", "pve2"]
    more = [{"name": "db-2"}, {"name": "web-2", "affinity": [{"type": "apart", "group": "web"}]}]
    assert nodes_of(controller.schedule(vms=[web, *more], memory=512, check=True)) == ["pve1", "pve2", "pve2"]
    assert nodes_of(controller.schedule(vms=more, memory=512, check=True)) == ["pve1", "pve1"]


def test_vm_that_the_task_starts__takes_its_room_from_those_that_it_places(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    stopped = {**ONE_NODE["guests"][0], "status": "stopped"}
    controller = control(start({**ONE_NODE, "guests": [stopped]}))
    vms = [{"name": "new", "memory": 4096}, {"name": "old"}]
    failed = controller.fail("NoNodesAvailable", vms=vms, state="started")
    assert "(10.0 GiB against a limit of 8.0 GiB)" in failed["vms"][0]["decision"]["nodes"][0]["reason"]
    small = controller.schedule(vms=[{"name": "new", "memory": 1024}, {"name": "old"}], state="started")
    memory = [small["nodes"][0][when] for when in ("memory_before", "memory_after")]
    assert memory == [0, 1024 + 6144]


def test_taints__keep_vms_away_that_do_not_tolerate_them(controller: Controller) -> None:
    nodes = {"pve[12]": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
    assert controller.schedule(name="a", nodes=nodes, check=True)["node"] == "pve3"
    tolerated = controller.schedule(
        name="a", nodes=nodes, check=True, tolerations=[{"key": "gpu", "operator": "Exists"}], node_regex="pve[12]"
    )
    assert tolerated["node"] in ("pve1", "pve2")


def test_profiles__pack_or_spread(controller: Controller) -> None:
    vms = [{"name": f"web-{number}"} for number in range(3)]
    packed = controller.schedule(vms=vms, memory=4096, profile="pack", check=True)
    spread = controller.schedule(vms=vms, memory=4096, profile="spread", check=True)
    # One of the three nodes has more guests, running and stopped, than the others with the new VMs.
    assert (len(set(nodes_of(packed))), len(set(nodes_of(spread)))) == (1, 2)


def test_profile_of_ones_own__decides_for_the_vms_that_name_it(controller: Controller) -> None:
    config = {"profiles": {"only-third": {"filters": {"NodeRegex": {}}, "scores": {"Random": {"config": {"seed": 1}}}}}}
    result = controller.schedule(
        vms=[{"name": "a"}, {"name": "b", "profile": "only-third"}], plugin_config=config, check=True
    )
    scores = [vm["decision"]["nodes"][0]["scores"] for vm in result["vms"]]
    assert ["Random" in of_vm for of_vm in scores] == [False, True]


def test_plugin_from_a_file__decides_and_is_explained_like_any_other(controller: Controller, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "odd_nodes.py").write_text(OWN_PLUGIN, encoding="utf-8")
    own = {"plugin_paths": [str(folder)], "plugin_config": {"filters": {"OddNodes": {"config": {"even": True}}}}}
    result = controller.schedule(name="web-1", check=True, **own)
    assert result["node"] == "pve2"
    reasons = {node["node"]: (node["rejected_by"], node["reason"]) for node in result["vms"][0]["decision"]["nodes"]}
    assert reasons["pve1"] == ("OddNodes", "had the wrong digit")
    failed = controller.fail("NoNodesAvailable", name="web-1", node="pve3", **own)
    assert "had the wrong digit" in failed["msg"]


def test_limit_for_one_node_and_one_for_all__hold_together(controller: Controller) -> None:
    nodes = {"pve3": {"reserved": {"memory": 64000}}, "pve2": {"overcommit": {"memory": 0.1}}}
    result = controller.schedule(name="web-1", memory=4096, nodes=nodes, check=True)
    verdicts = {node["node"]: node["rejected_by"] for node in result["vms"][0]["decision"]["nodes"]}
    assert verdicts == {"pve1": None, "pve2": "MemoryOvercommit", "pve3": "MemoryOvercommit"}
