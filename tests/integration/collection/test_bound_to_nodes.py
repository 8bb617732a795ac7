# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only some nodes have is a matter of placement, and what no node has is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from simulated_cluster.client import CLUSTERS, SimulatedCluster
from support.controller import Controller
from support.versions import both_versions

SECRET = "12345678-1234-4234-8234-123456789abc"
PRIVILEGES = (
    "Datastore.Audit Datastore.AllocateSpace Pool.Audit Sys.Audit VM.Allocate VM.Audit VM.Config.Options "
    "VM.Config.Cloudinit VM.Config.CDROM VM.Config.Disk VM.Config.Memory VM.Config.Network VM.PowerMgmt"
)
TOKEN = {"PROXMOX_USER": "scheduler@pve", "PROXMOX_TOKEN_ID": "awx", "PROXMOX_TOKEN_SECRET": SECRET}


@pytest.fixture
def described() -> dict[str, Any]:
    """Three nodes, of which pve1 alone has a directory, a mapped device, snippets and the storage fast."""
    description: dict[str, Any] = yaml.safe_load((CLUSTERS / "three-nodes.yml").read_text(encoding="utf-8"))
    for storage in description["storages"]:
        if storage["name"] == "local":
            storage["content"].append("snippets")
    description["storages"].append({"name": "fast", "type": "zfspool", "nodes": ["pve1"], "size": 100})
    description["snippets"] = {"local": {"user.yml": {"pve1": 0.001}, "hook.sh": {"pve1": 0.001}}}
    description["mappings"] = {
        "dir": [{"id": "data", "map": ["node=pve1,path=/srv/data"]}],
        "usb": [{"id": "dongle", "map": ["node=pve1,id=0403:6001"]}],
    }
    description.update(
        users=[{"name": "scheduler@pve"}],
        tokens=[{"id": "scheduler@pve!awx", "secret": SECRET, "privsep": False}],
        roles={
            "Scheduler": PRIVILEGES.split(),
            "Lister": ["Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.Audit"],
        },
        acl=[
            {"path": "/", "user": "scheduler@pve", "role": "Scheduler"},
            {"path": "/storage/local", "user": "automation@pve", "role": "Lister"},
        ],
    )
    return description


@pytest.fixture
def cluster(start: Callable[..., SimulatedCluster], described: dict[str, Any]) -> SimulatedCluster:
    return start(described)


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


def places(cluster: SimulatedCluster, prefix: str) -> dict[str, str]:
    """Where VMs of that name are, as far as they run."""
    guests = cluster.state()["guests"].values()
    return {guest["name"]: guest["node"] for guest in guests if str(guest["name"]).startswith(prefix)}


CLOUD = {"ide": {"ide2": "shared:cloudinit"}}
ON_PVE1 = [
    ({"virtiofs": {"virtiofs0": "data,cache=always"}}, "directory mapping 'data'"),
    ({"cicustom": "user=local:snippets/user.yml", **CLOUD}, "snippet 'local:snippets/user.yml'"),
    ({"vmstatestorage": "fast"}, "storage 'fast'"),
    ({"usb": {"usb0": "mapping=dongle"}}, "USB mapping 'dongle'"),
]


@both_versions
@pytest.mark.parametrize(("options", "what"), ON_PVE1)
def test_vms__go_where_what_they_name_is(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any], what: str
) -> None:
    vms = [{"name": f"web-{number}", "memory": 512, **options} for number in range(3)]
    result = controller.schedule(vms=vms)
    assert set(places(cluster, "web-").values()) == {"pve1"}
    rejected = {node["node"]: node for node in result["vms"][0]["decision"]["nodes"] if not node["feasible"]}
    assert rejected.keys() == {"pve2", "pve3"}
    assert what in str(rejected)
    again = controller.schedule(vms=vms)
    assert again["changed"] is False


@both_versions
@pytest.mark.parametrize(
    ("option", "named"),
    [("hostpci", "0000:41:00.0"), ("hostpci", "41:00"), ("usb", "host=0403:6001"), ("usb", "host=1-1.2")],
)
def test_device_by_its_address__is_looked_for_on_every_node(
    start: Callable[..., SimulatedCluster],
    control: Callable[..., Controller],
    described: dict[str, Any],
    version: str,
    option: str,
    named: str,
) -> None:
    card = {"id": "0000:41:00.0", "vendor": "0x10de", "device": "0x2684", "class": "0x030000"}
    stick = {"busnum": 1, "usbpath": "1.2", "vendid": "0x0403", "prodid": "0x6001"}
    there = {"pci": [card], "usb": [stick]}
    nodes = [{**node, **(there if node["name"] == "pve2" else {})} for node in described["nodes"]]
    cluster = start({**described, "nodes": nodes, "mappings": {}})
    root = {"api_user": cluster.user, "api_password": cluster.password, "api_token_id": None, "api_token_secret": None}
    other = named.replace("41", "42").replace("6001", "6002").replace("1.2", "1.3")
    controller = control(cluster)
    for check in (True, False):
        result = controller.schedule(name="web-1", memory=512, **{option: {f"{option}0": named}}, **root, check=check)
        assert result["node"] == "pve2"
        kind = "PCI" if option == "hostpci" else "USB"
        failed = controller.fail(
            "NoNodesAvailable", name="web-2", memory=512, **{option: {f"{option}0": other}}, **root, check=check
        )
        assert f"no {kind} device '{other.removeprefix('host=')}'" in failed["msg"]


OF_TEMPLATE = [
    ({"net0": "virtio,bridge=vmbr1"}, {"pve1", "pve2"}, "vmbr1"),
    ({"cicustom": "user=local:snippets/user.yml"}, {"pve1"}, "snippet 'local:snippets/user.yml'"),
    ({"hookscript": "local:snippets/hook.sh"}, {"pve1"}, "snippet 'local:snippets/hook.sh'"),
    ({"virtiofs0": "dirid=data"}, {"pve1"}, "directory mapping 'data'"),
    ({"hostpci0": "mapping=gpu"}, {"pve1"}, "PCI mapping 'gpu'"),
]


@both_versions
@pytest.mark.parametrize(("config", "suitable", "what"), OF_TEMPLATE)
def test_clones__go_where_what_their_template_names_is(
    start: Callable[..., SimulatedCluster],
    control: Callable[..., Controller],
    described: dict[str, Any],
    config: dict[str, str],
    suitable: set[str],
    what: str,
) -> None:
    described["mappings"]["pci"] = [{"id": "gpu", "map": ["node=pve1,path=0000:01:00.0,id=10de:2204"]}]
    cluster = start(described)
    cluster.set_guest(9000, config=config)
    controller = control(cluster)
    vms = [{"name": f"web-{number}", "memory": 512} for number in range(3)]
    planned = controller.schedule(vms=vms, clone="debian-13", state="present", check=True)
    for vm in planned["vms"]:
        nodes = vm["decision"]["nodes"]
        assert {node["node"] for node in nodes if node["feasible"]} == suitable
        assert what in str([node for node in nodes if not node["feasible"]])
    if "hostpci0" not in config:
        controller.schedule(vms=vms, clone="debian-13", state="present")
        assert set(places(cluster, "web-").values()) <= suitable


NOWHERE = [
    ({"virtiofs": {"virtiofs0": "nope"}}, "no directory mapping 'nope', or this user cannot see it"),
    ({"cicustom": "user=local:snippets/nope.yml"}, "no snippet 'local:snippets/nope.yml'"),
    ({"cicustom": "user=nosuch:snippets/user.yml"}, "no snippet 'nosuch:snippets/user.yml'"),
    ({"vmstatestorage": "nosuch"}, "no storage 'nosuch'"),
    ({"hostpci": {"hostpci0": "mapping=nope"}}, "no PCI mapping 'nope'"),
    ({"net": {"net0": "virtio,bridge=vmbr9"}}, "no bridge 'vmbr9', or this user may not use it"),
    ({"ide": {"ide0": "local:iso/nope.iso,media=cdrom"}}, "local:iso/nope.iso"),
    ({"pool": "nope"}, "pool 'nope' does not exist"),
    ({"scsi": {"scsi1": "/dev/disk/by-id/usb-stick"}}, "'/dev/disk/by-id/usb-stick' is a path"),
    ({"scsi": {"scsi1": ":0,import-from=/var/tmp/image.raw"}}, "'/var/tmp/image.raw' is a path"),
]


@both_versions
@pytest.mark.parametrize(("options", "told"), NOWHERE)
def test_what_no_node_has__is_refused_before_anything_is_written(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any], told: str
) -> None:
    vms = [{"name": "web-1", "memory": 512}, {"name": "web-2", "memory": 512, **options}, {"name": "web-3"}]
    for check in (True, False):
        failed = controller.run("qemu_schedule", vms=vms, check=check, state="started")
        assert failed["failed"], failed
        assert told in failed["msg"]
    assert (places(cluster, "web-"), writes(cluster)) == ({}, [])


@both_versions
def test_other_vms__are_created_where_the_task_says_so(controller: Controller, cluster: SimulatedCluster) -> None:
    vms = [{"name": "web-1", "memory": 512}, {"name": "web-2", "memory": 512, "pool": "nope"}]
    controller.run("qemu_schedule", vms=vms, all_or_nothing=False)
    assert places(cluster, "web-").keys() == {"web-1"}


@both_versions
def test_update__refuses_what_its_node_lacks(controller: Controller, cluster: SimulatedCluster) -> None:
    options = {"net": {"net0": "virtio,bridge=vmbr9"}}
    failed = controller.fail("InvalidRequest", vms=[{"name": "app-1", **options}, {"name": "new"}], update=True)
    assert "there is no bridge 'vmbr9' on pve1, or this user may not use it" in failed["msg"]
    assert (places(cluster, "new"), writes(cluster)) == ({}, [])
    failed = controller.fail("PermissionDenied", name="app-1", scsi={"scsi2": "/dev/sdx"}, update=True)
    assert "'/dev/sdx' is a path" in failed["msg"]


@both_versions
def test_what_the_user_may_not_list__is_not_said_to_be_missing(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    """Without Datastore.Allocate, Proxmox VE lists no snippets, and without a right of SDN no bridges."""
    made = controller.schedule(name="web-1", cicustom="user=local:snippets/user.yml", env=TOKEN, memory=512)
    assert made["changed"] is True
    (warning,) = [text for text in made["warnings"] if "snippet" in text]
    assert "it is not known whether" in warning
    assert "local:snippets/user.yml" in warning
    failed = controller.run("qemu_schedule", name="web-2", net={"net0": "virtio,bridge=vmbr0"}, env=TOKEN, memory=512)
    assert "SDN.Use" in failed["msg"]
    assert "there is no bridge" not in failed["msg"]


@pytest.mark.parametrize(
    ("options", "most"), [({"net": {"net0": "virtio,bridge=vmbr0"}}, 4 + 3), ({"vmstatestorage": "shared"}, 4)]
)
def test_creation__costs_at_most_one_request_per_node_more(
    controller: Controller, cluster: SimulatedCluster, options: dict[str, Any], most: int
) -> None:
    controller.schedule(name="first", memory=512)
    cluster.advance(120)
    cluster.requests(reset=True)
    vms = [{"name": f"web-{number}", "memory": 512, **options} for number in range(3)]
    controller.schedule(vms=vms)
    calls = [r["path"] for r in cluster.requests(reset=True) if "/tasks/UPID:" not in r["path"]]
    # Of these three, one reads the list of tasks, in place of the state of each task.
    assert len(calls) <= most + 3, calls
    cluster.advance(120)
    assert controller.schedule(vms=vms)["changed"] is False
    assert len(cluster.requests()) <= 2 + 3
