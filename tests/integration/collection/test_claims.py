# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names are claims: everybody may give a VM of their own any name. And a name that is not known is not absent."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

VM = {"memory": 1024}


@pytest.fixture
def described() -> dict[str, Any]:
    description: dict[str, Any] = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    description["pools"] = ["web", "ops", "tenant"]
    return description


@pytest.fixture
def cluster(start: Callable[..., SimulatedCluster], described: dict[str, Any]) -> SimulatedCluster:
    """Three nodes, a template in the pool ops, and a VM in the pool tenant."""
    for guest in described["guests"]:
        guest["pool"] = {9000: "ops", 102: "tenant"}.get(guest["vmid"])
        if guest["pool"] is None:
            del guest["pool"]
    return start(described)


def template(vmid: int, node: str, **options: Any) -> dict[str, Any]:
    """A template of the official one's name."""
    disks = {"scsi0": "shared:4"}
    config = {"ide2": "shared:cloudinit", "net0": "virtio,bridge=vmbr0", "scsihw": "virtio-scsi-single"}
    return {
        "vmid": vmid, "name": "debian-13", "node": node, "template": True, "memory": 2048, "disks": disks,
        "config": config, **options,
    }  # fmt: skip


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


def copied_from(cluster: SimulatedCluster) -> set[int]:
    return {int(r["path"].split("/")[4]) for r in cluster.requests() if r["path"].endswith("/clone")}


def named(cluster: SimulatedCluster, name: str) -> list[int]:
    return sorted(vmid for vmid, guest in cluster.state()["guests"].items() if guest["name"] == name)


# --- templates ---


@both_versions
def test_template_of_a_tenant__is_not_taken_for_the_official_one(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.add_guest(**template(9666, "pve2", pool="tenant"))
    cluster.advance(60)
    asked = {"clone": "debian-13", "vms": [{"name": "app-{n}", "count": 4, "count_start": 10}]}
    failed = controller.fail("AmbiguousName", **asked)
    for told in ("template 9000 on pve1 in pool ops", "template 9666 on pve2 in pool tenant", "{name, pool}"):
        assert told in failed["msg"]
    assert writes(cluster) == []
    controller.schedule(**asked, pool="ops")
    assert copied_from(cluster) == {9000}
    controller.schedule(clone={"name": "debian-13", "pool": "ops"}, name="web-9", pool="web")
    assert copied_from(cluster) == {9000}


def test_plain_vm_of_a_tenant__does_not_stop_provisioning(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.add_guest(**template(9666, "pve2", pool="tenant", template=False))
    cluster.advance(60)
    controller.schedule(name="web-1", clone="debian-13")
    assert copied_from(cluster) == {9000}


def test_template_that_is_no_copy__is_refused(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.add_guest(**template(9666, "pve2", pool="ops", disks={"scsi0": "shared:6"}))
    cluster.advance(60)
    failed = controller.fail("AmbiguousName", name="web-1", clone="debian-13", pool="ops")
    assert "VM 9666 on pve2 in pool ops has scsi0 of 6 GiB" in failed["msg"]
    assert writes(cluster) == []
    controller.schedule(name="web-1", clone={"name": "debian-13", "node": "pve1"}, pool="ops")
    assert copied_from(cluster) == {9000}


@pytest.mark.parametrize(
    ("clone", "told"),
    [
        ({"nam": "debian-13"}, "clone.nam: unknown key"),
        ({"pool": "ops"}, "expected either name or vmid"),
        ({"name": "debian-13", "vmid": 9000}, "expected either name or vmid"),
        ({"vmid": "many"}, "clone.vmid: 'many' is not valid"),
        ([["debian-13"]], "clone: ['debian-13'] is not valid"),
        (True, "is not valid"),
    ],
)
def test_source_of_the_wrong_shape__is_refused(controller: Controller, clone: Any, told: str) -> None:
    assert told in controller.fail("InvalidRequest", name="web-1", clone=clone)["msg"]


# --- VMs ---


@both_versions
@pytest.mark.parametrize("state", ["present", "started", "stopped", "absent"])
def test_vm_of_another_pool__is_not_taken_for_the_requested_one(
    controller: Controller, cluster: SimulatedCluster, state: str
) -> None:
    before = cluster.state()["guests"][102]
    failed = controller.fail("OtherPool", name="spare", pool="ops", state=state, update=True)
    assert "spare (102 on pve2) is in pool tenant, requested in pool ops" in failed["msg"]
    assert (cluster.state()["guests"][102], writes(cluster)) == (before, [])


@pytest.mark.parametrize("state", ["present", "started", "stopped", "restarted", "absent"])
def test_vm_of_another_pool__is_not_taken_by_its_vmid_either(
    controller: Controller, cluster: SimulatedCluster, state: str
) -> None:
    before = cluster.state()["guests"][102]
    failed = controller.fail("OtherPool", vmid=102, pool="ops", state=state, update=True)
    assert "spare (102 on pve2) is in pool tenant, requested in pool ops" in failed["msg"]
    assert (cluster.state()["guests"][102], writes(cluster)) == (before, [])


def test_vmid__is_that_of_the_vm_in_the_pool(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(vmid=102, pool="ops", cores=3, update=True, adopt=True)
    assert cluster.state()["guests"][102]["pool"] == "ops"
    controller.fail("OtherPool", vmid=102, pool="tenant", state="absent")
    controller.schedule(vmid=102, pool="ops", state="absent")
    assert 102 not in cluster.state()["guests"]


def test_vm_of_another_pool__is_taken_over_where_the_task_says_so(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    controller.schedule(name="spare", pool="ops", update=True, adopt=True)
    assert cluster.state()["guests"][102]["pool"] == "ops"


def test_namesake_in_another_pool__does_not_stop_the_owner(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.add_guest(vmid=150, name="spare", node="pve1", memory=1024, pool="ops")
    cluster.advance(60)
    result = controller.schedule(name="spare", pool="ops", state="absent")
    assert (result["vms"][0]["vmid"], named(cluster, "spare")) == (150, [102])
    controller.fail("AmbiguousName", vms=[{"name": "new-1"}, {"name": "NEW-2"}, {"name": "Spare"}])


def test_fleet_info__tells_that_a_vm_is_in_another_pool(controller: Controller, cluster: SimulatedCluster) -> None:
    found = controller.run("fleet_info", vms=[{"name": "spare", "pool": "ops"}])
    assert (found["clean"], found["vms"][0]["state"]) == (False, "failed")
    assert found["vms"][0]["error"]["code"] == "OtherPool"


def test_names_that_differ_only_in_case__are_refused(controller: Controller, cluster: SimulatedCluster) -> None:
    failed = controller.fail("InvalidRequest", vms=[{"name": "Caps"}, {"name": "caps"}])
    assert "name: 'Caps' and 'caps' in vms differ only in case" in failed["msg"]
    failed = controller.fail("AmbiguousName", name="APP-1", **VM)
    assert 'VM "APP-1": the name differs only in case from that of app-1 (100 on pve1)' in failed["msg"]
    assert controller.schedule(name="APP-1", state="absent")["changed"] is False
    assert (writes(cluster), named(cluster, "app-1")) == ([], [100])


# --- names that are not known ---


@pytest.fixture
def blind(cluster: SimulatedCluster) -> SimulatedCluster:
    """The cluster some minutes after pve2 has died, and a user who may not read the lists of backups."""
    cluster.set_node("pve2", online=False)
    cluster.advance(400)
    cluster.fault(method="GET", path="/cluster/backup", status=403, message="Permission check failed (/, Sys.Audit)")
    return cluster


@both_versions
@pytest.mark.parametrize("names_are_told", [True, False])
def test_template_that_may_be_on_a_dead_node__is_not_replaced_by_that_of_a_tenant(
    controller: Controller, cluster: SimulatedCluster, names_are_told: bool
) -> None:
    cluster.add_guest(**template(9666, "pve2", pool="tenant"))
    cluster.advance(60)
    cluster.set_node("pve1", online=False)
    cluster.advance(400)
    if not names_are_told:
        cluster.fault(method="GET", path="/cluster/backup", status=403, message="Permission check failed")
    new = {"name": "web-9", "vmid": 900, "pool": "web"}
    failed = controller.fail("AmbiguousName", **new, clone="debian-13")
    for told in ("9000 on pve1 in pool ops", "template 9666 on pve2 in pool tenant", "{name, pool}"):
        assert told in failed["msg"]
    controller.fail("TemplateNotFound", **new, clone={"name": "debian-13", "pool": "ops"})
    assert writes(cluster) == []
    controller.schedule(**new, clone={"name": "debian-13", "pool": "tenant"})
    assert copied_from(cluster) == {9666}


@both_versions
@pytest.mark.parametrize("options", [{}, {"state": "absent"}, {"state": "started"}, {"check": True}])
def test_vm_that_may_be_on_a_dead_node__is_neither_created_nor_said_to_be_gone(
    controller: Controller, blind: SimulatedCluster, options: dict[str, Any]
) -> None:
    failed = controller.fail("VMNotKnown", name="app-2", memory=1024, **options)
    for told in ("pve2", "101, 102", "vmid", "accept_unknown"):
        assert told in failed["msg"]
    assert (named(blind, "app-2"), writes(blind)) == ([101], [])


@both_versions
def test_vm__does_not_get_a_name_that_a_vm_on_a_dead_node_may_have(
    controller: Controller, blind: SimulatedCluster
) -> None:
    asked: dict[str, Any] = {"vmid": 100, "name": "app-2", "rename": True, "update": True}
    for check in (True, False):
        failed = controller.fail("VMNotKnown", **asked, check=check)
        for told in ("belongs to app-1 (100 on pve1)", "(101, 102)", "accept_unknown"):
            assert told in failed["msg"]
    assert (named(blind, "app-2"), writes(blind)) == ([101], [])
    # The VMID identifies a VM that has its name already, and that of a dead node as well.
    assert controller.schedule(vmid=100, name="app-1", rename=True)["changed"] is False
    listed = controller.run("vm_list_info", name="app-[1-3]")
    assert [vm["name"] for vm in listed["vms"]] == ["app-1"]
    assert {each["vmid"] for each in listed["left_out"] if each["parameter"] is None} == {101, 102}


@both_versions
def test_counted_vms__are_not_created_again_either(controller: Controller, blind: SimulatedCluster) -> None:
    controller.fail("VMNotKnown", vms=[{"name": "app-{n}", "count": 3, **VM}])
    assert (named(blind, "app-2"), named(blind, "app-3")) == ([101], [])


@both_versions
@pytest.mark.parametrize("state", ["present", "absent"])
def test_vm_that_may_be_on_a_dead_node__waits_for_the_node(
    controller: Controller, blind: SimulatedCluster, state: str
) -> None:
    asked = {"name": "app-2", "state": state, "wait_for_capacity": 60, **VM}
    controller.fail("VMNotKnown", **asked, check=True)
    blind.requests(reset=True)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(controller.schedule, **asked)
        until(lambda: len([r for r in blind.requests() if r["path"] == "/cluster/resources"]) > 2)
        assert (run.done(), named(blind, "app-2"), writes(blind)) == (False, [101], [])
        blind.set_node("pve2", online=True)
        blind.advance(60)
        result = run.result()
    assert result["changed"] is (state == "absent")
    assert named(blind, "app-2") == ([101] if state == "present" else [])


def test_vm_that_may_be_on_a_dead_node__fails_when_the_time_is_over(
    controller: Controller, blind: SimulatedCluster
) -> None:
    failed = controller.fail("VMNotKnown", name="app-2", wait_for_capacity=2, **VM)
    assert failed["vms"][0]["waited"] >= 2
    assert (named(blind, "app-2"), writes(blind)) == ([101], [])


@pytest.mark.parametrize("surplus", ["keep", "absent"])
def test_surplus_on_a_dead_node__is_told(controller: Controller, blind: SimulatedCluster, surplus: str) -> None:
    series = {"name": "web-{n}", "count": 1, "surplus": surplus, "only_tags": ["web"]}
    told = controller.schedule(vms=[series], accept_unknown=True, **VM)["warnings"]
    (warning,) = [text for text in told if "beyond count" in text]
    assert warning.startswith("pve2 cannot be reached, and the names of the VMs there are not known (101, 102)")
    assert {101, 102} <= set(blind.state()["guests"])


@both_versions
def test_vmid_the_pool_and_the_users_word__tell_which_vm_is_meant(
    controller: Controller, blind: SimulatedCluster
) -> None:
    failed = controller.fail("ConnectionFailed", name="app-2", vmid=101, memory=4096)
    assert "cannot be reached" in failed["msg"]
    # 101 is in no pool, or in one that the user cannot see; 102 is in another one.
    failed = controller.fail("VMNotKnown", name="web-1", pool="ops", **VM)
    assert "(101)" in failed["msg"]
    accepted = controller.schedule(name="web-1", accept_unknown=True, **VM)
    assert named(blind, "web-1") == [accepted["vmid"]]
    (warning,) = accepted["warnings"]
    assert warning.startswith("pve2 cannot be reached, and the names of the VMs there are not known (101, 102)")
    assert controller.schedule(name="web-1")["warnings"] == []


@both_versions
@pytest.mark.parametrize("jobs", [[], [{"id": "nightly", "vmid": "101,102"}], [{"id": "all", "all": 1}]])
def test_names_in_the_configs__are_known_though_the_node_is_dead(
    start: Callable[..., SimulatedCluster],
    control: Callable[..., Controller],
    described: dict[str, Any],
    jobs: list[dict[str, Any]],
) -> None:
    cluster = start({**copy.deepcopy(described), "backup_jobs": jobs})
    controller = control(cluster)
    cluster.set_node("pve2", online=False)
    cluster.advance(400)
    failed = controller.fail("ConnectionFailed", name="app-2", memory=1024)
    assert failed["vms"][0]["vmid"] == 101
    controller.fail("ConnectionFailed", name="app-2", state="absent")
    new = controller.schedule(name="web-1", **VM)
    assert (new["warnings"], named(cluster, "app-2"), named(cluster, "web-1")) == ([], [101], [new["vmid"]])
    renamed = {"vmid": 100, "rename": True, "update": True}
    failed = controller.fail("VMIDConflict", **renamed, name="app-2")
    assert "the name belongs to app-2 (101 on pve2)" in failed["msg"]
    assert controller.schedule(**renamed, name="app-9")["changed"] is True
