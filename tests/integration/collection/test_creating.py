# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creating one VM and many: what is returned, what is written, what a second run does."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller, Result
from support.versions import both_versions

from ansible_collections.qemu_scheduler.proxmox.plugins.modules import qemu_schedule

WEB: dict[str, t.Any] = {
    "cores": 2,
    "memory": 2048,
    "scsi": {"scsi0": {"size": 8, "ssd": True}},
    "net": {"net0": "virtio,bridge=vmbr0"},
    "tags": ["web", "app"],
    "pool": "web",
}
THREE = [{"name": "web-1"}, {"name": "web-2"}, {"name": "db-1", "memory": 8192, "tags": ["db"], "state": "present"}]

DOCUMENTED = yaml.safe_load(qemu_schedule.RETURN)
ONE_VM = DOCUMENTED["vms"]["contains"]


def decisions(result: Result) -> list[t.Any]:
    return [vm["decision"] for vm in result["vms"]]


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


def without_invocation(result: Result) -> Result:
    return {key: value for key, value in result.items() if key != "invocation"}


@both_versions
def test_one_vm__is_created_as_asked_for(controller: Controller, cluster: SimulatedCluster) -> None:
    result = controller.schedule(name="web-1", state="started", **WEB)
    guest = cluster.state()["guests"][result["vmid"]]
    assert (guest["name"], guest["node"], guest["status"]) == ("web-1", result["node"], "running")
    assert guest["pool"] == "web"
    config = guest["config"]
    assert (config["cores"], config["memory"]) == (2, "2048")
    assert config["scsi0"].startswith(f"{result['vms'][0]['storages']['scsi0']}:vm-{result['vmid']}-disk-0")
    assert "ssd=1" in config["scsi0"]
    assert "size=8G" in config["scsi0"]
    assert sorted(config["tags"].split(";")) == ["app", "web"]


@both_versions
def test_result_for_one_vm__has_the_shape_that_is_documented(controller: Controller) -> None:
    result = controller.schedule(name="web-1", state="started", **WEB)
    vm = result["vms"][0]
    assert set(vm) == set(ONE_VM) - {"cluster", "error", "why"}
    assert (result["name"], result["vmid"], result["node"]) == (vm["name"], vm["vmid"], vm["node"])
    assert (result["changed"], vm["changed"]) == (True, True)
    assert type(result["vmid"]) is int
    assert (vm["action"], vm["actions"], vm["status"]) == ("create", ["create", "start"], "running")
    assert (vm["attempts"], vm["waited"], vm["waited_for"], vm["limit_broken"]) == (1, 0.0, [], None)
    decision = vm["decision"]
    assert set(decision) == set(ONE_VM["decision"]["contains"]) - {"clusters"}
    assert (decision["node"], decision["vmid"], decision["storages"]) == (vm["node"], vm["vmid"], vm["storages"])
    assert decision["message"].startswith(f'VM "web-1" goes to {vm["node"]} as {vm["vmid"]} with score ')
    assert [set(node) for node in decision["nodes"]] == [set(ONE_VM["decision"]["contains"]["nodes"]["contains"])] * 3
    best = next(node for node in decision["nodes"] if node["node"] == vm["node"])
    assert best["score"] == max(node["score"] for node in decision["nodes"]) == decision["score"]
    second = next(node for node in decision["nodes"] if node["node"] == decision["runner_up"]["node"])
    assert second["node"] != vm["node"]
    assert decision["runner_up"]["distance"] == pytest.approx(best["score"] - second["score"], abs=0.02)
    for score in best["scores"].values():
        assert set(score) == {"raw", "normalized", "weight"}
        assert 0 <= score["normalized"] <= 100


@both_versions
def test_many_vms__take_defaults_from_the_top_and_replace_them_whole(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    result = controller.schedule(vms=THREE, **{**WEB, "state": "started"})
    assert [vm["name"] for vm in result["vms"]] == ["web-1", "web-2", "db-1"]
    assert not {"name", "vmid", "node"} & set(result), "facts of one VM stand at the top only when there is one"
    guests = cluster.state()["guests"]
    made = {vm["name"]: guests[vm["vmid"]] for vm in result["vms"]}
    assert [made[name]["config"]["memory"] for name in ("web-1", "web-2", "db-1")] == ["2048", "2048", "8192"]
    assert made["db-1"]["config"]["tags"] == "db", "an entry's list replaces the default, it is not added to it"
    assert [made[name]["status"] for name in ("web-1", "web-2", "db-1")] == ["running", "running", "stopped"]
    assert len({vm["vmid"] for vm in result["vms"]}) == 3


@both_versions
def test_check_mode__decides_as_the_real_run_does_and_writes_nothing(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    before = cluster.state()["guests"]
    planned = controller.schedule(vms=THREE, check=True, diff=True, **WEB)
    assert cluster.state()["guests"] == before
    assert writes(cluster) == []
    ledger = controller.run("vmid_pick", count=3)
    assert ledger["vmids"] == [vm["vmid"] for vm in planned["vms"]], "a plan reserves nothing"
    done = controller.schedule(vms=THREE, diff=True, **WEB)
    assert decisions(planned) == decisions(done)
    assert planned.pop("vm_plan")["vms"]
    assert (planned.pop("check_mode"), done.pop("check_mode")) == (True, False)
    assert without_invocation(planned) == without_invocation(done)
    assert planned["changed"] is True


@both_versions
def test_second_run__changes_nothing(controller: Controller, cluster: SimulatedCluster) -> None:
    first = controller.schedule(vms=THREE, state="started", **WEB)
    cluster.advance(60)
    cluster.reset_requests()
    second = controller.schedule(vms=THREE, state="started", **WEB)
    assert second["changed"] is False
    assert [vm["action"] for vm in second["vms"]] == ["none"] * 3
    assert [vm["drift"] for vm in second["vms"]] == [{}] * 3
    assert second["warnings"] == []
    assert [vm["decision"] for vm in second["vms"]] == [None] * 3
    facts = ("name", "vmid", "node", "status")
    assert [[vm[k] for k in facts] for vm in second["vms"]] == [[vm[k] for k in facts] for vm in first["vms"]]
    assert writes(cluster) == []
    assert "diff" not in second


@pytest.mark.parametrize("reservations", ["default", "none"])
@both_versions
def test_run_right_after_a_create__finds_the_vm_that_the_cluster_shows_without_a_name(
    controller: Controller, cluster: SimulatedCluster, reservations: str
) -> None:
    first = controller.schedule(vms=THREE, reservations=reservations, **WEB)
    second = controller.schedule(vms=THREE, reservations=reservations, **WEB)
    assert second["changed"] is False
    assert [vm["vmid"] for vm in second["vms"]] == [vm["vmid"] for vm in first["vms"]]
    names = [guest["name"] for guest in cluster.state()["guests"].values()]
    assert len(names) == len(set(names))


def test_sizes_of_vms_that_were_just_created__count(start: t.Any, control: t.Any) -> None:
    cluster = start(
        {
            "nodes": [{"name": "pve1", "cores": 8, "memory": 16384}],
            "storages": [{"name": "local-lvm", "type": "lvmthin", "size": 100}],
        }
    )
    controller = control(cluster)
    controller.schedule(name="big", memory=12288, state="started", reservations="none")
    failed = controller.fail("NoNodesAvailable", name="second", memory=8192, reservations="none")
    assert "memory overcommit" in failed["msg"]


def test_diff__shows_the_vm_as_it_will_be(controller: Controller) -> None:
    result = controller.schedule(name="web-1", check=True, diff=True, **WEB)
    (diff,) = result["diff"]
    assert diff["before"] == ""
    assert diff["before_header"] == f'VM "web-1" ({result["vmid"]}), absent'
    assert diff["after_header"] == f'VM "web-1" ({result["vmid"]})'
    lines = diff["after"].splitlines()
    assert f"node: {result['node']}" in lines
    assert "cores: 2" in lines
    assert "status: stopped" in lines


@both_versions
def test_imported_disks_iso_files_and_firmware_disks__are_made(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    result = controller.schedule(
        name="uefi",
        memory=1024,
        bios="ovmf",
        efidisk0={"efitype": "4m"},
        tpmstate0={"version": "2.0"},
        scsi={"scsi0": {"import_from": "local:import/debian-13.qcow2", "size": 10}},
        ide={"ide2": "local:iso/debian-13.iso,media=cdrom"},
        ciuser="admin",
        ipconfig={"ipconfig0": "ip=dhcp"},
    )
    config = cluster.state()["guests"][result["vmid"]]["config"]
    assert "size=10G" in config["scsi0"], "an imported disk is grown to what was asked for"
    assert {"efidisk0", "tpmstate0", "ide2"} <= set(config)
    assert set(result["vms"][0]["storages"]) >= {"scsi0", "efidisk0", "tpmstate0"}
    again = controller.schedule(
        name="uefi",
        memory=1024,
        bios="ovmf",
        efidisk0={"efitype": "4m"},
        tpmstate0={"version": "2.0"},
        scsi={"scsi0": {"import_from": "local:import/debian-13.qcow2", "size": 10}},
        ide={"ide2": "local:iso/debian-13.iso,media=cdrom"},
        ciuser="admin",
        ipconfig={"ipconfig0": "ip=dhcp"},
    )
    assert (again["changed"], again["vms"][0]["drift"]) == (False, {})


def test_ledger__holds_no_secret(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="web-1", cipassword="very-geheim", sshkeys="ssh-ed25519 AAAAC3Nz user", **WEB)
    written = b"".join(path.read_bytes() for path in Path(controller.folder, "state").rglob("*") if path.is_file())
    assert b"web-1" in written
    for secret in (b"very-geheim", b"AAAAC3Nz", cluster.token_secret.encode()):
        assert secret not in written
