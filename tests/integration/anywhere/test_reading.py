# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of a cluster is what is there."""

from __future__ import annotations

from pathlib import Path

from support.controller import Controller
from support.place import Cluster, Corner
from support.playbook import run_tasks


def test_snapshot__has_the_nodes_and_the_guests_of_the_cluster(
    controller: Controller, corner: Corner, cluster: Cluster
) -> None:
    vmid = controller.schedule(**corner.small("web"))["vmid"]
    result = controller.run("cluster_snapshot_info")
    assert not result.get("failed"), result["msg"]
    rows = result["snapshot"]["/cluster/resources"]
    assert set(cluster.nodes) <= {row["node"] for row in rows if row["type"] == "node"}
    assert vmid in {row["vmid"] for row in rows if row["type"] == "qemu"}


def test_capacity__counts_vms_that_fit(controller: Controller, corner: Corner) -> None:
    result = controller.run("capacity_info", shapes=[{"name": "small", "cores": 1, "memory": 32}])
    assert not result.get("failed"), result["msg"]
    assert result["total"] > 0
    assert set(corner.cluster.nodes) <= {node["node"] for node in result["nodes"]}


def test_vmid_pick__gives_free_ids_of_the_range(controller: Controller, corner: Corner) -> None:
    vmid = controller.schedule(**corner.small("web"))["vmid"]
    result = controller.run("vmid_pick", vmid_range=f"{corner.first}-{corner.last}")
    assert not result.get("failed"), result["msg"]
    assert corner.owns(result["vmid"])
    assert result["vmid"] != vmid


def test_roles__provision_and_tear_down(corner: Corner, cluster: Cluster, tmp_path: Path) -> None:
    vms = [corner.small("web-1", state="started"), corner.small("web-2")]
    made = run_tasks(tmp_path, [
        {"name": "make", "ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.provision"},
         "vars": {"qemu_vms": vms}},
    ], cluster.environment)
    assert made.code == 0, made.output
    assert {row["name"] for row in corner.vms().values()} == {vm["name"] for vm in vms}
    gone = run_tasks(tmp_path, [
        {"name": "remove", "ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.teardown"},
         "vars": {"qemu_vms": [{"name": vm["name"]} for vm in vms], "qemu_options": {"force": True}}},
    ], cluster.environment)
    assert gone.code == 0, gone.output
    assert corner.vms() == {}
