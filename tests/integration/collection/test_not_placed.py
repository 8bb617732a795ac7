# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that cannot be placed: what is written, what is said, in what words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

TOO_BIG = 10_000_000
BRIDGES = {"filters": {"NetworkBridge": {}}}
PICKY_PLUGIN = """
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import FilterPlugin
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest


class Picky(FilterPlugin):
    name = "Picky"

    def pre_enqueue(self, request):
        raise InvalidRequest("I am picky") if request.name == "b" else KeyError("fails its VM later")

    def filter(self, state, request, node):
        return None
"""


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


@both_versions
def test_nothing__is_written_when_one_of_many_cannot_be_placed(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    vms = [{"name": "web-1"}, {"name": "huge", "memory": TOO_BIG}, {"name": "app-1", "state": "stopped"}]
    failed = controller.fail("NoNodesAvailable", vms=vms, memory=1024)
    assert writes(cluster) == []
    assert failed["changed"] is False
    web, huge, app = failed["vms"]
    assert (web["actions"], web["not_done"], web["status"], web["node"]) == ([], ["create"], "absent", None)
    assert web["decision"]["node"] is not None
    assert (huge["action"], huge["node"], huge["vmid"], huge["error"]["code"]) == (
        "none",
        None,
        None,
        "NoNodesAvailable",
    )
    assert [node["rejected_by"] for node in huge["decision"]["nodes"]] == ["MemoryOvercommit"] * 3
    assert all("would exceed the memory overcommit ratio 1.0" in node["reason"] for node in huge["decision"]["nodes"])
    assert (app["actions"], app["not_done"], app["changed"]) == ([], ["stop"], False)
    assert failed["msg"].endswith("; nothing was written")
    assert [node["node"] for node in failed["nodes"]] == ["pve1", "pve2", "pve3"]
    assert cluster.state()["guests"][100]["status"] == "running"
    assert controller.schedule(name="other", memory=1024)["vmid"] == web["decision"]["vmid"], "nothing stays reserved"


def test_all_or_nothing_off__makes_the_others_and_the_task_fails(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    vms = [{"name": "web-1"}, {"name": "huge", "memory": TOO_BIG}, {"name": "web-2", "vmid": 100}, {"name": "web-3"}]
    failed = controller.fail("NoNodesAvailable", vms=vms, memory=1024, all_or_nothing=False)
    assert failed["changed"] is True
    assert [vm["changed"] for vm in failed["vms"]] == [True, False, False, True]
    assert [vm.get("error", {}).get("code") for vm in failed["vms"]] == [None, "NoNodesAvailable", "VMIDConflict", None]
    assert 'VM "huge"' in failed["msg"]
    assert 'VM "web-2"' in failed["msg"]
    assert "nothing was written" not in failed["msg"]
    names = {guest["name"] for guest in cluster.state()["guests"].values()}
    assert {"web-1", "web-3"} < names
    assert not {"huge", "web-2"} & names


def test_conflict__stops_everything_just_as_a_full_cluster_does(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    failed = controller.fail("VMIDConflict", vms=[{"name": "web-1"}, {"name": "x", "vmid": 110}])
    assert failed["msg"].endswith("; nothing was written")
    assert writes(cluster) == []


def test_that_nothing_was_written__is_not_said_of_one_vm_nor_where_something_was(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    assert "written" not in controller.fail("NoNodesAvailable", name="huge", memory=TOO_BIG)["msg"]
    cluster.fault(method="POST", path="/nodes/[^/]+/qemu$", task_error="no space left", count=1)
    failed = controller.fail("TaskFailed", vms=[{"name": "web-1"}, {"name": "web-2"}], memory=512)
    assert "nothing was written" not in failed["msg"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"vmid": 110}, "VMIDConflict"),
        ({"clone": "nope"}, "TemplateNotFound"),
        ({"args": "-foo"}, "PermissionDenied"),
        ({"scheduling_gates": ["dns"]}, "SchedulingGated"),
        ({"name": "app-1", "scsi": {"scsi0": {"size": 1}}, "update": True}, "DriftNotApplicable"),
    ],
)
def test_mistake_in_what_was_asked_for__is_not_buried_in_figures_of_all_nodes(
    planner: Controller, asked: dict[str, Any], code: str
) -> None:
    failed = planner.fail(code, **{"name": "web-1", **asked})
    assert "nodes" not in failed
    assert failed["vms"][0]["error"]["code"] == code


def test_reasons__are_counted_in_kube_schedulers_words(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    nodes: list[dict[str, Any]] = [{"name": f"db{number}", "cores": 8, "memory": 4096} for number in (1, 2)]
    nodes += [{"name": f"web{number}", "cores": 8, "memory": 65536} for number in (1, 2, 3)]
    controller = control(start({"nodes": nodes, "storages": [{"name": "local", "type": "dir", "size": 100}]}))
    failed = controller.fail("NoNodesAvailable", name="web-1", memory=8192, node_regex="db.*")
    assert failed["msg"] == (
        "0/5 nodes are available for VM \"web-1\": 3 node(s) didn't match node regex 'db.*' "
        "(web1, web2, web3), 2 node(s) would exceed the memory overcommit ratio 1.0 (db1, db2); "
        "without node_regex, web1, web2 and web3 would fit; the closest is db1: 4.0 GiB of memory short"
    )


def test_vm__goes_to_a_node_with_as_many_cpus_as_it_has_vcpus(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    nodes = [{"name": "pve1", "cores": 2, "memory": 65536}, {"name": "pve2", "cores": 4, "memory": 16384}]
    controller = control(start({"nodes": nodes, "storages": [{"name": "local", "type": "dir", "size": 100}]}))
    result = controller.schedule(name="web-1", cores=2, sockets=2, vcpus=1, state="started")
    assert (result["node"], result["vms"][0]["status"]) == ("pve2", "running")
    failed = controller.fail("NoNodesAvailable", name="web-2", cores=5, state="started")
    assert failed["msg"].startswith(
        '0/2 nodes are available for VM "web-2": 2 node(s) had fewer CPUs than the VM has vCPUs'
    )


@both_versions
def test_offline_node_and_one_in_maintenance__are_passed_over(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_node("pve1", online=False)
    cluster.set_node("pve2", maintenance=True)
    cluster.advance(60)
    result = controller.schedule(vms=[{"name": f"web-{number}"} for number in range(3)], memory=512)
    assert {vm["node"] for vm in result["vms"]} == {"pve3"}
    verdicts = {node["node"]: node["rejected_by"] for node in result["vms"][0]["decision"]["nodes"]}
    assert verdicts == {"pve1": "NodeReady", "pve2": "NodeReady", "pve3": None}
    failed = controller.fail("NoNodesAvailable", name="pinned", node="pve1")
    assert "node(s)" in failed["msg"]


@pytest.mark.parametrize(
    ("asked", "code", "told"),
    [
        ({"vmid_range": "100-102"}, "NoVMIDAvailable", "100-102"),
        ({"vmid_regex": "10[012]"}, "NoVMIDAvailable", "10[012]"),
        ({"vmid_range": "abc"}, "InvalidRequest", "vmid_range"),
        ({"vmid_range": "150-100"}, "InvalidRequest", "vmid_range"),
        ({"vmid_range": "1-50"}, "InvalidRequest", "vmid_range"),
        ({"vmid_range": "100-"}, "InvalidRequest", "vmid_range"),
        ({"vmid_regex": "("}, "InvalidRequest", "vmid_regex"),
        ({"node_regex": "("}, "InvalidRequest", "node_regex"),
        ({"node": "pve9"}, "NoNodesAvailable", "3 node(s)"),
        ({"context": {"node.qemu-scheduler/regex": "pve9"}}, "NoNodesAvailable", "didn't match node regex 'pve9'"),
        ({"context": {"node.qemu-scheduler/regex": "pve1"}, "node_regex": "pve2"}, "InvalidRequest", "node_regex"),
        ({"context": {"vmid.qemu-scheduler/range": "100-102"}}, "NoVMIDAvailable", "100-102"),
        ({"scsi": {"scsi0": "nope:4"}}, "NoStorageAvailable", "nope"),
        ({"scsi": {"scsi0": {"size": 99999}}}, "NoStorageAvailable", "scsi0"),
        ({"scsi": {"scsi0": "local:4"}}, "NoStorageAvailable", "images"),
        (
            {"net": {"net0": "virtio,bridge=vmbr9"}, "plugin_config": {"filters": {"NetworkBridge": {"enable": True}}}},
            "NoNodesAvailable",
            "vmbr9",
        ),
        ({"memory": -1}, "InvalidRequest", "memory"),
        ({"name": "under_score"}, "InvalidRequest", "name"),
        ({"cores": 0}, "InvalidRequest", "cores"),
        ({"vmid": 99}, "InvalidRequest", "vmid"),
        ({"parallel_creates": 0}, "InvalidRequest", "parallel_creates: 0"),
        ({"timeout": 0}, "InvalidRequest", "timeout: 0"),
        ({"wait_for_capacity": -1}, "InvalidRequest", "wait_for_capacity: -1"),
        ({"wait_for_capacity": 10**20}, "InvalidRequest", "wait_for_capacity: a number of more than 15 digits"),
        ({"decision_nodes": -1}, "InvalidRequest", "decision_nodes: -1"),
        ({"plugin_config": {"filters": {"Nope": {}}}}, "InvalidPluginConfig", "MemoryOvercommit"),
        ({"plugin_config": {"filter": {}}}, "InvalidPluginConfig", "filters"),
        ({"plugin_config": {"filters": {"CPUOvercommit": {"config": {"rato": 2}}}}}, "InvalidPluginConfig", "ratio"),
        ({"plugin_config": "/nowhere/config.yml"}, "InvalidPluginConfig", "/nowhere/config.yml"),
        ({"profile": "nope"}, "InvalidRequest", "balanced"),
        ({"scheduling_gates": ["wait-for-dns"]}, "SchedulingGated", "wait-for-dns"),
        ({"nodes": {"pve9": {"labels": {"a": "b"}}}}, "InvalidRequest", "pve9"),
        ({"ha": {"rule": "nope"}}, "InvalidRequest", "nope"),
    ],
)
def test_what_cannot_be__is_told_by_code_and_in_words(
    planner: Controller, untouched: SimulatedCluster, asked: dict[str, Any], code: str, told: str
) -> None:
    failed = planner.fail(code, **{"name": "web-1", **asked})
    assert told in failed["msg"]
    assert writes(untouched) == []


def test_vmid_that_range_and_pattern_allow__is_taken(planner: Controller) -> None:
    result = planner.schedule(name="web-1", vmid=550, vmid_range="500-600", vmid_regex="55.", check=True)
    assert result["vmid"] == 550


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"profile": "blanced"}, "unknown profile 'blanced'; known profiles: balanced, pack, proxmox, spread"),
        (
            {"scsi": {"scsi0": {"size": 1, "storage_class": "fats"}}, "storage_classes": {"fast": {}, "safe": {}}},
            "scsi0: unknown storage_class 'fats'; known classes: fast, safe",
        ),
        ({"vmid_range": "150-100"}, "vmid_range: invalid VMID range '150-100'"),
        ({"vmid_regex": "("}, "vmid_regex: "),
        ({"node_regex": "("}, "node_regex: invalid regular expression '(': a group is not closed"),
        ({"context": {"vmid.qemu-scheduler/range": "x"}}, "vmid_range: invalid VMID range 'x'"),
        ({"context": {"delay": "soon"}}, "context 'delay': expected a number of seconds, got 'soon'"),
        ({"vmid": 500, "vmid_range": "100-200"}, "vmid: 500 contradicts VMID range 100-200"),
        ({"vmid": 500, "context": {"vmid.qemu-scheduler/regex": "9.*"}}, "vmid: 500 contradicts VMID regex '9.*'"),
        (
            {"context": {"nod.qemu-scheduler/regex": "x"}},
            "context: unknown key 'nod.qemu-scheduler/regex'; known keys: ",
        ),
        ({"storage": "shared"}, "storage: 'shared' requires clone or archive, which is not set"),
        ({"ha": {"state": "stopped"}, "state": "started"}, "ha.state: 'stopped' contradicts state: 'started'"),
        ({"nodes": {"pve(": {}}}, "nodes.pve(: invalid regular expression 'pve(': a group is not closed"),
        ({"nodes": {"pve1": {"lables": {}}}}, "nodes.pve1: unknown key 'lables'; known keys: "),
        ({"vms": [{"name": "a"}, {"name": "b", "profile": "pakc"}], "name": None}, ', for VM "b"'),
    ],
)
def test_what_needs_no_cluster_to_be_seen__is_told_before_one_is_read(
    planner: Controller, untouched: SimulatedCluster, asked: dict[str, Any], told: str
) -> None:
    untouched.requests(reset=True)
    assert told in planner.fail("InvalidRequest", **{"name": "web-1", **asked})["msg"]
    assert untouched.requests() == []


def test_custom_plugin__checks_before_the_cluster_is_read(
    planner: Controller, untouched: SimulatedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "picky.py"
    file.write_text(PICKY_PLUGIN, encoding="utf-8")
    untouched.requests(reset=True)
    failed = planner.fail("InvalidRequest", vms=[{"name": "a"}, {"name": "b"}], plugin_paths=[str(file)])
    assert failed["msg"] == 'I am picky, for VM "b"'
    assert untouched.requests() == []


@pytest.mark.parametrize(
    ("module", "asked"),
    [
        ("vmid_pick", {"vmid_range": "150-100"}),
        ("vmid_pick", {"vmid_regex": "("}),
        ("capacity_info", {"profile": "blanced"}),
        ("capacity_info", {"shapes": [{"node_regex": "("}]}),
    ],
)
def test_modules_that_create_nothing__do_so_too(
    planner: Controller, untouched: SimulatedCluster, module: str, asked: dict[str, Any]
) -> None:
    untouched.requests(reset=True)
    planner.fail("InvalidRequest", module, **asked)
    assert untouched.requests() == []


@pytest.mark.parametrize(
    ("asked", "begin"),
    [
        ({"memory": 1}, "memory: '1' is not valid"),
        ({"shapes": [{"name": "a-{n}", "count": 2}, {"memory": 1}]}, "shapes[1].memory: '1' is not valid"),
        ({"shapes": [{"name": "a"}, {"name": "a"}]}, "name: 'a' is set in 2 entries of shapes"),
        ({"shapes": [{"name": "a", "count": 2}]}, "shapes[0].name: 'a' has no place for the number"),
    ],
)
def test_error_in_a_shape__names_its_option(planner: Controller, asked: dict[str, Any], begin: str) -> None:
    assert planner.fail("InvalidRequest", "capacity_info", **asked)["msg"].startswith(begin)


def test_what_is_to_be_absent__may_name_what_is_not_there_any_more(
    planner: Controller, untouched: SimulatedCluster
) -> None:
    gone = {"name": "web-1", "state": "absent", "profile": "old", "scsi": {"scsi0": {"size": 1, "storage_class": "x"}}}
    assert planner.schedule(**gone)["changed"] is False


@pytest.mark.parametrize(
    ("asked", "code", "told"),
    [
        ({"node": "pve9"}, "NoNodesAvailable", "; no node 'pve9', known: pve1, pve2, pve3"),
        ({"node_regex": "pev.*"}, "NoNodesAvailable", "; no node matches 'pev.*', known: pve1, pve2, pve3"),
        ({"scsi": {"scsi0": "nope:4"}}, "NoStorageAvailable", "; no storage 'nope', or this user cannot see it"),
        ({"clone": "debain-13"}, "TemplateNotFound", "known templates: debian-13"),
        ({"clone": "9" * 5000}, "TemplateNotFound", "known templates: debian-13"),
    ],
)
def test_name_that_the_cluster_does_not_have__is_told_with_those_that_it_has(
    planner: Controller, untouched: SimulatedCluster, asked: dict[str, Any], code: str, told: str
) -> None:
    assert told in planner.fail(code, name="web-1", **asked)["msg"]


def test_plugin_config__decides_alike_from_a_file_and_as_data(planner: Controller, tmp_path: Path) -> None:
    config = {"filters": {"NodeRegex": {"enable": False}, "MemoryOvercommit": {"config": {"ratio": 0.5}}}}
    file = tmp_path / "plugins.yml"
    file.write_text("filters:\n  NodeRegex: {enable: false}\n  MemoryOvercommit:\n    config:\n      ratio: 0.5\n")
    by_data, by_file = (
        planner.schedule(name="web-1", node_regex="nowhere", plugin_config=given, check=True)
        for given in (config, str(file))
    )
    assert by_data["vms"] == by_file["vms"]
    failed = planner.fail("NoNodesAvailable", name="web-1", memory=33000, plugin_config=config)
    assert "3 node(s) would exceed the memory overcommit ratio 0.5" in failed["msg"]


def test_vms_that_do_not_fit_for_the_same_reasons__are_summed_up_after_twenty(controller: Controller) -> None:
    large = [{"name": f"large-{number}", "memory": 9_000_000} for number in range(25)]
    lonely = {"name": "lonely", "memory": 512, "node_regex": "pve9"}

    result = controller.run("qemu_schedule", vms=[*large, lonely], check=True)

    told = {vm["name"]: vm["decision"] for vm in result["vms"]}
    assert [name for name, decision in told.items() if not decision["nodes"]] == [f"large-{n}" for n in range(20, 25)]
    assert not any(decision["findings"] for decision in told.values() if not decision["nodes"])
    assert told["large-24"]["rejections"] == told["large-0"]["rejections"]
    assert "large-24" in told["large-24"]["message"]
