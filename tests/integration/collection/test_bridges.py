# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bridges are read once per node at most, and not at all where they are known to be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.versions import both_versions

VM: dict[str, Any] = {"memory": 512, "cores": 1, "scsi": {"scsi0": {"storage": "shared", "size": 1}}}
CARD = {"net": {"net0": "virtio,bridge=vmbr0"}}
OTHER_CARD = {"net": {"net0": "virtio,bridge=vmbr9"}}
OFF = {"plugin_config": {"filters": {"NetworkBridge": {"enable": False}}}}


def cluster_of(nodes: int, bridges: Mapping[str, list[str]] | None = None) -> dict[str, Any]:
    """Nodes that have the same bridges, but for these."""
    named = [{"name": name, "cores": 32, "memory": 131072, "bridges": has} for name, has in (bridges or {}).items()]
    alike = {"generate": {"nodes": nodes, "guests_per_node": 1, "seed": 1}} if nodes else {}
    shared = {"name": "shared", "type": "rbd", "shared": True, "size": 9000}
    local = {"name": "local-lvm", "type": "lvmthin", "size": 2000}
    return {**alike, "nodes": named, "storages": [shared, local]}


def asked(cluster: SimulatedCluster) -> list[str]:
    calls = [f"{r['method']} {r['path']}" for r in cluster.requests(reset=True)]
    return [call for call in calls if "/tasks" not in call]


def read_bridges(calls: list[str]) -> list[str]:
    return sorted(call.split("/")[2] for call in calls if call.endswith("/network"))


@pytest.mark.parametrize("options", [{}, OFF], ids=["on", "off"])
@pytest.mark.parametrize("nodes", [3, 40])
def test_same_bridges_everywhere__cost_nothing_once_they_are_known(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], nodes: int, options: dict[str, Any]
) -> None:
    cluster = start(cluster_of(nodes))
    without, card = control(cluster), control(cluster)
    for name in ("first", "later"):
        without.schedule(name=f"{name}-0", node="pve1", **VM, **options)
        cluster.advance(120)
        least = asked(cluster)
        card.schedule(name=f"{name}-1", node="pve1", **VM, **CARD, **options)
        calls = asked(cluster)
        assert read_bridges(calls) == (["pve1"] if name == "first" else [])
        assert len(calls) - len(read_bridges(calls)) == len(least)
        cluster.advance(120)
    vms = [{"name": f"many-{number}"} for number in range(3)]
    check = card.schedule(vms=vms, check=True, **VM, **CARD, **options)
    chosen = {vm["node"] for vm in check["vms"]}
    assert read_bridges(asked(cluster)) == sorted(chosen - {"pve1"})
    made = card.schedule(vms=vms, **VM, **CARD, **options)
    assert [vm["node"] for vm in made["vms"]] == [vm["node"] for vm in check["vms"]]
    assert read_bridges(asked(cluster)) == []


DIFFERENT = {"pve1": ["vmbr0"], "pve2": ["vmbr0"], "pve3": ["vmbr0", "vmbr9"]}


@both_versions
def test_bridge_that_a_chosen_node_lacks__is_looked_for_on_all_before_anything_is_written(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start(cluster_of(0, DIFFERENT))
    controller = control(cluster)
    vms = [{"name": f"web-{number}"} for number in range(3)]
    for check in (True, False, False):
        made = controller.schedule(vms=vms, check=check, **VM, **OTHER_CARD)
        calls = asked(cluster)
        assert read_bridges(calls) == (["pve1", "pve2", "pve3"] if calls[-1].startswith("POST") or check else [])
        assert {vm["node"] for vm in made["vms"]} == {"pve3"}
        cluster.advance(120)
        if made["changed"]:
            for vm in made["vms"]:
                rejected = {node["node"]: str(node) for node in vm["decision"]["nodes"] if not node["feasible"]}
                assert rejected.keys() == {"pve1", "pve2"}
                assert all("didn't have bridge 'vmbr9'" in text for text in rejected.values())
                assert vm["attempts"] == 1


@both_versions
def test_bridge_that_is_gone__fails_the_start_once_and_is_not_believed_again(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start(cluster_of(0, {"pve1": ["vmbr9"], "pve2": ["vmbr9"]}))
    controller = control(cluster)
    controller.schedule(vms=[{"name": "web-1"}, {"name": "web-2"}], state="started", **VM, **OTHER_CARD)
    cluster.set_node("pve1", bridges=["vmbr0"])
    failed = controller.run("qemu_schedule", name="web-3", node="pve1", state="started", **VM, **OTHER_CARD)
    assert "bridge 'vmbr9' does not exist" in failed["msg"]
    vms = [{"name": "web-4"}, {"name": "web-5"}]
    made = controller.schedule(vms=vms, state="started", **VM, **OTHER_CARD)
    assert {vm["node"] for vm in made["vms"]} == {"pve2"}
    refused = controller.fail("NoNodesAvailable", name="web-6", node="pve1", **VM, **OTHER_CARD)
    assert "didn't have bridge 'vmbr9'" in refused["msg"]
    # One that is added counts at once.
    cluster.set_node("pve1", bridges=["vmbr0", "vmbr9"])
    assert controller.schedule(name="web-6", node="pve1", **VM, **OTHER_CARD)["node"] == "pve1"


def test_vm_of_a_silent_node__keeps_its_vmid_when_the_next_one_lacks_the_bridge(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    """The silent node may create it after all: Proxmox then refuses to create a second one."""
    description = cluster_of(0, {"pve1": ["vmbr9"], "pve2": ["vmbr0"], "pve3": ["vmbr9"]})
    for node, memory in zip(description["nodes"], (131072, 65536, 32768), strict=True):
        node["memory"] = memory
    cluster = start(description)
    # A VMID that is lower becomes free between the two decisions.
    cluster.fault(method="POST", path="/nodes/pve3/qemu$", status=500, count=1)
    cluster.fault(method="POST", path="/nodes/pve1/qemu$", status=596)
    vms = [{"name": "web-0", "node": "pve3"}, {"name": "web-1"}]

    failed = control(cluster).run("qemu_schedule", vms=vms, vmid_range="500-999", **VM, **OTHER_CARD)

    posts = {call for call in asked(cluster) if call.startswith("POST")}
    assert posts == {"POST /nodes/pve3/qemu", "POST /nodes/pve1/qemu"}, failed["msg"]
    assert {guest["name"]: vmid for vmid, guest in cluster.state()["guests"].items()} == {"web-1": 501}


def named(**clusters: SimulatedCluster) -> list[dict[str, Any]]:
    return [{"name": name, **cluster.options()} for name, cluster in clusters.items()]


def test_same_bridges_on_several_clusters__cost_one_request_for_each_chosen_node(
    start: Callable[..., SimulatedCluster], modules: ModuleServer, tmp_path: Path
) -> None:
    both = [start(cluster_of(3)), start(cluster_of(40))]
    clusters = named(a=both[0], b=both[1])
    calls: dict[str, list[list[str]]] = {}
    for name, options in (("off", OFF), ("on", {})):
        controller = Controller(modules, tmp_path / name, {})
        for _ in range(2):
            vms = [{"name": f"{name}-{len(calls)}-{number}"} for number in range(4)]
            check = controller.schedule(clusters=clusters, vms=vms, check=True, **VM, **CARD, **options)
            asked_of = [asked(cluster) for cluster in both]
            calls.setdefault(name, []).append([call for each in asked_of for call in each])
            chosen = {(vm["cluster"], vm["node"]) for vm in check["vms"]}
            read = {(of, node) for of, each in zip("ab", asked_of, strict=True) for node in read_bridges(each)}
            assert read == (chosen if len(calls[name]) == 1 else set())
    assert [len(each) for each in calls["on"]] == [len(each) for each in calls["off"]]


def test_capacity__reads_the_nodes_that_may_take_the_vm_once(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start(cluster_of(0, {**DIFFERENT, "pve4": ["vmbr9"]}))
    controller = control(cluster)
    shape = {"memory": 512, "node_regex": "pve[23]"}
    for read in (["pve2", "pve3"], []):
        counted = controller.run("capacity_info", shapes=[{**shape, **CARD}])
        fits = {node["node"]: (node["fit"] > 0, node["limited_by"]) for node in counted["nodes"]}
        no = (False, "NodeRegex")
        assert fits == {"pve1": no, "pve2": (True, "cpu"), "pve3": (True, "cpu"), "pve4": no}
        assert read_bridges(asked(cluster)) == read
    counted = controller.run("capacity_info", shapes=[{**shape, **OTHER_CARD}])
    assert [node["fit"] > 0 for node in counted["nodes"]] == [False, False, True, False]
    assert read_bridges(asked(cluster)) == ["pve1", "pve2", "pve3", "pve4"]
    counted = controller.run("capacity_info", shapes=[{**shape, "node": "pve2", **OTHER_CARD}])
    assert "no bridge 'vmbr9'" not in counted["reason"]
    assert "1 node(s) didn't have bridge 'vmbr9' (pve2)" in counted["reason"]
    typo = {"net": {"net0": "virtio,bridge=vmbr8"}}
    counted = control(cluster).run("capacity_info", shapes=[{**shape, "node": "pve2", **typo}])
    assert "no bridge 'vmbr8', or this user may not use it, known: vmbr0, vmbr9" in counted["reason"]


NONE_OF_THEM = {"pve1": ["vmbr0"], "pve2": ["vmbr0"]}


def test_bridge_on_few_nodes_of_several_clusters__is_looked_for_where_a_chosen_node_lacks_it(
    start: Callable[..., SimulatedCluster], modules: ModuleServer, tmp_path: Path
) -> None:
    a, b, c = start(cluster_of(0, NONE_OF_THEM)), start(cluster_of(0, DIFFERENT)), start(cluster_of(3))
    controller = Controller(modules, tmp_path, {})
    only_a_and_b = named(a=a, b=b)
    vms = [{"name": f"web-{number}"} for number in range(3)]
    made = controller.schedule(clusters=only_a_and_b, vms=vms, **VM, **OTHER_CARD)
    assert {(vm["cluster"], vm["node"], vm["attempts"]) for vm in made["vms"]} == {("b", "pve3", 1)}
    assert Counter(guest["node"] for guest in b.state()["guests"].values()) == {"pve3": 3}
    assert a.state()["guests"] == {}
    verdicts = {each["cluster"]: each["reason"] for each in made["vms"][0]["decision"]["clusters"]}
    assert verdicts["b"] is None
    assert "didn't have bridge 'vmbr9' (pve1, pve2)" in verdicts["a"]
    assert [read_bridges(asked(each)) for each in (a, b)] == [["pve1", "pve2"], ["pve1", "pve2", "pve3"]]

    twin = {"name": "web-0", "cluster": "a"}
    refused = controller.fail("NoNodesAvailable", clusters=named(a=a, b=b, c=c), vms=[twin], **VM, **OTHER_CARD)
    assert "no bridge 'vmbr9', or this user may not use it, known: vmbr0" in refused["msg"]
    assert a.state()["guests"] == {}
    assert [read_bridges(asked(each)) for each in (a, b, c)] == [["pve1", "pve2"], [], []]

    a.set_node("pve2", bridges=["vmbr0", "vmbr9"])
    made = controller.schedule(clusters=only_a_and_b, vms=[twin], **VM, **OTHER_CARD)
    assert [guest["node"] for guest in a.state()["guests"].values()] == ["pve2"]
    assert made["warnings"] == ['VM "web-0": exists on cluster b as well, which its entry does not name']
