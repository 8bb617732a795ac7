# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is sent passes the validation of both releases of Proxmox VE, in every spelling that a playbook may use."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

import pytest
from simulated_cluster.schema import Schema, Validator

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Decision
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.drift import compare
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.request import (
    create_parameters,
    vm_request,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.table import VM_OPTIONS

EVERYTHING: dict[str, t.Any] = {
    "name": "web-1.lab",
    "pool": "lab",
    "acpi": False,
    "agent": "enabled=yes,fstrim_cloned_disks=true,freeze-fs-on-backup=0",
    "allow_ksm": False,
    "amd_sev": {"type": "snp", "kernel-hashes": True},
    "args": "-no-reboot",
    "audio": {"audio0": {"device": "ich9-intel-hda", "driver": "none"}},
    "autostart": True,
    "balloon": 512,
    "bios": "ovmf",
    "boot": "order=scsi0;ide2;net0",
    "bootdisk": "scsi0",
    "cicustom": "user=local:snippets/user.yml,meta=local:snippets/meta.yml",
    "cipassword": "secret",
    "citype": "nocloud",
    "ciupgrade": False,
    "ciuser": "debian",
    "cores": 4,
    "cpu": {"cputype": "host", "flags": ["-pcid", "+aes"], "hidden": True},
    "cpu_affinity": "0,5,8-11",
    "cpulimit": 1.5,
    "cpuunits": 200,
    "description": "two\nlines",
    "efidisk0": {"efitype": "4m", "pre_enrolled_keys": True, "format": "raw"},
    "freeze": False,
    "hookscript": "local:snippets/hook.pl",
    "hostpci": {"hostpci0": "mapping=gpu,pcie=on,rombar=off", "hostpci15": "0000:01:00.0;0000:01:00.1"},
    "hotplug": "network,disk,cpu",
    "hugepages": "2",
    "ide": {"ide0": "local:iso/debian-13.iso,media=cdrom", "ide1": "none,media=cdrom", "ide2": ":cloudinit"},
    "ipconfig": {"ipconfig0": "gw=192.0.2.1,ip=192.0.2.10/24", "ipconfig1": {"ip": "dhcp", "ip6": "auto"}},
    "keyboard": "de-ch",
    "kvm": True,
    "localtime": True,
    "machine": "q35,viommu=intel",
    "memory": 4096,
    "migrate_downtime": 0.25,
    "migrate_speed": 100,
    "nameservers": ["192.0.2.53", "2001:db8::53"],
    "net": {
        "net0": "virtio=bc:24:11:00:00:01,bridge=vmbr0,firewall=yes,tag=77,trunks=20-29;10",
        "net1": {"model": "e1000", "bridge": "vmbr1", "link_down": True, "mtu": 1400, "queues": 2, "rate": 1.25},
        "net31": "model=vmxnet3",
    },
    "numa": {"numa0": "cpus=0-1,hostnodes=0,memory=2048,policy=bind"},
    "numa_enabled": True,
    "onboot": True,
    "ostype": "l26",
    "parallel": {"parallel0": "/dev/parport0"},
    "protection": True,
    "reboot": False,
    "rng0": "/dev/urandom,max_bytes=2048",
    "sata": {"sata5": {"size": "512M", "storage": "vmdata", "ssd": "yes"}},
    "scsi": {
        "scsi0": {"size": 32, "storage_class": "fast", "discard": "on", "iothread": True, "iops_rd": 500, "mbps": 12.5},
        "scsi1": "vmdata:0,import-from=local:import/debian.qcow2,size=20G,cache=writeback",
        "scsi2": "vmdata:vm-101-disk-0,backup=0,serial=abc",
        "scsi30": ":0.5,ro=1,queues=4,vendor=ACME,product=Disk",
    },
    "scsihw": "virtio-scsi-single",
    "searchdomains": ["lab.example", "example"],
    "serial": {"serial0": "socket"},
    "shares": 2000,
    "smbios": "uuid=846e0be6-cab3-4324-a402-b760836362b7,base64=yes,family=QQ==",
    "sockets": 2,
    "sshkeys": "ssh-ed25519 AAAA+/= me@host\nssh-rsa AAAAB\n",
    "startdate": "2006-06-17T16:01:21",
    "startup": "order=1,up=30,down=60",
    "tablet": False,
    "tags": ["Web", "lab"],
    "tdf": True,
    "template": False,
    "tpmstate0": {"storage": "vmdata", "version": "2.0"},
    "usb": {"usb0": "spice", "usb1": "host=046d:c534,usb3=on", "usb13": {"mapping": "dongle"}},
    "vcpus": 4,
    "vga": "virtio,memory=64",
    "virtio": {"virtio15": "vmdata:8,format=qcow2,iothread=on"},
    "virtiofs": {"virtiofs9": "data,cache=always"},
    "vmstatestorage": "vmdata",
    "watchdog": "i6300esb,action=reset",
    "intel_tdx": "tdx,attestation=1",
    "ivshmem": {"size": 32, "name": "shm"},
    "spice_enhancements": "foldersharing=1,videostreaming=all",
}
STORAGES = {"scsi0": "fast1", "scsi30": "fast1", "ide2": "fast1", "efidisk0": "fast1"}


def refusals(version: str, method: str, path: str, values: dict[str, t.Any]) -> dict[str, str]:
    match = Schema.load(version).match(path)
    assert match is not None
    _coerced, errors = Validator({}).validate(match.methods[method]["parameters"], {**values, **match.params})
    return errors


def _known(version: str, parameters: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The parameters of options that a release has; others are refused before anything is sent."""
    newer = {option.api for option in VM_OPTIONS if option.since and option.since > (8, 4)}
    return {key: value for key, value in parameters.items() if version != "8.4" or key not in newer}


def test_example__has_every_option() -> None:
    assert {option.name for option in VM_OPTIONS} <= set(EVERYTHING)


@pytest.mark.parametrize("version", ["8.4", "9.2"])
def test_create__takes_what_is_sent(version: str) -> None:
    request = vm_request(EVERYTHING)
    parameters = create_parameters(request, Decision(request, "pve1", 120, storages=STORAGES))
    assert refusals(version, "POST", "/nodes/pve1/qemu", _known(version, parameters)) == {}


@pytest.mark.parametrize("version", ["8.4", "9.2"])
def test_update__takes_what_is_sent_for_a_vm_that_has_nothing_of_it(version: str) -> None:
    found = compare(vm_request(EVERYTHING).options, {}, storages=STORAGES)
    assert refusals(version, "PUT", "/nodes/pve1/qemu/120/config", _known(version, found.parameters)) == {}
    assert found.unappliable == {}


def test_vm_that_was_created__shows_no_drift_when_its_config_is_what_was_sent() -> None:
    request = vm_request(EVERYTHING)
    config = create_parameters(request, Decision(request, "pve1", 120, storages=STORAGES))
    made = {
        "ide2": "fast1:vm-120-cloudinit,media=cdrom",
        "efidisk0": "fast1:vm-120-disk-0,efitype=4m,ms-cert=2023,pre-enrolled-keys=1,size=4M",
        "tpmstate0": "vmdata:vm-120-disk-1,size=4M,version=v2.0",
        "sata5": "vmdata:vm-120-disk-2,size=512M,ssd=1",
        "scsi0": "fast1:vm-120-disk-3,discard=on,iops_rd=500,iothread=1,mbps=12.5,size=32G",
        "scsi1": "vmdata:vm-120-disk-4,cache=writeback,size=20G",
        "scsi2": "vmdata:vm-101-disk-0,backup=0,serial=abc,size=4G",
        "scsi30": "fast1:vm-120-disk-5,product=Disk,queues=4,ro=1,size=512M,vendor=ACME",
        "virtio15": "vmdata:vm-120-disk-6,iothread=1,size=8G",
        "cipassword": "**********",
    }
    assert compare(request.options, {**config, **made}).changes == {}
