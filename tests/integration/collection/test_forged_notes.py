# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes that look like the mark of an unfinished VM: whoever may edit them gets nothing that the task does not say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.unfinished import MARK

THREE_NODES: dict[str, Any] = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text())
TASK: dict[str, Any] = {"name": "web-1", "cores": 2, "memory": 2048}
CARD = {"id": "0000:41:00.0", "vendor": "0x10de", "device": "0x2236", "iommugroup": 41}
OTHER_CARD = {"id": "0000:42:00.0", "vendor": "0x10de", "device": "0x2237", "iommugroup": 42}


@pytest.fixture
def cluster(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    cluster = start()
    set_up(cluster)
    return cluster


def set_up(cluster: SimulatedCluster) -> None:
    common = {"cores": 2, "memory": 2048, "node": "pve1"}
    cluster.add_guest(vmid=200, name="web-1", disks={"scsi0": "shared:8"}, **common)
    cluster.add_guest(
        vmid=201, name="payroll", disks={"scsi0": "shared:8"}, config={"ipconfig0": "ip=192.0.2.50/24"}, **common
    )
    cluster.advance(60)


def forge(cluster: SimulatedCluster, vmid: int = 200, **kept: Any) -> None:
    cluster.set_guest(vmid, config={"description": f"{MARK} {json.dumps(kept)}\nmine"})


def config_of(cluster: SimulatedCluster, vmid: int = 200) -> dict[str, Any]:
    return dict(cluster.state()["guests"][vmid]["config"])


def sent(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [request for request in cluster.requests() if request["method"] != "GET"]


def options_sent(cluster: SimulatedCluster) -> set[str]:
    return {key for request in sent(cluster) for key in request["params"]} - {"node", "vmid", "digest"}


FORGED: list[dict[str, Any]] = [
    {"net5": "virtio,bridge=vmbr9"},
    {"memory": "16384", "cores": 12},
    {"scsi3": "shared:vm-201-disk-0"},
    {"ide0": "local-lvm:2000"},
    {"delete": "scsi0", "force": 1},
    {"hostpci0": "0000:01:00.0"},
    {"hostpci0": "mapping=gpu"},
    {"usb0": "host=1-1"},
    {"args": "-device x", "hookscript": "local:snippets/x.sh", "lock": "backup", "skiplock": 1},
    {"description": "theirs", "template": 1, "protection": 1, "tags": "prod", "digest": "x", "vmid": 201},
    {"boot": "order=net0", "unused0": "shared:vm-201-disk-0", "ipconfig0": "ip=192.0.2.50/24"},
]


@both_versions
def test_forged_mark__sets_nothing_that_the_task_does_not_say(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    before = config_of(cluster)
    for forged in FORGED:
        for kind in ("devices", "storages", "addresses"):
            forge(cluster, **{kind: forged})
            result = controller.schedule(**TASK)
            assert result["vms"][0]["actions"] == ["finish"]
            assert any("of which the ledger knows nothing" in warning for warning in result["warnings"])
    assert options_sent(cluster) == {"description"}
    assert {**config_of(cluster), "description": None} == {**before, "description": None}


@pytest.mark.parametrize(
    "kept", [{"devices": [1]}, {"storages": {"scsi1": {"a": 1}}}, {"addresses": None}, {"devices": "x"}]
)
def test_mark_of_another_shape__keeps_nothing(cluster: SimulatedCluster, controller: Controller, kept: Any) -> None:
    forge(cluster, **kept)
    controller.schedule(**TASK)
    assert options_sent(cluster) == {"description"}


def test_thousands_of_brackets_in_a_mark__stop_no_task(cluster: SimulatedCluster, controller: Controller) -> None:
    for vmid in (200, 201):
        cluster.set_guest(vmid, config={"description": f"{MARK} " + "[" * 7000})
    pool = {"network": "192.0.2.0/24", "ranges": ["192.0.2.60-192.0.2.69"]}
    new = {"name": "new-1", "memory": 512, "ide": {"ide2": "shared:cloudinit"}, "net": {"net0": "virtio,bridge=vmbr0"}}
    vms = [TASK, {**new, "addresses": {"ipconfig0": "lan"}}]
    result = controller.schedule(vms=vms, address_pools={"lan": pool})
    assert "192.0.2.60" in config_of(cluster, result["vms"][1]["vmid"])["ipconfig0"]
    assert "description" not in config_of(cluster), "the mark of web-1 is removed: nothing is left to do"


FAST = {"storage_classes": {"fast": {"storages": ["shared"]}}}


@pytest.mark.parametrize(
    ("slot", "forged", "expected"),
    [
        ({"size": 4, "storage_class": "fast"}, "local-lvm", "shared"),
        ({"size": 4, "storage_class": "fast"}, "shared", "shared"),
        ({"size": 4, "storage_class": "fast"}, "shared:vm-201-disk-0,size", "shared"),
        ({"size": 4, "storage": "shared"}, "local-lvm", "shared"),
        ({"size": 4}, "local", None),
    ],
)
def test_storage_in_a_mark__counts_only_if_the_task_allows_it(
    cluster: SimulatedCluster, controller: Controller, slot: dict[str, Any], forged: str, expected: str | None
) -> None:
    forge(cluster, storages={"scsi1": forged, "scsi0": "local-lvm", "scsi2": "local-lvm:8"})

    controller.schedule(**TASK, scsi={"scsi0": {"size": 8}, "scsi1": slot}, **FAST)

    config = config_of(cluster)
    assert config["scsi0"].startswith("shared:")
    assert "scsi2" not in config
    assert config["scsi1"].partition(":")[0] in ({expected} if expected else {"shared", "local-lvm"})
    assert "vm-200-disk" in config["scsi1"]


POOL = {
    "address_pools": {"front": {"network": "192.0.2.0/24", "ranges": ["192.0.2.40-192.0.2.60"]}},
    "addresses": {"ipconfig0": "front"},
}


@pytest.mark.parametrize(
    "forged",
    [
        {"ipconfig0": "ip=192.0.2.50/24"},
        {"ipconfig0": "ip=192.0.2.99/24"},
        {"ipconfig0": "ip=198.51.100.7/24"},
        {"ipconfig0": "ip=dhcp"},
        {"ipconfig1": "ip=192.0.2.41/24"},
        {},
    ],
)
def test_address_in_a_mark__is_not_taken_from_others(
    cluster: SimulatedCluster, controller: Controller, forged: dict[str, str]
) -> None:
    forge(cluster, addresses=forged)

    failed = controller.fail("DriftNotApplicable", **TASK, **POOL)

    assert 'VM "web-1" was begun and cannot be finished: the address of ipconfig0 is not known' in failed["msg"]
    assert sent(cluster) == []


def test_address_in_a_mark__is_set_as_its_pool_says(cluster: SimulatedCluster, controller: Controller) -> None:
    forge(cluster, addresses={"ipconfig0": "ip=192.0.2.42/8,gw=198.51.100.1", "ipconfig1": "ip=192.0.2.43/24"})

    controller.schedule(**TASK, **POOL)

    assert config_of(cluster)["ipconfig0"] == "ip=192.0.2.42/24"
    assert "ipconfig1" not in config_of(cluster)


def test_address_in_the_mark_of_another_vm__refuses_nobody_that_address(
    cluster: SimulatedCluster, controller: Controller
) -> None:
    forge(cluster, 201, addresses={"ipconfig1": "ip=192.0.2.45/24", "ipconfig2": "ip=192.0.2.40/24"})
    pools = {"address_pools": POOL["address_pools"]}
    new = {"memory": 512, "ide": {"ide2": "shared:cloudinit"}, "net": {"net0": "virtio,bridge=vmbr0"}}

    named = controller.schedule(name="new-1", **new, ipconfig={"ipconfig0": "ip=192.0.2.45/24"}, **pools)
    chosen = controller.schedule(name="new-2", **new, **POOL)

    guests = cluster.state()["guests"]
    assert guests[named["vms"][0]["vmid"]]["config"]["ipconfig0"] == "ip=192.0.2.45/24"
    assert guests[chosen["vms"][0]["vmid"]]["config"]["ipconfig0"] == "ip=192.0.2.41/24"


def gpus(start: Callable[..., SimulatedCluster]) -> SimulatedCluster:
    nodes = [{**n, "pci": [CARD, OTHER_CARD] if n["name"] == "pve1" else []} for n in THREE_NODES["nodes"]]
    mappings = [
        {"id": "gpu", "map": ["node=pve1,path=0000:41:00.0,id=10de:2236,iommugroup=41"]},
        {"id": "big", "map": ["node=pve1,path=0000:42:00.0,id=10de:2237,iommugroup=42"]},
    ]
    cluster = start({**THREE_NODES, "nodes": nodes, "mappings": {"pci": mappings}})
    set_up(cluster)
    return cluster


BY_MAPPING = {"name": "gpu", "mapping": "gpu"}
BY_CONSTRAINT = {"name": "gpu", "driver": "pci", "constraints": ["device.device == '2236'"]}


@pytest.mark.parametrize("claim", [BY_MAPPING, BY_CONSTRAINT], ids=["mapping", "constraint"])
def test_device_in_a_mark__is_attached_only_if_the_claim_allows_it(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller], claim: dict[str, Any]
) -> None:
    cluster = gpus(start)
    controller = control(cluster)
    refused = [
        {"hostpci0": "mapping=big"},
        {"hostpci0": "0000:41:00.0"},
        {"hostpci0": "mapping=gpu,romfile=x"},
        {"hostpci0": "mapping=gpu,mdev=nvidia-1"},
        {"hostpci16": "mapping=gpu"},
        {"usb0": "mapping=gpu"},
        {"args": "mapping=gpu"},
        {},
    ]
    for forged in refused:
        forge(cluster, devices=forged)
        failed = controller.fail("DriftNotApplicable", **TASK, devices=[claim])
        assert "which device claim 'gpu' has is not known" in failed["msg"]
    assert sent(cluster) == []

    forge(cluster, devices={"hostpci3": "mapping=gpu", "hostpci4": "mapping=big", "hostpci5": "mapping=gpu"})
    controller.schedule(**TASK, devices=[claim])

    config = config_of(cluster)
    assert {key: config[key] for key in config if key.startswith("hostpci")} == {"hostpci3": "mapping=gpu"}
