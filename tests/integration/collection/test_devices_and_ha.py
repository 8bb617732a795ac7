# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passthrough devices and the care of the HA manager, from the task to the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

THREE_NODES = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))


def card(slot: str) -> dict[str, Any]:
    return {
        "id": f"0000:{slot}:00.0", "vendor": "0x10de", "device": "0x2684", "class": "0x030000", "iommugroup": 20,
        "subsystem_vendor": "0x10de", "subsystem_device": "0x16f1", "vendor_name": "NVIDIA", "device_name": "AD102",
    }  # fmt: skip


@pytest.fixture
def equipped(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    """Two cards on pve2, in one mapping."""
    nodes = [
        {**node, "pci": [card("41"), card("42")] if node["name"] == "pve2" else []} for node in THREE_NODES["nodes"]
    ]
    entries = [
        f"node=pve2,path=0000:{slot}:00.0,id=10de:2684,subsystem-id=10de:16f1,iommugroup=20" for slot in ("41", "42")
    ]
    return start({**THREE_NODES, "nodes": nodes, "mappings": {"pci": [{"id": "gpu", "map": entries}]}})


@both_versions
def test_claimed_devices__are_attached_and_given_out_once(
    control: Callable[..., Controller], equipped: SimulatedCluster
) -> None:
    controller = control(equipped)
    classes = {"device_classes": {"gpu": {"driver": "pci", "constraints": ["device.vendor == '10de'"]}}}
    claim = {**classes, "memory": 1024, "devices": [{"name": "card", "class": "gpu"}]}
    vms = [{"name": "train-1"}, {"name": "train-2"}]
    planned = controller.schedule(vms=vms, check=True, **claim)
    result = controller.schedule(vms=vms, **claim)
    given = [vm["decision"]["devices"] for vm in result["vms"]]
    assert given == [vm["decision"]["devices"] for vm in planned["vms"]]
    assert len({device["device"] for (device,) in given}) == 2
    for vm in result["vms"]:
        assert vm["node"] == "pve2"
        assert "mapping=gpu" in equipped.state()["guests"][vm["vmid"]]["config"]["hostpci0"]
    again = controller.schedule(vms=vms, **claim)
    assert (again["changed"], [vm["drift"] for vm in again["vms"]]) == (False, [{}, {}])
    failed = controller.fail("NoNodesAvailable", name="train-3", **claim)
    assert "couldn't satisfy device claim 'card'" in failed["msg"]
    controller.schedule(name="train-1", state="absent")
    assert controller.schedule(name="train-3", **claim)["node"] == "pve2"


@pytest.mark.parametrize(
    ("version", "ha", "rules"),
    [
        (
            "9.2",
            {"rule": "two-only"},
            {
                "rules": [
                    {"rule": "two-only", "type": "node-affinity", "nodes": "pve2", "strict": 1, "resources": "vm:100"}
                ]
            },
        ),
        ("8.4", {"group": "two-only"}, {"groups": [{"group": "two-only", "nodes": "pve2", "restricted": 1}]}),
    ],
)
def test_vm__joins_ha_on_a_node_where_it_may_stay(
    start: Callable[..., SimulatedCluster],
    control: Callable[..., Controller],
    ha: dict[str, str],
    rules: dict[str, Any],
) -> None:
    guests = [guest for guest in THREE_NODES["guests"] if guest["vmid"] != 100]
    moved = {**THREE_NODES["guests"][0], "node": "pve2"}
    cluster = start({**THREE_NODES, "guests": [moved, *guests], "ha": {"resources": [{"sid": "vm:100"}], **rules}})
    controller = control(cluster)
    result = controller.schedule(name="web-1", memory=1024, ha=ha)
    assert result["node"] == "pve2"
    verdicts = {node["node"]: node["rejected_by"] for node in result["vms"][0]["decision"]["nodes"]}
    assert (verdicts["pve1"], verdicts["pve3"]) == ("HARules", "HARules")
    joined = [r for r in cluster.requests() if r["method"] == "POST" and r["path"] == "/cluster/ha/resources"]
    assert [request["params"]["sid"] for request in joined] == [f"vm:{result['vmid']}"]
    again = controller.schedule(name="web-1", memory=1024, ha=ha)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})
    alone = controller.schedule(name="web-2", memory=1024, ha=ha, reservations="none")
    assert (alone["node"], alone["warnings"]) == ("pve2", []), "its limits are checked once more afterwards"
    late = controller.schedule(name="app-2", ha={"state": "started"}, update=True)
    assert late["vms"][0]["actions"] == ["update"]
    assert controller.schedule(name="app-2", ha={"state": "started"}, update=True)["changed"] is False


@both_versions
@pytest.mark.parametrize(("options", "state"), [({}, "started"), ({"state": "stopped"}, "stopped")])
def test_empty_ha__adds_the_vm_in_its_default_state(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, str], state: str
) -> None:
    new = controller.schedule(name="web-1", memory=1024, ha={}, **options)
    old = controller.schedule(name="spare", ha={}, update=True, **options)
    assert old["vms"][0]["drift"]["ha"] == {"old": None, "new": {"state": state}}
    joined = [r["params"] for r in cluster.requests() if (r["method"], r["path"]) == ("POST", "/cluster/ha/resources")]
    assert [(each["sid"], each["state"]) for each in joined] == [(f"vm:{new['vmid']}", state), ("vm:102", state)]
    for name in ("web-1", "spare"):
        assert controller.schedule(name=name, ha={}, update=True, **options)["changed"] is False


def test_local_disks_of_vms_under_ha__are_warned_of_once(controller: Controller) -> None:
    asked = {"scsi": {"scsi0": "local-lvm:4", "scsi1": "shared:4"}, "ide": {"ide2": "local-lvm:cloudinit"}}
    vms = [{"name": name, **asked} for name in ("a", "b")]
    assert controller.schedule(vms=vms, ha={"state": "started"}, check=True)["warnings"] == [
        'VM "a": local disks keep the HA manager from recovering the VM on another node: scsi0 on local-lvm; use a '
        'shared storage, or set up replication. The same applies to VM "b".'
    ]
    assert controller.schedule(vms=vms, ha={"state": "ignored"}, check=True)["warnings"] == []
    assert controller.schedule(vms=vms, check=True)["warnings"] == []


@pytest.mark.parametrize("version", ["8.4", "9.2"])
def test_vm_that_ha_keeps_already__is_given_the_group_or_rule_that_it_lacks(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], version: str
) -> None:
    rules = {
        "8.4": {"groups": [{"group": "two", "nodes": "pve1,pve2"}]},
        "9.2": {"rules": [{"rule": "two", "type": "node-affinity", "nodes": "pve1,pve2", "resources": "vm:101"}]},
    }[version]
    resources = [{"sid": "vm:100"}, {"sid": "vm:101"}]
    cluster = start({**THREE_NODES, "version": version, "ha": {"resources": resources, **rules}})
    controller = control(cluster)
    name = {guest["vmid"]: guest["name"] for guest in THREE_NODES["guests"]}[100]
    kind = "group" if version == "8.4" else "rule"
    told = controller.schedule(name=name, ha={kind: "two"})
    assert (told["changed"], told["vms"][0]["drift"]["ha"]) == (False, {"old": {kind: None}, "new": {kind: "two"}})
    done = controller.schedule(name=name, ha={kind: "two", "state": "ignored"}, update=True)
    assert done["vms"][0]["actions"] == ["update"]
    again = controller.schedule(name=name, ha={kind: "two", "state": "ignored"}, update=True)
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


@both_versions
def test_what_ha_makes_of_many_vms__is_read_once(controller: Controller, cluster: SimulatedCluster) -> None:
    vms = [{"name": f"web-{number}"} for number in range(4)]
    controller.schedule(vms=vms, memory=512, ha={"state": "stopped"})
    cluster.advance(60)
    cluster.requests(reset=True)
    assert controller.schedule(vms=vms, memory=512, ha={"state": "stopped"})["changed"] is False
    read = Counter(request["path"] for request in cluster.requests() if "/ha/" in request["path"])
    assert read
    assert set(read.values()) == {1}


@both_versions
def test_maintenance__is_noticed_before_the_list_of_resources_shows_it(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start({**THREE_NODES, "ha": {"resources": [{"sid": "vm:100"}]}}, time_scale=1.0)
    cluster.set_node("pve2", maintenance=True)
    planned = control(cluster).schedule(name="web-1", memory=512, check=True)
    reasons = {node["node"]: node.get("reason") for node in planned["vms"][0]["decision"]["nodes"]}
    assert reasons["pve2"] == "were in HA maintenance"
