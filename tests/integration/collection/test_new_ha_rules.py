# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HA rules and groups that are made together with the VMs that join them."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

NEW = pytest.mark.parametrize("version", ["9.2"])
APART: dict[str, Any] = {"rule": "keep-apart", "create": {}}
PAIR = [{"name": "db-1"}, {"name": "db-2"}]


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


def rule(cluster: SimulatedCluster, name: str = "keep-apart") -> dict[str, Any]:
    found: dict[str, Any] = cluster.state()["ha"]["rules"][name]
    return found


@NEW
def test_rule_between_vms__is_made_with_them_and_holds_for_their_nodes(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    asked = {"vms": [*PAIR, {"name": "db-3"}], "memory": 512, "ha": APART}
    planned = controller.schedule(**asked, check=True)
    assert writes(cluster) == []
    made = controller.schedule(**asked)
    assert [vm["node"] for vm in made["vms"]] == [vm["node"] for vm in planned["vms"]]
    assert len({vm["node"] for vm in made["vms"]}) == 3
    members = ",".join(sorted(f"vm:{vm['vmid']}" for vm in made["vms"]))
    expected = {"type": "resource-affinity", "affinity": "negative", "resources": members}
    assert rule(cluster) == expected
    again = controller.schedule(**asked, update=True)
    assert (again["changed"], again["warnings"]) == (False, [])
    four = {**asked, "vms": [*asked["vms"], {"name": "db-4"}]}
    failed = controller.fail("InvalidRequest", **four)
    assert "it would keep 4 VMs apart on 3 nodes" in failed["msg"]


@NEW
def test_rule_that_keeps_vms_together__brings_them_to_one_node(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    together = {"rule": "pair", "create": {"affinity": "positive"}}
    made = controller.schedule(vms=PAIR, memory=512, ha=together)
    assert len({vm["node"] for vm in made["vms"]}) == 1
    assert rule(cluster, "pair")["affinity"] == "positive"


@NEW
@pytest.mark.parametrize("nodes", [["pve2:2", "pve3:1"], {"pve2": 2, "pve3": 1}, "pve2:2,pve3:1"])
def test_rule_about_nodes__is_made_with_its_first_vm(
    controller: Controller, cluster: SimulatedCluster, nodes: object
) -> None:
    asked = {"name": "db-1", "memory": 512, "ha": {"rule": "west", "create": {"nodes": nodes, "strict": True}}}
    made = controller.schedule(**asked)
    assert made["node"] == "pve2"
    expected = {"type": "node-affinity", "nodes": "pve2:2,pve3:1", "strict": 1, "resources": f"vm:{made['vmid']}"}
    assert rule(cluster, "west") == expected
    second = controller.schedule(**{**asked, "name": "db-2"})
    assert rule(cluster, "west")["resources"] == f"vm:{made['vmid']},vm:{second['vmid']}"


@pytest.mark.parametrize("version", ["8.4"])
def test_group__is_made_with_its_first_vm(controller: Controller, cluster: SimulatedCluster) -> None:
    create = {"nodes": {"pve2": 2, "pve3": 1}, "strict": True}
    asked = {"memory": 512, "ha": {"group": "west", "create": create}}
    made = controller.schedule(**asked, vms=PAIR)
    assert cluster.state()["ha"]["groups"]["west"] == {"nodes": "pve2:2,pve3:1", "restricted": 1}
    assert {vm["node"] for vm in made["vms"]} <= {"pve2", "pve3"}
    assert {each["group"] for each in cluster.state()["ha"]["resources"].values() if "group" in each} == {"west"}
    assert controller.schedule(**asked, vms=PAIR, update=True)["changed"] is False


@both_versions
def test_rule_or_group_of_another_release__is_refused_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster, version: str
) -> None:
    old = version == "8.4"
    ha = {"rule" if old else "group": "west", "create": {"nodes": ["pve2"]}}
    expected = "ha.rule: requires Proxmox VE 9.0 or later" if old else "ha.group: Proxmox VE 9 has rules instead"
    assert expected in controller.fail("InvalidRequest", name="db-1", memory=512, ha=ha)["msg"]
    assert writes(cluster) == []


@NEW
def test_rule_of_one__is_refused_before_anything_is_written(controller: Controller, cluster: SimulatedCluster) -> None:
    for check in (True, False):
        failed = controller.fail("InvalidRequest", name="db-1", memory=512, ha=APART, check=check)
        assert "rule 'keep-apart' is between VMs, and needs two that join it; request another VM" in failed["msg"]
    controller.schedule(name="db-1", memory=512)
    cluster.reset_requests()
    failed = controller.fail("InvalidRequest", vms=PAIR, memory=512, ha=APART)
    assert 'needs two that join it; VM "db-1" would join it with update=true' in failed["msg"]
    assert writes(cluster) == []
    made = controller.schedule(vms=PAIR, memory=512, ha=APART, update=True)
    assert rule(cluster)["resources"] == ",".join(f"vm:{vm['vmid']}" for vm in made["vms"])
    assert len({vm["node"] for vm in made["vms"]}) == 2
    assert controller.schedule(vms=PAIR, memory=512, ha=APART, update=True)["changed"] is False


@NEW
@pytest.mark.parametrize(
    ("create", "expected"),
    [
        ({"nodes": ["pve9"]}, "ha.create.nodes: unknown node 'pve9', known: "),
        ({"nodes": []}, "ha.create.nodes: [] is not valid, expected nodes such as [pve1, pve2]"),
        ({"type": "node-affinity"}, "ha.create.nodes: is missing, expected nodes such as"),
        ({"type": "resource-affinity", "nodes": ["pve1"]}, "ha.create.nodes: contradicts type resource-affinity"),
        ({"strict": True}, "ha.create.strict: is for type node-affinity only"),
        ({"moon": 1}, "moon"),
    ],
)
def test_rule_that_cannot_be_made__is_refused_early(
    controller: Controller, cluster: SimulatedCluster, create: dict[str, Any], expected: str
) -> None:
    failed = controller.run("qemu_schedule", vms=PAIR, memory=512, ha={"rule": "keep-apart", "create": create})
    assert failed["failed"]
    assert expected in failed["msg"]
    assert writes(cluster) == []


@NEW
def test_rule_that_vms_would_make_differently__is_refused(controller: Controller) -> None:
    ha = [APART, {"rule": "keep-apart", "create": {"affinity": "positive"}}]
    vms = [{**vm, "ha": each} for vm, each in zip(PAIR, ha, strict=True)]
    assert "would make 'keep-apart' in different ways" in controller.fail("InvalidRequest", vms=vms, memory=512)["msg"]
    assert "ha.rule: '' is not valid" in controller.fail("InvalidRequest", name="a", ha={"create": {}})["msg"]
