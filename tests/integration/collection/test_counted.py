# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries with a count: growing, shrinking, and what the VMs are as hosts."""

from __future__ import annotations

from typing import Any

from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions


def web(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "web-{n:02}", "count": count, "tags": ["web"], **more}]


def names(cluster: SimulatedCluster) -> list[str]:
    found = (guest["config"].get("name", "") for guest in cluster.state()["guests"].values())
    return sorted(name for name in found if name.startswith("web-"))


@both_versions
def test_count__grows_and_shrinks(controller: Controller, cluster: SimulatedCluster) -> None:
    first = controller.schedule(vms=web(2))
    assert [vm["actions"] for vm in first["vms"]] == [["create"], ["create"]]
    assert controller.schedule(vms=web(2))["changed"] is False
    grown = controller.schedule(vms=web(4))
    assert [vm["action"] for vm in grown["vms"]] == ["none", "none", "create", "create"]
    assert names(cluster) == ["web-01", "web-02", "web-03", "web-04"]

    kept = controller.schedule(vms=web(1))
    assert kept["changed"] is False
    (warning,) = kept["warnings"]
    assert warning.startswith("beyond count, and kept: web-02 (")

    planned = controller.schedule(vms=web(1, surplus="absent"), check=True)
    shrunk = controller.schedule(vms=web(1, surplus="absent"))
    assert [vm["actions"] for vm in shrunk["vms"]] == [[], ["delete"], ["delete"], ["delete"]]
    assert [vm["actions"] for vm in planned["vms"]] == [vm["actions"] for vm in shrunk["vms"]]
    assert names(cluster) == ["web-01"]
    assert controller.schedule(vms=web(1, surplus="absent"))["changed"] is False


def test_count__removes_nothing_of_others(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.add_guest(vmid=150, name="web-09", node="pve1", memory=512)
    cluster.advance(30)
    result = controller.schedule(vms=web(0, surplus="absent"))
    assert (result["changed"], result["vms"]) == (False, [])
    assert names(cluster) == ["web-09"]


def test_count__refuses_before_it_writes(controller: Controller, cluster: SimulatedCluster) -> None:
    failed = controller.fail("InvalidRequest", vms=[{"name": "db-1"}, *web(2), {"name": "x", "count": 2}])
    assert failed["msg"].startswith("vms[2].name: 'x' has no place for the number")
    assert [r for r in cluster.requests() if r["method"] != "GET"] == []


def test_host__has_groups_variables_and_how_to_log_in(planner: Controller) -> None:
    result = planner.schedule(
        check=True,
        ciuser="admin",
        host_groups=["shop"],
        vms=[
            {
                "name": "web-1",
                "ipconfig": {"ipconfig1": "ip=198.51.100.5/24", "ipconfig0": "ip=192.0.2.5/24,gw=192.0.2.1"},
                "host_vars": {"http_port": 8080},
            },
            {
                "name": "web-2",
                "ipconfig": {"ipconfig0": "ip=dhcp"},
                "host_groups": [],
                "host_vars": {"ansible_user": "me"},
            },
        ],
    )
    variables = {"ansible_user": "admin", "ansible_host": "192.0.2.5", "http_port": 8080}
    assert [vm["host"] for vm in result["vms"]] == [
        {"name": "web-1", "groups": ["shop"], "vars": variables},
        {"name": "web-2", "groups": [], "vars": {"ansible_user": "me"}},
    ]


def test_host_vars__are_names_of_variables(planner: Controller) -> None:
    failed = planner.fail("InvalidRequest", name="web-1", host_vars={"http-port": 1}, check=True)
    assert failed["msg"].startswith("host_vars: 'http-port' of VM \"web-1\" is not a variable name")


def test_capacity__has_one_row_for_a_count(planner: Controller) -> None:
    result = planner.run("capacity_info", memory=4096, shapes=[{"name": "web-{n}", "count": 2}, {"name": "db"}])
    assert [shape["name"] for shape in result["shapes"]] == ["web-{n}", "db"]


def test_capacity__of_vms_that_keep_apart_does_not_hide_that_others_fit(planner: Controller) -> None:
    web = {"name": "web-{n}", "count": 2, "affinity": [{"type": "anti-affinity", "name": "web-.*"}]}
    result = planner.run("capacity_info", memory=1024, shapes=[web, {"name": "db", "memory": 4096}, {"name": "app"}])
    rows = {shape["name"]: shape for shape in result["shapes"]}
    assert (rows["web-{n}"]["more"], rows["web-{n}"]["limited_by"]) == (0, "VMAffinity")
    alone = planner.run("capacity_info", shapes=[{"name": "db", "memory": 4096}])["shapes"][0]
    assert alone["fit"] - 3 <= rows["db"]["more"] + rows["db"]["fit"] < alone["fit"]
    assert rows["app"]["more"] > 3 * rows["db"]["more"] > 0
    assert (alone["more"], alone["limited_by"]) == (0, rows["db"]["limited_by"])


def test_task__with_too_many_vms_fails_at_once_and_in_few_words(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    result = controller.fail("InvalidRequest", vms=[{"name": f"web-{number}"} for number in range(5001)])
    assert result["msg"] == "vms: more than 5000 VMs are not possible in one task; use several tasks"
    assert len(str(result)) < 500_000
    assert cluster.requests() == []
