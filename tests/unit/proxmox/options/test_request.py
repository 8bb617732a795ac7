# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From options to a request, and from a decided request to the parameters that create the VM."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    GIB,
    MIB,
    Decision,
    DeviceAllocation,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.request import (
    create_parameters,
    import_resizes,
    traits_of,
    vm_request,
)


def test_request__has_what_the_scheduler_counts() -> None:
    request = vm_request(
        {
            "name": "web-1.lab",
            "vmid": 120,
            "pool": "lab",
            "state": "started",
            "node_regex": "pve[12]",
            "cores": 4,
            "sockets": 2,
            "memory": 2048,
            "cpu": "host,flags=+aes;-pcid;+pdpe1gb",
            "tags": ["Web", "db"],
            "net": {"net0": "virtio,bridge=vmbr0", "net1": "e1000,bridge=vmbr1", "net2": "virtio"},
            "scsi": {"scsi0": ":32"},
            "ide": {"ide2": "none,media=cdrom"},
        }
    )
    assert (request.name, request.vmid, request.pool, request.running) == ("web-1.lab", 120, "lab", True)
    assert (request.cores, request.memory) == (8, 2048 * MIB)
    assert (request.cpu_type, request.cpu_flags) == ("host", frozenset({"aes", "pdpe1gb"}))
    assert request.tags == {"web", "db"}
    assert request.bridges == {"vmbr0", "vmbr1"}
    assert [(disk.slot, disk.size) for disk in request.disks] == [("scsi0", 32 * GIB)]
    assert request.node_regex == "pve[12]"


def test_request_without_sizes__has_those_of_proxmox() -> None:
    request = vm_request({"name": "web"})
    assert (request.cores, request.memory, request.running) == (1, 512 * MIB, False)


def test_vm__shows_its_vcpus_when_they_are_fewer_than_its_cores() -> None:
    assert vm_request({"name": "web", "cores": 8, "vcpus": 2}).cores == 2


def test_request__counts_the_vcpus_that_can_be_plugged_in() -> None:
    assert vm_request({"name": "web", "cores": 4, "sockets": 2, "vcpus": 2}).cores_max == 8
    assert vm_request({"name": "web"}).cores_max == 1


@pytest.mark.parametrize("name", ["a.b.c", "x", "a-b", "A1", "a" * 64])
def test_name_that_proxmox_takes__is_taken(name: str) -> None:
    assert vm_request({"name": name}).name == name


@pytest.mark.parametrize("name", ["", "bad_name", "-x", "x-", "x.", "a..b", "bad name", "vü"])
def test_name_that_proxmox_refuses__is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"name: .*letters, digits and dashes"):
        vm_request({"name": name})


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, "name: is missing"),
        ({"name": "x", "vmid": 99}, "vmid: 99 .* from 100 to 999999999"),
        ({"name": "x", "vmid": 1_000_000_000}, "vmid: 1000000000"),
        ({"name": "x", "memory": 512, "balloon": 1024}, "balloon: 1024 .*at most memory"),
        ({"name": "x", "cores": 2, "sockets": 2, "vcpus": 9}, "vcpus: 9 .*at most cores times sockets"),
        ({"name": "x", "ide": {"ide0": "a:cloudinit", "ide2": "a:cloudinit"}}, "ide0: the cloud-init drive is at ide2"),
        ({"name": "x", "efidisk0": {"efitype": "4m"}, "bios": "seabios", "clone": "tpl"}, "efidisk0: .*bios=ovmf"),
        ({"name": "x", "ipconfig": {"ipconfig1": "gw=192.0.2.1"}}, "ipconfig1: 'gw=.* expected ip together with gw,"),
        ({"name": "x", "ipconfig": {"ipconfig0": "ip=dhcp,gw6=2001:db8::1"}}, "expected ip6 together with gw6,"),
        (
            {"name": "x", "node_regex": "a", "context": {"node.qemu-scheduler/regex": "b"}},
            "node_regex: 'a' contradicts 'b'",
        ),
        (
            {"name": "x", "vmid_range": "1-2", "context": {"vmid.qemu-scheduler/range": "3-4"}},
            "vmid_range: .*contradicts",
        ),
        ({"name": "x", "context": {"nod.qemu-scheduler/regex": "a"}}, "context: unknown key 'nod.qemu.*vmid.*/regex"),
        ({"name": "x", "context": {"qemu-scheduler/regex": "a"}}, "context: unknown key"),
        ({"name": "x", "context": {"vmid.qemu-scheduler": "a"}}, "context: unknown key"),
        ({"name": "x", "context": {"node.qemu-scheduler/regex": ["a"]}}, "has a list, expected a text"),
        ({"name": "x", "context": {"delay": {"a": 1}}}, "has a mapping, expected a text"),
        ({"name": "x", "context": {"node.qemu-schedular/regex": "a"}}, "did you mean node.qemu-scheduler/regex"),
        ({"name": "x", "context": {"node.quemu-scheduler/regex": "a"}}, "did you mean node.qemu-scheduler/regex"),
    ],
)
def test_options_that_contradict__are_refused(params: dict[str, t.Any], expected: str) -> None:
    with pytest.raises(InvalidRequest, match=expected):
        vm_request(params)


def test_vm__may_be_named_by_its_vmid_alone() -> None:
    assert vm_request({"vmid": 120}).name == ""


def test_context_that_says_the_same_as_the_option__is_kept() -> None:
    context = {"node.qemu-scheduler/regex": "a", "example.org/delay": "2", "delay": "3"}
    assert vm_request({"name": "x", "node_regex": "a", "context": context}).context == context


def test_clone__may_have_the_firmware_and_the_cores_of_its_source() -> None:
    assert vm_request({"name": "x", "clone": "tpl", "efidisk0": {"efitype": "4m"}, "vcpus": 4}).cores == 4


def test_decided_request__becomes_the_parameters_of_create() -> None:
    request = vm_request(
        {
            "name": "web",
            "pool": "lab",
            "memory": 1024,
            "tags": ["b", "a"],
            "description": "",
            "scsi": {"scsi0": ":32,ssd=1", "scsi1": "vmdata:8"},
            "ide": {"ide2": "local:iso/debian.iso,media=cdrom"},
        }
    )
    gpu = DeviceAllocation("gpu", "pci", "0000:01:00.0", "pve1", "nic", "hostpci0", "mapping=nic")
    decision = Decision(request, "pve1", 120, storages={"scsi0": "fast", "scsi1": "vmdata"}, devices=(gpu,))
    assert create_parameters(request, decision) == {
        "vmid": 120,
        "name": "web",
        "pool": "lab",
        "memory": 1024,
        "tags": "a;b",
        "scsi0": "fast:32,ssd=1",
        "scsi1": "vmdata:8",
        "ide2": "local:iso/debian.iso,media=cdrom",
        "hostpci0": "mapping=nic",
    }


def test_device_never__takes_the_place_of_one_that_is_given() -> None:
    request = vm_request({"name": "web", "hostpci": {"hostpci0": "01:00.0"}})
    gpu = DeviceAllocation("gpu", "pci", "0000:01:00.0", "pve1", "nic", "hostpci0", "mapping=nic")
    with pytest.raises(InvalidRequest, match=r"hostpci0: .*gpu"):
        create_parameters(request, Decision(request, "pve1", 120, devices=(gpu,)))


def test_imported_disk_of_a_given_size__is_to_be_resized_afterwards() -> None:
    scsi = {"scsi0": {"import_from": "local:import/x.qcow2", "size": 20}, "scsi1": ":0,import-from=local:import/y.raw"}
    assert import_resizes(vm_request({"name": "web", "scsi": scsi})) == {"scsi0": 20 * GIB}


def test_traits__have_the_tags_that_proxmox_8_stores_as_they_were_given() -> None:
    assert traits_of({"tags": "b, A;b"})["tags"] == {"b", "A"}
