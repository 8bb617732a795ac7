# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request is checked with what the VM has or gets: its own config, that of its template, or the defaults."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions


@pytest.fixture
def cluster(cluster: SimulatedCluster) -> SimulatedCluster:
    """Three nodes, and a VM with EFI, eight cores, two gigabytes of memory and a cloud-init drive."""
    cluster.add_guest(
        vmid=200,
        name="efi",
        node="pve1",
        cores=8,
        memory=2048,
        disks={"scsi0": "shared:8"},
        config={"bios": "ovmf", "balloon": 1024, "ide2": "shared:cloudinit", "vcpus": 4},
    )
    cluster.advance(60)
    return cluster


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


def config_of(cluster: SimulatedCluster, vmid: int) -> dict[str, Any]:
    config: dict[str, Any] = cluster.state()["guests"][vmid]["config"]
    return config


@both_versions
def test_existing_vm__takes_what_its_own_config_allows(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {"name": "efi", "efidisk0": {"storage": "shared"}, "vcpus": 8, "scsi": {"scsi0": {"ssd": True}}}
    found = controller.run("fleet_info", vms=[asked])
    assert found["vms"][0]["state"] == "drifted"
    controller.schedule(**asked, update=True)
    config = config_of(cluster, 200)
    assert (config["efidisk0"].partition(":")[0], config["vcpus"], "ssd=1" in config["scsi0"]) == ("shared", 8, True)
    controller.schedule(**asked, state="stopped")
    controller.schedule(**asked, state="absent")
    assert 200 not in cluster.state()["guests"]


@both_versions
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"memory": 512}, "memory: 512 is not valid, expected at least balloon (1024)"),
        ({"balloon": 4096}, "balloon: 4096 is not valid, expected at most memory (2048)"),
        ({"cores": 2}, "cores: 2 is not valid, expected at least vcpus (4)"),
        ({"ide": {"ide0": "shared:cloudinit"}}, "ide0: the cloud-init drive is at ide2"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_update__refuses_what_contradicts_the_vms_own_config(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any], told: str, check: bool
) -> None:
    before = config_of(cluster, 200)
    assert told in controller.fail("DriftNotApplicable", name="efi", update=True, check=check, **options)["msg"]
    assert (config_of(cluster, 200), writes(cluster)) == (before, [])
    (warning, *_others) = controller.schedule(name="efi", **options)["warnings"]
    assert "cannot be updated" in warning


@both_versions
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"vcpus": 8}, "vcpus: 8 is not valid, expected at most cores times sockets (2)"),
        ({"balloon": 4096}, "balloon: 4096 is not valid, expected at most memory (2048)"),
        ({"efidisk0": {}}, "efidisk0: requires bios=ovmf, and bios is seabios"),
        ({"ide": {"ide0": "shared:cloudinit"}}, "ide0: the cloud-init drive is at ide2"),
    ],
)
def test_clone__is_checked_with_its_template(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any], told: str
) -> None:
    vms = [{"name": "web-1"}, {"name": "web-2", **options}]
    failed = controller.fail("InvalidRequest", clone="debian-13", vms=vms)
    assert f"{told}" in failed["msg"]
    assert "a clone of VM 9000 (debian-13)" in failed["msg"]
    assert writes(cluster) == [], "neither of them, as all_or_nothing says"


@both_versions
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"memory": "512"}, "balloon value too large (must be smaller than assigned memory)"),
        ({"ide0": "shared:cloudinit"}, "ide0 - cloud-init drive is already attached at 'ide2'"),
    ],
)
def test_proxmox__refuses_that_as_well(cluster: SimulatedCluster, parameters: dict[str, str], message: str) -> None:
    token = f"PVEAPIToken={cluster.token_user}!{cluster.token_id}={cluster.token_secret}"
    answer = requests.put(
        f"{cluster.url}/api2/json/nodes/pve1/qemu/200/config",
        data=parameters,
        headers={"Authorization": token},
        verify=cluster.ca_path,
        timeout=20,
    )
    assert (answer.status_code, message in answer.text) == (500, True)
