# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode refuses what the run would fail on, as far as reads can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller

DISK = {"scsi0": {"size": 4}}


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (
            {"pool": "nope"},
            "InvalidRequest",
            "pool: pool 'nope' does not exist, or this user cannot see it; known: web",
        ),
        (
            {"net": {"net0": "virtio,bridge=vmbr9"}, "state": "started", "node": "pve3"},
            "NoNodesAvailable",
            "no bridge 'vmbr9', or this user may not use it, known: vmbr0, vmbr1",
        ),
        ({"ide": {"ide2": "local:iso/nope.iso,media=cdrom"}}, "NoStorageAvailable", "local:iso/nope.iso"),
        ({"scsi": {"scsi1": ":0,import-from=local:import/nope.qcow2"}}, "NoStorageAvailable", "nope.qcow2"),
    ],
)
def test_new_vm__that_names_what_is_not_there_is_refused(
    planner: Controller, asked: dict[str, Any], code: str, text: str
) -> None:
    failed = planner.fail(code, name="web-1", check=True, **{"scsi": DISK, **asked})
    assert text in failed["msg"]
    assert (failed["vms"][0]["changed"], failed["vms"][0]["node"]) == (False, None)


def test_unknown_pool__is_compared_with_pools_and_not_with_the_marks_of_drained_nodes(
    start: Callable[..., SimulatedCluster], control: Callable[..., Controller]
) -> None:
    marked = {
        "nodes": [{"name": name, "cores": 8, "memory": 16384} for name in ("pve1", "pve2")],
        "storages": [{"name": "local-lvm", "type": "lvmthin", "content": ["images"], "size": 100}],
        "pools": ["web", "drained-node-pve2"],
    }
    failed = control(start(marked)).fail("InvalidRequest", name="web-1", check=True, scsi=DISK, pool="nope")
    assert failed["msg"].endswith("known: web")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"net": {"net1": "virtio,bridge=vmbr9"}}, "net1: there is no bridge 'vmbr9' on pve1, or this user may"),
        ({"ide": {"ide2": "local:iso/nope.iso,media=cdrom"}}, "ide2: there is no local:iso/nope.iso on pve1"),
        (
            {"scsi": {"scsi1": {"size": 4, "import_from": "local:import/nope.qcow2"}}},
            "scsi1: there is no local:import/nope.qcow2 on pve1",
        ),
    ],
)
def test_update__that_names_what_is_not_there_is_refused(planner: Controller, asked: dict[str, Any], text: str) -> None:
    failed = planner.fail("InvalidRequest", name="app-1", update=True, check=True, **asked)
    assert f'VM "app-1": {text}' in failed["msg"]
    assert failed["vms"][0]["changed"] is False


@pytest.mark.parametrize("asked", [{"name": "web-1", "scsi": DISK}, {"name": "spare", "update": True}])
def test_bridge__of_a_vm_that_stays_off_is_warned_of(planner: Controller, asked: dict[str, Any]) -> None:
    off = {"filters": {"NetworkBridge": {"enable": False}}}
    result = planner.schedule(**asked, net={"net0": "virtio,bridge=vmbr9"}, plugin_config=off, check=True)
    assert result["changed"] is True
    (warning,) = result["warnings"]
    assert "there is no bridge 'vmbr9'" in warning
    assert warning.endswith("The VM cannot be started.")


def test_what_is_there__is_accepted(planner: Controller) -> None:
    asked = {
        "pool": "web",
        "net": {"net0": "virtio,bridge=vmbr0"},
        "ide": {"ide2": "local:iso/debian-13.iso,media=cdrom"},
    }
    new = planner.schedule(name="web-1", scsi=DISK, state="started", check=True, **asked)
    assert (new["changed"], new["warnings"]) == (True, [])
    update = planner.schedule(name="app-1", update=True, check=True, **asked)
    assert (update["changed"], update["warnings"]) == (True, [])


# --- what needs no read ---


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"ipconfig": {"ipconfig0": "ip=10.0.0.300/24"}}, "ipconfig0.ip: '10.0.0.300/24' is not valid"),
        ({"ipconfig": {"ipconfig0": "ip=10.0.0.3/33"}}, "ipconfig0.ip: '10.0.0.3/33' is not valid"),
        ({"ipconfig": {"ipconfig0": "ip6=2001:db8::g/64"}}, "ipconfig0.ip6: '2001:db8::g/64' is not valid"),
        ({"ipconfig": {"ipconfig0": "ip=10.0.0.3/24,gw=10.0.0"}}, "ipconfig0.gw: '10.0.0' is not valid"),
        ({"vmid_range": ""}, "vmid_range: '' is not valid"),
        ({"vmid_regex": ""}, "vmid_regex: '' is not valid"),
        ({"node": ""}, "node: '' is not valid, expected the name of a node, or leave it out"),
        ({"clone": "debian", "storage": ""}, "storage: '' is not valid, expected the name of a storage"),
        ({"cpu": "{'cputype': 'host'}"}, "cpu.cputype: "),
        ({"cpu": ["host"]}, "cpu: "),
    ],
)
def test_impossible_value__is_refused(planner: Controller, asked: dict[str, Any], text: str) -> None:
    assert text in planner.fail("InvalidRequest", name="web-1", check=True, **asked)["msg"]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"affinity": [{"type": "apart"}]}, "affinity"),
        ({"devices": [{"name": "gpu"}, {"name": "gpu"}]}, "devices"),
    ],
)
def test_error_in_rules_and_devices__names_the_vm(planner: Controller, asked: dict[str, Any], text: str) -> None:
    failed = planner.fail("InvalidRequest", vms=[{"name": "web-1"}, {"name": "web-2", **asked}], check=True)
    assert failed["msg"].startswith(f"vms[1].{text}")
    assert failed["msg"].endswith(', for VM "web-2"')


@pytest.mark.parametrize("name", ["web-1", "spare"])
@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"bios": "ovmf"}, "bios is ovmf and there is no efidisk0"),
        ({"ostype": "win11", "bios": "ovmf", "efidisk0": {"efitype": "4m"}}, "ostype is win11 and there is no tpm"),
        ({"ostype": "win11", "tpmstate0": {"version": "2.0"}}, "ostype is win11 and bios is not ovmf"),
        ({"ipconfig": {"ipconfig0": "ip=dhcp,gw=192.0.2.1"}}, "ipconfig0 has gw together with ip=dhcp"),
        ({"ipconfig": {"ipconfig0": "ip6=auto,gw6=2001:db8::1"}}, "ipconfig0 has gw6 together with ip6=auto"),
    ],
)
def test_config_that_hardly_works__is_warned_of(
    planner: Controller, name: str, asked: dict[str, Any], text: str
) -> None:
    cloud_init = {
        "scsi": {"scsi0": {"size": 16}},
        "net": {"net0": "virtio,bridge=vmbr0"},
        "ide": {"ide2": ":cloudinit"},
    }
    result = planner.schedule(name=name, update=True, check=True, **cloud_init, **asked)
    (warning,) = result["warnings"]
    assert warning.startswith(f'VM "{name}": {text}')


@pytest.mark.parametrize("device", [{"usb": {"usb0": "spice"}}, {"usb": {"usb0": ""}}, {"hostpci": {"hostpci0": ""}}])
def test_device_of_no_node__is_not_warned_of(planner: Controller, device: dict[str, Any]) -> None:
    assert planner.schedule(name="web-1", **device, check=True)["warnings"] == []


def test_boot_order_with_a_missing_device__is_warned_of_at_creation_and_refused_afterwards(
    planner: Controller,
) -> None:
    """Proxmox VE accepts it only when a VM is created."""
    asked: dict[str, Any] = {"boot": "order=scsi0;scsi7", "scsi": {"scsi0": {"size": 16}}, "update": True}
    (warning,) = planner.schedule(name="web-1", check=True, **asked)["warnings"]
    assert warning == 'VM "web-1": boot names scsi7, which the VM does not have'
    failed = planner.fail("DriftNotApplicable", name="spare", check=True, **asked)
    assert failed["msg"] == 'VM "spare" cannot be updated: boot: it names scsi7, which the VM does not have'


def test_mac_address__of_two_cards_in_one_network_is_warned_of(planner: Controller) -> None:
    """Such as that of a card in the options of all VMs."""
    card = "virtio=bc:24:11:00:00:01,bridge=vmbr0"
    other = {
        "name": "web-3",
        "net": {"net1": {"model": "virtio", "macaddr": "BC:24:11:00:00:01", "bridge": "vmbr0", "tag": 7}},
    }
    vms = [{"name": "web-1"}, {"name": "web-2", "net": {"net1": card}}, other]
    told = "another card in this task has the MAC address BC:24:11:00:00:01 as well, on the same bridge and VLAN"
    assert planner.schedule(net={"net0": card}, vms=vms, check=True)["warnings"] == [
        f'VM "web-1": net0: {told}',
        f'VM "web-2": net1: {told}',
    ]
    replaced = [{"name": "web-1"}, {"name": "web-2", "state": "absent"}]
    assert planner.schedule(net={"net0": card}, vms=replaced, check=True)["warnings"] == []


def test_disk_of_another_guest__is_warned_of(planner: Controller) -> None:
    spare = planner.schedule(name="spare", check=True)["vms"][0]["vmid"]
    disks = {"scsi0": f"shared:vm-{spare}-disk-9", "scsi1": "shared:vm-99999-disk-0"}
    (warning,) = planner.run("qemu_schedule", name="web-1", scsi=disks, check=True)["warnings"]
    assert warning.startswith(f'VM "web-1": scsi0: shared:vm-{spare}-disk-9 is a disk of guest {spare}, which')


def test_mapping__of_properties_is_sent_as_proxmox_takes_it(planner: Controller) -> None:
    result = planner.schedule(name="spare", cpu={"cputype": "host", "flags": "+aes"}, update=True, check=True)
    assert result["vms"][0]["drift"]["cpu"] == {"old": None, "new": "host,flags=+aes"}
