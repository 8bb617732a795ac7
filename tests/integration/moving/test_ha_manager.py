# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves of guests that the HA manager moves, too: it follows rules and priorities, and rebalances by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, ModuleServer
from support.playbook import run_tasks
from support.versions import both_versions
from support.waiting import until

from .conftest import NODES, TIME_SCALE, on, writes

ROUNDS = 60 * TIME_SCALE
"""Seconds in which the HA manager does several rounds."""


def guests(*nodes: str, memory: int = 2048) -> list[dict[str, Any]]:
    """One running VM for each node, on shared storage, from VMID 101 on."""
    return [
        {"vmid": vmid, "node": node, "name": f"vm{vmid}", "cores": 1, "memory": memory, "status": "running",
         "disks": {"scsi0": "shared:8"}}
        for vmid, node in enumerate(nodes, start=101)
    ]  # fmt: skip


@contextmanager
def managed(
    version: str, vms: list[dict[str, Any]], *rules: dict[str, Any], maintenance: str = "", **more: Any
) -> Iterator[SimulatedCluster]:
    """Start a cluster whose HA manager manages all guests. Before Proxmox VE 9, the rules are groups of all guests."""
    sids, resource = [f"vm:{vm['vmid']}" for vm in vms], dict(more.pop("resource", {}))
    ha: dict[str, Any] = {"resources": [{"sid": sid, "state": "started", **resource} for sid in sids]}
    if version == "8.4":
        ha["groups"] = [{"group": r["rule"], "nodes": r["nodes"], "restricted": r.get("strict", 0)} for r in rules]
        for each in ha["resources"]:
            each["group"] = rules[0]["rule"]
    else:
        ha["rules"] = [{"type": "node-affinity", "resources": ",".join(sids), **rule} for rule in rules]
    nodes = [
        {"name": name, "cores": 16, "memory": 16384, "bridges": ["vmbr0"], "maintenance": name == maintenance}
        for name in NODES
    ]
    storages = [{"name": "shared", "type": "rbd", "shared": True, "content": ["images"], "size": 2000}]
    whole = {"cluster": "ha", "nodes": nodes, "storages": storages, "guests": vms, "ha": ha, **more}
    with SimulatedCluster.start(whole, version=version, time_scale=TIME_SCALE) as running:
        yield running


def controller_of(cluster: SimulatedCluster, modules: ModuleServer, tmp_path: Path) -> Controller:
    return Controller(modules, tmp_path, cluster.environment())


def stays(cluster: SimulatedCluster, node: str, *vmids: int) -> bool:
    """Whether these guests are on the node, and still are when the HA manager has had time to move them."""
    before = on(cluster, node)
    time.sleep(ROUNDS)
    return before == on(cluster, node) == set(vmids)


AVOID = {"rule": "avoid", "nodes": "pve1", "affinity": "negative"}


# --- negative node affinity ---


@pytest.mark.parametrize("strict", [1, 0])
def test_negative_rule__keeps_guests_off_its_nodes(strict: int, modules: ModuleServer, tmp_path: Path) -> None:
    vms = guests("pve2", "pve2", "pve3")
    with managed("9.2", vms, {**AVOID, "strict": strict}) as cluster:
        controller = controller_of(cluster, modules, tmp_path)
        assert not controller.run("cluster_rebalance", goals=["repair"])["changed"]
        assert not writes(cluster)

        assert controller.run("node_drain", name=["pve2"])["changed"]
        assert stays(cluster, "pve3", 101, 102, 103)


def test_negative_rule__holds_for_new_vms(modules: ModuleServer, tmp_path: Path) -> None:
    with managed("9.2", guests("pve2", "pve2", "pve3"), {**AVOID, "strict": 1}) as cluster:
        controller = controller_of(cluster, modules, tmp_path)
        created = controller.schedule(name="new", memory=1024, state="started", ha={"rule": "avoid"})

        assert created["vms"][0]["node"] == "pve3"
        assert "were avoided by HA rule 'avoid'" in str(created["vms"][0]["decision"]["nodes"])


def test_negative_rule__that_is_broken_is_repaired(modules: ModuleServer, tmp_path: Path) -> None:
    """The guest is off, so that the HA manager leaves it where it is."""
    vms = guests("pve1")
    vms[0]["status"] = "stopped"
    with managed("9.2", vms, {**AVOID, "strict": 1}, resource={"state": "stopped"}) as cluster:
        assert controller_of(cluster, modules, tmp_path).run("cluster_rebalance", goals=["repair"])["changed"]
        assert not on(cluster, "pve1")


# --- priorities and failback ---

PREFER = {"rule": "prefer", "nodes": "pve1:2,pve2:1"}


@pytest.mark.parametrize("rule", [PREFER, {**PREFER, "strict": 1}, {"rule": "prefer", "nodes": "pve1"}])
@pytest.mark.parametrize("version", ["9.2", "8.4"])
def test_drain__moves_no_guest_that_the_ha_manager_brings_back(
    version: str, rule: dict[str, Any], modules: ModuleServer, tmp_path: Path
) -> None:
    with managed(version, guests("pve1", "pve1"), rule) as cluster:
        result = controller_of(cluster, modules, tmp_path).run("node_drain", name=["pve1"])

        assert result["error_code"] == "GoalsNotReached"
        assert not [call for call in writes(cluster) if call.endswith("/migrate")]
        assert "ha-manager crm-command node-maintenance enable pve1" in result["stuck"][0]["cure"]
        assert ("nofailback" in result["stuck"][0]["cure"]) is (version == "8.4")
        what = "group" if version == "8.4" else "rule"
        assert f"HA {what} 'prefer' prefers" in result["stuck"][0]["why"]


@both_versions
def test_drain__asks_for_the_nodes_on_which_the_ha_manager_keeps_the_guest(
    version: str, modules: ModuleServer, tmp_path: Path
) -> None:
    """In maintenance, the HA manager would move the guest to the node that was drained before."""
    with managed(version, guests("pve2"), {"rule": "two", "nodes": "pve2,pve3"}) as cluster:
        controller = controller_of(cluster, modules, tmp_path)
        controller.run("node_drain", name=["pve3"])
        (stuck,) = controller.run("node_drain", name=["pve2"])["stuck"]
        assert "1 node(s) were drained" in stuck["why"]
        assert stuck["cure"] == "bring the nodes back that are offline, in maintenance or drained"


def test_drain__moves_guests_that_stay_where_they_are_moved_to(modules: ModuleServer, tmp_path: Path) -> None:
    with managed("9.2", guests("pve1", "pve1"), PREFER, resource={"failback": 0}) as cluster:
        assert controller_of(cluster, modules, tmp_path).run("node_drain", name=["pve1"])["changed"]
        assert stays(cluster, "pve1")


def test_drain__leaves_guests_of_a_node_in_maintenance_to_the_best_other_node(
    modules: ModuleServer, tmp_path: Path
) -> None:
    vms = [{**vm, "status": "running"} for vm in guests("pve1")]
    with managed("9.2", vms, PREFER, maintenance="pve1") as cluster:
        result = controller_of(cluster, modules, tmp_path).run("node_drain", name=["pve1"])
        assert "error_code" not in result, result
        assert stays(cluster, "pve2", 101)


@both_versions
def test_balance__moves_no_guest_away_from_the_node_that_its_rule_prefers(
    version: str, modules: ModuleServer, tmp_path: Path
) -> None:
    with managed(version, guests("pve1", "pve1", "pve1"), PREFER) as cluster:
        assert not controller_of(cluster, modules, tmp_path).run("cluster_rebalance", goals=["balance"])["changed"]
        assert not writes(cluster)
        assert stays(cluster, "pve1", 101, 102, 103)


def test_balance__moves_guests_between_nodes_of_the_same_priority(modules: ModuleServer, tmp_path: Path) -> None:
    rule = {"rule": "prefer", "nodes": "pve1:2,pve2:2,pve3:1"}
    with managed("9.2", guests("pve1", "pve1", "pve1", "pve1"), rule) as cluster:
        assert controller_of(cluster, modules, tmp_path).run("cluster_rebalance", goals=["balance"])["changed"]
        assert len(on(cluster, "pve2")) == 2
        assert not on(cluster, "pve3")


# --- what the HA manager does by itself, and what is unknown ---


def test_auto_rebalance__is_told_before_a_node_is_drained(tmp_path: Path) -> None:
    rule = {"rule": "all", "nodes": "pve1,pve2,pve3"}
    with managed("9.2", guests("pve1"), rule, options={"crs": {"ha": "dynamic", "ha-auto-rebalance": 1}}) as cluster:
        task = {"qemu_scheduler.proxmox.node_drain": {"name": "pve1"}}
        run = run_tasks(tmp_path, [task], cluster.environment(), "--check")
        assert "crs: ha-auto-rebalance" in run.output.replace("\n", " ")


def test_auto_rebalance__brings_guests_back_to_a_node_that_is_not_in_maintenance(
    modules: ModuleServer, tmp_path: Path
) -> None:
    """What the warning is about: to the HA manager, a drained node is the emptiest one."""
    rule, vms = {"rule": "all", "nodes": "pve1,pve2,pve3"}, guests("pve1", "pve2", "pve3", memory=6144)
    with managed("9.2", vms, rule, options={"crs": {"ha": "dynamic", "ha-auto-rebalance": 1}}) as cluster:
        controller_of(cluster, modules, tmp_path).run("node_drain", name=["pve1"])
        until(lambda: on(cluster, "pve1"))


def test_drain__of_a_node_in_maintenance_does_not_warn_of_auto_rebalance(tmp_path: Path) -> None:
    rule, crs = {"rule": "all", "nodes": "pve1,pve2,pve3"}, {"ha": "dynamic", "ha-auto-rebalance": 1}
    with managed("9.2", guests("pve2"), rule, maintenance="pve1", options={"crs": crs}) as cluster:
        task = {"qemu_scheduler.proxmox.node_drain": {"name": "pve1"}}
        run = run_tasks(tmp_path, [task], cluster.environment(), "--check")
        assert run.code == 0, run.output
        assert "ha-auto-rebalance" not in run.output


@pytest.mark.parametrize("crs", [{"ha": "lunar"}, {"ha": "basic", "ha-moon": 1}])
def test_crs__of_which_not_all_is_known_is_a_warning(crs: dict[str, Any], tmp_path: Path) -> None:
    with managed("9.2", guests("pve1"), {"rule": "all", "nodes": "pve1,pve2,pve3"}, options={"crs": crs}) as cluster:
        task = {"qemu_scheduler.proxmox.node_drain": {"name": "pve1"}}
        run = run_tasks(tmp_path, [task], cluster.environment(), "--check")
        assert "resource scheduling (crs)" in " ".join(run.output.split())


@pytest.mark.parametrize(
    ("rule", "resource", "crs", "told"),
    [
        ({"moon": "full"}, {}, {}, "'moon'"),
        ({"affinity": "lunar"}, {}, {}, "'lunar'"),
        ({"type": "moon-affinity"}, {}, {}, "'moon-affinity'"),
        ({}, {"moon": "full"}, {}, "'moon'"),
        ({}, {"state": "orbiting"}, {}, "'orbiting'"),
    ],
)
def test_drain__moves_no_guest_of_which_it_does_not_know_all(
    rule: dict[str, Any], resource: dict[str, Any], crs: dict[str, Any], told: str, modules: ModuleServer,
    tmp_path: Path,
) -> None:  # fmt: skip
    whole = {"rule": "all", "nodes": "pve1,pve2,pve3", **rule}
    with managed("9.2", guests("pve1"), whole, resource=resource, options={"crs": crs}) as cluster:
        result = controller_of(cluster, modules, tmp_path).run("node_drain", name=["pve1"])

        assert result["error_code"] == "GoalsNotReached"
        assert told in result["stuck"][0]["why"]
        assert on(cluster, "pve1") == {101}


def test_make_room__tells_what_it_does_not_know_of_guests_that_might_make_room(tmp_path: Path) -> None:
    rule = {"rule": "all", "nodes": "pve1,pve2,pve3", "moon": "full"}
    with managed("9.2", guests("pve1", "pve1", "pve2", "pve3", memory=6144), rule) as cluster:
        new = {"name": "new", "memory": 14336, "state": "started", "make_room": {}}
        run = run_tasks(tmp_path, [{"qemu_scheduler.proxmox.qemu_schedule": new}], cluster.environment())
        assert "make_room: no moves make it fit" in " ".join(run.output.split())
        assert "HA rule 'all' has the key 'moon'" in " ".join(run.output.split())


def test_new_vm__joins_no_rule_of_which_not_all_is_known(modules: ModuleServer, tmp_path: Path) -> None:
    rule = {"rule": "all", "nodes": "pve1", "moon": "full"}
    with managed("9.2", guests("pve1"), rule) as cluster:
        controller = controller_of(cluster, modules, tmp_path)
        result = controller.run("qemu_schedule", name="new", memory=1024, ha={"rule": "all"})
        assert "'all' has the key 'moon'" in result["msg"]
        assert not writes(cluster)
