# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for guests whether a task lists them or not: in their tags, and in the option C(rules)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller

ROOMY = {"name": "pve1", "cores": 64, "memory": 65536}
SMALL = {"name": "pve2", "cores": 8, "memory": 8192}
TAGGED: dict[str, Any] = {
    "nodes": [ROOMY, SMALL],
    "storages": [{"name": "shared", "type": "rbd", "shared": True, "size": 100}],
    "guests": [
        {"vmid": 100, "name": "old", "node": "pve1", "memory": 512, "status": "running",
         "config": {"tags": "dns;plb_anti_affinity_dns"}},
    ],
}  # fmt: skip


@pytest.fixture
def controller(start: Callable[..., SimulatedCluster], control: Callable[..., Controller]) -> Controller:
    return control(start(TAGGED, time_scale=0.01))


def test_tag_of_an_existing_vm__keeps_new_ones_away(controller: Controller) -> None:
    wanted = {"name": "dns-2", "tags": ["plb_anti_affinity_dns"]}
    ignoring = controller.schedule(**wanted, tag_rules=False, check=True)
    assert ignoring["vms"][0]["node"] == "pve1"
    made = controller.schedule(**wanted)
    assert made["vms"][0]["node"] == "pve2"
    full = controller.run("qemu_schedule", name="dns-3", tags=["plb_anti_affinity_dns"])
    assert full["error_code"] == "NoNodesAvailable"
    assert "held VMs that the VM must be apart from" in full["msg"]


def test_clone__follows_the_tags_that_it_gets_from_its_template(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    tags = {"tags": "plb_anti_affinity_web;plb_pin_pve2"}
    template = {
        "vmid": 900,
        "name": "tpl",
        "node": "pve1",
        "template": True,
        "disks": {"scsi0": "shared:1"},
        "config": tags,
    }
    controller = control(start({**TAGGED, "guests": [*TAGGED["guests"], template]}, time_scale=0.01))
    clone = {"name": "web-1", "clone": "tpl"}

    assert controller.schedule(**clone, tags=["db"], check=True)["vms"][0]["node"] == "pve1"
    assert controller.schedule(**clone)["vms"][0]["node"] == "pve2"
    second = controller.run("qemu_schedule", name="web-2", clone="tpl")
    assert (second["error_code"], "held VMs that the VM must be apart from" in second["msg"]) == (
        "NoNodesAvailable",
        True,
    )


def test_vms_of_one_task__follow_their_tags(controller: Controller) -> None:
    made = controller.schedule(vms=[{"name": f"web-{n}", "tags": ["plb_anti_affinity_web"]} for n in (1, 2)])
    assert {vm["node"] for vm in made["vms"]} == {"pve1", "pve2"}
    again = controller.schedule(vms=[{"name": f"web-{n}", "tags": ["plb_anti_affinity_web"]} for n in (1, 2)])
    assert not again["changed"]


def test_pin__names_a_node_of_the_cluster(controller: Controller) -> None:
    assert controller.schedule(name="pinned", tags=["plb_pin_pve2"])["vms"][0]["node"] == "pve2"
    refused = controller.run("qemu_schedule", name="lost", tags=["plb_pin_pve7"])
    assert refused["error_code"] == "InvalidRequest"
    assert "plb_pin_pve7 names no node of the cluster; its nodes: pve1, pve2" in refused["msg"]


def test_capacity__counts_by_the_tags_of_the_shape(controller: Controller) -> None:
    counted = controller.run("capacity_info", memory=512, tags=["plb_anti_affinity_dns"])
    assert counted["total"] == 1


def test_listed_rule__holds_for_guests_of_other_tasks(controller: Controller) -> None:
    rules = [{"type": "anti-affinity", "name": "old|new"}]
    assert controller.schedule(name="new", rules=rules)["vms"][0]["node"] == "pve2"
    assert controller.schedule(name="other", rules=rules)["vms"][0]["node"] == "pve1"


def test_listed_node_rule__allows_the_nodes_that_match(controller: Controller) -> None:
    rules = [{"type": "node-affinity", "tags": ["web"], "nodes": [".*2"]}]
    assert controller.schedule(name="web", tags=["web"], rules=rules)["vms"][0]["node"] == "pve2"
    assert controller.schedule(name="db", rules=rules)["vms"][0]["node"] == "pve1"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"type": "affinity"}, "rules[0]: selects no VMs, expected at least one of name, tags, pool, group"),
        ({"type": "affinity", "name": "a", "nodes": ["pve1"]}, "rules[0].nodes: "),
        ({"type": "node-affinity", "name": "a"}, "rules[0].nodes: is missing, expected the nodes"),
        ({"type": "node-affinity", "name": "a", "nodes": ["x"], "required": False}, "rules[0].required: False"),
        ({"type": "node-affinity", "name": "old", "nodes": ["pve9"]}, "rules[0].nodes[0]: 'pve9' matches no node"),
        ({"type": "affinity", "name": "a", "weight": 3}, "rules[0].weight: 3"),
    ],
)
def test_mistake_in_a_listed_rule__is_named(controller: Controller, rule: dict[str, Any], text: str) -> None:
    failed = controller.run("qemu_schedule", name="new", rules=[rule])
    assert failed["error_code"] == "InvalidRequest"
    assert failed["msg"].startswith(text), failed["msg"]


def test_lasting_rule__is_added_to_a_vm_kept_and_removed(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    cluster = start(TAGGED, time_scale=0.01)
    controller = control(cluster)
    task = {
        "affinity": [{"type": "anti-affinity", "name": "old|dns-.*", "lasting": True}],
        "vms": [{"name": "old"}, {"name": "dns-2"}],
    }

    def tags(vmid: int) -> str:
        return str(cluster.state()["guests"][vmid]["config"]["tags"])

    made = controller.schedule(**task)
    assert made["vms"][0]["drift"]["tags"]["new"] == "dns;plb_anti_affinity_dns;plb_anti_affinity_old-dns"
    assert tags(made["vms"][1]["vmid"]) == "plb_anti_affinity_old-dns"
    assert [vm["actions"] for vm in controller.schedule(**task, update=True)["vms"]] == [["update"], []]
    assert tags(100) == "dns;plb_anti_affinity_dns;plb_anti_affinity_old-dns"
    assert not controller.schedule(**task, update=True)["changed"]
    # Another task does not know the rule. The tag does.
    full = controller.run("qemu_schedule", name="third", tags=["plb_anti_affinity_old-dns"])
    assert full["error_code"] == "NoNodesAvailable"
    controller.schedule(name="old", tags=["dns"], update=True)
    assert tags(100) == "dns"
