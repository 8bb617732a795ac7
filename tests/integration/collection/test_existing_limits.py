# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMs that exist and are to grow or to start meet the limits that new VMs meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller
from support.versions import both_versions


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


def config_of(cluster: SimulatedCluster, vmid: int) -> dict[str, Any]:
    guest = cluster.state()["guests"][vmid]
    return {**guest["config"], **guest["pending"]}


@pytest.fixture
def stopped(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    """Five stopped VMs of 20 GiB on a node of 64 GiB."""
    description = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    description["guests"] = [
        {"vmid": 200 + n, "name": f"db-{n}", "node": "pve1", "cores": 2, "memory": 20480} for n in range(5)
    ]
    return start(description)


# --- growth ---


@both_versions
@pytest.mark.parametrize(("name", "state"), [("app-1", "present"), ("spare", "present"), ("spare", "started")])
@pytest.mark.parametrize("check", [True, False])
def test_memory__beyond_the_limit_of_the_node_is_refused(
    controller: Controller, cluster: SimulatedCluster, name: str, state: str, check: bool
) -> None:
    failed = controller.fail("LimitExceeded", name=name, memory=66000, update=True, state=state, check=check)
    assert "would exceed the memory overcommit ratio 1.0" in failed["msg"]
    assert "no other node could run it" in failed["msg"]
    assert (failed["vms"][0]["changed"], failed["vms"][0]["node"]) == (False, "pve1" if name == "app-1" else "pve2")
    assert writes(cluster) == []


def test_refusal__says_what_would_fit_where(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(101, config={"memory": "30720"})
    cluster.advance(30)
    failed = controller.fail("LimitExceeded", name="spare", memory=40960, update=True, state="started")
    assert 'VM "spare" (102) cannot be started: pve2 would exceed the memory overcommit ratio' in failed["msg"]
    assert "pve2 has room for 34.0 GiB of memory; pve1 and pve3 could run it" in failed["msg"]
    assert failed["vms"][0]["error"]["node"] == "pve2"
    assert failed["vms"][0]["error"]["rejected_by"] == ["MemoryOvercommit"]


@both_versions
def test_growth__within_the_limits_is_applied(controller: Controller, cluster: SimulatedCluster) -> None:
    """The VM's own memory does not count twice: 60 GiB fit on a node of 64 GiB where it runs with 8 GiB."""
    controller.schedule(name="app-1", memory=61440, update=True)
    assert config_of(cluster, 100)["memory"] == "61440"


def test_disk__larger_than_the_space_of_its_storage_is_refused(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {"name": "app-1", "scsi": {"scsi0": {"size": 9000}}, "update": True}
    failed = controller.fail("LimitExceeded", **asked)
    assert "pve1 had too little space on storage 'local-lvm' (scsi0 needs 8968 GiB" in failed["msg"]
    assert "could run it" not in failed["msg"]
    assert writes(cluster) == []
    controller.schedule(name="app-1", scsi={"scsi0": {"size": 400}}, update=True)
    assert "size=400G" in config_of(cluster, 100)["scsi0"]


def test_disk__may_grow_on_a_node_whose_memory_is_overcommitted(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(100, config={"memory": "70000"})
    cluster.advance(30)
    controller.schedule(name="app-1", scsi={"scsi0": {"size": 40}}, update=True)
    assert "size=40G" in config_of(cluster, 100)["scsi0"]
    failed = controller.fail("LimitExceeded", name="app-1", memory=70001, update=True)
    assert "memory overcommit ratio" in failed["msg"]


def test_disks__of_several_vms_share_the_space_of_their_storage(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    vms = [{"name": name, "scsi": {"scsi0": {"size": 1100}}} for name in ("app-2", "spare")]
    failed = controller.fail("LimitExceeded", vms=vms, update=True, all_or_nothing=False)
    assert [vm["changed"] for vm in failed["vms"]] == [True, False]
    assert "size=16G" in config_of(cluster, 102)["scsi0"]


def test_limits__warn_applies_the_change_and_says_what_is_exceeded(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {"name": "spare", "memory": 66000, "update": True, "limits": "warn"}
    planned = controller.schedule(**asked, check=True)
    result = controller.schedule(**asked)
    assert result["warnings"] == planned["warnings"]
    assert "pve2 would exceed the memory overcommit ratio 1.0" in result["warnings"][0]
    assert config_of(cluster, 102)["memory"] == "66000"


def test_smaller_or_unchanged_vm__is_not_refused_on_an_overcommitted_node(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(101, config={"memory": "70000"})
    cluster.advance(30)
    result = controller.schedule(name="app-2", memory=69000, description="less", update=True)
    assert result["vms"][0]["actions"] == ["update"]


# --- starts ---


@pytest.mark.parametrize("check", [True, False])
def test_starts__count_each_for_the_next(
    stopped: SimulatedCluster, control: Callable[..., Controller], check: bool
) -> None:
    vms = [{"name": f"db-{n}"} for n in range(5)]
    failed = control(stopped).fail("LimitExceeded", vms=vms, state="started", check=check, all_or_nothing=False)
    assert [vm["changed"] for vm in failed["vms"]] == [True, True, True, False, False]
    assert 'VM "db-3" (203) cannot be started: pve1 would exceed the memory' in failed["msg"]
    running = [guest["status"] == "running" for guest in stopped.state()["guests"].values()]
    assert running == [not check] * 3 + [False] * 2
    node = next(node for node in failed["nodes"] if node["node"] == "pve1")
    assert (node["memory_before"], node["memory_after"]) == (0, 3 * 20480)


def test_starts__all_or_nothing_starts_none(stopped: SimulatedCluster, control: Callable[..., Controller]) -> None:
    vms = [{"name": f"db-{n}"} for n in range(5)]
    control(stopped).fail("LimitExceeded", vms=vms, state="started", all_or_nothing=True)
    assert writes(stopped) == []


def test_starts__with_warn_go_on(stopped: SimulatedCluster, control: Callable[..., Controller]) -> None:
    vms = [{"name": f"db-{n}"} for n in range(5)]
    result = control(stopped).schedule(vms=vms, state="started", limits="warn")
    assert all(vm["changed"] for vm in result["vms"])
    assert [text[:9] for text in result["warnings"]] == ['VM "db-3"', 'VM "db-4"']


def test_start__on_a_node_that_a_rule_forbids_is_refused(
    stopped: SimulatedCluster, control: Callable[..., Controller]
) -> None:
    controller = control(stopped)
    asked: dict[str, Any] = {"name": "db-0", "state": "started", "node_regex": "pve[23]"}
    failed = controller.fail("LimitExceeded", **asked)
    assert "pve1 didn't match" in failed["msg"]
    assert "pve2 and pve3 could run it" in failed["msg"]
    assert controller.schedule(**asked, limits="warn")["changed"] is True


# --- new drives, rules ---


@both_versions
def test_new_drive__gets_the_storage_with_the_most_room(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {"name": "app-1", "scsi": {"scsi1": {"size": 10}}, "update": True}
    planned = controller.schedule(**asked, check=True)
    assert planned["vms"][0]["drift"]["scsi1"] == {"old": None, "new": "shared:10"}
    assert controller.schedule(**asked)["vms"][0]["drift"] == planned["vms"][0]["drift"]
    assert config_of(cluster, 100)["scsi1"].startswith("shared:")
    assert controller.schedule(**asked)["changed"] is False


@both_versions
def test_new_drive__that_fits_nowhere_is_refused(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {"name": "app-1", "scsi": {"scsi1": {"size": 90000}}, "update": True}
    failed = controller.fail("LimitExceeded", **asked)
    assert "scsi1 needs 90000 GiB" in failed["msg"]
    controller.fail("NoStorageAvailable", **asked, limits="warn")
    failed = controller.fail("LimitExceeded", name="app-1", scsi={"scsi1": "nosuch:3"}, update=True)
    assert failed["msg"].endswith("pve1 didn't have storage 'nosuch'"), "and neither has another node"
    assert writes(cluster) == []


@both_versions
def test_disk__moves_to_the_storage_or_the_class_that_the_task_names(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    classes = {"storage_classes": {"network": {"shared": True}}}
    asked = {"name": "app-1", "scsi": {"scsi0": {"size": 40, "ssd": True, "storage_class": "network"}}, **classes}
    (warning,) = controller.schedule(**asked)["warnings"]
    assert "scsi0 is local-lvm:vm-100-disk-0,size=32G, requested (storage class network):40,ssd=1" in warning
    planned = controller.schedule(**asked, update=True, check=True)
    assert planned["vms"][0]["drift"]["scsi0"]["new"] == "shared:40,ssd=1"
    assert writes(cluster) == []
    assert controller.schedule(**asked, update=True)["vms"][0]["drift"] == planned["vms"][0]["drift"]
    assert config_of(cluster, 100)["scsi0"] == "shared:vm-100-disk-0,size=40G,ssd=1"
    volumes = [volume["volid"] for volume in cluster.state()["volumes"] if volume["vmid"] == 100]
    assert volumes == ["shared:vm-100-disk-0"]
    assert controller.schedule(**asked, update=True)["changed"] is False
    # A task that names no storage leaves it where it is.
    assert controller.schedule(name="app-1", scsi={"scsi0": {"size": 40}}, update=True)["changed"] is False


def test_disk__is_not_moved_to_a_storage_without_room(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {"name": "app-2", "update": True}
    failed = controller.fail("LimitExceeded", **asked, scsi={"scsi0": "local-lvm:600"})
    assert "pve2 had too little space on storage 'local-lvm' (scsi0 needs 600 GiB" in failed["msg"]
    failed = controller.fail("LimitExceeded", **asked, scsi={"scsi0": "local:16"})
    assert "pve2 had storage 'local' without content type 'images'" in failed["msg"]
    failed = controller.fail("InvalidRequest", **asked, scsi={"scsi0": {"size": 16, "storage_class": "none"}})
    assert "scsi0: unknown storage_class 'none'" in failed["msg"]
    # Without a size in the task, the disk moves with the size that it has.
    cluster.set_guest(101, config={"scsi0": "shared:vm-101-disk-0,size=600G"})
    failed = controller.fail("LimitExceeded", **asked, clone="debian-13", scsi={"scsi0": {"storage": "local-lvm"}})
    assert "pve2 had too little space on storage 'local-lvm' (scsi0 needs 600 GiB" in failed["msg"]
    assert writes(cluster) == []


def test_start__is_not_kept_from_a_vm_that_lacks_a_drive(controller: Controller) -> None:
    result = controller.schedule(name="spare", scsi={"scsi1": {"size": 10}}, state="started")
    assert result["vms"][0]["actions"] == ["start"]


def test_broken_rule__is_warned_of_and_the_vm_stays(controller: Controller, cluster: SimulatedCluster) -> None:
    apart = {"affinity": [{"type": "apart", "name": "app-2|spare"}]}
    result = controller.schedule(vms=[{"name": "app-2", **apart}, {"name": "spare"}, {"name": "app-1", **apart}])
    assert result["changed"] is False
    assert result["warnings"] == [
        'VM "app-2" breaks a placement rule: pve2 held VMs that the VM must be apart from (spare); it is not moved'
    ]
